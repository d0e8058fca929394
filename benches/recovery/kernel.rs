//! What the kernel alone takes to tell of a death: of a robust mutex's owner, and through a pidfd.
//!
//! # Safety
//!
//! A mutex of the C library lies in a file that two processes map, which only raw calls can reach. Both map
//! the same page for as long as they use it, one of them initialises it before the other knows of it, and
//! nobody else has the file.
#![expect(unsafe_code, reason = "a mutex in shared memory is reached by pointer only")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::ensure;
use memmap2::{MmapOptions, MmapRaw};
use nix::libc;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::killed_while;

const HOLDER: &str = "TENSORFERRY_BENCH_HOLDER";

/// Whether this process is the one to be killed.
pub(crate) fn is_holder() -> bool {
    std::env::var_os(HOLDER).is_some()
}

/// A mutex in a file of its own.
struct Shared {
    map: MmapRaw,
}

impl Shared {
    fn over(file: &File) -> anyhow::Result<Self> {
        let map = MmapOptions::new().len(size_of::<libc::pthread_mutex_t>()).map_raw(file)?;
        Ok(Self { map })
    }

    fn mutex(&self) -> *mut libc::pthread_mutex_t {
        self.map.as_mut_ptr().cast()
    }

    fn init(&self) -> anyhow::Result<()> {
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: it writes to the attributes, which are ours.
        done(unsafe { libc::pthread_mutexattr_init(attributes) })?;
        // SAFETY: the attributes were initialised.
        done(unsafe { libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) })?;
        // SAFETY: as above.
        done(unsafe { libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) })?;
        // SAFETY: the mutex is in the mapping, which starts at a page and is long enough; nobody else knows
        // of it yet.
        done(unsafe { libc::pthread_mutex_init(self.mutex(), attributes) })
    }

    /// The outcome of pthread_mutex_lock(3).
    fn lock(&self) -> i32 {
        // SAFETY: the mutex was initialised, by us or by whoever said so, and stays mapped.
        unsafe { libc::pthread_mutex_lock(self.mutex()) }
    }
}

fn done(code: i32) -> anyhow::Result<()> {
    ensure!(code == 0, std::io::Error::from_raw_os_error(code));
    Ok(())
}

/// Locks the mutex in standard input, says so, and waits to be killed.
pub(crate) fn hold() -> anyhow::Result<()> {
    let shared = Shared::over(&File::from(std::io::stdin().as_fd().try_clone_to_owned()?))?;
    shared.init()?;
    done(shared.lock())?;
    std::io::stdout().write_all(b"!")?;
    std::io::stdout().flush()?;
    loop {
        std::thread::park();
    }
}

struct Holder {
    child: Child,
    pidfd: OwnedFd,
    shared: Shared,
}

impl Holder {
    fn start() -> anyhow::Result<Self> {
        let file = File::from(rustix::fs::memfd_create("mutex", rustix::fs::MemfdFlags::CLOEXEC)?);
        file.set_len(4096)?;
        #[expect(clippy::disallowed_methods, reason = "the kernel is measured without the library")]
        let mut child = Command::new(std::env::current_exe()?)
            .env(HOLDER, "1")
            .stdin(file.try_clone()?)
            .stdout(Stdio::piped())
            .spawn()?;
        if let Some(stdout) = &mut child.stdout {
            stdout.read_exact(&mut [0])?;
        }
        let pidfd = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        Ok(Self { child, pidfd, shared: Shared::over(&file)? })
    }
}

/// From the kill of a mutex's owner to the return of whoever waits for the mutex.
pub(crate) fn robust_mutex() -> anyhow::Result<Duration> {
    let Holder { mut child, shared, .. } = Holder::start()?;
    let (time, outcome) = killed_while(|| Ok(child.kill()?), || Ok(shared.lock()))?;
    ensure!(outcome == libc::EOWNERDEAD, "the lock returned {outcome}");
    child.wait()?;
    Ok(time)
}

/// From the kill of the same process to the return of poll(2) on its pidfd.
pub(crate) fn pidfd() -> anyhow::Result<Duration> {
    let Holder { mut child, pidfd, .. } = Holder::start()?;
    let wait = || Ok(poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None)?);
    let (time, n_ready) = killed_while(|| Ok(child.kill()?), wait)?;
    ensure!(n_ready == 1, "poll returned {n_ready}");
    child.wait()?;
    Ok(time)
}
