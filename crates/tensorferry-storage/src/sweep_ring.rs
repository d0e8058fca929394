//! After a death: the dead member's slots, records and roles in a ring. [`crate::sweep`] has the whole order.

use tensorferry_domain::{Member, planted};

use crate::atomic::{AtomicU64, Ordering};
use crate::block::Block;
use crate::header::SUSPECT;
use crate::record::RecordTag;
use crate::ring_layout::{RingWords, SlotState, Tag};

/// Ends what the dead member was doing in this ring. Another sweeper can repeat every step from the
/// beginning.
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
    // After the slots: from here on, a record that is still being filled is known not to have its message.
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
        record.change(state, next);
    }
    if ring.shape().n_records > 0 {
        // Always counted, whatever was found of the dead member: another sweeper may have died just before it
        // counted, or the dead member itself. Counting twice does no harm.
        ring.returns().fetch_add(1, Ordering::SeqCst);
    }
    let bit = dead.bit();
    for (members, deaths, gone) in [
        (ring.senders(), ring.sender_deaths(), ring.senders_gone()),
        (ring.receivers(), ring.receiver_deaths(), ring.receivers_gone()),
    ] {
        if members.load(Ordering::SeqCst) & bit != 0 {
            // Counted before the role ends, so that every process that sees it ended knows why. Counting
            // twice does no harm.
            deaths.fetch_add(1, Ordering::SeqCst);
            gone.fetch_add(1, Ordering::SeqCst);
            suspect(members, dead);
        }
    }
    wake_all(&ring);
}

/// Wakes every process that waits at this ring, whatever its flags say.
pub(crate) fn wake_all(ring: &RingWords<'_>) {
    if planted("sweep-wakes-nobody") {
        return;
    }
    ring.not_empty().wake_sleepers();
    ring.not_full().wake_sleepers();
}

/// Completes a lease: the dead member had moved the message of a slot to a record, and died before it said so
/// in the record.
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

#[cfg(test)]
mod tests {
    use std::mem::ManuallyDrop;
    use std::sync::Arc;

    use super::*;
    use crate::record::RecordState;
    use crate::{Consumers, Deadline, Heap, OutgoingHandles, Ring};
    use tensorferry_domain::Domain;

    /// The sweeper that takes over finds nothing of the dead member in the ring any more.
    #[test]
    fn what_a_sweeper_returned_before_it_died_itself_is_delivered() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = Arc::new(Ring::create_with_leases(&heap, 4, 2, 0).unwrap());
        let words = RingWords::of(ring.attachment().block()).unwrap();
        ring.put(b"x", OutgoingHandles::new(), Deadline::Now).unwrap();
        let _lost = ManuallyDrop::new(ring.take_leased(Deadline::Now).unwrap());
        let victim = Member { slot: 9, epoch: 1 };
        let state = words.record(0).state();
        assert!(words.record(0).change(state, RecordState { owner: victim.slot, ..state }));
        words.receivers().fetch_or(victim.bit(), Ordering::SeqCst);
        // From here on this receiver looks through the records only when something was counted.
        assert!(ring.take(Consumers::Multi, Deadline::Now).is_err());
        let leased = words.record(0).state();
        assert!(words.record(0).change(leased, leased.waiting()));
        suspect(words.receivers(), victim);
        sweep_ring(ring.attachment().block(), victim);
        assert_eq!(ring.take(Consumers::Multi, Deadline::Now).unwrap().payload[..], *b"x");
    }
}
