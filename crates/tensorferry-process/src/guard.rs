//! The thread of a child that watches its parent.
//!
//! The kernel kills a child when its parent dies (`PR_SET_PDEATHSIG`, prctl(2)), at once and even while it is stopped. But
//! it forgets the request when the child changes its user or group, or executes a program that does, and it counts the
//! thread that started the child as the parent. This thread waits for the parent's pidfd, so that it is about the process
//! and cannot be forgotten. Of the two, whichever comes first ends the child.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tensorferry_os::child as os;
use tensorferry_os::fork::thread_id;

use crate::parent::ParentProcess;

/// It waits and then ends the process; most of this is for the thread's own start.
const STACK_LEN_BYTES: usize = 64 << 10;

/// The number of this process's guard, once it is where it stands still.
static GUARD: Mutex<Option<Arc<OnceLock<u32>>>> = Mutex::new(None);

/// Ends this process when its parent has ended.
pub(crate) fn watch(parent: ParentProcess) -> io::Result<()> {
    let number = Arc::new(OnceLock::new());
    *GUARD.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&number));
    let thread = std::thread::Builder::new().name(String::from("tf-guard")).stack_size(STACK_LEN_BYTES);
    thread.spawn(move || {
        // From here on it holds nothing and allocates nothing.
        let _ = number.set(thread_id());
        // An error means that the kernel has no memory for poll(2); the death signal remains.
        if parent.pidfd().wait_dead(None).is_ok() {
            let _ = os::kill_self();
        }
    })?;
    Ok(())
}

/// The number of the guard of this process, a thread that stands still for as long as the parent lives. `None` where there
/// is none.
pub(crate) fn parked() -> Option<u32> {
    let number = GUARD.lock().unwrap_or_else(PoisonError::into_inner).clone();
    number.map(|number| *number.wait())
}

/// In a process that was forked: the guard was a thread of the parent's.
pub(crate) fn forget() {
    *GUARD.lock().unwrap_or_else(PoisonError::into_inner) = None;
}
