//! The protocol between parent and child over the control socket.
//!
//! Every message is a *frame*: a little-endian `u32` length, then that many bytes. The parent sends one
//! frame, the [`Hello`] (magic, version, then postcard), with descriptors attached to its first byte. Once
//! the child exists, the parent sends the payload: a little-endian `u64` length and the bytes. The child
//! answers with [`Frame`]s in postcard. The reader checks every length against a limit before it allocates
//! memory.

use serde::{Deserialize, Serialize};

use crate::Report;
use crate::error::ProtocolError;

/// First bytes of a hello: "TFCH" read as a little-endian number.
const MAGIC: u32 = u32::from_le_bytes(*b"TFCH");

/// Raised whenever the format of a frame changes. Parent and child are the same program, unless the caller
/// named another executable.
const VERSION: u16 = 5;

/// Longest frame that either side accepts, in bytes. A report is cut to less than this (`report.rs`).
pub(crate) const MAX_FRAME_LEN_BYTES: usize = 128 << 10;

/// Longest payload, in bytes. A payload is for handles and settings; data travels in shared memory.
pub(crate) const MAX_PAYLOAD_LEN_BYTES: usize = 16 << 20;

/// The length of a frame's prefix, in bytes.
pub(crate) const PREFIX_LEN_BYTES: usize = 4;

/// The length of a payload's prefix, in bytes.
pub(crate) const PAYLOAD_PREFIX_LEN_BYTES: usize = 8;

/// Length of magic and version, in bytes. They precede the postcard part, so that any version can read them.
const HELLO_HEAD_LEN_BYTES: usize = 6;

/// The parent's only frame: which process starts which child, to run which entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    /// The same as in the environment variable, to show that socket and variable belong together.
    pub nonce: String,
    /// The parent's process ID in its own namespace.
    pub parent_pid: u32,
    /// The parent's name.
    pub parent_name: String,
    /// Name of the registered entry to run.
    pub entry: String,
    /// The child's name, in reports and for `ps`.
    pub name: String,
    /// The child's index among the processes that were started together.
    pub rank: Option<u64>,
    /// Whether the child is forbidden to start children.
    pub is_daemon: bool,
    pub may_fork: bool,
    /// How many descriptors are attached to this frame, including the parent's own.
    pub n_fds: u32,
}

/// A message of a child to its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Frame {
    /// The child has connected to its parent and is about to run its entry.
    Entered,
    /// The child has adopted everything that the payload refers to, so the parent may release it.
    Taken,
    /// A thread panics. It is not known yet whether that ends the process.
    Panicked(Report),
    /// The entry failed. The process is about to exit.
    Raised(Report),
    /// The backtrace of the last report. It comes later, because resolving its addresses takes long.
    Backtrace(String),
    /// The entry returned. The process is about to exit.
    Finished,
    /// The entry caught what panicked, and goes on: a later abort has another reason.
    Recovered,
}

/// Makes a frame of `body`.
fn frame(body: &[u8]) -> Result<Vec<u8>, ProtocolError> {
    check_len(body.len())?;
    let len = u32::try_from(body.len()).map_err(|_| too_long(body.len()))?;
    let mut bytes = Vec::with_capacity(PREFIX_LEN_BYTES + body.len());
    bytes.extend_from_slice(&len.to_le_bytes());
    bytes.extend_from_slice(body);
    Ok(bytes)
}

fn too_long(len_bytes: usize) -> ProtocolError {
    ProtocolError::FrameTooLong { len_bytes, limit_bytes: MAX_FRAME_LEN_BYTES }
}

fn check_len(len_bytes: usize) -> Result<(), ProtocolError> {
    if len_bytes > MAX_FRAME_LEN_BYTES { Err(too_long(len_bytes)) } else { Ok(()) }
}

/// The length that a prefix announces, checked against the limit.
pub(crate) fn body_len_bytes(prefix: [u8; PREFIX_LEN_BYTES]) -> Result<usize, ProtocolError> {
    let len = usize::try_from(u32::from_le_bytes(prefix)).unwrap_or(usize::MAX);
    check_len(len)?;
    Ok(len)
}

/// The prefix of a payload of this length.
pub(crate) fn payload_prefix(len_bytes: usize) -> Result<[u8; PAYLOAD_PREFIX_LEN_BYTES], ProtocolError> {
    check_payload_len(len_bytes)?;
    let len = u64::try_from(len_bytes).unwrap_or(u64::MAX);
    Ok(len.to_le_bytes())
}

/// The length that a payload's prefix announces, checked against the limit.
pub(crate) fn payload_len_bytes(prefix: [u8; PAYLOAD_PREFIX_LEN_BYTES]) -> Result<usize, ProtocolError> {
    let len = usize::try_from(u64::from_le_bytes(prefix)).unwrap_or(usize::MAX);
    check_payload_len(len)?;
    Ok(len)
}

fn check_payload_len(len_bytes: usize) -> Result<(), ProtocolError> {
    let limit_bytes = MAX_PAYLOAD_LEN_BYTES;
    if len_bytes > limit_bytes {
        Err(ProtocolError::PayloadTooLong { len_bytes, limit_bytes })
    } else {
        Ok(())
    }
}

impl Hello {
    /// The frame that carries this hello.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, ProtocolError> {
        let mut body = Vec::new();
        body.extend_from_slice(&MAGIC.to_le_bytes());
        body.extend_from_slice(&VERSION.to_le_bytes());
        let body = postcard::to_extend(self, body).map_err(|e| malformed("hello", 0, e))?;
        frame(&body)
    }

    /// Decodes the body of a hello frame.
    pub(crate) fn decode(body: &[u8]) -> Result<Self, ProtocolError> {
        let Some((head, rest)) = body.split_first_chunk::<HELLO_HEAD_LEN_BYTES>() else {
            return Err(ProtocolError::Ended { got_bytes: body.len(), wanted_bytes: HELLO_HEAD_LEN_BYTES });
        };
        let magic = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        if magic != MAGIC {
            return Err(ProtocolError::WrongMagic { found: magic, expected: MAGIC });
        }
        let version = u16::from_le_bytes([head[4], head[5]]);
        if version != VERSION {
            return Err(ProtocolError::WrongVersion { found: version, expected: VERSION });
        }
        decode("hello", rest)
    }
}

impl Frame {
    /// The bytes of this frame, including the prefix.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, ProtocolError> {
        let body = postcard::to_stdvec(self).map_err(|e| malformed("frame", 0, e))?;
        frame(&body)
    }
}

fn malformed(what: &'static str, len_bytes: usize, error: postcard::Error) -> ProtocolError {
    ProtocolError::Malformed { what, len_bytes, error: error.into() }
}

/// Decodes a value that takes all of `body`.
pub(crate) fn decode<'a, T: Deserialize<'a>>(what: &'static str, body: &'a [u8]) -> Result<T, ProtocolError> {
    let (value, rest) = postcard::take_from_bytes(body).map_err(|e| malformed(what, body.len(), e))?;
    if rest.is_empty() { Ok(value) } else { Err(ProtocolError::Trailing { what, left_bytes: rest.len() }) }
}

/// Splits a stream of bytes into frames, however the socket has cut it.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    buffer: Vec<u8>,
}

impl FrameReader {
    /// Adds bytes as they arrive.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete frame, or `None` until more bytes arrive.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, ProtocolError> {
        let Some((prefix, rest)) = self.buffer.split_first_chunk::<PREFIX_LEN_BYTES>() else {
            return Ok(None);
        };
        let len = body_len_bytes(*prefix)?;
        let Some(body) = rest.get(..len) else { return Ok(None) };
        let decoded = decode("frame", body)?;
        self.buffer.drain(..PREFIX_LEN_BYTES + len);
        Ok(Some(decoded))
    }

    /// How many bytes of an incomplete frame there are.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.buffer.len()
    }
}

/// Decodes the body of a hello from arbitrary bytes, as a child does, and encodes it again. For fuzzing.
///
/// # Errors
/// Why a child would refuse it.
#[doc(hidden)]
pub fn read_hello(body: &[u8]) -> Result<Vec<u8>, ProtocolError> {
    let encoded = Hello::decode(body)?.encode()?;
    Ok(encoded.get(PREFIX_LEN_BYTES..).unwrap_or_default().to_vec())
}

/// Decodes frames from arbitrary bytes, as a parent does, and returns them as text. For fuzzing.
///
/// # Errors
/// What a parent would store in [`Exit::garbled`](crate::Exit::garbled).
#[doc(hidden)]
pub fn read_frames(pieces: impl IntoIterator<Item: AsRef<[u8]>>) -> Result<String, ProtocolError> {
    let (mut reader, mut shown) = (FrameReader::default(), String::new());
    for piece in pieces {
        reader.push(piece.as_ref());
        while let Some(frame) = reader.next_frame()? {
            match frame {
                Frame::Panicked(report) | Frame::Raised(report) => shown.push_str(&format!("{report:#}")),
                Frame::Backtrace(text) => shown.push_str(&text),
                Frame::Entered | Frame::Taken | Frame::Finished | Frame::Recovered => {}
            }
        }
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        Hello {
            nonce: "a".repeat(32),
            parent_pid: 7,
            parent_name: "MainProcess".into(),
            entry: "test.entry".into(),
            name: "rank 0".into(),
            rank: Some(0),
            is_daemon: false,
            may_fork: true,
            n_fds: 1,
        }
    }

    #[test]
    fn a_hello_comes_back_as_it_was() {
        let bytes = hello().encode().unwrap();
        let (prefix, body) = bytes.split_first_chunk().unwrap();
        assert_eq!(body_len_bytes(*prefix).unwrap(), body.len());
        assert_eq!(Hello::decode(body).unwrap(), hello());
    }

    #[test]
    fn each_fault_of_a_hello_has_its_own_error() {
        let bytes = hello().encode().unwrap();
        let body = &bytes[PREFIX_LEN_BYTES..];
        let change = |at: usize, to: u8| {
            let mut changed = body.to_vec();
            changed[at] = to;
            Hello::decode(&changed).unwrap_err()
        };
        assert!(matches!(change(0, 0), ProtocolError::WrongMagic { .. }));
        assert!(matches!(change(4, 99), ProtocolError::WrongVersion { found: 99, expected: VERSION }));
        assert!(matches!(change(6, 0xff), ProtocolError::Malformed { .. }));
        assert!(matches!(Hello::decode(&body[..5]).unwrap_err(), ProtocolError::Ended { .. }));
        let longer = [body, b"x"].concat();
        assert!(matches!(Hello::decode(&longer).unwrap_err(), ProtocolError::Trailing { left_bytes: 1, .. }));
    }

    #[test]
    fn the_length_of_a_payload_is_held_against_its_limit_on_both_sides() {
        assert_eq!(payload_len_bytes(payload_prefix(77).unwrap()).unwrap(), 77);
        let too_long = payload_prefix(MAX_PAYLOAD_LEN_BYTES + 1).unwrap_err();
        assert!(matches!(too_long, ProtocolError::PayloadTooLong { .. }), "{too_long}");
        assert!(payload_len_bytes(u64::MAX.to_le_bytes()).is_err());
    }

    #[test]
    fn a_length_beyond_the_limit_is_refused_before_a_byte_of_it_is_kept() {
        let mut reader = FrameReader::default();
        reader.push(&u32::MAX.to_le_bytes());
        assert!(matches!(reader.next_frame().unwrap_err(), ProtocolError::FrameTooLong { .. }));
        assert!(Frame::Backtrace("x".repeat(MAX_FRAME_LEN_BYTES)).encode().is_err());
    }

    proptest! {
        #[test]
        fn frames_survive_any_cutting(text in ".{0,300}", cut in 1_usize..40) {
            let frames = [Frame::Entered, Frame::Backtrace(text), Frame::Taken, Frame::Finished];
            let bytes: Vec<u8> = frames.iter().flat_map(|f| f.encode().unwrap()).collect();
            let (mut reader, mut seen) = (FrameReader::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                reader.push(piece);
                while let Some(frame) = reader.next_frame().unwrap() {
                    seen.push(frame);
                }
            }
            prop_assert_eq!(&seen[..], &frames[..]);
            prop_assert_eq!(reader.pending_bytes(), 0);
        }

        #[test]
        fn random_bytes_are_an_error_or_a_frame_but_never_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = Hello::decode(&bytes);
            let mut reader = FrameReader::default();
            reader.push(&bytes);
            let before = reader.pending_bytes();
            while let Ok(Some(_)) = reader.next_frame() {}
            prop_assert!(reader.pending_bytes() <= before);
        }
    }
}
