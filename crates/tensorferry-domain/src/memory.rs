//! The right to manage a domain's memory.
//!
//! # Safety
//!
//! The data area holds the memory behind slices of safe code: a heap lends `&[u8]` and `&mut [u8]` of blocks
//! in it. Other safe code that could reach those bytes, or make the heap believe that a block is free, could
//! break what these slices promise. So all such access is behind [`Memory`], and only one `unsafe` function
//! makes a `Memory`. The rest of the crate (members, usage, waiting) can do neither.
//!
//! Mapping the file is unsafe for the same reason, and is in this module too.
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

use crate::layout::suspicions::{MAY_HAVE_MARKS, ONE};
use crate::layout::{extent, header, slot};
use crate::service::Service;
use crate::{Admission, Domain, DomainError, ExtentOwner, Layout, ServiceHandler};

/// Maps the first `len_bytes` of the file: the tables of the layout.
pub(crate) fn map_tables(backing: &Backing, len_bytes: usize) -> Result<Tables, DomainError> {
    // SAFETY: this file has no name, and a process that has its descriptor is a member or about to become one
    // (docs/SAFETY.md). All of them access the tables as atomic words of 64 bits, through this function.
    Ok(unsafe { Tables::map(backing, len_bytes) }?)
}

/// Maps the data area, closed.
pub(crate) fn map_data(backing: &Backing, layout: &Layout) -> Result<Reservation, DomainError> {
    let (offset, len_bytes) = (layout.data_offset_bytes as u64, layout.data_len_bytes);
    // SAFETY: as above for the processes that have the file. `Memory` alone lends the reservation, and the
    // caller of `Memory::of` has promised to access words and bytes as docs/WIRE.md says.
    Ok(unsafe { Reservation::map(backing, offset, len_bytes, layout.extent_len_bytes) }?)
}

/// A domain together with the right to manage its memory: the contents of the data area, the owners of
/// extents, and the consequences of a death.
///
/// Dropping it gives up the member's extents.
#[derive(Debug)]
pub struct Memory {
    domain: Arc<Domain>,
}

impl Memory {
    /// Takes the right to the memory of this member's domain.
    ///
    /// # Safety
    /// - There is one `Memory` at a time for a `Domain`.
    /// - Everything that the caller reads, writes and claims through it, and everything that it does when its
    ///   [`ServiceHandler`] is called, follows docs/WIRE.md on blocks, spans, rings and returns. The other
    ///   members of the domain rely on it: they lend slices of their blocks.
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

    /// Gives pages of the data area back to the system. They read as zero afterwards.
    ///
    /// # Errors
    /// The kernel's error of fallocate(2).
    pub fn punch_hole(&self, offset_bytes: usize, len_bytes: usize) -> Result<(), DomainError> {
        let offset = self.layout().data_offset_bytes + offset_bytes;
        Ok(memfd::punch_hole(&self.domain.backing, offset as u64, len_bytes as u64)?)
    }

    /// Makes the service, whose thread watches the other members and calls `handler`. Later calls do nothing.
    /// The thread of the process that made the domain starts at once, that of one that joined when it is
    /// needed.
    ///
    /// # Errors
    /// The kernel's error when the thread, its eventfd or its timerfd cannot be made at once. One that is
    /// needed later is tried again until it can.
    pub fn start_service(&self, handler: Weak<dyn ServiceHandler>) -> Result<(), DomainError> {
        if self.domain.service.get().is_none() {
            let is_needed = self.domain.is_maker();
            let service = Service::new(Arc::downgrade(&self.domain), handler, is_needed)?;
            // If two threads come here at once, one service stays. The other one stops when it is dropped.
            let _ = self.domain.service.set(service);
        }
        Ok(())
    }

    /// In a process that was forked from this member: becomes the member that `admission` names, over the
    /// same mapping. From then on [`Domain::me`] returns the new member. `fd_store` is as in
    /// [`DomainFds`](crate::DomainFds). The parent waits meanwhile, and holds everything that this process
    /// has a copy of.
    ///
    /// This process does not [own](Domain::is_owning_process) the member yet. Call [`Memory::finish_rejoin`]
    /// once this process holds everything by its own bits.
    ///
    /// # Errors
    /// [`DomainError::NotAdmitted`], also where this process owns its member already; or the kernel's error.
    pub fn rejoin(&self, admission: Admission, fd_store: Option<OwnedFd>) -> Result<(), DomainError> {
        self.domain.rejoin(admission, fd_store)
    }

    /// Makes this process, which has [rejoined](Memory::rejoin), the owner of its member.
    pub fn finish_rejoin(&self) {
        self.domain.finish_rejoin();
    }

    /// In a process that was forked and has [rejoined](Memory::rejoin): its service is its own from now on.
    ///
    /// # Errors
    /// The kernel's error when an eventfd or a timerfd cannot be made.
    pub fn reset_service(&self) -> Result<(), DomainError> {
        self.domain.service.get().map_or(Ok(()), Service::reset)
    }

    /// Starts the service thread, unless it was started before: this process is about to have something that
    /// the thread has to look after.
    #[inline]
    pub fn ensure_service_started(&self) {
        if let Some(service) = self.domain.service.get() {
            service.ensure_started();
        }
    }

    /// Tells an idle service thread that its handler has something new to do. The next tick then comes at
    /// once.
    #[inline]
    pub fn wake_service_if_idle(&self) {
        if let Some(service) = self.domain.service.get() {
            service.wake_if_idle();
        }
    }

    /// Raises [`Domain::suspicions`] by one. Call it before the first mark is made, and after the last one.
    pub fn count_suspicion(&self) {
        let next = |word: u64| Some((word | MAY_HAVE_MARKS).wrapping_add(ONE));
        let _ = self.header()[header::SUSPICIONS].fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }

    /// Records that a scan found no mark, which had begun when [`Domain::suspicions`] was `suspicions`.
    /// Changes nothing if that count has moved.
    pub fn note_all_clear(&self, suspicions: u64) {
        let word = suspicions.wrapping_mul(ONE);
        let _ = self.header()[header::SUSPICIONS].compare_exchange(
            word | MAY_HAVE_MARKS,
            word,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
    }

    /// Whether there may be a mark on anything: some were made, and no scan since has found that all are
    /// gone.
    #[must_use]
    #[inline]
    pub fn may_have_suspects(&self) -> bool {
        self.header()[header::SUSPICIONS].load(Ordering::SeqCst) & MAY_HAVE_MARKS != 0
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

    /// Whether another member returned a block that this member owns since the last call.
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
