//! Flags and ownership of descriptors that other code has made.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::FdFlags;

use crate::{Error, Result};

/// Sets close-on-exec (`FD_CLOEXEC`, fcntl(2)): the descriptor is closed when this process executes another
/// program.
///
/// # Errors
/// The kernel's error of fcntl(2).
pub fn close_on_exec(fd: impl AsFd) -> Result<()> {
    let fd = fd.as_fd();
    let flags = rustix::io::fcntl_getfd(fd).map_err(|e| Error::new("fcntl(F_GETFD)", e))?;
    rustix::io::fcntl_setfd(fd, flags | FdFlags::CLOEXEC).map_err(|e| Error::new("fcntl(F_SETFD)", e))
}

/// The first number that is none of standard input, output and error.
pub(crate) const FIRST_OTHER: i32 = 3;

/// The same file under a number that is none of standard input, output and error. What is opened while one of
/// these is closed gets its number, and then has written over it whatever anybody prints: this process's
/// panics, a C library, a program that it executes.
///
/// # Errors
/// EMFILE when no descriptor is left.
pub(crate) fn off_standard_streams(fd: OwnedFd) -> Result<OwnedFd> {
    if fd.as_raw_fd() >= FIRST_OTHER {
        return Ok(fd);
    }
    rustix::io::fcntl_dupfd_cloexec(&fd, FIRST_OTHER).map_err(|e| Error::new("fcntl(F_DUPFD_CLOEXEC)", e))
}

/// A descriptor that this process keeps for other processes and does not use. It does not count as use of its
/// device, so a fork may ignore it ([`ForkError::Gpu`](crate::fork::ForkError::Gpu)).
#[derive(Debug)]
pub struct KeptForOthers {
    fd: OwnedFd,
}

/// The numbers of all such descriptors.
static KEPT: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

fn kept() -> MutexGuard<'static, BTreeSet<i32>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the descriptor with this number is kept for others.
pub(crate) fn is_kept_for_others(number: i32) -> bool {
    kept().contains(&number)
}

impl From<OwnedFd> for KeptForOthers {
    fn from(fd: OwnedFd) -> Self {
        kept().insert(fd.as_raw_fd());
        Self { fd }
    }
}

impl AsFd for KeptForOthers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for KeptForOthers {
    fn drop(&mut self) {
        // Before the descriptor is closed. After that, another file may have the number.
        kept().remove(&self.fd.as_raw_fd());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_kept_for_others_as_long_as_it_is_there() {
        let (fd, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let number = fd.as_raw_fd();
        let fd = KeptForOthers::from(OwnedFd::from(fd));
        assert!(fd.as_fd().as_raw_fd() == number && is_kept_for_others(number));
        drop(fd);
        assert!(!is_kept_for_others(number));
    }

    #[test]
    fn a_descriptor_that_was_to_stay_open_is_closed_on_exec() {
        let (fd, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        rustix::io::fcntl_setfd(&fd, FdFlags::empty()).unwrap();
        close_on_exec(&fd).unwrap();
        assert_eq!(rustix::io::fcntl_getfd(&fd).unwrap(), FdFlags::CLOEXEC);
    }
}
