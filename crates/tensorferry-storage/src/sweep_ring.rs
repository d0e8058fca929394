//! After a death: the dead member's slots, records and roles in a ring. [`crate::sweep`] has the whole order.

use tensorferry_domain::{Member, planted};

use crate::atomic::{AtomicU64, Ordering};
use crate::block::Block;
use crate::header::SUSPECT;
use crate::record::RecordTag;
use crate::ring_layout::RingWords;
use crate::slot::{SlotState, Tag};

/// Ends what the dead member was doing in this ring. Another sweeper can repeat every step from the
/// beginning. It is not counted as a death when the member had ended in order: it may have been a sender in a
/// message that is still on its way, or have had an end that nobody drops.
pub(crate) fn sweep_ring(block: &Block, dead: Member, in_order: bool) {
    let Some(ring) = RingWords::of(block) else { return };
    for (index, slot) in ring.slots().enumerate() {
        let state = slot.state();
        if state.owner != dead.slot {
            continue;
        }
        let next = match state.tag {
            Tag::Writing if planted("sweep-skips-writing") => continue,
            Tag::Writing => SlotState::free_after(state.lap),
            Tag::Claimed => SlotState::ready(state.lap),
            Tag::Moved => {
                count_lease(&ring, index, state);
                SlotState::free_after(state.lap)
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
            RecordTag::Filling => {
                record.forget();
                state.freed()
            }
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
            if !in_order {
                deaths.fetch_add(1, Ordering::SeqCst);
            }
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
    use crate::lease::Kept;
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
        sweep_ring(ring.attachment().block(), victim, false);
        assert_eq!(ring.take(Consumers::Multi, Deadline::Now).unwrap().payload[..], *b"x");
    }

    /// Two threads of the victim lease at once, on a fresh ring. One has claimed record 0 and is still
    /// reading its message. The other one has just moved the message of position 0 to record 1.
    #[test]
    fn a_record_that_was_never_filled_is_not_taken_for_the_one_of_position_0() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = Arc::new(Ring::create_with_leases(&heap, 4, 2, 0).unwrap());
        let words = RingWords::of(ring.attachment().block()).unwrap();
        ring.put(b"zero", OutgoingHandles::new(), Deadline::Now).unwrap();
        ring.put(b"one", OutgoingHandles::new(), Deadline::Now).unwrap();
        let victim = Member { slot: 9, epoch: 1 };
        words.receivers().fetch_or(victim.bit(), Ordering::SeqCst);
        let claim = |index: usize| {
            let claimed = SlotState { lap: 0, owner: victim.slot, tag: Tag::Claimed };
            assert!(words.slot(index).change(SlotState::ready(0), claimed));
            claimed
        };
        let filling = |index: usize| {
            let state = words.record(index).state();
            let filling = state.owned(victim.slot, RecordTag::Filling);
            assert!(words.record(index).change(state, filling));
        };
        // Thread B: slot 0 claimed. Thread A: slot 1 claimed, record 0. Thread B: record 1, filled, slot
        // moved. Killed.
        let zero = claim(0);
        let _one = claim(1);
        filling(0);
        filling(1);
        words.record(1).fill(0, &words.slot(0));
        assert!(words.slot(0).change(zero, SlotState { tag: Tag::Moved, ..zero }));
        sweep_ring(ring.attachment().block(), victim, false);
        let mut got = Vec::new();
        while let Ok(message) = ring.take(Consumers::Multi, Deadline::Now) {
            got.push(message.payload.to_vec());
        }
        assert_eq!(got, [b"zero".to_vec(), b"one".to_vec()]);
    }

    /// One process is killed just before it moves a message. The next one is killed just after it has moved
    /// it, while another of its threads has claimed the record that the first one had filled.
    #[test]
    fn a_message_is_not_in_two_records() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = Arc::new(Ring::create_with_leases(&heap, 4, 2, 0).unwrap());
        let words = RingWords::of(ring.attachment().block()).unwrap();
        for text in [b"zero", b"one.", b"two."] {
            ring.put(text, OutgoingHandles::new(), Deadline::Now).unwrap();
        }
        // Position 0 is taken, so that nothing is about zeroes.
        assert_eq!(ring.take(Consumers::Multi, Deadline::Now).unwrap().payload[..], *b"zero");
        let claim = |index: usize, victim: Member| {
            let claimed = SlotState { lap: 0, owner: victim.slot, tag: Tag::Claimed };
            assert!(words.slot(index).change(SlotState::ready(0), claimed));
            claimed
        };
        let filling = |index: usize, victim: Member| {
            let state = words.record(index).state();
            assert!(words.record(index).change(state, state.owned(victim.slot, RecordTag::Filling)));
        };
        let first = Member { slot: 9, epoch: 1 };
        words.receivers().fetch_or(first.bit(), Ordering::SeqCst);
        claim(1, first);
        filling(0, first);
        words.record(0).fill(1, &words.slot(1));
        sweep_ring(ring.attachment().block(), first, false);
        // The next one: thread B has slot 1, thread A has slot 2 and record 0; B fills record 1.
        let second = Member { slot: 10, epoch: 1 };
        words.receivers().fetch_or(second.bit(), Ordering::SeqCst);
        let one = claim(1, second);
        let _two = claim(2, second);
        filling(0, second);
        filling(1, second);
        words.record(1).fill(1, &words.slot(1));
        assert!(words.slot(1).change(one, SlotState { tag: Tag::Moved, ..one }));
        sweep_ring(ring.attachment().block(), second, false);
        let mut got = Vec::new();
        while let Ok(message) = ring.take(Consumers::Multi, Deadline::Now) {
            got.push(String::from_utf8(message.payload.to_vec()).unwrap());
        }
        assert_eq!(got, ["one.", "two."]);
    }

    #[test]
    fn a_record_that_was_given_back_unused_has_no_message() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = Ring::create_with_leases(&heap, 4, 2, 0).unwrap();
        let words = RingWords::of(ring.attachment().block()).unwrap();
        let mut kept = Kept::default();
        assert!(kept.claim_record(&words, 3));
        words.record(0).fill(7, &words.slot(0));
        kept.let_go(&words);
        assert_eq!(words.record(0).position(), u64::MAX);
    }
}
