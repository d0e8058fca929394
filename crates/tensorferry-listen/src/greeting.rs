//! What the two processes say to each other through the socket. `docs/WIRE.md` has it as a table.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tensorferry_domain::{Admission, OsError, PidFd};
use tensorferry_os::socket::{self, Interest};

/// "TFLI", then the version of the protocol.
const MAGIC: [u8; 8] = *b"TFLI\x01\0\0\0";
/// The magic and the length of what follows.
const HEAD_LEN_BYTES: usize = 12;
/// What a process says that has its end of the connection.
pub(crate) const THANKS: &[u8] = &[6];
/// The longest message. It is refused before memory is taken for it.
const MAX_LEN_BYTES: usize = 4096;

/// What a process says that wants to connect.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The domains of which it is a member already.
    pub(crate) domains: Vec<u64>,
}

/// What the listener answers.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// Beside it come the descriptors of the domain, if there is an admission.
    Welcome {
        domain_id: u64,
        /// Absent for a process that is a member already.
        admission: Option<Admission>,
        /// The parcel with its end of the connection.
        parcel: u64,
    },
    /// Why not.
    Refused(String),
}

/// Why a message did not come.
#[derive(Debug)]
pub(crate) enum Unheard {
    TimedOut,
    Bad(&'static str),
    Socket(OsError),
}

/// What is said of a peer that has closed its socket.
pub(crate) const GONE: &str = "it went away";

impl From<OsError> for Unheard {
    fn from(error: OsError) -> Self {
        if error.is_closed() { Self::Bad(GONE) } else { Self::Socket(error) }
    }
}

/// Encodes a message. The texts in it are short.
pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    let head = [&MAGIC[..], &[0; HEAD_LEN_BYTES - MAGIC.len()]].concat();
    // Writing plain values to a vector cannot fail.
    let mut bytes = postcard::to_extend(message, head).unwrap_or_default();
    let len_bytes = u32::try_from(bytes.len().saturating_sub(HEAD_LEN_BYTES)).unwrap_or(u32::MAX);
    if let Some(place) = bytes.get_mut(MAGIC.len()..HEAD_LEN_BYTES) {
        place.copy_from_slice(&len_bytes.to_le_bytes());
    }
    bytes
}

/// A message, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    bytes: Vec<u8>,
    fds: Vec<OwnedFd>,
    /// Who is to speak, where that is known: when it has ended, nobody will. Another process may have a copy
    /// of its socket.
    speaker: Option<PidFd>,
}

impl Incoming {
    /// A message of this process, or of one that is not known.
    pub(crate) fn of(speaker: Option<PidFd>) -> Self {
        Self { speaker, ..Self::default() }
    }

    /// Waits for the rest of the message, and for the descriptors beside it, until `deadline`. `None` waits
    /// for ever. When the time is up, what has come stays here.
    pub(crate) fn receive<T: DeserializeOwned>(
        &mut self,
        socket: &OwnedFd,
        deadline: Option<Instant>,
    ) -> Result<(T, Vec<OwnedFd>), Unheard> {
        self.fill(socket, HEAD_LEN_BYTES, deadline)?;
        let (magic, len_bytes) = self.bytes.split_at_checked(MAGIC.len()).unwrap_or_default();
        if magic != MAGIC {
            return Err(Unheard::Bad("it speaks another protocol, or another version"));
        }
        let len_bytes = len_bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
        if len_bytes > MAX_LEN_BYTES {
            return Err(Unheard::Bad("its message is too long"));
        }
        self.fill(socket, HEAD_LEN_BYTES + len_bytes, deadline)?;
        let body = self.bytes.get(HEAD_LEN_BYTES..).unwrap_or_default();
        let message = postcard::from_bytes(body).map_err(|_| Unheard::Bad("its message is malformed"))?;
        Ok((message, std::mem::take(&mut self.fds)))
    }

    /// Waits for the byte by which a process says that it has what it came for.
    pub(crate) fn receive_thanks(&mut self, socket: &OwnedFd, deadline: Instant) -> Result<(), Unheard> {
        self.fill(socket, THANKS.len(), Some(deadline))?;
        if self.bytes == THANKS { Ok(()) } else { Err(Unheard::Bad("it speaks another protocol")) }
    }

    /// Waits until `len_bytes` have come.
    fn fill(&mut self, socket: &OwnedFd, len_bytes: usize, deadline: Option<Instant>) -> Result<(), Unheard> {
        while self.bytes.len() < len_bytes {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let waited = [Some(socket.as_fd()), self.speaker.as_ref().map(AsFd::as_fd)];
            let waited = waited.into_iter().flatten().map(|fd| (fd, Interest::Readable));
            match *socket::wait_ready(&waited.collect::<Vec<_>>(), left)? {
                [true, ..] => {}
                [_, true] => return Err(Unheard::Bad(GONE)),
                _ => return Err(Unheard::TimedOut),
            }
            let filled = self.bytes.len();
            self.bytes.resize(len_bytes, 0);
            let got = socket::try_receive(socket, &mut self.bytes[filled..], &mut self.fds);
            self.bytes.truncate(filled + got.as_ref().map_or(0, |got| got.unwrap_or(0)));
            if got? == Some(0) {
                return Err(Unheard::Bad(GONE));
            }
        }
        Ok(())
    }
}
