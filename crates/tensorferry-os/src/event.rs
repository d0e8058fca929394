//! Descriptors that wake a waiting thread, and waiting for descriptors (eventfd(2), timerfd_create(2),
//! poll(2)).

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};

use crate::descriptor::off_standard_streams;
use crate::fork::RenewableFd;
use crate::{Error, Result};

/// A descriptor that is readable from [`EventFd::signal`] until [`EventFd::clear`]. It never blocks.
#[derive(Debug)]
pub struct EventFd {
    fd: RenewableFd,
}

impl EventFd {
    /// Makes an event that is not signalled.
    ///
    /// # Errors
    /// EMFILE when the process has no descriptor left.
    pub fn new() -> Result<Self> {
        let fd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::new("eventfd", e))?;
        Ok(Self { fd: off_standard_streams(fd)?.into() })
    }

    /// In a forked process, where the descriptor is still shared with the parent: replaces it with one of
    /// this process.
    ///
    /// # Errors
    /// As [`EventFd::new`].
    pub fn renew(&self) -> Result<()> {
        self.fd.replace(Self::new()?)
    }

    /// Makes it readable. A full counter is readable already, so the error of write(2) does not matter.
    pub fn signal(&self) {
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

/// A descriptor that becomes readable after a set time, and stays so until [`Timer::clear`]. It never blocks.
#[derive(Debug)]
pub struct Timer {
    fd: RenewableFd,
}

impl Timer {
    /// Makes a timer that is not set.
    ///
    /// # Errors
    /// EMFILE when the process has no descriptor left.
    pub fn new() -> Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let fd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(|e| Error::new("timerfd_create", e))?;
        Ok(Self { fd: off_standard_streams(fd)?.into() })
    }

    /// In a forked process, where the descriptor is still shared with the parent: replaces it with one of
    /// this process, which is not set.
    ///
    /// # Errors
    /// As [`Timer::new`].
    pub fn renew(&self) -> Result<()> {
        self.fd.replace(Self::new()?)
    }

    /// Makes it readable in `after`, or at once if that is zero, and unreadable until then.
    pub fn set(&self, after: Duration) {
        // A zero time would disarm the timer.
        let it_value = timespec(after.max(Duration::from_nanos(1)));
        let once = Itimerspec { it_interval: timespec(Duration::ZERO), it_value };
        // Cannot fail: the descriptor and the time are valid.
        let _ = rustix::time::timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once);
    }

    /// Makes it unreadable. Returns whether it was readable.
    pub fn clear(&self) -> bool {
        rustix::io::read(&self.fd, &mut [0; 8]).is_ok()
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn timespec(t: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(t.subsec_nanos()) }
}

/// Waits until one of `fds` is readable or its other end is closed, for at most `timeout` (without limit if
/// `None`). Returns for each descriptor whether it is.
///
/// # Errors
/// The kernel's error of poll(2). EBADF when other code has closed one of the descriptors, as daemons close
/// all of theirs. poll(2) would report that as an event again and again.
///
/// # Blocking
/// Until a descriptor is ready or `timeout` has passed.
pub fn poll_readable(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Result<Vec<bool>> {
    let deadline = timeout.and_then(|t| Instant::now().checked_add(t));
    let mut polled: Vec<PollFd<'_>> =
        fds.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    loop {
        let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
        let spec = left.map(timespec);
        match rustix::event::poll(&mut polled, spec.as_ref()) {
            Ok(_) if polled.iter().any(|p| p.revents().contains(PollFlags::NVAL)) => {
                return Err(Error::new("poll of what was closed", Errno::BADF));
            }
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
    fn a_timer_is_readable_when_its_time_has_come_until_cleared() {
        let timer = Timer::new().unwrap();
        let is_readable = |timeout| poll_readable(&[timer.as_fd()], timeout).unwrap() == [true];
        assert!(!timer.clear() && !is_readable(Some(Duration::ZERO)));
        let begin = Instant::now();
        timer.set(Duration::from_millis(1));
        assert!(is_readable(None));
        assert!(begin.elapsed() >= Duration::from_millis(1));
        assert!(timer.clear() && !timer.clear() && !is_readable(Some(Duration::ZERO)));
        timer.set(Duration::ZERO);
        assert!(is_readable(None));
        timer.set(Duration::from_secs(3600));
        assert!(!is_readable(Some(Duration::ZERO)), "it counts from the last time on");
    }

    #[test]
    fn a_signal_is_seen_until_cleared() {
        let (a, b) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        b.signal();
        let fds = [a.as_fd(), b.as_fd()];
        assert_eq!(poll_readable(&fds, None).unwrap(), [false, true]);
        b.clear();
        assert_eq!(poll_readable(&fds, Some(Duration::ZERO)).unwrap(), [false, false]);
    }

    #[test]
    fn what_cannot_be_polled_is_an_error_and_no_event() {
        // To poll(2), an `O_PATH` descriptor is the same as a closed one.
        let path = crate::child::open_dir(std::path::Path::new(".")).unwrap();
        let event = EventFd::new().unwrap();
        let error = poll_readable(&[event.as_fd(), path.as_fd()], None).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::BADF.raw_os_error()), "{error}");
    }
}
