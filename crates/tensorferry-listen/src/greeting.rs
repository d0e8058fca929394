//! What the two processes say to each other through the socket. `docs/WIRE.md` has it as a table.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tensorferry_domain::{Admission, OsError};
use tensorferry_os::socket::{self, Interest};

/// "TFLI", then the version of the protocol.
const MAGIC: [u8; 8] = *b"TFLI\x01\0\0\0";
/// The magic and the length of what follows.
const HEAD_LEN_BYTES: usize = 12;
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

impl From<OsError> for Unheard {
    fn from(error: OsError) -> Self {
        if error.is_closed() { Self::Bad("it went away") } else { Self::Socket(error) }
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

/// Waits for a message, and for the descriptors beside it, until `deadline`. `None` waits for ever.
pub(crate) fn receive<T: DeserializeOwned>(
    stream: &UnixStream,
    deadline: Option<Instant>,
) -> Result<(T, Vec<OwnedFd>), Unheard> {
    let mut fds = Vec::new();
    let head: [u8; HEAD_LEN_BYTES] = exactly(stream, HEAD_LEN_BYTES, deadline, &mut fds)?
        .try_into()
        .map_err(|_| Unheard::Bad("its message is cut off"))?;
    let (magic, len_bytes) = head.split_at(MAGIC.len());
    if magic != MAGIC {
        return Err(Unheard::Bad("it speaks another protocol, or another version"));
    }
    let len_bytes = len_bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes)) as usize;
    if len_bytes > MAX_LEN_BYTES {
        return Err(Unheard::Bad("its message is too long"));
    }
    let body = exactly(stream, len_bytes, deadline, &mut fds)?;
    let message = postcard::from_bytes(&body).map_err(|_| Unheard::Bad("its message is malformed"))?;
    Ok((message, fds))
}

fn exactly(
    stream: &UnixStream,
    len_bytes: usize,
    deadline: Option<Instant>,
    fds: &mut Vec<OwnedFd>,
) -> Result<Vec<u8>, Unheard> {
    let mut bytes = vec![0; len_bytes];
    let mut filled = 0;
    while filled < len_bytes {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if socket::wait_ready(&[(stream.as_fd(), Interest::Readable)], left)? != [true] {
            return Err(Unheard::TimedOut);
        }
        match socket::try_receive(stream, &mut bytes[filled..], fds)? {
            Some(0) => return Err(Unheard::Bad("it went away")),
            Some(n) => filled += n,
            None => {}
        }
    }
    Ok(bytes)
}
