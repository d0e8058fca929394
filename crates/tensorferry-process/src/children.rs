//! The children of this process that are alive, whoever in it has started them.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tensorferry_os::Result;
use tensorferry_os::child::{SIGINT, SIGKILL, SIGTERM};
use tensorferry_os::pidfd::PidFd;

/// All that have been started and whose handles are still there, in that order.
static CHILDREN: Mutex<Vec<Weak<Known>>> = Mutex::new(Vec::new());

/// A child of this process, as anybody in this process may know it: to look at it, to wait for it, to send it signals.
///
/// How it ended is told to whoever has started it, and to nobody else. This value keeps one descriptor open, also when the
/// process has ended; it never means another process that got the same number.
#[derive(Clone, Debug)]
pub struct ChildProcess(Arc<Known>);

#[derive(Debug)]
struct Known {
    /// Whose child it is: a process that was forked from this one has the memory and another number.
    parent_pid: u32,
    identity: Identity,
    pidfd: PidFd,
}

/// As what a child is started.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) name: String,
    pub(crate) rank: Option<usize>,
    pub(crate) is_daemon: bool,
    /// Started by this crate for itself: no child that anybody asked for.
    pub(crate) is_helper: bool,
}

impl ChildProcess {
    /// A child that has just been started. From here on [`active_children`] has it.
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

    /// Whether this process has started it, and is not a fork of the one that has.
    pub(crate) fn is_mine(&self) -> bool {
        self.0.parent_pid == std::process::id()
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.identity.name
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.0.pidfd.pid()
    }

    /// Its index among those that were started together; `None` when it was started by itself.
    #[must_use]
    pub fn rank(&self) -> Option<usize> {
        self.0.identity.rank
    }

    /// Whether it may start no children of its own; see [`Start::daemon`](crate::Start::daemon).
    #[must_use]
    pub fn is_daemon(&self) -> bool {
        self.0.identity.is_daemon
    }

    /// Whether it still runs. Does not wait.
    ///
    /// # Errors
    /// The kernel's error of poll(2).
    pub fn is_alive(&self) -> Result<bool> {
        self.0.pidfd.is_dead().map(|is_dead| !is_dead)
    }

    /// The descriptor that stands for it: readable, for poll(2), when it has ended, and from then on.
    #[must_use]
    pub fn sentinel(&self) -> BorrowedFd<'_> {
        self.0.pidfd.as_fd()
    }

    /// Waits until it has ended. Takes nothing away from whoever has started it.
    ///
    /// # Blocking
    /// For as long as it takes, asleep in poll(2).
    ///
    /// # Errors
    /// The kernel's error of poll(2).
    pub fn join(&self) -> Result<()> {
        self.0.pidfd.wait_dead(None).map(drop)
    }

    /// As [`ChildProcess::join`], for at most `timeout`: whether it has ended.
    ///
    /// # Blocking
    /// For at most `timeout`, asleep in poll(2).
    ///
    /// # Errors
    /// As [`ChildProcess::join`].
    pub fn join_timeout(&self, timeout: Duration) -> Result<bool> {
        self.0.pidfd.wait_dead(Some(timeout))
    }

    /// Sends a signal. That it has ended is no error.
    ///
    /// # Errors
    /// EPERM when it has changed its user, EINVAL for a number that is no signal.
    pub fn send_signal(&self, signal: i32) -> Result<()> {
        self.0.pidfd.send_signal(signal)
    }

    /// Asks it to end: SIGTERM.
    ///
    /// # Errors
    /// As [`ChildProcess::send_signal`].
    pub fn terminate(&self) -> Result<()> {
        self.send_signal(SIGTERM)
    }

    /// Ends it: SIGKILL.
    ///
    /// # Errors
    /// As [`ChildProcess::send_signal`].
    pub fn kill(&self) -> Result<()> {
        self.send_signal(SIGKILL)
    }

    /// Does what Ctrl-C does: SIGINT.
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

/// The children that this process has started by this library and that still run, in the order of their start.
///
/// Those that have ended are not among them, whether or not somebody has waited for them. Nothing is collected here: that is
/// done by the handle that each child belongs to.
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
