//! The thread of a child that watches its parent: started before the entry runs, or by the entry ([`Guard`]).
//!
//! The kernel kills a child when its parent dies (`PR_SET_PDEATHSIG`, prctl(2)), at once and even while it is stopped. But
//! it forgets the request when the child changes its user or group, or executes a program that does, and it counts the
//! thread that started the child as the parent. This thread waits for the parent's pidfd, so that it is about the process
//! and cannot be forgotten. Where it cannot wait for descriptors (`RLIMIT_NOFILE` of 0, or it has none any more), it asks twice a
//! second whose child this process is: the kernel gives orphans to another process. Whichever comes first ends the child.

use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tensorferry_os::child as os;
use tensorferry_os::fork::thread_id;
use tensorferry_os::futex;

use crate::parent::ParentProcess;

/// It waits and then ends the process; most of this is for the thread's own start.
const STACK_LEN_BYTES: usize = 64 << 10;

/// How often it asks where it cannot wait.
const ASKS_EVERY: Duration = Duration::from_millis(500);

/// The number of this process's guard, once it is where it stands still.
static GUARD: Mutex<Option<Arc<OnceLock<u32>>>> = Mutex::new(None);

/// The thread of a process that ends it with its parent, where the kernel forgets to. From
/// [`Inherited::guard`](crate::Inherited::guard).
#[derive(Clone, Debug)]
pub struct Guard {
    parent: ParentProcess,
    /// Whose child this process is in the eyes of the kernel: the parent's or that of its fork server.
    kernels_parent: u32,
}

impl Guard {
    pub(crate) fn new(parent: ParentProcess, kernels_parent: u32) -> Self {
        Self { parent, kernels_parent }
    }

    /// Returns when the parent has ended.
    fn wait_until_orphaned(&self) {
        if self.parent.pidfd().wait_dead(None).is_ok() {
            return;
        }
        // Nobody wakes it.
        let event = AtomicU32::new(0);
        while !self.is_orphaned() {
            let _ = futex::wait(&event, 0, Some(ASKS_EVERY));
        }
    }

    /// Whether the kernel has given this process to another parent; for a child of a fork server, which may end before the parent
    /// does, also whether nobody has the parent's number any more. (Nothing is known of a parent in another PID namespace.)
    fn is_orphaned(&self) -> bool {
        let parent = self.parent.pid();
        os::parent_pid() != self.kernels_parent && (self.kernels_parent == parent || !os::is_somebody(parent))
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
        let (its_number, this) = (Arc::clone(&number), self.clone());
        let thread = std::thread::Builder::new().name(String::from("tf-guard")).stack_size(STACK_LEN_BYTES);
        thread.spawn(move || {
            let _ = its_number.set(thread_id());
            this.wait_until_orphaned();
            let _ = os::kill_self();
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

#[cfg(test)]
mod tests {
    use super::*;
    use tensorferry_os::pidfd::PidFd;

    #[test]
    fn who_has_another_parent_is_orphaned_unless_that_was_a_fork_server_of_one_that_lives() {
        let guard = |parent: u32, kernels_parent| {
            let pidfd = PidFd::from_fd(std::fs::File::open("/dev/null").unwrap().into(), parent);
            Guard::new(ParentProcess::new("parent", pidfd), kernels_parent)
        };
        let (me, parent, nobody) = (std::process::id(), os::parent_pid(), u32::MAX >> 2);
        assert!(!guard(parent, parent).is_orphaned());
        assert!(guard(me, me).is_orphaned(), "this process is not its own child");
        assert!(!guard(me, nobody).is_orphaned(), "the server has ended, the parent has not");
        assert!(guard(nobody, me).is_orphaned());
    }
}
