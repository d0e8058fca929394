//! How a child ended that is not a child of this process, as its fork server tells.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use tensorferry_os::pidfd::PidFd;
use tensorferry_os::socket::{self, Interest};

use crate::exit::Ended;
use crate::forkserver::wire::{self, Word};

/// How long a server has between the death of a child and its word about it. One that is stopped would say nothing for as
/// long as it is. Only the exit code depends on it: that the child is dead is known.
const PATIENCE: Duration = Duration::from_secs(2);

/// The socket over which a fork server tells about one child. It is closed by the server's end, so nobody waits for a
/// server that is gone.
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
    /// When the child is dead, until its server has collected it, for at most two seconds.
    pub(crate) fn look(&mut self, pidfd: &PidFd) -> tensorferry_os::Result<Option<Ended>> {
        if !pidfd.is_dead()? {
            return Ok(None);
        }
        let Some(socket) = self.socket.take() else { return Ok(Some(Ended::StatusUnavailable)) };
        socket::wait_ready(&[(socket.as_fd(), Interest::Readable)], Some(PATIENCE))?;
        Ok(Some(match wire::hear(&socket) {
            Ok(Some(Word::Ended(status))) => status.into(),
            // Nothing, the end of the stream, or what cannot be understood.
            Ok(None | Some(Word::Started { .. } | Word::Refused { .. })) | Err(_) => Ended::StatusUnavailable,
        }))
    }

    /// Waits until the server has collected the child, or has ended. For a child that is dead.
    pub(crate) fn wait_collected(&self) {
        if let Some(socket) = &self.socket {
            let _ = socket::wait_ready(&[(socket.as_fd(), Interest::Readable)], Some(PATIENCE));
        }
    }
}
