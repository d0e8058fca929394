//! Claiming extents, and counting how much of them is populated.

use std::sync::atomic::Ordering;

use crate::layout::{extent, header};
use crate::{DomainError, ExtentOwner, ExtentRun, Member, Memory};

impl Memory {
    /// Claims a run of `n_extents` extents that were never used, for this member.
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

    /// Claims the run that starts at `first`, if its last owner released it. Its headers are as that owner
    /// left them.
    #[must_use]
    pub fn claim_released_at(&self, first: usize) -> Option<ExtentRun> {
        let n_extents = self.run_len(first);
        (n_extents > 0 && self.claim_run_of(first, ExtentOwner::Nobody))
            .then_some(ExtentRun { first, n_extents })
    }

    /// Takes over the runs that `dead` owned, one after the other. A run belongs to this member when it is
    /// yielded.
    pub fn take_over(&self, dead: Member) -> impl Iterator<Item = ExtentRun> + '_ {
        (0..self.extents_high_water()).filter_map(move |first| {
            if self.extent_owner(first) != ExtentOwner::Member(dead) {
                return None;
            }
            let n_extents = self.run_len(first);
            if n_extents == 0 {
                // The member died between claiming the extent and using it: treat the extent as never
                // claimed.
                self.change_owner(first, ExtentOwner::Member(dead), ExtentOwner::Nobody);
                return None;
            }
            // The member may have died between writing the run's length and marking its tail: finish that.
            self.mark_tail(first, n_extents);
            self.claim_run_of(first, ExtentOwner::Member(dead)).then_some(ExtentRun { first, n_extents })
        })
    }

    /// Releases a run. Other members may still hold blocks in it; that memory comes back when a member claims
    /// the run.
    pub fn release_extents(&self, run: ExtentRun) {
        self.change_owner(run.first, ExtentOwner::Member(self.me()), ExtentOwner::Nobody);
    }

    /// Adds `len_bytes` to the populated bytes of extent `index`, unless that would pass the domain's limit.
    ///
    /// # Errors
    /// [`DomainError::Limit`] with the numbers; nothing is added then.
    pub fn count_populated(&self, index: usize, len_bytes: u64) -> Result<(), DomainError> {
        let Some(entry) = self.extent_entry(index) else { return Ok(()) };
        let limit_bytes = self.limit_bytes();
        let refused = |used_bytes| DomainError::Limit { wanted_bytes: len_bytes, used_bytes, limit_bytes };
        // A request that does not fit is never counted, not even for a moment. This process may be stopped in
        // between, and the requests of other members would not fit beside it until it runs again.
        let before = self.populated_bytes();
        if before.saturating_add(len_bytes) > limit_bytes {
            return Err(refused(before));
        }
        entry[extent::POPULATED_BYTES].fetch_add(len_bytes, Ordering::SeqCst);
        let used = self.populated_bytes();
        if used > limit_bytes {
            // Another member was faster.
            entry[extent::POPULATED_BYTES].fetch_sub(len_bytes, Ordering::SeqCst);
            return Err(refused(used.saturating_sub(len_bytes)));
        }
        Ok(())
    }

    /// Subtracts `len_bytes` after they were given back to the system.
    pub fn count_returned_to_system(&self, index: usize, len_bytes: u64) {
        if let Some(entry) = self.extent_entry(index) {
            let less = |bytes: u64| Some(bytes.saturating_sub(len_bytes));
            let _ = entry[extent::POPULATED_BYTES].fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        }
    }

    /// Sets the populated bytes of extent `index` after the owner has counted them anew. For the extent's
    /// owner.
    pub fn recount_populated(&self, index: usize, len_bytes: u64) {
        if let Some(entry) = self.extent_entry(index) {
            entry[extent::POPULATED_BYTES].store(len_bytes, Ordering::SeqCst);
        }
    }

    /// Claims the extents one by one. If one is taken, gives the others back and returns its index.
    fn try_claim_run(&self, first: usize, n_extents: usize) -> Result<ExtentRun, usize> {
        // Raise the mark first, so that no owned extent is above it whenever this process is killed.
        let end = u64::try_from(first + n_extents).unwrap_or(u64::MAX);
        self.header()[header::EXTENTS_HIGH_WATER].fetch_max(end, Ordering::SeqCst);
        let me = ExtentOwner::Member(self.me());
        for index in first..first + n_extents {
            let claimed = self.change_owner(index, ExtentOwner::Nobody, me);
            // Only an extent that this member owns can be known to be unused: between a look and the claim,
            // another member may have used and left it.
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Domain;

    #[test]
    fn runs_are_claimed_released_and_claimed_again_whole() {
        let memory = Memory::over(Domain::builder().address_space_bytes(64 << 20).create().unwrap());
        assert_eq!(memory.layout().n_extents, 16);
        let one = memory.claim_extents(1).unwrap();
        let three = memory.claim_extents(3).unwrap();
        assert_eq!((one.first, three.first, three.n_extents), (0, 1, 3));
        assert_eq!(memory.extent_owner(2), ExtentOwner::Continuation);
        assert!((0..16).all(|first| memory.claim_released_at(first).is_none()), "all are owned, or unused");
        memory.release_extents(three);
        assert_eq!(memory.claim_extents(1).unwrap().first, 4, "a released run is not unused");
        assert_eq!(memory.claim_released_at(three.first), Some(three));
        assert!(matches!(
            memory.claim_extents(12),
            Err(DomainError::NoExtents { wanted: 12, n_extents: 16, .. })
        ));
        assert_eq!(memory.claim_extents(11).unwrap().first, 5);
    }

    #[test]
    fn the_limit_is_kept_and_named() {
        let memory = Memory::over(Domain::builder().limit_bytes(1 << 20).create().unwrap());
        let run = memory.claim_extents(1).unwrap();
        memory.count_populated(run.first, 1 << 19).unwrap();
        let error = memory.count_populated(run.first, 1 << 20).unwrap_err();
        assert!(
            matches!(
                error,
                DomainError::Limit { wanted_bytes: 1_048_576, used_bytes: 524_288, limit_bytes: 1_048_576 }
            ),
            "{error}"
        );
        memory.count_returned_to_system(run.first, 1 << 19);
        assert_eq!(memory.populated_bytes(), 0);
    }
}
