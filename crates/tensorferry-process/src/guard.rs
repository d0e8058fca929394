//! The thread of a child that watches its parent: started before the entry runs, or by the entry ([`Guard`]).
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

/// The thread of a process that ends it with its parent, where the kernel forgets to. From
/// [`Inherited::guard`](crate::Inherited::guard).
#[derive(Clone, Debug)]
pub struct Guard {
    parent: ParentProcess,
}

impl Guard {
    pub(crate) fn new(parent: ParentProcess) -> Self {
        Self { parent }
    }

    /// Starts the thread, unless it was started before. It holds nothing and allocates nothing from then on, and is killed
    /// with the process. A parent that has ended already ends this process at once.
    ///
    /// # Errors
    /// The kernel's error when no thread is to be had; it may be tried again.
    pub fn start(&self) -> io::Result<()> {
        let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_some() {
            return Ok(());
        }
        let number = Arc::new(OnceLock::new());
        let (its_number, parent) = (Arc::clone(&number), self.parent.clone());
        let thread = std::thread::Builder::new().name(String::from("tf-guard")).stack_size(STACK_LEN_BYTES);
        thread.spawn(move || {
            let _ = its_number.set(thread_id());
            // An error means that the kernel has no memory for poll(2), or that this process may not wait for a descriptor any
            // more (`RLIMIT_NOFILE`); the death signal remains.
            if parent.pidfd().wait_dead(None).is_ok() {
                let _ = os::kill_self();
            }
        })?;
        *guard = Some(number);
        Ok(())
    }
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
