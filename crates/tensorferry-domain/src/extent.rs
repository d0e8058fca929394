//! The extent table: who may allocate where, and how much of it is populated.
//!
//! An entry's owner word is claimed by compare-and-swap. Extents are claimed in *runs*: one extent for most
//! purposes, several in a row for a block that is larger than one. A run keeps its shape for the life of the
//! domain, because other members may be reading its headers at any moment: when its owner leaves or dies, it
//! is released whole, and whoever claims it next rebuilds its free lists from those headers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::extent;
use crate::{Domain, DomainError, Member, layout::header};

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
    /// `epoch:32 | slot:16 | kind:8`; zero is nobody.
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
    /// Claims `n_extents` never used extents in a row for this member.
    ///
    /// # Errors
    /// [`DomainError::NoExtents`] when there is no such run.
    pub fn claim_extents(&self, n_extents: usize) -> Result<ExtentRun, DomainError> {
        let n_all = self.layout().n_extents;
        let mut first = 0;
        while first + n_extents <= n_all {
            match (first..first + n_extents).rev().find(|&index| !self.is_unused(index)) {
                Some(taken) => first = taken + 1,
                None => match self.try_claim_run(first, n_extents) {
                    Ok(run) => return Ok(run),
                    Err(taken) => first = taken + 1,
                },
            }
        }
        Err(DomainError::NoExtents {
            wanted: n_extents,
            n_extents: n_all,
            extent_len_bytes: self.layout().extent_len_bytes,
        })
    }

    /// Claims a run that its last owner gave up, if there is one. Its headers are as that owner left them.
    #[must_use]
    pub fn claim_released(&self) -> Option<ExtentRun> {
        (0..self.extents_high_water()).find_map(|first| {
            let n_extents = self.run_len(first);
            let released = n_extents > 0 && self.owner_word(first)?.load(Ordering::Relaxed) == 0;
            (released && self.claim_run_of(first, ExtentOwner::Nobody))
                .then_some(ExtentRun { first, n_extents })
        })
    }

    /// Claims one particular released run.
    #[must_use]
    pub fn claim_released_at(&self, first: usize) -> Option<ExtentRun> {
        let n_extents = self.run_len(first);
        (n_extents > 0 && self.claim_run_of(first, ExtentOwner::Nobody))
            .then_some(ExtentRun { first, n_extents })
    }

    /// Takes over one after the other what `dead` owned; each run is this member's when it is yielded.
    pub fn take_over(&self, dead: Member) -> impl Iterator<Item = ExtentRun> + '_ {
        (0..self.extents_high_water()).filter_map(move |first| {
            if self.extent_owner(first) != ExtentOwner::Member(dead) {
                return None;
            }
            let n_extents = self.run_len(first);
            if n_extents == 0 {
                // Killed between claiming and using it: as if never claimed.
                self.change_owner(first, ExtentOwner::Member(dead), ExtentOwner::Nobody);
                return None;
            }
            // Killed between writing the run's length and marking its tail: finish that.
            self.mark_tail(first, n_extents);
            self.claim_run_of(first, ExtentOwner::Member(dead)).then_some(ExtentRun { first, n_extents })
        })
    }

    /// Gives a run up. Blocks in it may still be held; their memory comes back when somebody claims the run.
    pub fn release_extents(&self, run: ExtentRun) {
        self.change_owner(run.first, ExtentOwner::Member(self.me()), ExtentOwner::Nobody);
    }

    /// Who owns extent `index`; nobody for an index outside.
    #[must_use]
    pub fn extent_owner(&self, index: usize) -> ExtentOwner {
        self.owner_word(index)
            .map_or(ExtentOwner::Nobody, |word| ExtentOwner::unpack(word.load(Ordering::Acquire)))
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

    /// Counts `len_bytes` more as populated in extent `index`, unless that would pass the domain's limit.
    ///
    /// # Errors
    /// [`DomainError::Limit`] with the numbers; nothing is counted then.
    pub fn count_populated(&self, index: usize, len_bytes: u64) -> Result<(), DomainError> {
        let Some(entry) = self.extent_entry(index) else { return Ok(()) };
        entry[extent::POPULATED_BYTES].fetch_add(len_bytes, Ordering::SeqCst);
        let used = self.populated_bytes();
        let limit = self.limit_bytes();
        if used > limit {
            entry[extent::POPULATED_BYTES].fetch_sub(len_bytes, Ordering::SeqCst);
            return Err(DomainError::Limit {
                wanted_bytes: len_bytes,
                used_bytes: used.saturating_sub(len_bytes),
                limit_bytes: limit,
            });
        }
        Ok(())
    }

    /// Counts `len_bytes` less, after they were given back to the system.
    pub fn count_returned_to_system(&self, index: usize, len_bytes: u64) {
        if let Some(entry) = self.extent_entry(index) {
            let less = |bytes: u64| Some(bytes.saturating_sub(len_bytes));
            let _ = entry[extent::POPULATED_BYTES].fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        }
    }

    /// Sets what is populated in extent `index`, after counting it anew. For the extent's owner.
    pub fn recount_populated(&self, index: usize, len_bytes: u64) {
        if let Some(entry) = self.extent_entry(index) {
            entry[extent::POPULATED_BYTES].store(len_bytes, Ordering::SeqCst);
        }
    }

    /// What all members have populated, in bytes.
    #[must_use]
    pub fn populated_bytes(&self) -> u64 {
        (0..self.extents_high_water())
            .filter_map(|index| self.extent_entry(index))
            .map(|entry| entry[extent::POPULATED_BYTES].load(Ordering::SeqCst))
            .fold(0, u64::saturating_add)
    }

    /// Tells the owner of extent `index` that a block in it came back. Returns that owner.
    pub fn hint_return(&self, index: usize) -> ExtentOwner {
        let Some(entry) = self.extent_entry(index) else { return ExtentOwner::Nobody };
        if entry[extent::RETURNS].load(Ordering::SeqCst) == 0 {
            entry[extent::RETURNS].store(1, Ordering::SeqCst);
        }
        let owner = self.extent_owner(index);
        if let ExtentOwner::Member(member) = owner {
            self.set_returns_flag(member);
        }
        owner
    }

    /// Whether a block in extent `index` came back since the last call. For the extent's owner.
    #[must_use]
    pub fn take_extent_returns(&self, index: usize) -> bool {
        self.extent_entry(index).is_some_and(|entry| {
            entry[extent::RETURNS].load(Ordering::SeqCst) != 0
                && entry[extent::RETURNS].swap(0, Ordering::SeqCst) != 0
        })
    }

    /// Claims the extents one by one; on meeting one that is taken, gives back and says which.
    fn try_claim_run(&self, first: usize, n_extents: usize) -> Result<ExtentRun, usize> {
        // First of all, so that nothing that is owned lies above the mark, whenever we are killed.
        let end = u64::try_from(first + n_extents).unwrap_or(u64::MAX);
        self.header()[header::EXTENTS_HIGH_WATER].fetch_max(end, Ordering::SeqCst);
        let me = ExtentOwner::Member(self.me());
        for index in first..first + n_extents {
            let claimed = self.change_owner(index, ExtentOwner::Nobody, me);
            // Only an extent that is ours can be told to be unused for good: somebody may have used and left it
            // between a look and the claim.
            if claimed && self.run_len(index) != 0 {
                self.change_owner(index, me, ExtentOwner::Nobody);
            }
            if !claimed || self.run_len(index) != 0 {
                for mine in first..index {
                    self.change_owner(mine, me, ExtentOwner::Nobody);
                }
                return Err(index);
            }
        }
        if let Some(entry) = self.extent_entry(first) {
            entry[extent::RUN_LEN].store(u64::try_from(n_extents).unwrap_or(1), Ordering::SeqCst);
        }
        self.mark_tail(first, n_extents);
        Ok(ExtentRun { first, n_extents })
    }

    fn mark_tail(&self, first: usize, n_extents: usize) {
        for index in first + 1..first + n_extents {
            if let Some(word) = self.owner_word(index) {
                word.store(ExtentOwner::Continuation.pack(), Ordering::SeqCst);
            }
        }
    }

    fn claim_run_of(&self, first: usize, previous: ExtentOwner) -> bool {
        self.change_owner(first, previous, ExtentOwner::Member(self.me()))
    }

    fn change_owner(&self, index: usize, from: ExtentOwner, to: ExtentOwner) -> bool {
        self.owner_word(index).is_some_and(|word| {
            word.compare_exchange(from.pack(), to.pack(), Ordering::SeqCst, Ordering::SeqCst).is_ok()
        })
    }

    fn is_unused(&self, index: usize) -> bool {
        self.run_len(index) == 0 && self.extent_owner(index) == ExtentOwner::Nobody
    }

    /// The length of the run that starts at `first`; 0 where none starts. What the table claims is cut to what
    /// it can mean.
    fn run_len(&self, first: usize) -> usize {
        let claimed =
            self.extent_entry(first).map_or(0, |entry| entry[extent::RUN_LEN].load(Ordering::SeqCst));
        usize::try_from(claimed).unwrap_or(0).min(self.layout().n_extents.saturating_sub(first))
    }

    fn owner_word(&self, index: usize) -> Option<&AtomicU64> {
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

    #[test]
    fn runs_are_claimed_released_and_claimed_again_whole() {
        let domain = Domain::builder().address_space_bytes(64 << 20).create().unwrap();
        assert_eq!(domain.layout().n_extents, 16);
        let one = domain.claim_extents(1).unwrap();
        let three = domain.claim_extents(3).unwrap();
        assert_eq!((one.first, three.first, three.n_extents), (0, 1, 3));
        assert_eq!(domain.extent_owner(2), ExtentOwner::Continuation);
        assert!(domain.claim_released().is_none());
        domain.release_extents(three);
        assert_eq!(domain.claim_extents(1).unwrap().first, 4, "a released run is not unused");
        assert_eq!(domain.claim_released(), Some(three));
        assert!(matches!(
            domain.claim_extents(12),
            Err(DomainError::NoExtents { wanted: 12, n_extents: 16, .. })
        ));
        assert_eq!(domain.claim_extents(11).unwrap().first, 5);
    }

    #[test]
    fn the_limit_is_kept_and_named() {
        let domain = Domain::builder().limit_bytes(1 << 20).create().unwrap();
        let run = domain.claim_extents(1).unwrap();
        domain.count_populated(run.first, 1 << 19).unwrap();
        let error = domain.count_populated(run.first, 1 << 20).unwrap_err();
        assert!(
            matches!(
                error,
                DomainError::Limit { wanted_bytes: 1_048_576, used_bytes: 524_288, limit_bytes: 1_048_576 }
            ),
            "{error}"
        );
        domain.count_returned_to_system(run.first, 1 << 19);
        assert_eq!(domain.populated_bytes(), 0);
    }
}
