//! Receives from a fork server how one of its children ended.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use tensorferry_os::pidfd::PidFd;
use tensorferry_os::socket::{self, Interest};

use crate::exit::Ended;
use crate::forkserver::wire::{self, Word};

/// How long a server has to report a child's death, from the moment at which the death is seen. A stopped
/// server would report nothing until it continues. Only the exit code depends on this; the pidfd shows the
/// death itself.
pub(crate) const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// The socket on which a fork server reports about one child. It closes when the server ends, so no wait
/// outlasts the server.
#[derive(Debug)]
pub(crate) struct Relay {
    socket: Option<OwnedFd>,
    /// When the child was first seen dead.
    dead_since: Option<Instant>,
}

impl Relay {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket: Some(socket), dead_since: None }
    }

    /// How the child ended, if it is dead. `None` also for a dead child that its server has not reported yet,
    /// while it still has time to.
    ///
    /// # Blocking
    /// For a dead child, until its server has reaped it, for at most `patience` and until the server's time
    /// is over.
    pub(crate) fn look(
        &mut self,
        pidfd: &PidFd,
        patience: Duration,
    ) -> tensorferry_os::Result<Option<Ended>> {
        if self.dead_since.is_none() && !pidfd.is_dead()? {
            return Ok(None);
        }
        self.dead_since.get_or_insert_with(Instant::now);
        if let Some((socket, left)) = self.awaited() {
            let is_ready = socket::wait_ready(&[(socket, Interest::Readable)], Some(patience.min(left)))?;
            if is_ready == [false] && patience < left {
                return Ok(None);
            }
        }
        let Some(socket) = self.socket.take() else { return Ok(Some(Ended::StatusUnavailable)) };
        Ok(Some(match wire::hear(&socket) {
            Ok(Some(Word::Ended(status))) => status.into(),
            // No word, the end of the stream, or a word that cannot be decoded.
            Ok(None | Some(Word::Started { .. } | Word::Refused { .. })) | Err(_) => Ended::StatusUnavailable,
        }))
    }

    /// For a child that was seen dead and is not reported yet: the socket on which the report comes, and how
    /// much time its server still has.
    pub(crate) fn awaited(&self) -> Option<(BorrowedFd<'_>, Duration)> {
        let (socket, since) = (self.socket.as_ref()?, self.dead_since?);
        Some((socket.as_fd(), REPORT_TIMEOUT.saturating_sub(since.elapsed())))
    }

    /// Waits until the server has reaped the child or has ended, for two seconds at most. The child must be
    /// dead.
    pub(crate) fn wait_collected(&self) {
        if let Some(socket) = &self.socket {
            let _ = socket::wait_ready(&[(socket.as_fd(), Interest::Readable)], Some(REPORT_TIMEOUT));
        }
    }
}
