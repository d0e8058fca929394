//! Receives from a fork server how one of its children ended.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tensorferry_os::pidfd::PidFd;
use tensorferry_os::socket::{self, Interest};

use crate::exit::Ended;
use crate::forkserver::wire::{self, Word};

/// How long a server has to report a child's death. A stopped server would report nothing until it continues.
/// Only the exit code depends on this; the pidfd shows the death itself.
const REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// The socket on which a fork server reports about one child. It closes when the server ends, so no wait
/// outlasts the server.
#[derive(Debug)]
pub(crate) struct Relay {
    socket: Option<OwnedFd>,
}

impl Relay {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket: Some(socket) }
    }

    /// How the child ended, if it is dead.
    ///
    /// # Blocking
    /// For a dead child, until its server has reaped it, for two seconds at most.
    pub(crate) fn look(&mut self, pidfd: &PidFd) -> tensorferry_os::Result<Option<Ended>> {
        if !pidfd.is_dead()? {
            return Ok(None);
        }
        let Some(socket) = self.socket.take() else { return Ok(Some(Ended::StatusUnavailable)) };
        socket::wait_ready(&[(socket.as_fd(), Interest::Readable)], Some(REPORT_TIMEOUT))?;
        Ok(Some(match wire::hear(&socket) {
            Ok(Some(Word::Ended(status))) => status.into(),
            // No word, the end of the stream, or a word that cannot be decoded.
            Ok(None | Some(Word::Started { .. } | Word::Refused { .. })) | Err(_) => Ended::StatusUnavailable,
        }))
    }

    /// Waits until the server has reaped the child or has ended, for two seconds at most. The child must be
    /// dead.
    pub(crate) fn wait_collected(&self) {
        if let Some(socket) = &self.socket {
            let _ = socket::wait_ready(&[(socket.as_fd(), Interest::Readable)], Some(REPORT_TIMEOUT));
        }
    }
}
