//! A forked child becomes a member of its parent's domain.
//!
//! # Safety
//! [`Heap::rejoin`] needs a parent that waits. A process that has an inherited heap and runs an entry was
//! forked by the start method fork, whose parent waits (`launch.rs`) until the child says
//! [`Inherited::taken`] or is dead. A fork server has no heap that could be inherited: it refuses to serve
//! with shared memory (`forkserver/serve.rs` in `tensorferry-process`). A process that was forked in any
//! other way runs no entry.
#![expect(unsafe_code, reason = "promises that the parent waits")]

use tensorferry_domain::{Admission, DomainFds};
use tensorferry_process::Inherited;
use tensorferry_storage::{Heap, StorageError};

/// Makes this process a member of its own, and lets the parent go on.
pub(crate) fn rejoin(
    heap: Heap,
    admission: Admission,
    fds: DomainFds,
    inherited: &mut Inherited,
) -> Result<Heap, StorageError> {
    // SAFETY: the parent waits, as the top of this file says, and this process has not told it to go on yet.
    unsafe { heap.rejoin(admission, fds.fd_store) }?;
    inherited.taken();
    Ok(heap)
}
