//! What a starting process asks of the kernel, and what a parent asks about a process that ended.
//!
//! # Safety
//! Two calls are unsafe in Rust. Changing the environment races with C code that reads it on another thread, and
//! a signal disposition is a function that runs anywhere. [`take_variable`], [`set_variable`] and [`replace_environment`]
//! are for the first instant of a process, executed or forked, before it has started a thread; [`ignore_sigpipe`] and
//! [`serve_undisturbed`] install no function at all. Nothing here hands out memory.
#![expect(unsafe_code, reason = "environment and signal disposition of a process that is just starting")]

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions};
use rustix::thread::CpuSet;

use crate::pidfd::PidFd;
use crate::{Error, Result};

/// Asks a process to end; it may do something else instead (signal(7)).
pub const SIGTERM: i32 = Signal::SIGTERM as i32;

/// What Ctrl-C sends; ends a process that has not prepared for it (signal(7)).
pub const SIGINT: i32 = Signal::SIGINT as i32;

/// Ends a process at once; it cannot do anything about it (signal(7)).
pub const SIGKILL: i32 = Signal::SIGKILL as i32;

/// The kernel's code for a process that is no child of the one that asks (errno(3)).
pub const ECHILD: i32 = Errno::CHILD.raw_os_error();

/// What abort(3) ends a process with, and so a panic where panics abort.
pub const SIGABRT: i32 = Signal::SIGABRT as i32;

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
        /// The signal's number; [`signal_name`] says it in words.
        signal: i32,
        /// Whether the kernel wrote a core dump.
        core_dumped: bool,
    },
    /// It ended, but the kernel no longer knows how: this process ignores SIGCHLD, or something else in it has
    /// waited for every child.
    Lost,
    /// It ended, and the process that was to report how has ended without doing so.
    Untold,
}

/// Kills and collects a child of which there is nothing but the number, because a descriptor for it was not to be had. Only
/// for a child that nobody else can have collected.
pub fn kill_and_collect(pid: u32) {
    let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) else { return };
    // What else can fail than by a signal in the middle says that it is gone already.
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

/// As [`reap`], and waits until it has ended. Needs no descriptor that may be polled, unlike
/// [`PidFd::wait_dead`](crate::pidfd::PidFd::wait_dead).
///
/// # Errors
/// As [`reap`].
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

/// The name of a signal, as in signal(7): `SIGKILL`, `SIGRTMIN+2`, or `signal 99` for a number that is none.
#[must_use]
pub fn signal_name(signal: i32) -> Cow<'static, str> {
    // glibc keeps the first two real-time signals for itself, so its SIGRTMIN is 34 (nptl(7)).
    const SIGRTMIN: i32 = 34;
    const SIGRTMAX: i32 = 64;
    match Signal::try_from(signal) {
        Ok(known) => Cow::Borrowed(known.as_str()),
        Err(_) if signal == SIGRTMIN => Cow::Borrowed("SIGRTMIN"),
        Err(_) if (SIGRTMIN..=SIGRTMAX).contains(&signal) => {
            Cow::Owned(format!("SIGRTMIN+{}", signal - SIGRTMIN))
        }
        Err(_) => Cow::Owned(format!("signal {signal}")),
    }
}

/// How many processes the out-of-memory killer has ended on this machine since boot, in whatever cgroup (`oom_kill` of
/// `/proc/vmstat`, Linux 4.13); `None` where the kernel does not say.
#[must_use]
pub fn out_of_memory_kills() -> Option<u64> {
    parse_out_of_memory_kills(&crate::proc_file::read("/proc/vmstat").ok()?)
}

fn parse_out_of_memory_kills(vmstat: &str) -> Option<u64> {
    vmstat.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

/// Reads a variable of the environment and removes it, so that no process started from here inherits it.
///
/// For the first instant of a process only, before it has started a thread.
#[must_use]
pub fn take_variable(name: &str) -> Option<OsString> {
    let value = std::env::var_os(name)?;
    // SAFETY: `remove_var` must not run while another thread reads or writes the environment other than through
    // `std::env`. Callers are child entries, which run before `main` on the only thread (the contract above). Were a
    // C constructor to have started a thread already, glibc's unsetenv(3) moves the pointers that follow down by one
    // and frees nothing, so a racing getenv(3) could miss a variable but not read freed memory.
    unsafe { std::env::remove_var(name) };
    Some(value)
}

/// Has `work` done when this process ends in good order, by returning from `main` or by exit(3), and before what others
/// have asked for earlier (atexit(3)). Not when it is killed or aborts.
///
/// # Errors
/// ENOMEM.
pub fn at_exit(work: extern "C" fn()) -> Result<()> {
    // SAFETY: atexit needs a function that may be called once, without arguments, from this library for as long as it is
    // loaded: `work` is a safe function, and code of this program is never unloaded before it ends.
    match unsafe { nix::libc::atexit(work) } {
        0 => Ok(()),
        _ => Err(Error::new("atexit", Errno::NOMEM)),
    }
}

/// Makes writing to a closed pipe or socket an error instead of death, as Rust's runtime does before `main`.
///
/// # Errors
/// The kernel's error of sigaction(2).
pub fn ignore_sigpipe() -> Result<()> {
    // SAFETY: `signal` is unsafe because a handler runs at any point of the program. `SigIgn` installs no handler,
    // and SIGPIPE has no other user in a process that has run no code yet.
    unsafe { nix::sys::signal::signal(Signal::SIGPIPE, SigHandler::SigIgn) }
        .map(|_| ())
        .map_err(|e| Error::new("signal(SIGPIPE, SIG_IGN)", e))
}

/// Replaces the whole environment of this process, for one that has one thread and is just starting. What no environment
/// can be asked for by name (an empty name, `=` in a name) is left as it is.
///
/// # Errors
/// EBUSY in a process with other threads, which may be reading it; then nothing was changed.
pub fn replace_environment(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Result<()> {
    check_single_threaded()?;
    let mut own: HashMap<OsString, OsString> = std::env::vars_os().collect();
    for (name, value) in variables {
        if own.remove(&name).as_ref() != Some(&value) {
            change_variable(&name, Some(&value));
        }
    }
    own.keys().for_each(|name| change_variable(name, None));
    Ok(())
}

/// Sets or removes a variable of the environment, in a process that has one thread and is just starting. What no environment
/// can hold (an empty name, `=` in a name, a zero byte) is left out.
///
/// # Errors
/// EBUSY in a process with other threads, which may be reading it; then nothing was changed.
pub fn set_variable(name: &OsStr, value: Option<&OsStr>) -> Result<()> {
    check_single_threaded()?;
    change_variable(name, value);
    Ok(())
}

/// Whether an environment can hold a variable with this name and value, and be asked for it: a name that is not empty and has no
/// `=` in it, and no zero byte in either.
#[must_use]
pub fn is_variable(name: &OsStr, value: Option<&OsStr>) -> bool {
    let name = name.as_encoded_bytes();
    let has_zero = |bytes: &[u8]| bytes.contains(&0);
    let is_name = !name.is_empty() && !name.contains(&b'=') && !has_zero(name);
    is_name && !value.is_some_and(|value| has_zero(value.as_encoded_bytes()))
}

fn check_single_threaded() -> Result<()> {
    if crate::fork::is_single_threaded() {
        return Ok(());
    }
    Err(Error::new("changing the environment of a process with threads", Errno::BUSY))
}

/// Only after [`check_single_threaded`], and before anything that starts a thread.
fn change_variable(name: &OsStr, value: Option<&OsStr>) {
    if !is_variable(name, value) {
        return;
    }
    match value {
        // SAFETY: no other thread reads or writes the environment: there is none (counted by the caller), and only this one
        // could have started one since.
        Some(value) => unsafe { std::env::set_var(name, value) },
        // SAFETY: as above.
        None => unsafe { std::env::remove_var(name) },
    }
}

/// What a process does with the signals of a terminal and of its children, to be put back in what is forked from it.
#[derive(Debug)]
pub struct Dispositions {
    /// Whole, flags and mask with the handler: who was installed with `SA_SIGINFO` is called with three arguments.
    previous: Vec<(Signal, SigAction)>,
}

/// Makes this process a server that a Ctrl-C for its clients leaves alone (SIGINT is ignored), and that learns how its
/// children end (SIGCHLD is not ignored, as it may have been by whoever executed this program).
///
/// # Errors
/// The kernel's error of sigaction(2).
pub fn serve_undisturbed() -> Result<Dispositions> {
    let mut dispositions = Dispositions { previous: Vec::new() };
    for (signal, handler) in [(Signal::SIGINT, SigHandler::SigIgn), (Signal::SIGCHLD, SigHandler::SigDfl)] {
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: neither of the two installs a handler; see `ignore_sigpipe`.
        match unsafe { sigaction(signal, &action) } {
            Ok(before) => dispositions.previous.push((signal, before)),
            Err(e) => {
                dispositions.restore();
                return Err(Error::new(format!("sigaction({signal})"), e));
            }
        }
    }
    Ok(dispositions)
}

impl Dispositions {
    /// Puts back what was there before.
    pub fn restore(&self) {
        for (signal, action) in &self.previous {
            // SAFETY: the handler was installed in this very program before, with these flags, so it is a function that may be
            // one and that takes the arguments which they promise; the kernel refuses nothing that it has given out itself.
            let _ = unsafe { sigaction(*signal, action) };
        }
    }
}

/// Asks the kernel to kill this process when the *thread* that started it ends (`PR_SET_PDEATHSIG`, prctl(2)).
///
/// The request is lost when the process executes a set-user-id program. It does not help when the parent was gone
/// before the call: look at the parent afterwards.
///
/// # Errors
/// The kernel's error of prctl(2).
pub fn die_with_parent() -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|e| Error::new("prctl(PR_SET_PDEATHSIG, SIGKILL)", e))
}

/// Ends this process at once (SIGKILL): nothing more of it runs.
///
/// # Errors
/// The kernel's error of kill(2).
pub fn kill_self() -> Result<()> {
    let me = rustix::process::getpid();
    rustix::process::kill_process(me, rustix::process::Signal::KILL)
        .map_err(|e| Error::new("kill(SIGKILL) of this process", e))
}

/// The process that this one is a child of now; 0 when it is outside of our process-number namespace.
#[must_use]
pub fn parent_pid() -> u32 {
    std::os::unix::process::parent_id()
}

/// Whether the calling thread is the one that `main` runs on. It ends only with the whole process.
#[must_use]
pub fn is_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

/// Names the calling thread, and with it the process when it is the main thread, as `ps` and `top` show it
/// (`/proc/PID/comm`). The kernel keeps the first 15 bytes. A name with a zero byte is left out.
pub fn set_thread_name(name: &str) {
    if let Ok(name) = CString::new(name) {
        // A name is for people; without it everything works the same.
        let _ = rustix::thread::set_name(&name);
    }
}

/// Sets the nice value of a process, from -20 (runs first) to 19 (runs when others do not want to). Linux keeps it for each
/// thread: this is about the main thread, and the threads that it starts from then on.
///
/// `pidfd` must be of a child that has not been collected, so that the number is still its own.
///
/// # Errors
/// EACCES when the value is lower than this user may set it, ESRCH when there is no such process (setpriority(2)).
pub fn set_nice(pidfd: &PidFd, value: i32) -> Result<()> {
    rustix::process::setpriority_process(raw_pid(pidfd), value)
        .map_err(|e| Error::new(format!("setpriority({value}) of process {}", pidfd.pid()), e))
}

/// Sets the processors that a process may run on, by number from 0. As for [`set_nice`], this is about the main thread and
/// those that it starts from then on.
///
/// # Errors
/// EINVAL when there is none among them that the process may have, or a number beyond 1023 (sched_setaffinity(2)).
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

fn raw_pid(pidfd: &PidFd) -> Option<rustix::process::Pid> {
    i32::try_from(pidfd.pid()).ok().and_then(rustix::process::Pid::from_raw)
}

/// Moves standard input to a descriptor of its own (close-on-exec, above 2) and opens `/dev/null` in its place.
///
/// # Errors
/// EMFILE when no descriptor is left, EBADF when standard input is closed.
pub fn take_stdin() -> Result<OwnedFd> {
    let stdin = std::io::stdin();
    let taken = rustix::io::fcntl_dupfd_cloexec(&stdin, 3)
        .map_err(|e| Error::new("fcntl(F_DUPFD_CLOEXEC) of standard input", e))?;
    null_stdin()?;
    Ok(taken)
}

/// Opens a folder to be somebody's working directory; relative to that of this process.
///
/// # Errors
/// The kernel's error of open(2).
pub fn open_dir(path: &Path) -> Result<OwnedFd> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        .map_err(|e| Error::new(format!("open of {}", path.display()), e))
}

/// Makes a folder the working directory of this process.
///
/// # Errors
/// The kernel's error of fchdir(2).
pub fn enter_dir(dir: impl AsFd) -> Result<()> {
    rustix::process::fchdir(dir).map_err(|e| Error::new("fchdir", e))
}

/// Makes `fd` the standard output of this process.
///
/// # Errors
/// The kernel's error of dup2(2).
pub fn replace_stdout(fd: impl AsFd) -> Result<()> {
    rustix::stdio::dup2_stdout(fd).map_err(|e| Error::new("dup2 to standard output", e))
}

/// Makes `fd` the standard error of this process.
///
/// # Errors
/// As [`replace_stdout`].
pub fn replace_stderr(fd: impl AsFd) -> Result<()> {
    rustix::stdio::dup2_stderr(fd).map_err(|e| Error::new("dup2 to standard error", e))
}

/// Makes `/dev/null` the standard input of this process.
///
/// # Errors
/// As [`replace_stdout`]; ENOENT where there is no `/dev/null`.
pub fn null_stdin() -> Result<()> {
    rustix::stdio::dup2_stdin(null()?).map_err(|e| Error::new("dup2 of /dev/null to standard input", e))
}

/// `/dev/null`, for reading and writing.
///
/// # Errors
/// The kernel's error of open(2).
pub fn null() -> Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())
        .map_err(|e| Error::new("open of /dev/null", e))
}

/// Time since boot, without the time that the machine was suspended (`CLOCK_MONOTONIC`): the same clock for every
/// process of the machine, so that moments in different processes can be ordered.
#[must_use]
pub fn monotonic_now() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_the_names_of_the_manual() {
        assert_eq!(signal_name(6), "SIGABRT");
        assert_eq!(signal_name(9), "SIGKILL");
        assert_eq!(signal_name(34), "SIGRTMIN");
        assert_eq!(signal_name(36), "SIGRTMIN+2");
        assert_eq!(signal_name(99), "signal 99");
    }

    #[test]
    fn out_of_memory_kills_are_counted_by_the_line_of_that_name() {
        let vmstat = "nr_free_pages 7\noom_kill_allocating_task 5\noom_kill 3\n";
        assert_eq!(parse_out_of_memory_kills(vmstat), Some(3));
        assert_eq!(parse_out_of_memory_kills("nr_free_pages 7\n"), None);
    }

    #[test]
    fn a_disposition_comes_back_with_its_flags_and_its_mask() {
        extern "C" fn handler(_: i32, _: *mut nix::libc::siginfo_t, _: *mut nix::libc::c_void) {}
        let flags = SaFlags::SA_SIGINFO | SaFlags::SA_ONSTACK;
        let action = SigAction::new(SigHandler::SigAction(handler), flags, SigSet::from(Signal::SIGUSR1));
        // SAFETY: the handler does nothing.
        let original = unsafe { sigaction(Signal::SIGINT, &action) }.unwrap();
        serve_undisturbed().unwrap().restore();
        // SAFETY: it was there before.
        let found = unsafe { sigaction(Signal::SIGINT, &original) }.unwrap();
        assert!(matches!(found.handler(), SigHandler::SigAction(_)));
        assert!(found.flags().contains(flags) && found.mask().contains(Signal::SIGUSR1));
    }

    #[test]
    fn a_process_that_is_no_child_is_lost_not_an_error() {
        let me = crate::pidfd::PidFd::of_self().unwrap();
        assert_eq!(reap(&me).unwrap(), Some(Ended::Lost));
    }

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

    #[test]
    fn a_missing_variable_is_none() {
        assert_eq!(take_variable("TENSORFERRY_NO_SUCH_VARIABLE"), None);
    }
}
