//! A forked process becomes a member.
//!
//! # Safety
//! The holder bits of the child are set on blocks that its private counts say are held, which only the
//! parent's bits keep from being reused. So the parent has to wait.
#![expect(unsafe_code, reason = "declares a function whose caller promises that the parent waits")]

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use tensorferry_domain::Admission;

use crate::StorageError;
use crate::arena::Arena;
use crate::heap::Heap;

impl Heap {
    /// Makes a process that was forked from a member a member in its own right. It then holds in its own name
    /// every block that the parent held at the fork, once for each handle that was copied. A block that only
    /// the copied stack of the parent names, which no code here can reach, stays held until this process
    /// ends. From then on all handles are this process's own, except for what can exist in one process only:
    /// an inherited [`ExclusiveBlock`](crate::ExclusiveBlock) lends no bytes, and an inherited lease is lost.
    ///
    /// `fd_store` is as in [`DomainFds`](tensorferry_domain::DomainFds).
    ///
    /// # Safety
    /// The parent waits until this has returned, and holds those blocks meanwhile: it frees none of them, and
    /// does not write to memory that a handle here covers. The service threads were parked (`Parked::all`)
    /// when the process was forked.
    ///
    /// # Errors
    /// [`StorageError::Domain`] when the domain refuses, [`StorageError::Damaged`] when the header of a
    /// held block cannot be reached. This process can then do nothing but end.
    pub unsafe fn rejoin(&self, admission: Admission, fd_store: Option<OwnedFd>) -> Result<(), StorageError> {
        let inner = &*self.0;
        inner.memory.rejoin(admission, fd_store)?;
        let bit = self.me().bit();
        let mut closed = None;
        inner.cells.each_held(|at| match inner.places().header(at) {
            // The parent holds it and waits, so the block is not reused meanwhile.
            Some(header) => drop(header.holders().fetch_or(bit, Ordering::SeqCst)),
            None => closed = Some(at as u64),
        });
        if let Some(offset_bytes) = closed {
            return Err(StorageError::Damaged {
                offset_bytes,
                what: "the header of a held block is out of reach",
            });
        }
        // Otherwise two processes would write the same bytes.
        inner.cells.revoke_all_exclusive();
        // The extents belong to the parent, and so do the parcels that wait to be opened.
        *inner.arena() = Arena::default();
        let pinned = (inner.pins.take_all(), inner.posted.take_all(), inner.bundles.take_all());
        inner.memory.finish_rejoin();
        inner.attachments.attach_all(self);
        drop(pinned);
        Ok(inner.memory.reset_service()?)
    }
}
