//! How a child ended that is not a child of this process, as its fork server tells.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use tensorferry_os::pidfd::PidFd;
use tensorferry_os::socket::{self, Interest};

use crate::exit::Ended;
use crate::forkserver::wire::{self, Word};

/// How long a server has between the death of a child and its word about it before it counts as one that says nothing for
/// now, because it is stopped. Nothing is decided by it: the word is taken whenever it comes.
const PATIENCE: Duration = Duration::from_secs(1);

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

    /// What is readable once there is news about the end; `None` when only the child's pidfd will tell.
    pub(crate) fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// How the child ended, if it has and the server has said so or can no longer say it.
    ///
    /// # Blocking
    /// When the child is dead, for at most a second, until its server has collected it.
    pub(crate) fn look(&mut self, pidfd: &PidFd) -> tensorferry_os::Result<Option<Ended>> {
        let is_dead = pidfd.is_dead()?;
        if is_dead && let Some(socket) = &self.socket {
            socket::wait_ready(&[(socket.as_fd(), Interest::Readable)], Some(PATIENCE))?;
        }
        if let Some(socket) = &self.socket {
            match wire::hear(socket) {
                Ok(None) => return Ok(None),
                Ok(Some(Word::Ended(status))) => return Ok(Some(status.into())),
                // The end of the stream, or nothing that can be understood: nothing more will come.
                Ok(Some(Word::Started { .. } | Word::Refused { .. })) | Err(_) => self.socket = None,
            }
        }
        Ok(is_dead.then_some(Ended::Untold))
    }

    /// Waits until the server has collected the child, or has ended. For a child that is dead.
    pub(crate) fn wait_collected(&self) {
        if let Some(socket) = &self.socket {
            let _ = socket::wait_ready(&[(socket.as_fd(), Interest::Readable)], Some(PATIENCE));
        }
    }
}
