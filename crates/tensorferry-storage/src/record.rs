//! The words of a record: where a leased message stays until it is acknowledged.

use crate::atomic::{AtomicU64, Ordering};
use crate::slot::{SLOT_ROOM_WORDS, Slot, SlotLengths};

/// The words of one record: five lines.
pub(crate) const RECORD_WORDS: usize = 40;
/// The most records of a ring. A ring that claims more is recognised as garbage.
pub(crate) const MAX_RECORDS: usize = 1 << 16;

/// Word indexes in a record.
pub(crate) mod word {
    pub(crate) const STATE: usize = 0;
    pub(crate) const POSITION: usize = 1;
    pub(crate) const LENGTHS: usize = 2;
    /// References first, then the payload, as in a slot.
    pub(crate) const ROOM: usize = 3;
}

/// The tag of a record's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordTag {
    /// The record is free.
    Free,
    /// The owner copies a message from a slot that it has claimed. The record does not count yet.
    Filling,
    /// The owner has the message, until it acknowledges it or gives it back.
    Leased,
    /// The message was given back, or its owner died. It comes before the messages in the slots.
    Waiting,
    /// The owner takes a message that was waiting.
    Taking,
}

/// A record's state word: `serial:32 | deliveries:16 | owner:8 | tag:8`. The serial tells one use of the
/// record from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordState {
    pub(crate) serial: u32,
    pub(crate) deliveries: u16,
    pub(crate) owner: u8,
    pub(crate) tag: RecordTag,
}

impl RecordState {
    pub(crate) fn pack(self) -> u64 {
        let tag = match self.tag {
            RecordTag::Free => 0,
            RecordTag::Filling => 1,
            RecordTag::Leased => 2,
            RecordTag::Waiting => 3,
            RecordTag::Taking => 4,
        };
        u64::from(self.serial) << 32 | u64::from(self.deliveries) << 16 | u64::from(self.owner) << 8 | tag
    }

    /// An unknown tag reads as Filling, so every process passes the record by.
    pub(crate) fn unpack(word: u64) -> Self {
        let bytes = word.to_le_bytes();
        let tag = match bytes[0] {
            0 => RecordTag::Free,
            2 => RecordTag::Leased,
            3 => RecordTag::Waiting,
            4 => RecordTag::Taking,
            _ => RecordTag::Filling,
        };
        Self {
            serial: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            deliveries: u16::from_le_bytes([bytes[2], bytes[3]]),
            owner: bytes[1],
            tag,
        }
    }

    /// The record's next use.
    pub(crate) fn freed(self) -> Self {
        Self { serial: self.serial.wrapping_add(1), deliveries: 0, owner: 0, tag: RecordTag::Free }
    }

    /// The state with this owner and this tag.
    pub(crate) fn owned(self, owner: u8, tag: RecordTag) -> Self {
        Self { owner, tag, ..self }
    }

    /// The state after one more delivery, leased by its owner.
    pub(crate) fn delivered(self) -> Self {
        Self { deliveries: self.deliveries.saturating_add(1), tag: RecordTag::Leased, ..self }
    }

    /// The state without an owner, to be delivered again.
    pub(crate) fn waiting(self) -> Self {
        Self { owner: 0, tag: RecordTag::Waiting, ..self }
    }
}

/// One record of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    words: &'a [AtomicU64; RECORD_WORDS],
}

impl<'a> Record<'a> {
    pub(crate) fn new(words: &'a [AtomicU64; RECORD_WORDS]) -> Self {
        Self { words }
    }

    pub(crate) fn state(&self) -> RecordState {
        RecordState::unpack(self.words[word::STATE].load(Ordering::SeqCst))
    }

    pub(crate) fn change(&self, from: RecordState, to: RecordState) -> bool {
        self.words[word::STATE]
            .compare_exchange(from.pack(), to.pack(), Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
    }

    /// Clears the position: the record has no message. Called by the owner of a record that is being filled,
    /// or by its sweeper, before the record is free. Otherwise the next owner, killed before it has filled
    /// the record, would seem to have moved the old message there.
    pub(crate) fn forget(&self) {
        self.words[word::POSITION].store(u64::MAX, Ordering::SeqCst);
    }

    /// Where in the ring the message was; `u64::MAX` where there is none.
    pub(crate) fn position(&self) -> u64 {
        self.words[word::POSITION].load(Ordering::Acquire)
    }

    /// Copies the message of a slot. Called by the owner of both.
    pub(crate) fn fill(&self, position: u64, slot: &Slot<'_>) {
        self.words[word::POSITION].store(position, Ordering::Relaxed);
        self.words[word::LENGTHS].store(slot.lengths().pack(), Ordering::Relaxed);
        for (to, from) in self.room().iter().zip(slot.room()) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The lengths, cut to what a record can hold.
    pub(crate) fn lengths(&self) -> SlotLengths {
        SlotLengths::unpack(self.words[word::LENGTHS].load(Ordering::Relaxed))
    }

    #[cfg(test)]
    pub(crate) fn set_lengths(&self, lengths: SlotLengths) {
        self.words[word::LENGTHS].store(lengths.pack(), Ordering::Relaxed);
    }

    /// The words for references and payload.
    pub(crate) fn room(&self) -> &'a [AtomicU64] {
        &self.words[word::ROOM..word::ROOM + SLOT_ROOM_WORDS]
    }

    /// The references of the message in this record, if it has one or may have one: a message that is being
    /// filled in counts too.
    pub(crate) fn references(&self) -> Vec<u64> {
        if self.state().tag == RecordTag::Free {
            return Vec::new();
        }
        self.room()[..self.lengths().n_references].iter().map(|word| word.load(Ordering::Acquire)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn states_survive_their_word(serial: u32, deliveries: u16, owner: u8, which in 0..5_usize) {
            use RecordTag::{Filling, Free, Leased, Taking, Waiting};
            let tag = [Free, Filling, Leased, Waiting, Taking][which];
            let state = RecordState { serial, deliveries, owner, tag };
            prop_assert_eq!(RecordState::unpack(state.pack()), state);
        }
    }
}
