//! A copy of this process that goes on in the same program (fork(2)).
//!
//! # Safety
//! A forked child has the memory of its parent and one thread, the one that forked. What another thread was doing at that
//! moment stays half done there, and what it had locked stays locked. fork(2) and POSIX therefore allow a child of a process
//! with several threads nothing but async-signal-safe functions. So [`fork_alone`] counts the threads first, and forks only
//! when there is none but the calling one and those that its caller says stand still and hold nothing. While it
//! counts nobody can start another one: the only thread that could is the one that counts. The C library's own `fork` is
//! used, not the bare system call, because it prepares the C library's locks and calls the handlers of pthread_atfork(3).
//!
//! What types promise inside a process they do not promise across two: memory that is mapped *shared* is one memory in both.
//! Whoever hands out references into such memory answers for what a fork does to them; in this library that is
//! `tensorferry-domain` with its mark of who is at home.
#![expect(unsafe_code, reason = "fork and _exit are C functions")]

use std::fmt;
use std::io::Write as _;
use std::marker::PhantomData;

use nix::libc;

use crate::descriptor::is_kept_for_others;
use crate::{Error, Result, proc_file};

/// The bit of a thread's flags in its `stat` that says it has begun to end (`PF_EXITING`, linux/sched.h): it has left the
/// program's code for good.
const PF_EXITING: u64 = 0x4;

/// How often threads are looked at that may be about to end.
const MAX_LOOKS: usize = 100;

/// How the names of the device files of GPUs begin.
const GPU_DEVICES: [&str; 3] = ["/dev/nvidia", "/dev/dxg", "/dev/kfd"];

/// Which of the two processes this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forked {
    /// The new one.
    Child,
    /// The old one, with the number of the new one.
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
    /// Its name, as `ps` shows it; empty when it has none of its own. A thread begins with the name of the one that started it,
    /// and is known by that until it has given itself another.
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
    /// There are threads that the child would not have, and what they hold would be held for ever.
    #[error(
        "the process has other threads: {}; end them first, or use another start method", listed(.threads)
    )]
    Threads {
        /// Those that are in the way.
        threads: Vec<Thread>,
    },
    /// It has a GPU's device file open, and a driver does not survive a fork: its threads and its mappings stay behind.
    #[error(
        "the process uses a GPU (it has {device} open), which a forked process cannot; use another start method"
    )]
    Gpu {
        /// The device file.
        device: String,
    },
    /// The main thread has ended, so the child would have a parent that the kernel calls dead.
    #[error("the calling thread is not the main thread of its process; use another start method")]
    NotMainThread,
    /// The kernel refused.
    #[error(transparent)]
    Os(#[from] Error),
}

crate::debug_as_display!(ForkError);

/// None are listed where the kernel counts some that came and went during each look.
fn listed(threads: &[Thread]) -> String {
    if threads.is_empty() {
        return "some that start and end all the time".to_owned();
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
    Ok(list_threads()?.running)
}

/// What `/proc/self/task` lists.
struct Listed {
    running: Vec<Thread>,
    n_exiting: usize,
}

fn list_threads() -> Result<Listed> {
    let dir = "/proc/self/task";
    let me = thread_id();
    let unreadable = |e| Error::new(format!("reading {dir}"), e);
    let comm = |tid: u32| proc_file::read(format!("{dir}/{tid}/comm"));
    let own_name = comm(me).map_err(unreadable)?;
    let (mut running, mut n_exiting) = (Vec::new(), 0);
    for entry in std::fs::read_dir(dir).map_err(unreadable)? {
        let name = entry.map_err(unreadable)?.file_name();
        let Some(tid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if tid == me {
            continue;
        }
        // A thread whose files are gone by now has ended.
        let Ok(stat) = proc_file::read(format!("{dir}/{tid}/stat")) else { continue };
        let Ok(name) = comm(tid) else { continue };
        if is_exiting(&stat) {
            n_exiting += 1;
        } else {
            let name = if name == own_name { "" } else { name.trim_end() };
            running.push(Thread { tid, name: name.to_owned() });
        }
    }
    Ok(Listed { running, n_exiting })
}

/// How many threads this process has, as the kernel counts them (proc_pid_stat(5), field 20).
fn n_threads() -> Result<usize> {
    let path = "/proc/self/stat";
    let stat = proc_file::read(path).map_err(|e| Error::new(format!("reading {path}"), e))?;
    let field = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(17));
    Ok(field.and_then(|field| field.parse().ok()).unwrap_or(usize::MAX))
}

/// Whether the calling thread is the only one of its process. False where that cannot be known.
pub(crate) fn is_single_threaded() -> bool {
    n_threads().is_ok_and(|n| n == 1)
}

/// What one look says about the threads that may be in the way of a fork.
struct Look {
    in_the_way: Vec<Thread>,
    /// A folder that changes while it is read may skip an entry; the kernel's own count says that none was skipped.
    is_complete: bool,
}

fn look_for_threads_but(parked: &[u32]) -> Result<Look> {
    let Listed { running, n_exiting } = list_threads()?;
    // The calling one is not listed.
    let n_listed = 1 + running.len() + n_exiting;
    let in_the_way = running.into_iter().filter(|thread| !parked.contains(&thread.tid)).collect();
    Ok(Look { in_the_way, is_complete: n_threads()? <= n_listed })
}

/// The device file of a GPU that this process has open, as a driver of it has that was initialised here. Memory of a GPU that is
/// kept for other processes is such a file, too, and needs no driver.
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

/// Field 9 of `stat` (proc_pid_stat(5)), counted from the parenthesis that ends the name.
fn is_exiting(stat: &str) -> bool {
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(6));
    flags.and_then(|flags| flags.parse::<u64>().ok()).is_some_and(|flags| flags & PF_EXITING != 0)
}

/// Forks this process, if it has no thread but the calling one, its main thread, and those with the numbers `parked`, which
/// stand still and hold no lock until this has returned. Returns in both processes.
///
/// What the standard library and the C library have buffered for standard output is written out first, so that
/// it is written once.
///
/// # Safety
/// - The threads in `parked` are outside of every function that locks or allocates until this has returned.
/// - The child uses no reference into memory that is mapped shared and that the parent may write or give to others.
///
/// # Errors
/// [`ForkError::Threads`] and [`ForkError::NotMainThread`] before anything was done; EAGAIN or ENOMEM from fork(2).
pub unsafe fn fork_alone(parked: &[u32]) -> std::result::Result<Forked, ForkError> {
    let alone = Alone::check(parked)?;
    // SAFETY: checked just now, on this thread, which has done nothing since; the rest is the caller's promise.
    unsafe { alone.fork() }
}

/// That this process may be forked by the calling thread, as of a moment: no other thread was in the way, and no GPU in use.
#[derive(Clone, Copy, Debug)]
pub struct Alone {
    /// It is about the thread that has looked.
    _not_send: PhantomData<*const ()>,
}

impl Alone {
    /// Looks, as [`fork_alone`] does.
    ///
    /// # Errors
    /// As [`fork_alone`] before anything is done.
    pub fn check(parked: &[u32]) -> std::result::Result<Self, ForkError> {
        let mut look = look_for_threads_but(parked)?;
        for _ in 0..MAX_LOOKS {
            if look.in_the_way.is_empty() && look.is_complete {
                break;
            }
            // A thread that was joined may take a moment to leave.
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

    /// Forks, as [`fork_alone`] does, without looking again.
    ///
    /// # Safety
    /// As [`fork_alone`], for the threads that were named as parked; and since [`Alone::check`] no thread was started and no
    /// driver of a GPU initialised in this process.
    ///
    /// # Errors
    /// EAGAIN or ENOMEM from fork(2).
    pub unsafe fn fork(&self) -> std::result::Result<Forked, ForkError> {
        flush_outputs();
        // SAFETY: fork(2) may be followed by any function in the child if no other thread was inside of one. There is none but
        // the parked ones (counted by `check`; none was started since, the caller's promise), and they stand still outside of any
        // function that locks (the caller's promise). What the child does with memory that is shared is its caller's promise too.
        match unsafe { libc::fork() } {
            0 => Ok(Forked::Child),
            -1 => Err(Error::new("fork", std::io::Error::last_os_error()).into()),
            pid => Ok(Forked::Parent { pid: u32::try_from(pid).unwrap_or(0) }),
        }
    }
}

/// Ends this process at once, after writing out what is buffered for standard output. What the program has asked for at its
/// exit (atexit(3)) is not done: in a forked child that is the parent's business.
pub fn exit_at_once(code: i32) -> ! {
    flush_outputs();
    // SAFETY: _exit(2) has no precondition; it ends the process without running any more of its code.
    unsafe { libc::_exit(code) }
}

/// Writes out what is buffered. That it cannot be written has nobody to be told.
fn flush_outputs() {
    let _ = std::io::stdout().flush();
    // SAFETY: fflush(3) of NULL flushes all output streams of the C library, which locks each of them itself.
    let _ = unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Puts another open file under the number of `fd`, so that this process lets go of the one that it shares with whoever it
/// was forked from, while all that know the number go on using it.
///
/// # Errors
/// The kernel's error of dup3(2).
pub fn replace(fd: &impl std::os::fd::AsRawFd, with: &impl std::os::fd::AsRawFd) -> Result<()> {
    // SAFETY: dup3(2) closes `fd`'s open file in this process and puts that of `with` in its place. Both numbers are owned by
    // their callers and stay valid descriptors; what is behind `fd` is meant to change, which its owner asks for here.
    match unsafe { libc::dup3(with.as_raw_fd(), fd.as_raw_fd(), libc::O_CLOEXEC) } {
        -1 => Err(Error::new("dup3", std::io::Error::last_os_error())),
        _ => Ok(()),
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
        // SAFETY: no thread is named as parked, and no fork comes of it: the test runner has threads.
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
        // Other tests start and end threads beside this one, so only a bound is certain.
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
