//! The words of a ring in shared memory. docs/WIRE.md shows the same table.

use std::fmt;
use std::hint::cold_path;

use tensorferry_domain::WaitWord;

use crate::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::block::Block;
use crate::record::{MAX_RECORDS, RECORD_WORDS, Record, RecordTag};
use crate::slot::{SLOT_WORDS, Slot, Tag};

/// The most slots of a ring. A ring that claims more is recognised as garbage.
pub(crate) const MAX_SLOTS: usize = 1 << 20;

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"RING\x01\0\0\0");

/// Word indexes in a ring.
pub(crate) mod word {
    pub(crate) const MAGIC: usize = 0;
    pub(crate) const N_SLOTS: usize = 1;
    pub(crate) const TYPE_HASH: usize = 2;
    pub(crate) const CLOSED: usize = 3;
    pub(crate) const SENDERS: usize = 4;
    pub(crate) const RECEIVERS: usize = 5;
    pub(crate) const SENDER_DEATHS: usize = 6;
    pub(crate) const N_RECORDS: usize = 7;
    pub(crate) const TAIL: usize = 8;
    pub(crate) const RECEIVER_DEATHS: usize = 9;
    pub(crate) const SENDERS_GONE: usize = 10;
    pub(crate) const RECEIVERS_GONE: usize = 11;
    pub(crate) const LOST: usize = 12;
    pub(crate) const HEAD: usize = 16;
    /// In the receivers' line, because they read both.
    pub(crate) const RETURNS: usize = 17;
    /// 32-bit futex words lie in lines of their own.
    pub(crate) const NOT_EMPTY: usize = 24;
    pub(crate) const NOT_FULL: usize = 32;
    pub(crate) const SLOTS: usize = 40;
}

/// How large a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RingShape {
    pub(crate) n_slots: usize,
    pub(crate) n_records: usize,
    /// By how many bits a position is shifted to get its lap, or [`NO_SHIFT`]. Known beforehand, because
    /// several slots are looked up for each message.
    lap_shift: u32,
}

/// The number of slots is no power of two.
const NO_SHIFT: u32 = u32::MAX;

impl RingShape {
    pub(crate) fn new(n_slots: usize, n_records: usize) -> Self {
        let lap_shift = if n_slots.is_power_of_two() { n_slots.trailing_zeros() } else { NO_SHIFT };
        Self { n_slots, n_records, lap_shift }
    }

    /// How many words a ring of this shape needs.
    #[inline]
    pub(crate) fn n_words(self) -> usize {
        self.records_at() + self.n_records * RECORD_WORDS
    }

    #[inline]
    pub(crate) fn records_at(self) -> usize {
        word::SLOTS + self.n_slots * SLOT_WORDS
    }

    /// The slot and the lap of a position.
    #[inline]
    pub(crate) fn slot_and_lap(self, position: u64) -> (usize, u64) {
        let n_slots = self.n_slots as u64;
        let (lap, index) = if self.lap_shift == NO_SHIFT {
            cold_path();
            (position / n_slots, position % n_slots)
        } else {
            (position >> self.lap_shift, position & (n_slots - 1))
        };
        (usize::try_from(index).unwrap_or(0), lap)
    }

    pub(crate) fn is_possible(self) -> bool {
        (1..=MAX_SLOTS).contains(&self.n_slots) && self.n_records <= MAX_RECORDS
    }
}

/// The words of one ring.
#[derive(Clone, Copy)]
pub(crate) struct RingWords<'a> {
    front: &'a [AtomicU64; word::SLOTS],
    slots: &'a [[AtomicU64; SLOT_WORDS]],
    records: &'a [[AtomicU64; RECORD_WORDS]],
    not_empty: &'a AtomicU32,
    not_full: &'a AtomicU32,
    shape: RingShape,
}

impl fmt::Debug for RingWords<'_> {
    /// Reads no word: there are many, some of them are futexes, and this process may be a child of the one
    /// that holds the ring.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingWords").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<'a> RingWords<'a> {
    /// The ring in this block; `None` when the block holds no ring.
    pub(crate) fn of(block: &'a Block) -> Option<Self> {
        let words = block.words();
        let number = |index: usize| usize::try_from(words.get(index)?.load(Ordering::Relaxed)).ok();
        let shape = RingShape::new(number(word::N_SLOTS)?, number(word::N_RECORDS)?);
        let magic = words.get(word::MAGIC)?.load(Ordering::Acquire);
        let is_ring = magic == MAGIC && shape.is_possible();
        is_ring.then(|| Self::with_shape(block, shape)).flatten()
    }

    /// The ring in a block that was found before to have this shape. Only for the process that holds the
    /// block.
    pub(crate) fn with_shape(block: &'a Block, shape: RingShape) -> Option<Self> {
        let n_words32 = (word::NOT_FULL - word::NOT_EMPTY) * 2 + 1;
        if let Some((words, [not_empty, .., not_full])) = block.words_with_futexes(word::NOT_EMPTY, n_words32)
            && let Some((front, rest)) = words.split_first_chunk()
            && let Some((slots, rest)) = rest.split_at_checked(shape.n_slots * SLOT_WORDS)
            && let Some(records) = rest.get(..shape.n_records * RECORD_WORDS)
        {
            let (slots, records) = (slots.as_chunks().0, records.as_chunks().0);
            return Some(Self { front, slots, records, not_empty, not_full, shape });
        }
        cold_path();
        None
    }

    /// Writes an empty ring into a block that no other process knows yet.
    pub(crate) fn format(block: &Block, shape: RingShape, type_hash: u64) {
        for word in block.words() {
            word.store(0, Ordering::Relaxed);
        }
        let records = block.words().get(shape.records_at()..).unwrap_or(&[]);
        for record in records.as_chunks::<RECORD_WORDS>().0.iter().take(shape.n_records) {
            Record::new(record).forget();
        }
        for (index, value) in [
            (word::N_SLOTS, shape.n_slots as u64),
            (word::N_RECORDS, shape.n_records as u64),
            (word::TYPE_HASH, type_hash),
            (word::MAGIC, MAGIC),
        ] {
            if let Some(word) = block.words().get(index) {
                word.store(value, Ordering::Release);
            }
        }
    }

    /// Whether a message waits to be taken.
    pub(crate) fn has_messages(&self) -> bool {
        self.slots().any(|slot| slot.state().tag == Tag::Ready)
            || self.records().any(|record| record.state().tag == RecordTag::Waiting)
    }

    #[inline]
    pub(crate) fn n_slots(&self) -> usize {
        self.slots.len()
    }

    #[inline]
    pub(crate) fn shape(&self) -> RingShape {
        self.shape
    }

    pub(crate) fn type_hash(&self) -> u64 {
        self.front[word::TYPE_HASH].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn closed(&self) -> &'a AtomicU64 {
        &self.front[word::CLOSED]
    }

    #[inline]
    pub(crate) fn senders(&self) -> &'a AtomicU64 {
        &self.front[word::SENDERS]
    }

    #[inline]
    pub(crate) fn receivers(&self) -> &'a AtomicU64 {
        &self.front[word::RECEIVERS]
    }

    /// How often a member has ceased to send, by leaving or by dying.
    #[inline]
    pub(crate) fn senders_gone(&self) -> &'a AtomicU64 {
        &self.front[word::SENDERS_GONE]
    }

    /// How many members that could send have died.
    pub(crate) fn sender_deaths(&self) -> &'a AtomicU64 {
        &self.front[word::SENDER_DEATHS]
    }

    /// How often a member has ceased to receive, by leaving or by dying.
    #[inline]
    pub(crate) fn receivers_gone(&self) -> &'a AtomicU64 {
        &self.front[word::RECEIVERS_GONE]
    }

    /// How many members that could receive have died.
    pub(crate) fn receiver_deaths(&self) -> &'a AtomicU64 {
        &self.front[word::RECEIVER_DEATHS]
    }

    /// 1 since a message may have been discarded, because nobody was left to receive it.
    #[inline]
    pub(crate) fn lost(&self) -> &'a AtomicU64 {
        &self.front[word::LOST]
    }

    #[inline]
    pub(crate) fn tail(&self) -> &'a AtomicU64 {
        &self.front[word::TAIL]
    }

    #[inline]
    pub(crate) fn head(&self) -> &'a AtomicU64 {
        &self.front[word::HEAD]
    }

    /// The count of messages that were given back to records.
    #[inline]
    pub(crate) fn returns(&self) -> &'a AtomicU64 {
        &self.front[word::RETURNS]
    }

    #[inline]
    pub(crate) fn not_empty(&self) -> WaitWord<'a> {
        WaitWord::new(self.not_empty)
    }

    #[inline]
    pub(crate) fn not_full(&self) -> WaitWord<'a> {
        WaitWord::new(self.not_full)
    }

    /// Slot `index`, below `n_slots`.
    #[inline]
    pub(crate) fn slot(&self, index: usize) -> Slot<'a> {
        static NOWHERE: [AtomicU64; SLOT_WORDS] = [const { AtomicU64::new(0) }; SLOT_WORDS];
        if let Some(words) = self.slots.get(index) {
            return Slot::new(words);
        }
        cold_path();
        Slot::new(&NOWHERE)
    }

    pub(crate) fn slots(&self) -> impl Iterator<Item = Slot<'a>> + use<'a> {
        self.slots.iter().map(Slot::new)
    }

    /// Record `index`, below `n_records`.
    #[inline]
    pub(crate) fn record(&self, index: usize) -> Record<'a> {
        static NOWHERE: [AtomicU64; RECORD_WORDS] = [const { AtomicU64::new(0) }; RECORD_WORDS];
        Record::new(self.records.get(index).unwrap_or(&NOWHERE))
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'a>> + use<'a> {
        self.records.iter().map(Record::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slot::SlotState;
    use crate::{Consumers, Deadline, Heap, OutgoingHandles, Ring, RingTakeError};

    /// At a million messages a second, a ring of one slot gets there in twelve days.
    #[test]
    fn a_ring_goes_on_after_a_trillion_laps() {
        let heap = Heap::create(tensorferry_domain::Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = Ring::create(&heap, 1, 0).unwrap();
        let words = RingWords::of(ring.attachment().block()).unwrap();
        let lap = (1 << 40) - 2;
        words.slot(0).state_word().store(SlotState::free(lap).pack(), Ordering::SeqCst);
        words.head().store(lap, Ordering::SeqCst);
        words.tail().store(lap, Ordering::SeqCst);
        for number in 0..4_u8 {
            ring.put(&[number], OutgoingHandles::new(), Deadline::Now).unwrap();
            assert_eq!(ring.take(Consumers::Multi, Deadline::Now).unwrap().payload[..], [number]);
        }
        assert_eq!(words.slot(0).state(), SlotState::free(lap + 4));
    }

    #[test]
    fn laps_that_somebody_wrote_over_are_no_reason_to_look_for_ever() {
        let heap = Heap::create(tensorferry_domain::Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = std::sync::Arc::new(Ring::create_with_leases(&heap, 4, 1, 0).unwrap());
        let words = RingWords::of(ring.attachment().block()).unwrap();
        for slot in words.slots() {
            slot.state_word().store(SlotState::free(1 << 40).pack(), Ordering::SeqCst);
        }
        for consumers in [Consumers::Multi, Consumers::Single] {
            assert!(matches!(ring.take(consumers, Deadline::Now), Err(RingTakeError::Empty)));
        }
        assert!(matches!(ring.take_leased(Deadline::Now), Err(RingTakeError::Empty)));
        let moved = words.head().load(Ordering::SeqCst);
        assert!(moved <= 1 << 20, "{moved} positions");
    }

    #[test]
    fn positions_that_somebody_wrote_over_are_no_reason_to_panic() {
        let heap = Heap::create(tensorferry_domain::Domain::builder().address_space_bytes(64 << 20)).unwrap();
        // Enough slots that the lap of the last position fits into a slot's state.
        const N_SLOTS: usize = 1 << 16;
        let ring = Ring::create(&heap, N_SLOTS, 0).unwrap();
        let words = RingWords::of(ring.attachment().block()).unwrap();
        for tail in [0, 3, u64::MAX - 2, u64::MAX] {
            let (index, lap) = words.shape().slot_and_lap(tail);
            words.slot(index).state_word().store(SlotState::ready(lap).pack(), Ordering::SeqCst);
            for head in [0, 1, u64::MAX - 1, u64::MAX] {
                words.head().store(head, Ordering::SeqCst);
                words.tail().store(tail, Ordering::SeqCst);
                assert!(ring.len() <= N_SLOTS, "head {head}, tail {tail}");
            }
        }
    }
}
