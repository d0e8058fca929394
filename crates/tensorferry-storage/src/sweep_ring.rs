//! After a death: what the dead one was doing in a ring, and its bits. [`crate::sweep`] has the whole order.

use tensorferry_domain::{Member, planted};

use crate::atomic::{AtomicU64, Ordering};
use crate::block::Block;
use crate::header::SUSPECT;
use crate::record::RecordTag;
use crate::ring_layout::{RingWords, SlotState, Tag};

/// Ends what the dead one was doing in this ring. Every step can be repeated from the beginning by another sweeper.
pub(crate) fn sweep_ring(block: &Block, dead: Member) {
    let Some(ring) = RingWords::of(block) else { return };
    for (index, slot) in ring.slots().enumerate() {
        let state = slot.state();
        if state.owner != dead.slot {
            continue;
        }
        let next = match state.tag {
            Tag::Writing if planted("sweep-skips-writing") => continue,
            Tag::Writing => SlotState::free(state.lap + 1),
            Tag::Claimed => SlotState::ready(state.lap),
            Tag::Moved => {
                count_lease(&ring, index, state);
                SlotState::free(state.lap + 1)
            }
            Tag::Free | Tag::Ready => continue,
        };
        slot.change(state, next);
    }
    // After the slots: from here on what is being filled is known not to count.
    let mut returned = false;
    for record in ring.records() {
        let state = record.state();
        if state.owner != dead.slot {
            continue;
        }
        let next = match state.tag {
            RecordTag::Leased if planted("sweep-forgets-leases") => continue,
            RecordTag::Filling => state.freed(),
            RecordTag::Leased | RecordTag::Taking => state.waiting(),
            RecordTag::Free | RecordTag::Waiting => continue,
        };
        returned |= record.change(state, next);
    }
    let bit = dead.bit();
    let mut attached = false;
    for (members, deaths, gone) in [
        (ring.senders(), ring.sender_deaths(), ring.senders_gone()),
        (ring.receivers(), ring.receiver_deaths(), ring.receivers_gone()),
    ] {
        if members.load(Ordering::SeqCst) & bit != 0 {
            attached = true;
            // Counted before the role ends, so that whoever sees it ended knows why. Counting twice does no harm.
            deaths.fetch_add(1, Ordering::SeqCst);
            gone.fetch_add(1, Ordering::SeqCst);
            suspect(members, dead);
        }
    }
    if attached || returned {
        // Also for what the dead one gave back before it could count it.
        ring.returns().fetch_add(1, Ordering::SeqCst);
    }
    wake_all(&ring);
}

/// Wakes everybody who waits at this ring, whatever its flags say.
pub(crate) fn wake_all(ring: &RingWords<'_>) {
    if planted("sweep-wakes-nobody") {
        return;
    }
    ring.not_empty().wake_sleepers();
    ring.not_full().wake_sleepers();
}

/// The dead one had moved the message of a slot to a record and died before it said so in the record.
fn count_lease(ring: &RingWords<'_>, index: usize, slot: SlotState) {
    let n_slots = ring.n_slots() as u64;
    let position = slot.lap.wrapping_mul(n_slots).wrapping_add(index as u64);
    for record in ring.records() {
        let state = record.state();
        if state.tag == RecordTag::Filling && state.owner == slot.owner && record.position() == position {
            record.change(state, state.delivered());
        }
    }
}

/// Turns the dead member's bit into SUSPECT.
pub(crate) fn suspect(word: &AtomicU64, dead: Member) {
    let mark = if planted("sweep-suspects-nothing") { 0 } else { SUSPECT };
    let turn = |bits: u64| (bits & dead.bit() != 0).then_some((bits | mark) & !dead.bit());
    let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, turn);
}
