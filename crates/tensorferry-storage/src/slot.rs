//! The words of a slot, which has one message of a ring. docs/WIRE.md shows the same table.

use crate::atomic::{AtomicU64, Ordering, fence};

/// The words of one slot: 256 bytes.
pub(crate) const SLOT_WORDS: usize = 32;
/// The words of a slot that references and payload share.
pub(crate) const SLOT_ROOM_WORDS: usize = SLOT_WORDS - word::ROOM;

/// Word indexes in a slot.
pub(crate) mod word {
    pub(crate) const STATE: usize = 0;
    pub(crate) const LENGTHS: usize = 1;
    /// References first, then the payload.
    pub(crate) const ROOM: usize = 2;
}

/// The tag of a slot's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tag {
    /// Free: the message of this lap has not been put yet.
    Free,
    /// A sender is writing.
    Writing,
    /// A message is there.
    Ready,
    /// A receiver is taking it.
    Claimed,
    /// The message was moved to a record. From here on the record has the message, and the slot is to be
    /// freed.
    Moved,
}

/// A slot's state word: `lap:48 | owner:8 | tag:8`. The owner is the member that moved the slot to Writing,
/// Claimed or Moved; only it, or a sweeper with proof of its death, moves the slot on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotState {
    pub(crate) lap: u64,
    pub(crate) owner: u8,
    pub(crate) tag: Tag,
}

impl SlotState {
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        let tag = match self.tag {
            Tag::Free => 0,
            Tag::Writing => 1,
            Tag::Ready => 2,
            Tag::Claimed => 3,
            Tag::Moved => 4,
        };
        self.lap << 16 | u64::from(self.owner) << 8 | tag
    }

    /// An unknown tag reads as Writing, so senders and receivers pass the slot by.
    #[inline]
    pub(crate) fn unpack(word: u64) -> Self {
        let bytes = word.to_le_bytes();
        let tag = match bytes[0] {
            0 => Tag::Free,
            2 => Tag::Ready,
            3 => Tag::Claimed,
            4 => Tag::Moved,
            _ => Tag::Writing,
        };
        Self { lap: word >> 16, owner: bytes[1], tag }
    }

    #[inline]
    pub(crate) fn free(lap: u64) -> Self {
        Self { lap, owner: 0, tag: Tag::Free }
    }

    /// Free once the message of this lap is gone. A lap has 48 bits in a state; one that comes from elsewhere
    /// in shared memory may be any number.
    #[inline]
    pub(crate) fn free_after(lap: u64) -> Self {
        Self::free(lap.wrapping_add(1))
    }

    #[inline]
    pub(crate) fn ready(lap: u64) -> Self {
        Self { lap, owner: 0, tag: Tag::Ready }
    }
}

/// One slot of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    words: &'a [AtomicU64; SLOT_WORDS],
}

/// What a slot says about its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotLengths {
    pub(crate) payload_len_bytes: usize,
    pub(crate) n_references: usize,
}

impl SlotLengths {
    /// `payload length:32 | references:32`.
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        (self.payload_len_bytes as u64) << 32 | self.n_references as u64
    }

    /// Cut to what a slot or a record can hold.
    #[inline]
    pub(crate) fn unpack(word: u64) -> Self {
        let n_references = usize::try_from(word & 0xffff_ffff).unwrap_or(0).min(SLOT_ROOM_WORDS);
        let room_bytes = (SLOT_ROOM_WORDS - n_references) * 8;
        let payload_len_bytes = usize::try_from(word >> 32).unwrap_or(0).min(room_bytes);
        Self { payload_len_bytes, n_references }
    }
}

impl<'a> Slot<'a> {
    /// The slot with these words.
    #[inline]
    pub(crate) fn new(words: &'a [AtomicU64; SLOT_WORDS]) -> Self {
        Self { words }
    }

    #[inline]
    pub(crate) fn state_word(&self) -> &'a AtomicU64 {
        &self.words[word::STATE]
    }

    #[inline]
    pub(crate) fn state(&self) -> SlotState {
        SlotState::unpack(self.state_word().load(Ordering::Acquire))
    }

    /// Changes the state from `from` to `to` if it is `from`. Sequentially consistent, because other
    /// processes sleep until the change happens, or have looked for the last time.
    #[inline]
    pub(crate) fn change(&self, from: SlotState, to: SlotState) -> bool {
        self.replace(from, to).is_ok()
    }

    /// As [`Slot::change`]; if the state is not `from`, returns the state that is there.
    #[inline]
    pub(crate) fn replace(&self, from: SlotState, to: SlotState) -> Result<(), SlotState> {
        self.state_word()
            .compare_exchange(from.pack(), to.pack(), Ordering::SeqCst, Ordering::Acquire)
            .map(drop)
            .map_err(SlotState::unpack)
    }

    #[inline]
    pub(crate) fn set_lengths(&self, lengths: SlotLengths) {
        self.words[word::LENGTHS].store(lengths.pack(), Ordering::Relaxed);
    }

    /// The lengths, cut to what a slot can hold.
    #[inline]
    pub(crate) fn lengths(&self) -> SlotLengths {
        SlotLengths::unpack(self.words[word::LENGTHS].load(Ordering::Relaxed))
    }

    /// The words for references and payload.
    #[inline]
    pub(crate) fn room(&self) -> &'a [AtomicU64] {
        &self.words[word::ROOM..]
    }

    /// The references of the message in this slot, if the slot has a committed message: Ready, or Claimed by
    /// a receiver. Retries while the slot changes, so that the references belong to one message.
    pub(crate) fn references(&self) -> Vec<u64> {
        for _ in 0..64 {
            let before = self.state();
            if !matches!(before.tag, Tag::Ready | Tag::Claimed) {
                return Vec::new();
            }
            let n_references = self.lengths().n_references;
            let references = self.room()[..n_references].iter().map(|w| w.load(Ordering::Acquire)).collect();
            fence(Ordering::Acquire);
            let after = self.state();
            if after.lap == before.lap && matches!(after.tag, Tag::Ready | Tag::Claimed) {
                return references;
            }
        }
        // Only living processes move a slot this fast, and they hold what its messages name.
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn states_survive_their_word(lap in 0_u64..1 << 48, owner: u8, which in 0..5_usize) {
            let tag = [Tag::Free, Tag::Writing, Tag::Ready, Tag::Claimed, Tag::Moved][which];
            let state = SlotState { lap, owner, tag };
            prop_assert_eq!(SlotState::unpack(state.pack()), state);
        }

        #[test]
        fn lengths_from_anywhere_stay_inside_the_slot(word: u64) {
            let words = [const { AtomicU64::new(0) }; SLOT_WORDS];
            words[word::LENGTHS].store(word, Ordering::Relaxed);
            let lengths = Slot::new(&words).lengths();
            prop_assert!(lengths.n_references * 8 + lengths.payload_len_bytes <= SLOT_ROOM_WORDS * 8);
        }
    }
}
