//! The process that started this one.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use tensorferry_os::Result;
use tensorferry_os::pidfd::PidFd;

use crate::current;

/// The process that started this one, from [`parent_process`].
///
/// This process is killed when its parent ends, so it sees the parent's end only for a short time, if at all.
/// This type is for programs that wait for the parent among other events, or that need its identity.
#[derive(Clone, Debug)]
pub struct ParentProcess {
    name: Arc<str>,
    pidfd: Arc<PidFd>,
}

impl ParentProcess {
    pub(crate) fn new(name: &str, pidfd: PidFd) -> Self {
        Self { name: name.into(), pidfd: Arc::new(pidfd) }
    }

    pub(crate) fn pidfd(&self) -> &PidFd {
        &self.pidfd
    }

    /// Its name, as [`CurrentProcess::name`](crate::CurrentProcess::name) returns it there.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process ID, in its own PID namespace.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pidfd.pid()
    }

    /// Whether it still runs. Does not block.
    ///
    /// # Errors
    /// The kernel's error of poll(2).
    pub fn is_alive(&self) -> Result<bool> {
        self.pidfd.is_dead().map(|is_dead| !is_dead)
    }

    /// Its pidfd, which poll(2) reports as readable once the parent has ended.
    #[must_use]
    pub fn sentinel(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Waits until the parent has ended. Seldom returns, because this process is killed then.
    ///
    /// # Blocking
    /// In poll(2), until the parent ends.
    ///
    /// # Errors
    /// The kernel's error of poll(2).
    pub fn join(&self) -> Result<()> {
        self.pidfd.wait_dead(None).map(drop)
    }

    /// As [`ParentProcess::join`], for at most `timeout`. Returns whether the parent has ended.
    ///
    /// # Blocking
    /// In poll(2), until the parent ends or `timeout` has passed.
    ///
    /// # Errors
    /// As [`ParentProcess::join`].
    pub fn join_timeout(&self, timeout: Duration) -> Result<bool> {
        self.pidfd.wait_dead(Some(timeout))
    }
}

impl AsFd for ParentProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sentinel()
    }
}

/// The process that started this one with this library. `None` in a process that something else started, such
/// as the main process.
#[must_use]
pub fn parent_process() -> Option<ParentProcess> {
    current::origin().map(|origin| origin.parent.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_is_watched_by_its_descriptor() {
        let me = ParentProcess::new("me", PidFd::of_self().unwrap());
        assert_eq!((me.name(), me.pid()), ("me", std::process::id()));
        assert!(me.is_alive().unwrap());
        assert!(!me.join_timeout(Duration::ZERO).unwrap());
    }

    #[test]
    fn a_test_program_was_not_started_by_this_library() {
        assert!(parent_process().is_none());
    }
}
