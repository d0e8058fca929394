//! The right to a domain's memory, for the one who manages it.
//!
//! # Safety
//!
//! The data area is where others have their slices: a heap lends `&[u8]` and `&mut [u8]` of blocks in it. Whoever could
//! get at those bytes, or make the heap believe that a block is free, from safe code, could break what these slices
//! promise. So all of that is behind [`Memory`], and a `Memory` is had by one `unsafe` function only. What the rest of
//! the crate offers (who is a member, how much is used, waiting) cannot do harm.
//!
//! Mapping the file is unsafe for the same reason, and stands here too.
#![expect(
    unsafe_code,
    reason = "maps the file and declares the one function through which its memory is reached"
)]

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tensorferry_os::mapping::{Reservation, Tables};
use tensorferry_os::memfd;
use tensorferry_sharing::Backing;

use crate::layout::{extent, header, slot};
use crate::service::Service;
use crate::{Admission, Domain, DomainError, ExtentOwner, Layout, ServiceHandler};

/// Maps the first `len_bytes` of the file: what the layout calls tables.
pub(crate) fn map_tables(backing: &Backing, len_bytes: usize) -> Result<Tables, DomainError> {
    // SAFETY: this file has no name, and who has its descriptor is a member or about to become one (docs/SAFETY.md). All of
    // them access the tables as atomic words of 64 bits, through this function.
    Ok(unsafe { Tables::map(backing, len_bytes) }?)
}

/// Maps the data area, closed.
pub(crate) fn map_data(backing: &Backing, layout: &Layout) -> Result<Reservation, DomainError> {
    let (offset, len_bytes) = (layout.data_offset_bytes as u64, layout.data_len_bytes);
    // SAFETY: as above for who has the file. The reservation is lent by `Memory` alone, whose holder has promised to access
    // words and bytes as docs/WIRE.md says.
    Ok(unsafe { Reservation::map(backing, offset, len_bytes, layout.extent_len_bytes) }?)
}

/// A domain together with the right to manage its memory: what lies in the data area, who allocates where, and what a
/// death leads to.
///
/// Dropping it gives up the member's extents.
#[derive(Debug)]
pub struct Memory {
    domain: Arc<Domain>,
}

impl Memory {
    /// The right to the memory of this member's domain.
    ///
    /// # Safety
    /// - There is one `Memory` at a time for a `Domain`.
    /// - What the caller reads, writes and claims through it, and what it does when its [`ServiceHandler`] is called, is
    ///   what docs/WIRE.md says about blocks, spans, rings and returns. The other members of the domain rely on it: they
    ///   lend slices of their blocks.
    #[must_use]
    pub unsafe fn of(domain: Arc<Domain>) -> Self {
        Self { domain }
    }

    /// The domain.
    #[must_use]
    #[inline]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// The data area.
    #[must_use]
    #[inline]
    pub fn data(&self) -> &Reservation {
        &self.domain.data
    }

    /// Gives pages of the data area back to the system; they read as zero afterwards.
    ///
    /// # Errors
    /// The kernel's error of fallocate(2).
    pub fn punch_hole(&self, offset_bytes: usize, len_bytes: usize) -> Result<(), DomainError> {
        let offset = self.layout().data_offset_bytes + offset_bytes;
        Ok(memfd::punch_hole(&self.domain.backing, offset as u64, len_bytes as u64)?)
    }

    /// Starts the service thread, which watches the other members and calls `handler`. Later calls do nothing.
    ///
    /// # Errors
    /// The kernel's error when the thread or its eventfd cannot be made.
    pub fn start_service(&self, handler: Weak<dyn ServiceHandler>) -> Result<(), DomainError> {
        if self.domain.service.get().is_none() {
            let service = Service::start(Arc::downgrade(&self.domain), handler)?;
            // Of two threads that come here at once one service stays, the other stops on drop.
            let _ = self.domain.service.set(service);
        }
        Ok(())
    }

    /// In a process that was forked from this member: becomes the member that `admission` names, over the same mapping.
    /// [`Domain::me`] is another one from then on. `fd_store` is as in [`DomainFds`](crate::DomainFds). The parent stands still
    /// meanwhile, and holds everything that this process has a copy of.
    ///
    /// This process is not [at home](Domain::is_owning_process) yet: that is said by [`Memory::finish_rejoin`], once it holds by itself what
    /// it has.
    ///
    /// # Errors
    /// [`DomainError::NotAdmitted`], also where this process is at home; or the kernel's error.
    pub fn rejoin(&self, admission: Admission, fd_store: Option<OwnedFd>) -> Result<(), DomainError> {
        self.domain.rejoin(admission, fd_store)
    }

    /// Says that this process, which has [rejoined](Memory::rejoin), is this member.
    pub fn finish_rejoin(&self) {
        self.domain.finish_rejoin();
    }

    /// In a process that was forked and has [rejoined](Memory::rejoin): starts the service thread, which stayed with the
    /// parent.
    ///
    /// # Errors
    /// As [`Memory::start_service`].
    pub fn restart_service(&self) -> Result<(), DomainError> {
        self.domain.service.get().map_or(Ok(()), |service| service.restart(Arc::downgrade(&self.domain)))
    }

    /// Says that there is something new for the handler's tick, which comes soon from now on.
    #[inline]
    pub fn wake_service_if_idle(&self) {
        if let Some(service) = self.domain.service.get() {
            service.wake_if_idle();
        }
    }

    /// Counts one more of [`Domain::suspicions`], before the first mark is made.
    pub fn count_suspicion(&self) {
        self.header()[header::SUSPICIONS].fetch_add(1, Ordering::SeqCst);
    }

    /// Tells the owner of extent `index` that a block in it came back. Returns that owner.
    pub fn hint_return(&self, index: usize) -> ExtentOwner {
        let Some(entry) = self.extent_entry(index) else { return ExtentOwner::Nobody };
        if entry[extent::RETURNS].load(Ordering::SeqCst) == 0 {
            entry[extent::RETURNS].store(1, Ordering::SeqCst);
        }
        let owner = self.extent_owner(index);
        if let ExtentOwner::Member(member) = owner
            && let Some(entry) = self.slot(member.slot)
        {
            let flag = &entry.words[slot::RETURNS];
            if flag.load(Ordering::SeqCst) == 0 {
                flag.store(1, Ordering::SeqCst);
            }
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

    /// Whether this member owns blocks that somebody returned since the last call.
    #[must_use]
    pub fn take_returns(&self) -> bool {
        self.slot(self.me().slot).is_some_and(|entry| {
            let flag = &entry.words[slot::RETURNS];
            flag.load(Ordering::SeqCst) != 0 && flag.swap(0, Ordering::SeqCst) != 0
        })
    }

    /// Publishes this member's statistics.
    pub fn publish_usage(&self, live_blocks: u64, live_bytes: u64, cached_bytes: u64) {
        if let Some(entry) = self.slot(self.me().slot) {
            entry.words[slot::BLOCKS_LIVE].store(live_blocks, Ordering::Relaxed);
            entry.words[slot::BYTES_LIVE].store(live_bytes, Ordering::Relaxed);
            entry.words[slot::BYTES_CACHED].store(cached_bytes, Ordering::Relaxed);
        }
    }

    /// For the tests of this crate, which lend no slices.
    #[cfg(test)]
    pub(crate) fn over(domain: Arc<Domain>) -> Self {
        Self { domain }
    }
}

impl Deref for Memory {
    type Target = Domain;

    fn deref(&self) -> &Domain {
        &self.domain
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.domain.is_owning_process() {
            return;
        }
        self.leave_scans();
        for run in self.take_over(self.me()).collect::<Vec<_>>() {
            self.release_extents(run);
        }
    }
}
