//! How a process ended, and collecting it.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions};

use crate::{Error, Result};

/// The error number for a process that is not a child of the caller (errno(3)).
pub const ECHILD: i32 = Errno::CHILD.raw_os_error();

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It exited with this code.
    Exited {
        /// 0 to 255.
        code: i32,
    },
    /// A signal ended it.
    Signaled {
        /// The signal's number; [`signal_name`](super::signal_name) has its name.
        signal: i32,
        /// Whether the kernel wrote a core dump.
        core_dumped: bool,
    },
    /// It ended, but the kernel no longer knows how: this process ignores SIGCHLD, or other code in it has
    /// waited for every child.
    Lost,
    /// It ended, and the process that should have reported how has ended without doing so.
    StatusUnavailable,
}

/// Kills and collects a child by its number, when no descriptor for it could be opened. Only for a child that
/// no other code can have collected.
///
/// # Blocking
/// Until the child has ended.
pub fn kill_and_collect(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return };
    // Any error other than EINTR means that the child is gone already.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    let _ = rustix::io::retry_on_intr(|| {
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())
    });
}

/// Collects a child that has ended, without waiting for it; `None` while it lives (waitid(2) with `P_PIDFD`).
///
/// # Errors
/// The kernel's error of waitid(2), except ECHILD, which is [`Ended::Lost`].
pub fn reap(pidfd: impl AsFd) -> Result<Option<Ended>> {
    collect(pidfd.as_fd(), WaitIdOptions::NOHANG)
}

/// As [`reap`], but waits until the child has ended. Unlike
/// [`PidFd::wait_dead`](crate::pidfd::PidFd::wait_dead), this does not poll the descriptor.
///
/// # Errors
/// As [`reap`].
///
/// # Blocking
/// Until the child has ended.
pub fn wait_and_reap(pidfd: impl AsFd) -> Result<Ended> {
    Ok(collect(pidfd.as_fd(), WaitIdOptions::empty())?.unwrap_or(Ended::Lost))
}

fn collect(pidfd: BorrowedFd<'_>, options: WaitIdOptions) -> Result<Option<Ended>> {
    let options = WaitIdOptions::EXITED | options;
    let status = match rustix::io::retry_on_intr(|| rustix::process::waitid(WaitId::PidFd(pidfd), options)) {
        Ok(status) => status,
        Err(Errno::CHILD) => return Ok(Some(Ended::Lost)),
        Err(e) => return Err(Error::new("waitid of a pidfd", e)),
    };
    Ok(status.map(|status| match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ended::Exited { code },
        (None, Some(signal)) => Ended::Signaled { signal, core_dumped: status.dumped() },
        (None, None) => Ended::Lost,
    }))
}

/// The number of processes that the out-of-memory killer has ended on this machine since boot, in any cgroup
/// (`oom_kill` of `/proc/vmstat`, Linux 4.13); `None` where the kernel does not have it.
#[must_use]
pub fn out_of_memory_kills() -> Option<u64> {
    parse_out_of_memory_kills(&crate::proc_file::read("/proc/vmstat").ok()?)
}

fn parse_out_of_memory_kills(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_memory_kills_are_counted_by_the_line_of_that_name() {
        let vmstat = "nr_free_pages 7\noom_kill_allocating_task 5\noom_kill 3\n";
        assert_eq!(parse_out_of_memory_kills(vmstat), Some(3));
        assert_eq!(parse_out_of_memory_kills("nr_free_pages 7\n"), None);
    }

    #[test]
    fn a_child_is_waited_for_and_collected() {
        #[expect(
            clippy::disallowed_methods,
            clippy::zombie_processes,
            reason = "some process, collected below"
        )]
        let child = std::process::Command::new("false").spawn().unwrap();
        let pidfd = crate::pidfd::PidFd::open(child.id()).unwrap();
        assert_eq!(wait_and_reap(&pidfd).unwrap(), Ended::Exited { code: 1 });
        assert_eq!(wait_and_reap(&pidfd).unwrap(), Ended::Lost, "it is collected");
    }

    #[test]
    fn a_process_that_is_no_child_is_lost_not_an_error() {
        let me = crate::pidfd::PidFd::of_self().unwrap();
        assert_eq!(reap(&me).unwrap(), Some(Ended::Lost));
    }
}
