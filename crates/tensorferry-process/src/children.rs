//! The live children of this process, whichever part of it started them.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tensorferry_os::Result;
use tensorferry_os::child::{SIGINT, SIGKILL, SIGTERM};
use tensorferry_os::pidfd::PidFd;

/// All children whose handles still exist, in the order of their start.
static CHILDREN: Mutex<Vec<Weak<Known>>> = Mutex::new(Vec::new());

/// A child of this process: any part of this process can query it, wait for it and send it signals.
///
/// Only the handle that started the child reports how it ended. This value keeps one descriptor open, even
/// after the process has ended. It never refers to another process that got the same process ID.
#[derive(Clone, Debug)]
pub struct ChildProcess(Arc<Known>);

#[derive(Debug)]
struct Known {
    /// The process that started the child. A process forked from it has this memory too, but another process
    /// ID.
    parent_pid: u32,
    identity: Identity,
    pidfd: PidFd,
}

/// How a child is identified.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) rank: Option<usize>,
    pub(crate) is_daemon: bool,
    /// Whether this crate started it for its own use. [`active_children`] omits such children.
    pub(crate) is_helper: bool,
}

impl ChildProcess {
    /// A child that has just been started. [`active_children`] lists it from here on.
    pub(crate) fn new(identity: Identity, pidfd: PidFd) -> Self {
        let known = Arc::new(Known { parent_pid: std::process::id(), identity, pidfd });
        let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
        children.retain(|child| child.strong_count() > 0);
        children.push(Arc::downgrade(&known));
        Self(known)
    }

    pub(crate) fn pidfd(&self) -> &PidFd {
        &self.0.pidfd
    }

    /// Whether this process started the child. False in a fork of the process that did.
    pub(crate) fn is_mine(&self) -> bool {
        self.0.parent_pid == std::process::id()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.identity.name
    }

    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pidfd.pid()
    }

    /// Its index among the processes that were started together. `None` if it was started without one.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.0.identity.rank
    }

    /// Whether it is forbidden to start children of its own; see [`Start::daemon`](crate::Start::daemon).
    #[must_use]
    pub fn is_daemon(&self) -> bool {
        self.0.identity.is_daemon
    }

    /// Whether it still runs. Does not block.
    ///
    /// # Errors
    /// The kernel's error of poll(2).
    pub fn is_alive(&self) -> Result<bool> {
        self.0.pidfd.is_dead().map(|is_dead| !is_dead)
    }

    /// Its pidfd, which poll(2) reports as readable from the moment the child has ended.
    #[must_use]
    pub fn sentinel(&self) -> BorrowedFd<'_> {
        self.0.pidfd.as_fd()
    }

    /// Waits until it has ended. Does not reap it, so the handle that started it still learns how it ended.
    ///
    /// # Blocking
    /// In poll(2), until the child ends.
    ///
    /// # Errors
    /// The kernel's error of poll(2).
    pub fn join(&self) -> Result<()> {
        self.0.pidfd.wait_dead(None).map(drop)
    }

    /// As [`ChildProcess::join`], for at most `timeout`. Returns whether it has ended.
    ///
    /// # Blocking
    /// In poll(2), until the child ends or `timeout` has passed.
    ///
    /// # Errors
    /// As [`ChildProcess::join`].
    pub fn join_timeout(&self, timeout: Duration) -> Result<bool> {
        self.0.pidfd.wait_dead(Some(timeout))
    }

    /// Sends a signal. Does nothing if the child has ended.
    ///
    /// # Errors
    /// EPERM when the child has changed its user, EINVAL for an invalid signal number.
    pub fn send_signal(&self, signal: i32) -> Result<()> {
        self.0.pidfd.send_signal(signal)
    }

    /// Sends SIGTERM, which asks the child to end.
    ///
    /// # Errors
    /// As [`ChildProcess::send_signal`].
    pub fn terminate(&self) -> Result<()> {
        self.send_signal(SIGTERM)
    }

    /// Sends SIGKILL, which ends the child.
    ///
    /// # Errors
    /// As [`ChildProcess::send_signal`].
    pub fn kill(&self) -> Result<()> {
        self.send_signal(SIGKILL)
    }

    /// Sends SIGINT, as Ctrl-C does.
    ///
    /// # Errors
    /// As [`ChildProcess::send_signal`].
    pub fn interrupt(&self) -> Result<()> {
        self.send_signal(SIGINT)
    }
}

impl AsFd for ChildProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sentinel()
    }
}

/// The children that this process has started with this library and that still run, in the order of their
/// start.
///
/// Children that have ended are omitted, whether or not anything has waited for them. This function reaps
/// none of them; the handle of each child does.
///
/// # Errors
/// The kernel's error of poll(2).
pub fn active_children() -> Result<Vec<ChildProcess>> {
    let known: Vec<ChildProcess> = {
        let children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
        children.iter().filter_map(Weak::upgrade).map(ChildProcess).collect()
    };
    let mut active = Vec::with_capacity(known.len());
    for child in known {
        if child.is_mine() && !child.0.identity.is_helper && child.is_alive()? {
            active.push(child);
        }
    }
    Ok(active)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_active_while_somebody_has_its_handle() {
        // The process behind it is this one, which is alive.
        let start = |name: &str, is_helper| {
            let identity = Identity { name: name.to_owned(), rank: Some(3), is_daemon: true, is_helper };
            ChildProcess::new(identity, PidFd::of_self().unwrap())
        };
        let (child, _helper) = (start("myself", false), start("helper", true));
        assert!(active_children().unwrap().iter().all(|child| child.name() != "helper"));
        let active = || active_children().unwrap().into_iter().find(|child| child.name() == "myself");
        let found = active().unwrap();
        assert_eq!((found.pid(), found.rank(), found.is_daemon()), (std::process::id(), Some(3), true));
        assert!(found.is_alive().unwrap() && !found.join_timeout(Duration::ZERO).unwrap());
        drop((child, found));
        assert!(active().is_none());
    }
}
