//! Parcels that were posted to a member, or left to whoever comes, and not opened yet; or dropped while a
//! process was opening them.

use std::sync::{Mutex, PoisonError};

use tensorferry_domain::{Domain, Member, Phase};

use crate::Parcel;

/// The parcels that this process has posted.
#[derive(Debug, Default)]
pub(crate) struct Posted {
    /// Each with the member that it is for, or `None` if it was left to whoever comes, or dropped.
    parcels: Mutex<Vec<(Parcel, Option<Member>)>>,
    /// Held while parcels are retired. A second caller waits, and so finds them gone, not merely out of the
    /// list.
    retiring: Mutex<()>,
}

impl Posted {
    pub(crate) fn add(&self, parcel: Parcel, to: Option<Member>) {
        self.parcels.lock().unwrap_or_else(PoisonError::into_inner).push((parcel, to));
    }

    /// How many are not opened to the end: those that nobody opens, and those that somebody is opening.
    pub(crate) fn n_unopened(&self) -> usize {
        let parcels = self.parcels.lock().unwrap_or_else(PoisonError::into_inner);
        parcels.iter().filter(|(parcel, _)| !parcel.is_done()).count()
    }

    /// Whether there is a parcel with this number that nobody has opened yet.
    pub(crate) fn has_unopened(&self, id: u64) -> bool {
        let parcels = self.parcels.lock().unwrap_or_else(PoisonError::into_inner);
        parcels.iter().any(|(parcel, _)| parcel.id() == id && parcel.is_unopened())
    }

    /// Takes back the parcel with this number. Returns false when there is none that nobody has opened.
    pub(crate) fn take_back(&self, id: u64) -> bool {
        let mut parcels = self.parcels.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = parcels.iter().position(|(parcel, _)| parcel.id() == id) else { return false };
        let (parcel, _) = parcels.swap_remove(at);
        // What it has may need this lock.
        drop(parcels);
        parcel.take_back()
    }

    /// In a process that was forked: takes what is in the parent's parcels, to be dropped here. The parcels
    /// in shared memory stay as they are.
    pub(crate) fn take_all(&self) -> impl Sized + use<> {
        let mut parcels = std::mem::take(&mut *self.parcels.lock().unwrap_or_else(PoisonError::into_inner));
        let handles: Vec<_> = parcels.iter_mut().map(|(parcel, _)| parcel.take_handles()).collect();
        // Dropping a parcel without handles takes nothing back.
        (handles, parcels)
    }

    /// Drops parcels that were opened, or that never will be. Returns whether any is left.
    pub(crate) fn retire(&self, domain: &Domain) -> bool {
        let _one_at_a_time = self.retiring.lock().unwrap_or_else(PoisonError::into_inner);
        let mut parcels = self.parcels.lock().unwrap_or_else(PoisonError::into_inner);
        if parcels.is_empty() {
            return false;
        }
        let members = domain.members();
        let is_member = |to: Member| {
            members.iter().any(|info| info.member == to && matches!(info.phase, Phase::Live | Phase::Invited))
        };
        let is_gone = |to: Option<Member>| to.is_some_and(|to| !is_member(to));
        let done: Vec<_> = parcels.extract_if(.., |(parcel, to)| parcel.is_done() || is_gone(*to)).collect();
        let any_left = !parcels.is_empty();
        drop(parcels);
        // Dropping a handle may need the arena, so not under this lock.
        drop(done);
        any_left
    }
}
