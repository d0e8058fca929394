//! The child's end of the control socket.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tensorferry_os::child as os;
use tensorferry_os::pidfd::PidFd;
use tensorferry_os::socket;

use crate::error::ProtocolError;
use crate::leash;
use crate::parent::ParentProcess;
use crate::protocol::{self, Frame, Hello, PAYLOAD_PREFIX_LEN_BYTES, PREFIX_LEN_BYTES};

/// The socket to the parent.
#[derive(Debug)]
pub(crate) struct Link {
    // The lock keeps a frame in one piece, because the panic hooks of several threads may write at once.
    // `None` once this process has closed the socket.
    socket: Mutex<Option<OwnedFd>>,
}

/// Which process is this process's parent in the kernel's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parent {
    /// The process at the other end of the socket.
    Peer,
    /// A fork server of that process.
    Other,
}

/// How many descriptors come with every hello: the parent's pidfd and its leash, in this order.
pub(crate) const N_OWN_FDS: usize = 2;

/// The descriptors that came with the hello, without the leash: the parent's pidfd and those that the caller
/// passed.
#[derive(Debug)]
pub(crate) struct Fds {
    pub(crate) parent: ParentProcess,
    pub(crate) passed: Vec<OwnedFd>,
}

impl Link {
    /// Takes the socket from standard input and reads the hello. Makes sure that the parent is alive and that
    /// this process will not outlive it.
    ///
    /// Does not wait for a parent that is gone: the hello was in the socket before this process existed.
    pub(crate) fn meet(nonce: &OsStr) -> Result<(Self, Hello, Fds), ProtocolError> {
        // First, to shorten the time in which the parent's death would go unnoticed.
        os::die_with_parent()?;
        if !os::is_stdin_a_socket() {
            return Err(ProtocolError::NoSocket);
        }
        Self::greet(os::take_stdin()?, nonce, Parent::Peer)
    }

    /// As [`Link::meet`], over a given socket.
    pub(crate) fn greet(
        socket: OwnedFd,
        nonce: &OsStr,
        whose: Parent,
    ) -> Result<(Self, Hello, Fds), ProtocolError> {
        let (hello, mut fds) = greeting(&socket)?;
        if nonce != OsStr::new(&hello.nonce) {
            return Err(ProtocolError::WrongNonce);
        }
        let missing = ProtocolError::Descriptors { sent: hello.n_fds, got: fds.len() };
        if usize::try_from(hello.n_fds) != Ok(fds.len()) || fds.len() < N_OWN_FDS {
            return Err(missing);
        }
        let passed = fds.split_off(N_OWN_FDS);
        let [parent, leash] = <[OwnedFd; N_OWN_FDS]>::try_from(fds).map_err(|_| missing)?;
        let parent = PidFd::from_fd(parent, hello.parent_pid);
        // A parent that is exiting closes its files before its pidfd shows the end.
        if !leash::arm(&leash)? {
            return Err(ProtocolError::Orphan { pid: hello.parent_pid });
        }
        // No signal comes for a parent that had died before the request for it. Then the pidfd shows the
        // death. Or the parent's last thread is just ending, and this process already has another parent.
        let kernels_parent = os::parent_pid();
        let is_other = kernels_parent != 0 && kernels_parent != hello.parent_pid;
        if parent.is_dead()? || (whose == Parent::Peer && is_other) {
            return Err(ProtocolError::Orphan { pid: hello.parent_pid });
        }
        os::set_thread_name(&hello.name);
        let link = Self { socket: Mutex::new(Some(socket)) };
        link.send(&Frame::Entered);
        let parent = ParentProcess::new(&hello.parent_name, parent);
        Ok((link, hello, Fds { parent, passed }))
    }

    /// Reads the payload that follows the hello.
    pub(crate) fn read_payload(&self) -> Result<Vec<u8>, ProtocolError> {
        let socket = self.lock();
        let Some(socket) = &*socket else { return Err(ProtocolError::NoSocket) };
        let prefix = read_exactly(socket, PAYLOAD_PREFIX_LEN_BYTES)?;
        let prefix = prefix.first_chunk().copied().unwrap_or_default();
        read_exactly(socket, protocol::payload_len_bytes(prefix)?)
    }

    /// Sends a frame. Ignores errors: the parent is gone and this process is about to be killed, or the
    /// parent no longer reads.
    pub(crate) fn send(&self, frame: &Frame) {
        if let Ok(bytes) = frame.encode()
            && let Some(socket) = &*self.lock()
        {
            let _ = socket::send_all(socket, &bytes, &[]);
        }
    }

    /// Closes the socket in this process.
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<OwnedFd>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads exactly `len_bytes`. Memory grows with the bytes received, not with the announced length.
fn read_exactly(socket: &OwnedFd, len_bytes: usize) -> Result<Vec<u8>, ProtocolError> {
    const AHEAD_LEN_BYTES: usize = 16 << 10;
    let mut bytes = Vec::new();
    while bytes.len() < len_bytes {
        let filled = bytes.len();
        bytes.resize(len_bytes.min(filled + AHEAD_LEN_BYTES), 0);
        let got = socket::receive(socket, &mut bytes[filled..], &mut Vec::new())?;
        if got == 0 {
            return Err(ProtocolError::Ended { got_bytes: filled, wanted_bytes: len_bytes });
        }
        bytes.truncate(filled + got);
    }
    Ok(bytes)
}

/// Reads the hello frame and its descriptors.
fn greeting(socket: &OwnedFd) -> Result<(Hello, Vec<OwnedFd>), ProtocolError> {
    let mut fds = Vec::new();
    let mut prefix = [0; PREFIX_LEN_BYTES];
    let Some(got) = socket::try_receive(socket, &mut prefix, &mut fds)? else {
        return Err(ProtocolError::NoGreeting);
    };
    if got < prefix.len() {
        return Err(ProtocolError::Ended { got_bytes: got, wanted_bytes: prefix.len() });
    }
    let mut body = vec![0; protocol::body_len_bytes(prefix)?];
    let mut filled = 0;
    while filled < body.len() {
        let got = socket::try_receive(socket, &mut body[filled..], &mut fds)?.unwrap_or(0);
        if got == 0 {
            return Err(ProtocolError::Ended { got_bytes: filled, wanted_bytes: body.len() });
        }
        filled += got;
    }
    Ok((Hello::decode(&body)?, fds))
}
