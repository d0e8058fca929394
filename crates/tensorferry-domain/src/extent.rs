//! The extent table: which member owns each extent, and how much of it is populated.
//!
//! An entry's owner word is claimed by compare-and-swap. Extents are claimed in *runs*: one extent for most
//! purposes, several adjacent ones for a block that is larger than one. A run keeps its shape for the life of
//! the domain, because other members may read its headers at any moment. When its owner leaves or dies, the
//! run is released whole, and the next member that claims it rebuilds its free lists from those headers.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{extent, header};
use crate::{Domain, Member};

/// The owner of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtentOwner {
    /// No member. The next one that needs memory may claim it.
    Nobody,
    /// A member.
    Member(Member),
    /// The extent belongs to a run that starts at a lower index.
    Continuation,
}

/// Adjacent extents that are owned, released and taken over as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtentRun {
    /// Index of the first extent.
    pub first: usize,
    /// The number of extents, at least 1.
    pub n_extents: usize,
}

const KIND_MEMBER: u8 = 1;
const KIND_CONTINUATION: u8 = 2;

impl ExtentOwner {
    /// `epoch:32 | unused:16 | slot:8 | kind:8`; zero is nobody.
    pub(crate) fn pack(self) -> u64 {
        match self {
            Self::Nobody => 0,
            Self::Member(member) => {
                u64::from(member.epoch) << 32 | u64::from(member.slot) << 8 | u64::from(KIND_MEMBER)
            }
            Self::Continuation => u64::from(KIND_CONTINUATION),
        }
    }

    #[inline]
    pub(crate) fn unpack(word: u64) -> Self {
        let bytes = word.to_le_bytes();
        match bytes[0] {
            KIND_MEMBER => Self::Member(Member {
                slot: bytes[1],
                epoch: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            }),
            KIND_CONTINUATION => Self::Continuation,
            _ => Self::Nobody,
        }
    }
}

impl Domain {
    /// The owner of extent `index`; [`ExtentOwner::Nobody`] if there is no such extent.
    #[must_use]
    #[inline]
    pub fn extent_owner(&self, index: usize) -> ExtentOwner {
        // Sequentially consistent for a member that returns a block: it sets the return flag, then asks for
        // the extent's owner. An owner gives the extent up, then asks whether a block was returned. At least
        // one of the two sees the other.
        self.owner_word(index)
            .map_or(ExtentOwner::Nobody, |word| ExtentOwner::unpack(word.load(Ordering::SeqCst)))
    }

    /// The run that starts at extent `first`, whichever member owns it; `None` where no run starts.
    #[must_use]
    pub fn run_starting_at(&self, first: usize) -> Option<ExtentRun> {
        let n_extents = self.run_len(first);
        (n_extents > 0 && self.extent_owner(first) != ExtentOwner::Continuation)
            .then_some(ExtentRun { first, n_extents })
    }

    /// The index from which on no extent was ever used. Scans stop there.
    #[must_use]
    pub fn extents_high_water(&self) -> usize {
        let mark = self.header()[header::EXTENTS_HIGH_WATER].load(Ordering::Acquire);
        usize::try_from(mark).unwrap_or(usize::MAX).min(self.layout().n_extents)
    }

    /// The bytes that all members have populated.
    #[must_use]
    pub fn populated_bytes(&self) -> u64 {
        self.populated_bytes_in(0..self.extents_high_water())
    }

    /// The populated bytes of one run.
    #[must_use]
    pub fn populated_bytes_of(&self, run: ExtentRun) -> u64 {
        self.populated_bytes_in(run.first..run.first.saturating_add(run.n_extents))
    }

    fn populated_bytes_in(&self, extents: Range<usize>) -> u64 {
        extents
            .filter_map(|index| self.extent_entry(index))
            .map(|entry| entry[extent::POPULATED_BYTES].load(Ordering::SeqCst))
            .fold(0, u64::saturating_add)
    }

    pub(crate) fn is_unused(&self, index: usize) -> bool {
        self.run_len(index) == 0 && self.extent_owner(index) == ExtentOwner::Nobody
    }

    /// The length of the run that starts at `first`; 0 where none starts. A length beyond the end of the
    /// table is cut.
    pub(crate) fn run_len(&self, first: usize) -> usize {
        let claimed =
            self.extent_entry(first).map_or(0, |entry| entry[extent::RUN_LEN].load(Ordering::SeqCst));
        usize::try_from(claimed).unwrap_or(0).min(self.layout().n_extents.saturating_sub(first))
    }

    #[inline]
    pub(crate) fn owner_word(&self, index: usize) -> Option<&AtomicU64> {
        self.extent_entry(index).map(|entry| &entry[extent::OWNER])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_survive_their_word() {
        let member = Member { slot: 62, epoch: u32::MAX };
        for owner in [ExtentOwner::Nobody, ExtentOwner::Member(member), ExtentOwner::Continuation] {
            assert_eq!(ExtentOwner::unpack(owner.pack()), owner);
        }
    }
}
