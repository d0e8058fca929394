//! Lines of text between a test and a child, with descriptors beside them.

use std::cell::RefCell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use tensorferry_os::socket::{self, Interest};

/// One end of a Unix socket that carries lines.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    unread: RefCell<Unread>,
}

#[derive(Debug, Default)]
struct Unread {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
}

impl Link {
    /// Two ends; the second one is for the other process.
    #[must_use]
    pub fn pair() -> (Self, OwnedFd) {
        let (ours, theirs) = socket::pair().unwrap();
        (Self::over(ours), theirs)
    }

    /// Uses this end.
    #[must_use]
    pub fn over(socket: OwnedFd) -> Self {
        Self { socket, unread: RefCell::default() }
    }

    /// Sends a line. That the other end is gone is no error here: whoever waits for an answer learns it.
    pub fn say(&self, line: &str) {
        self.say_with(line, &[]);
    }

    /// Sends a line with descriptors beside it.
    pub fn say_with(&self, line: &str, fds: &[BorrowedFd<'_>]) {
        assert!(!line.contains('\n'), "one line at a time");
        let _ = socket::send_all(&self.socket, format!("{line}\n").as_bytes(), fds);
    }

    /// Waits for a line, until `deadline` if there is one. `None` when the other end is gone.
    ///
    /// # Errors
    /// The time is up.
    pub fn hear_until(&self, deadline: Option<Instant>) -> Result<Option<String>, TimedOut> {
        let mut unread = self.unread.borrow_mut();
        loop {
            if let Some(end) = unread.bytes.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = unread.bytes.drain(..=end).take(end).collect();
                return Ok(Some(String::from_utf8(line).unwrap()));
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let ready =
                socket::wait_ready(&[(self.socket.as_fd(), Interest::Readable)], left).unwrap_or_default();
            if ready != [true] {
                return Err(TimedOut);
            }
            let mut chunk = [0; 4096];
            let Unread { bytes, fds } = &mut *unread;
            match socket::try_receive(&self.socket, &mut chunk, fds) {
                // The other end died with something of ours unread.
                Err(_) => return Ok(None),
                Ok(Some(0)) => return Ok(None),
                Ok(n) => bytes.extend_from_slice(&chunk[..n.unwrap_or(0)]),
            }
        }
    }

    /// Whether the other end has sent something that was not heard yet, or is gone.
    #[must_use]
    pub fn has_more(&self) -> bool {
        let readable = [(self.socket.as_fd(), Interest::Readable)];
        !self.unread.borrow().bytes.is_empty()
            || socket::wait_ready(&readable, Some(Duration::ZERO)).unwrap_or_default() == [true]
    }

    /// As [`Link::hear_until`], for at most `timeout`.
    ///
    /// # Errors
    /// The time is up.
    pub fn hear_within(&self, timeout: Duration) -> Result<Option<String>, TimedOut> {
        self.hear_until(Some(Instant::now() + timeout))
    }

    /// Takes the oldest descriptor that came with the lines heard so far.
    pub fn take_fd(&self) -> Option<OwnedFd> {
        let fds = &mut self.unread.borrow_mut().fds;
        (!fds.is_empty()).then(|| fds.remove(0))
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// No line came in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedOut;
