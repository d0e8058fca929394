//! Requests of a child and its parent to the kernel: environment, signals, standard streams, scheduling and
//! exit.
//!
//! # Safety
//! One call is unsafe in Rust: [`at_exit`] passes a function to the C library. It gives access to no memory.
#![expect(unsafe_code, reason = "has the C library call a function when the process ends")]

mod ended;
mod environment;
mod program;
mod signals;
mod stdio;

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::CpuSet;

pub use ended::{ECHILD, Ended, kill_and_collect, out_of_memory_kills, reap, wait_and_reap};
pub use environment::{
    is_variable, replace_environment, set_variable, take_variable, take_variable_if_alone,
};
pub use program::{Program, Strings};
pub use signals::{
    Dispositions, SIGABRT, SIGINT, SIGKILL, SIGTERM, ignore_sigpipe, serve_undisturbed, signal_name,
    unblock_stop_signals,
};
pub use stdio::{
    is_stdin_a_socket, null, null_stdin, open_closed_streams, replace_stderr, replace_stdout, take_stdin,
};

use crate::pidfd::PidFd;
use crate::{Error, Result};

/// Calls `work` when this process ends normally, by returning from `main` or by exit(3). It runs before
/// functions that were registered earlier (atexit(3)), and not when the process is killed or aborts.
///
/// # Errors
/// ENOMEM.
pub fn at_exit(work: extern "C" fn()) -> Result<()> {
    // SAFETY: atexit needs a function that may be called once, without arguments, by this library for as long
    // as it is loaded. `work` is a safe function, and the code of this program is never unloaded before the
    // program ends.
    match unsafe { nix::libc::atexit(work) } {
        0 => Ok(()),
        _ => Err(Error::new("atexit", Errno::NOMEM)),
    }
}

/// Asks the kernel to kill this process when the *thread* that started it ends (`PR_SET_PDEATHSIG`,
/// prctl(2)).
///
/// The request is lost when the process executes a set-user-id program. It has no effect when the parent was
/// gone before the call, so check the parent afterwards.
///
/// # Errors
/// The kernel's error of prctl(2).
pub fn die_with_parent() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|e| Error::new("prctl(PR_SET_PDEATHSIG, SIGKILL)", e))
}

/// Ends this process at once (SIGKILL). No more of its code runs.
///
/// # Errors
/// The kernel's error of kill(2).
pub fn kill_self() -> Result<()> {
    let me = rustix::process::getpid();
    rustix::process::kill_process(me, rustix::process::Signal::KILL)
        .map_err(|e| Error::new("kill(SIGKILL) of this process", e))
}

/// The number of this process's parent; 0 when the parent is outside of our PID namespace.
#[must_use]
pub fn parent_pid() -> u32 {
    std::os::unix::process::parent_id()
}

/// Whether a process with this number exists in our PID namespace (kill(2) with no signal).
#[must_use]
pub fn is_somebody(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// Whether the calling thread is the main thread, which normally ends only with the whole process.
#[must_use]
pub fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Names the calling thread as `ps` and `top` show it (`/proc/PID/comm`), and with the main thread the
/// process. The kernel keeps the first 15 bytes. A name with a zero byte is ignored.
pub fn set_thread_name(name: &str) {
    if let Ok(name) = CString::new(name) {
        // The name is only for display.
        let _ = rustix::thread::set_name(&name);
    }
}

/// Sets the nice value of a process, from -20 (runs first) to 19 (runs when no other process wants to). Linux
/// keeps the value for each thread: this call sets that of the main thread, and threads that it starts later
/// inherit it.
///
/// `pidfd` must be of a child that has not been collected, so that the number is still its own.
///
/// # Errors
/// EACCES when the value is lower than this user may set it, ESRCH when there is no such process
/// (setpriority(2)).
pub fn set_nice(pidfd: &PidFd, value: i32) -> Result<()> {
    rustix::process::setpriority_process(raw_pid(pidfd), value)
        .map_err(|e| Error::new(format!("setpriority({value}) of process {}", pidfd.pid()), e))
}

/// Sets the processors that a process may run on, by number from 0. As with [`set_nice`], this applies to the
/// main thread and the threads that it starts later.
///
/// # Errors
/// EINVAL when the process may have none of them, or for a number beyond 1023 (sched_setaffinity(2)).
pub fn set_cpus(pidfd: &PidFd, cpus: &[usize]) -> Result<()> {
    let call = || format!("sched_setaffinity({cpus:?}) of process {}", pidfd.pid());
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            return Err(Error::new(call(), Errno::INVAL));
        }
        set.set(cpu);
    }
    rustix::thread::sched_setaffinity(raw_pid(pidfd), &set).map_err(|e| Error::new(call(), e))
}

/// The processors that one thread may run on.
#[derive(Clone, Debug)]
pub struct Affinity(CpuSet);

impl Affinity {
    /// That of the calling thread.
    ///
    /// # Errors
    /// EINVAL on a machine with more than 1024 processors (sched_getaffinity(2)).
    pub fn of_this_thread() -> Result<Self> {
        rustix::thread::sched_getaffinity(None)
            .map(Self)
            .map_err(|e| Error::new("sched_getaffinity of this thread", e))
    }

    /// Gives it to the calling thread, and to the processes and threads that it starts later.
    ///
    /// # Errors
    /// EINVAL when the process may have none of the processors any more (sched_setaffinity(2)).
    pub fn adopt(&self) -> Result<()> {
        rustix::thread::sched_setaffinity(None, &self.0)
            .map_err(|e| Error::new("sched_setaffinity of this thread", e))
    }
}

fn raw_pid(pidfd: &PidFd) -> Option<rustix::process::Pid> {
    i32::try_from(pidfd.pid()).ok().and_then(rustix::process::Pid::from_raw)
}

/// Opens a directory for [`enter_dir`]. A relative path starts at the working directory of this process.
///
/// # Errors
/// The kernel's error of open(2).
pub fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        .map_err(|e| Error::new(format!("open of {}", path.display()), e))
}

/// Makes a directory the working directory of this process.
///
/// # Errors
/// The kernel's error of fchdir(2).
pub fn enter_dir(dir: impl AsFd) -> Result<()> {
    rustix::process::fchdir(dir).map_err(|e| Error::new("fchdir", e))
}

/// Time since boot, without the time that the machine was suspended (`CLOCK_MONOTONIC`). All processes of the
/// machine share this clock, so times from different processes can be ordered.
#[must_use]
pub fn monotonic_now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_goes_forward() {
        let before = monotonic_now();
        assert!(before > Duration::ZERO);
        assert!(monotonic_now() >= before);
    }

    #[test]
    fn a_test_thread_is_not_the_main_thread() {
        assert!(!std::thread::spawn(is_main_thread).join().unwrap());
    }
}
