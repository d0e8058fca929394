//! Forking this process into a copy that runs on in the same program (fork(2)).
//!
//! # Safety
//! A forked child has the memory of its parent, and one thread: the one that forked. The work of any other
//! thread stays half done in the child, and its locks stay locked. fork(2) and POSIX therefore allow the
//! child of a process with several threads only async-signal-safe functions. So [`fork_alone`] counts the
//! threads first, and forks only when there are none but the calling one and those that the caller says are
//! parked and hold nothing. No thread can start while it counts, because the only thread that could start one
//! is the one that counts. It calls the `fork` of the C library and not the bare system call, because that
//! one prepares the C library's locks and calls the handlers of pthread_atfork(3).
//!
//! A type's promises inside a process do not hold across two: memory that is mapped *shared* is one memory in
//! both. Code that lends references into such memory answers for the effect of a fork on them. In this
//! library that is `tensorferry-domain`, which tells the owning process from its forks.
#![expect(unsafe_code, reason = "fork and _exit are C functions")]

use std::fmt;
use std::io::Write as _;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::libc;

use crate::descriptor::is_kept_for_others;
use crate::flushing::flush_unless_locked;
use crate::{Error, Result, proc_file};

/// The bit of the flags in a thread's `stat` that says that it has begun to end (`PF_EXITING`,
/// linux/sched.h). Such a thread runs no more code of the program.
const PF_EXITING: u64 = 0x4;

/// How many times to look at threads that may be about to end.
const MAX_LOOKS: usize = 100;
/// How long to wait for threads that have begun to end.
const MAX_LEAVING: Duration = Duration::from_secs(1);

/// The first characters of the paths of GPU device files.
const GPU_DEVICES: [&str; 3] = ["/dev/nvidia", "/dev/dxg", "/dev/kfd"];

/// The process in which a fork returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The new process.
    Child,
    /// The old process.
    Parent {
        /// The child's process number.
        pid: u32,
    },
}

/// One thread of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its number (gettid(2)).
    pub tid: u32,
    /// Its name, as `ps` shows it; empty when it has no name of its own. A thread starts with the name of the
    /// thread that started it, and keeps it until it sets another one.
    pub name: String,
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "one without a name of its own ({})", self.tid),
            name => write!(f, "`{name}` ({})", self.tid),
        }
    }
}

/// Why this process could not be forked.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ForkError {
    /// There are threads that the child would not have. What they hold would be held forever.
    #[error(
        "the process has other threads: {}; end them first, or use another start method", listed(.threads)
    )]
    Threads {
        /// The threads that prevent the fork.
        threads: Vec<Thread>,
    },
    /// It has a GPU's device file open. A driver does not survive a fork: its threads and its mappings stay
    /// in the parent.
    #[error(
        "the process uses a GPU (it has {device} open), which a forked process cannot; use another start \
         method"
    )]
    Gpu {
        /// The device file.
        device: String,
    },
    /// The calling thread is not the main thread. The main thread has ended, so the kernel would call the
    /// child's parent dead.
    #[error("the calling thread is not the main thread of its process; use another start method")]
    NotMainThread,
    /// The kernel refused.
    #[error(transparent)]
    Os(#[from] Error),
}

crate::debug_as_display!(ForkError);

/// The list is empty where threads came and went during each look, so that the kernel counted more than were
/// listed.
fn listed(threads: &[Thread]) -> String {
    if threads.is_empty() {
        return "some that start and end all the time, or do not finish ending".to_owned();
    }
    threads.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// The number of the calling thread.
#[must_use]
pub fn thread_id() -> u32 {
    u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0)
}

/// The other threads of this process that still run its code.
///
/// # Errors
/// The kernel's error when `/proc` cannot be read.
pub fn other_threads() -> Result<Vec<Thread>> {
    list_threads()
}

/// The threads in `/proc/self/task` that are not exiting, without the calling one.
fn list_threads() -> Result<Vec<Thread>> {
    let dir = "/proc/self/task";
    let me = thread_id();
    let unreadable = |e| Error::new(format!("reading {dir}"), e);
    let comm = |tid: u32| proc_file::read(format!("{dir}/{tid}/comm"));
    let own_name = comm(me).map_err(unreadable)?;
    let mut running = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let Some(tid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if tid == me {
            continue;
        }
        // If its files are gone by now, the thread has ended.
        let Ok(stat) = proc_file::read(format!("{dir}/{tid}/stat")) else { continue };
        let Ok(name) = comm(tid) else { continue };
        if !is_exiting(&stat) {
            let name = if name == own_name { "" } else { name.trim_end() };
            running.push(Thread { tid, name: name.to_owned() });
        }
    }
    Ok(running)
}

/// The number of threads of this process, by the kernel's count (proc_pid_stat(5), field 20).
fn n_threads() -> Result<usize> {
    let path = "/proc/self/stat";
    let stat = proc_file::read(path).map_err(|e| Error::new(format!("reading {path}"), e))?;
    let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(17));
    Ok(field.and_then(|field| field.parse().ok()).unwrap_or(usize::MAX))
}

/// Whether the calling thread is the only one of its process. False where that cannot be read.
pub(crate) fn is_single_threaded() -> bool {
    n_threads().is_ok_and(|n| n == 1)
}

/// The result of one look at the threads that may prevent a fork.
struct Look {
    in_the_way: Vec<Thread>,
    /// Whether the list has as many threads as the kernel counts. Reading a directory that changes meanwhile
    /// may skip an entry.
    is_complete: bool,
}

fn look_for_threads_but(parked: &[u32]) -> Result<Look> {
    let running = list_threads()?;
    // The calling thread is not in the list. Exiting threads are not counted: one that ends before the
    // kernel's count is read would make up for a running one that the folder skipped.
    let n_listed = 1 + running.len();
    let in_the_way = running.into_iter().filter(|thread| !parked.contains(&thread.tid)).collect();
    Ok(Look { in_the_way, is_complete: n_threads()? <= n_listed })
}

/// The device file of a GPU that this process has open, as a GPU driver has once it is initialised. Memory of
/// a GPU that is kept for other processes is such a file too, but needs no driver, so it is ignored.
fn open_gpu() -> Option<String> {
    let links = std::fs::read_dir("/proc/self/fd").ok()?;
    let opened = links.filter_map(|link| {
        let link = link.ok()?.path();
        let number = link.file_name()?.to_str()?.parse().ok()?;
        Some((number, std::fs::read_link(link).ok()?.to_string_lossy().into_owned()))
    });
    gpu_among(opened)
}

fn gpu_among(mut opened: impl Iterator<Item = (i32, String)>) -> Option<String> {
    let is_gpu = |path: &str| GPU_DEVICES.iter().any(|device| path.starts_with(device));
    let used = opened.find(|(number, path)| is_gpu(path) && !is_kept_for_others(*number));
    used.map(|(_, path)| path)
}

/// Reads field 9 of `stat` (proc_pid_stat(5)), counted from the parenthesis that ends the name.
fn is_exiting(stat: &str) -> bool {
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6));
    flags.and_then(|flags| flags.parse::<u64>().ok()).is_some_and(|flags| flags & PF_EXITING != 0)
}

/// Forks this process if it has no threads but the calling one, which is its main thread, and those in
/// `parked`. These are parked and hold no lock until this has returned. Returns in both processes.
///
/// Output that the standard library and the C library have buffered is written first, so that it is written
/// once.
///
/// # Safety
/// - The threads in `parked` are outside of every function that locks or allocates until this has returned.
/// - The child uses no reference into memory that is mapped shared and that the parent may write or give to
///   others.
///
/// # Errors
/// [`ForkError::Threads`], [`ForkError::Gpu`], [`ForkError::NotMainThread`], or the kernel's error when
/// `/proc` cannot be read, before anything was done; EAGAIN or ENOMEM from fork(2).
pub unsafe fn fork_alone(parked: &[u32]) -> std::result::Result<Forked, ForkError> {
    let alone = Alone::check(parked)?;
    // SAFETY: `check` has just succeeded on this thread, which has done nothing since. The rest is the
    // caller's promise.
    unsafe { alone.fork() }
}

/// The result of a check that the calling thread may fork this process: no other thread was in the way, and
/// no GPU was in use.
#[derive(Clone, Copy, Debug)]
pub struct Alone {
    /// The check is about the thread that made it.
    _not_send: PhantomData<*const ()>,
}

impl Alone {
    /// Checks as [`fork_alone`] does. Retries for a moment while threads are about to end.
    ///
    /// # Errors
    /// As [`fork_alone`] before anything is done.
    pub fn check(parked: &[u32]) -> std::result::Result<Self, ForkError> {
        let mut look = look_for_threads_but(parked)?;
        let begin = Instant::now();
        let mut n_looks = 0;
        while !(look.in_the_way.is_empty() && look.is_complete) {
            n_looks += 1;
            // A thread that was joined may take a moment to end, also after it has left the program's code.
            let is_leaving = look.in_the_way.is_empty() && begin.elapsed() < MAX_LEAVING;
            if n_looks > MAX_LOOKS && !is_leaving {
                break;
            }
            std::thread::yield_now();
            look = look_for_threads_but(parked)?;
        }
        if !look.in_the_way.is_empty() || !look.is_complete {
            return Err(ForkError::Threads { threads: look.in_the_way });
        }
        if let Some(device) = open_gpu() {
            return Err(ForkError::Gpu { device });
        }
        if !crate::child::is_main_thread() {
            return Err(ForkError::NotMainThread);
        }
        Ok(Self { _not_send: PhantomData })
    }

    /// Forks as [`fork_alone`] does, without checking again.
    ///
    /// # Safety
    /// As [`fork_alone`], for the threads that were passed to [`Alone::check`] as parked. Since that call, no
    /// thread was started and no GPU driver was initialised in this process.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM from fork(2).
    pub unsafe fn fork(&self) -> std::result::Result<Forked, ForkError> {
        flush_outputs();
        // SAFETY: after fork(2) the child may call any function if no other thread was inside of one. There
        // are no other threads but the parked ones: `check` has counted them, and none was started since (the
        // caller's promise). The parked ones are outside of any function that locks (the caller's promise).
        // What the child does with shared memory is the caller's promise too.
        match unsafe { libc::fork() } {
            0 => Ok(Forked::Child),
            -1 => Err(Error::new("fork", std::io::Error::last_os_error()).into()),
            pid => Ok(Forked::Parent { pid: u32::try_from(pid).unwrap_or(0) }),
        }
    }
}

/// Ends this process at once, after writing buffered standard output. Functions that were registered for its
/// exit (atexit(3)) do not run: in a forked child they are the parent's.
///
/// Another thread may hold the lock of an output, perhaps for ever. That output is not written then, as at
/// [`std::process::exit`]. Of the C library's outputs none is written that comes after it in that library's
/// list.
///
/// # Blocking
/// While output is written. If another thread holds a lock, for some hundredths of a second.
pub fn exit_at_once(code: i32) -> ! {
    if is_single_threaded() {
        flush_outputs();
    } else {
        flush_unless_locked(flush_standard_output);
        flush_unless_locked(flush_c_outputs);
    }
    // SAFETY: _exit(2) has no precondition. It ends the process without running any more of its code.
    unsafe { libc::_exit(code) }
}

/// Writes buffered output. An error has no one to be reported to, so it is ignored.
fn flush_outputs() {
    flush_standard_output();
    flush_c_outputs();
}

fn flush_standard_output() {
    let _ = std::io::stdout().flush();
}

fn flush_c_outputs() {
    // SAFETY: fflush(3) of NULL flushes all output streams of the C library, and locks each of them itself.
    let _ = unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// A descriptor whose open file a forked child replaces by one of its own, under the same number.
///
/// A child shares the open files of its descriptors with its parent. [`RenewableFd::replace`] closes the
/// parent's in the child, and all code there that knows the number uses the new one. Lend it only to code
/// that expects this.
#[derive(Debug)]
pub struct RenewableFd {
    fd: OwnedFd,
}

impl RenewableFd {
    /// Puts the open file of `with` under this descriptor's number.
    ///
    /// # Errors
    /// The kernel's error of dup3(2); then nothing was changed.
    pub fn replace(&self, with: impl AsFd) -> Result<()> {
        // SAFETY: dup3(2) closes the open file behind `self.fd` in this process and puts that of `with` in
        // its place. Both numbers are open, because `self` owns the one and `with` borrows the other, and
        // stay open. `self` lends its number only as one whose open file may change.
        match unsafe { libc::dup3(with.as_fd().as_raw_fd(), self.fd.as_raw_fd(), libc::O_CLOEXEC) } {
            -1 => Err(Error::new("dup3", std::io::Error::last_os_error())),
            _ => Ok(()),
        }
    }
}

impl From<OwnedFd> for RenewableFd {
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for RenewableFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_ends_is_told_from_one_that_runs() {
        let stat = |flags: u64| format!("7 (a) b) S 1 7 7 0 -1 {flags} 1 0 0 0 0 0");
        assert!(is_exiting(&stat(0x40_0044)));
        assert!(!is_exiting(&stat(0x40_0040)));
        assert!(!is_exiting("garbage"));
    }

    #[test]
    fn a_process_with_threads_is_not_forked_and_they_are_named() {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        // A thread names itself.
        let (named, name) = std::sync::mpsc::channel();
        let work = move || {
            named.send(()).unwrap();
            let _ = wait.recv();
        };
        let thread = std::thread::Builder::new().name("loader".into()).spawn(work).unwrap();
        name.recv().unwrap();
        // SAFETY: no thread is named as parked, and there is no fork: the test runner has threads.
        let error = unsafe { fork_alone(&[]) }.unwrap_err();
        assert!(error.to_string().contains("`loader`"), "{error}");
        drop(go);
        let _ = thread.join();
    }

    #[test]
    fn a_gpu_is_in_use_unless_its_file_is_kept_for_others() {
        use std::os::fd::{AsRawFd as _, OwnedFd};
        let (fd, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (kept, used) = (fd.as_raw_fd(), other.as_raw_fd());
        let opened =
            |number| [(number, "/dev/nvidiactl".to_owned()), (0, "/dev/null".to_owned())].into_iter();
        let keeping = crate::descriptor::KeptForOthers::from(OwnedFd::from(fd));
        assert_eq!(gpu_among(opened(kept)), None);
        assert_eq!(gpu_among(opened(kept).chain(opened(used))).as_deref(), Some("/dev/nvidiactl"));
        drop(keeping);
        assert_eq!(gpu_among(opened(kept)).as_deref(), Some("/dev/nvidiactl"));
    }

    #[test]
    fn the_kernel_counts_threads_that_a_list_could_miss() {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || wait.recv().is_err());
        // Other tests start and end threads meanwhile, so only a bound is certain.
        assert!(n_threads().unwrap() >= 2 && !is_single_threaded());
        drop(go);
        assert!(waiting.join().unwrap());
    }

    #[test]
    fn threads_that_no_look_could_list_are_told_as_such() {
        let error = ForkError::Threads { threads: Vec::new() }.to_string();
        assert!(error.contains("other threads: some that start and end"), "{error}");
    }
}
