//! The extent table: who may allocate where, and how much of it is populated.
//!
//! An entry's owner word is claimed by compare-and-swap. Extents are claimed in *runs*: one extent for most
//! purposes, several in a row for a block that is larger than one. A run keeps its shape for the life of the
//! domain, because other members may be reading its headers at any moment: when its owner leaves or dies, it
//! is released whole, and whoever claims it next rebuilds its free lists from those headers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{extent, header};
use crate::{Domain, Member};

/// Who owns an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExtentOwner {
    /// Nobody: the next who needs memory may claim it.
    Nobody,
    /// A member.
    Member(Member),
    /// It belongs to a run that starts further down.
    Continuation,
}

/// Extents in a row that are owned, released and taken over as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtentRun {
    /// Index of the first.
    pub first: usize,
    /// How many, at least 1.
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

    fn unpack(word: u64) -> Self {
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
    /// Who owns extent `index`; nobody for an index outside.
    #[must_use]
    pub fn extent_owner(&self, index: usize) -> ExtentOwner {
        // Sequentially consistent for whoever returns a block: it says so and then asks who owns the extent, while an owner
        // gives the extent up and then asks whether something was returned. One of them sees the other.
        self.owner_word(index)
            .map_or(ExtentOwner::Nobody, |word| ExtentOwner::unpack(word.load(Ordering::SeqCst)))
    }

    /// The run that starts at extent `first`, whoever owns it; `None` where none starts.
    #[must_use]
    pub fn run_starting_at(&self, first: usize) -> Option<ExtentRun> {
        let n_extents = self.run_len(first);
        (n_extents > 0 && self.extent_owner(first) != ExtentOwner::Continuation)
            .then_some(ExtentRun { first, n_extents })
    }

    /// No extent from this index on was ever used: scans stop here.
    #[must_use]
    pub fn extents_high_water(&self) -> usize {
        let mark = self.header()[header::EXTENTS_HIGH_WATER].load(Ordering::Acquire);
        usize::try_from(mark).unwrap_or(usize::MAX).min(self.layout().n_extents)
    }

    /// What all members have populated, in bytes.
    #[must_use]
    pub fn populated_bytes(&self) -> u64 {
        (0..self.extents_high_water())
            .filter_map(|index| self.extent_entry(index))
            .map(|entry| entry[extent::POPULATED_BYTES].load(Ordering::SeqCst))
            .fold(0, u64::saturating_add)
    }

    pub(crate) fn is_unused(&self, index: usize) -> bool {
        self.run_len(index) == 0 && self.extent_owner(index) == ExtentOwner::Nobody
    }

    /// The length of the run that starts at `first`; 0 where none starts. What the table claims is cut to what
    /// it can mean.
    pub(crate) fn run_len(&self, first: usize) -> usize {
        let claimed =
            self.extent_entry(first).map_or(0, |entry| entry[extent::RUN_LEN].load(Ordering::SeqCst));
        usize::try_from(claimed).unwrap_or(0).min(self.layout().n_extents.saturating_sub(first))
    }

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
