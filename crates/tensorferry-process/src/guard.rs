//! The thread of a child that watches its parent. It starts before the entry runs, or the entry starts it
//! ([`Guard`]).
//!
//! The kernel kills a child when its parent dies (`PR_SET_PDEATHSIG`, prctl(2)), at once and even while the
//! child is stopped. It has two limits. The kernel clears the request when the child changes its user or
//! group, or executes a program that does. And it takes the thread that started the child as the parent. This
//! thread waits for the parent's pidfd, which refers to the process and is never cleared.
//!
//! Waiting for a descriptor fails with an `RLIMIT_NOFILE` of 0, and when the descriptor is gone. Then the
//! thread checks twice a second which process is the parent of this one: the kernel gives orphans to another
//! process. The child ends by the first of these that takes effect.

use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tensorferry_os::child as os;
use tensorferry_os::fork::thread_id;
use tensorferry_os::futex;

use crate::parent::ParentProcess;

/// The thread waits and then ends the process. Most of this is for the start of the thread itself.
const STACK_LEN_BYTES: usize = 64 << 10;

/// How often the thread checks for the parent where it cannot wait.
const ASKS_EVERY: Duration = Duration::from_millis(500);

/// The thread ID of this process's guard, once the thread runs.
static GUARD: Mutex<Option<Arc<OnceLock<u32>>>> = Mutex::new(None);

/// Ends this process when its parent ends, where the kernel's own request was cleared. From
/// [`Inherited::guard`](crate::Inherited::guard).
#[derive(Clone, Debug)]
pub struct Guard {
    parent: ParentProcess,
    /// This process's parent in the kernel's view: the parent itself or its fork server.
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
        // Nothing wakes this futex, so the wait ends with its time-out.
        let event = AtomicU32::new(0);
        while !self.is_orphaned() {
            let _ = futex::wait(&event, 0, Some(ASKS_EVERY));
        }
    }

    /// Whether the kernel has given this process to another parent. A fork server may end before its client
    /// does. So for its child, the client's process ID must also be unused. (This process learns nothing
    /// about a parent in another PID namespace.)
    fn is_orphaned(&self) -> bool {
        let parent = self.parent.pid();
        os::parent_pid() != self.kernels_parent && (self.kernels_parent == parent || !os::is_somebody(parent))
    }

    /// Starts the thread, unless it was started before. From then on the thread holds and allocates nothing.
    /// It ends with the process. If the parent has ended already, this process is killed at once.
    ///
    /// # Errors
    /// The kernel's error when it cannot create a thread. The caller may try again.
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

/// The thread ID of this process's guard, if there is one. The guard stays parked as long as the parent
/// lives.
pub(crate) fn parked() -> Option<u32> {
    let number = GUARD.lock().unwrap_or_else(PoisonError::into_inner).clone();
    number.map(|number| *number.wait())
}

/// For a process that was forked: the guard is a thread of the parent.
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
