//! Standard input, output and error of this process, and `/dev/null`.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
// Those of std come with buffers.
use rustix::stdio::{stderr, stdin, stdout};

use crate::descriptor::{FIRST_OTHER, off_standard_streams};
use crate::socket::is_socket;
use crate::{Error, Result};

/// Moves standard input to a new descriptor (close-on-exec, 3 or higher) and opens `/dev/null` in its place.
///
/// # Errors
/// EMFILE when no descriptor is left, EBADF when standard input is closed; as [`null_stdin`].
pub fn take_stdin() -> Result<OwnedFd> {
    let taken = rustix::io::fcntl_dupfd_cloexec(stdin(), FIRST_OTHER)
        .map_err(|e| Error::new("fcntl(F_DUPFD_CLOEXEC) of standard input", e))?;
    null_stdin()?;
    Ok(taken)
}

/// Whether standard input is a socket.
#[must_use]
pub fn is_stdin_a_socket() -> bool {
    is_socket(stdin())
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

/// Opens `/dev/null` for reading and writing. The descriptor is not 0, 1 or 2, also where those are closed,
/// so that it can be put there and closed.
///
/// # Errors
/// The kernel's error of open(2).
pub fn null() -> Result<OwnedFd> {
    open_null().and_then(off_standard_streams)
}

fn open_null() -> Result<OwnedFd> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| Error::new("open of /dev/null", e))
}

/// Makes `/dev/null` each of standard input, output and error that is closed, as Rust's runtime does before
/// `main`. What is opened from then on is none of them. Replaces nothing, also where another thread opens
/// something meanwhile.
///
/// # Errors
/// As [`null`].
pub fn open_closed_streams() -> Result<()> {
    let is_closed = |fd: BorrowedFd<'_>| rustix::io::fcntl_getfd(fd) == Err(Errno::BADF);
    if ![stdin(), stdout(), stderr()].into_iter().any(is_closed) {
        return Ok(());
    }
    loop {
        // The kernel gives out the lowest number that is free.
        let null = open_null()?;
        if null.as_raw_fd() >= FIRST_OTHER {
            return Ok(());
        }
        rustix::io::fcntl_setfd(&null, FdFlags::empty()).map_err(|e| Error::new("fcntl(F_SETFD)", e))?;
        // It stays open.
        let _ = null.into_raw_fd();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls `test` in a thread with a table of descriptors of its own, in which these are closed.
    fn without(closed: &'static [i32], test: impl FnOnce() + Send + 'static) {
        let in_a_table_of_its_own = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES).unwrap();
            closed.iter().for_each(|fd| nix::unistd::close(*fd).unwrap());
            test();
        });
        in_a_table_of_its_own.join().unwrap();
    }

    fn target(fd: i32) -> std::path::PathBuf {
        std::fs::read_link(format!("/proc/thread-self/fd/{fd}")).unwrap()
    }

    #[test]
    fn standard_input_that_was_closed_is_dev_null_afterwards() {
        without(&[0], || {
            assert!(null().unwrap().as_raw_fd() >= FIRST_OTHER);
            null_stdin().unwrap();
            assert_eq!(target(0).to_str(), Some("/dev/null"));
        });
    }

    #[test]
    fn streams_that_were_closed_are_dev_null_and_the_others_as_they_were() {
        without(&[0, 2], || {
            let stdout = target(1);
            for _ in 0..2 {
                open_closed_streams().unwrap();
                assert_eq!(
                    [0, 2].map(|fd| target(fd).to_str().map(str::to_owned)),
                    [(); 2].map(|()| Some("/dev/null".to_owned()))
                );
                assert_eq!(target(1), stdout);
            }
            assert_eq!(rustix::io::fcntl_getfd(std::io::stderr()).unwrap(), FdFlags::empty());
        });
    }

    #[test]
    fn neither_memory_nor_a_socket_is_a_standard_stream() {
        without(&[0, 1, 2], || {
            let (one, other) = crate::socket::pair().unwrap();
            let memory = crate::memfd::create_sealed("test", 4096).unwrap();
            let mut received = Vec::new();
            crate::socket::send_all(&one, b"x", &[memory.as_fd()]).unwrap();
            crate::socket::receive(&other, &mut [0], &mut received).unwrap();
            let numbers = [&one, &other, &memory, &received[0]].map(AsRawFd::as_raw_fd);
            assert!(numbers.iter().all(|number| *number >= FIRST_OTHER), "{numbers:?}");
        });
    }
}
