//! Waking a thread that waits for descriptors (eventfd(2), poll(2)).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::{Error, Result};

/// A descriptor that is readable from [`EventFd::ring`] until [`EventFd::clear`]. It never blocks.
#[derive(Debug)]
pub struct EventFd {
    fd: OwnedFd,
}

impl EventFd {
    /// A new one, not readable.
    ///
    /// # Errors
    /// EMFILE when the process has no descriptor left.
    pub fn new() -> Result<Self> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::new("eventfd", e))?;
        Ok(Self { fd })
    }

    /// In a process that was forked, where it is still the parent's: makes it this process's own.
    ///
    /// # Errors
    /// As [`EventFd::new`].
    pub fn renew(&self) -> Result<()> {
        crate::fork::replace(&self.fd, &Self::new()?.fd)
    }

    /// Makes it readable. A counter that is full is readable already, so no failure is possible that matters.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
    }

    /// Makes it unreadable.
    pub fn clear(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0; 8]);
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Waits until one of `fds` is readable or closed by its other end, for at most `timeout` (for ever if `None`).
/// Returns for each whether it is.
///
/// # Errors
/// The kernel's error of poll(2).
pub fn poll_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<Vec<bool>> {
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    loop {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let spec = left.map(|t| Timespec {
            tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(t.subsec_nanos()),
        });
        match rustix::event::poll(&mut polled, spec.as_ref()) {
            Ok(_) => return Ok(polled.iter().map(|p| !p.revents().is_empty()).collect()),
            Err(Errno::INTR) => {}
            Err(e) => return Err(Error::new("poll", e)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_seen_until_cleared() {
        let (a, b) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        b.ring();
        let fds = [a.as_fd(), b.as_fd()];
        assert_eq!(poll_readable(&fds, None).unwrap(), [false, true]);
        b.clear();
        assert_eq!(poll_readable(&fds, Some(Duration::ZERO)).unwrap(), [false, false]);
    }
}
