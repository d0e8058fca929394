//! Why there is no connection, and why nothing came through it.

use std::fmt;
use std::io;
use std::time::Duration;

use tensorferry_reduce::{DecodeError, EncodeError};
use tensorferry_storage::StorageError;

use crate::frames::STALL;

/// What happened to a connection. It carries nothing any more then.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The system's error: the other machine is off or unreachable, or has ended the connection.
    #[error("the connection has failed: {0}")]
    Io(io::Error),
    /// The other side is gone without a goodbye: it was killed, or its program has ended in the middle.
    #[error("the other side is gone without a goodbye")]
    Lost,
    /// The other side has sent part of a message, and nothing for so long.
    #[error("the other side has stopped in the middle of a message for {0:?}")]
    Stalled(Duration),
    /// What arrived was not sent by who has the key, or was changed on the way.
    #[error("what arrived does not come from the other side, or was changed on the way")]
    Forged,
    /// What arrived makes no sense: another version of this crate, or a defect of it.
    #[error("what arrived makes no sense: {0}")]
    Nonsense(&'static str),
    /// A message was announced that is longer than this side takes.
    #[error(
        "a message of {len_bytes} bytes was announced, and this side takes {max_bytes}: see `set_max_message_bytes`"
    )]
    TooLong {
        /// Its length.
        len_bytes: u64,
        /// The most that this side takes.
        max_bytes: u64,
    },
    /// An earlier call has failed.
    #[error("the connection has failed before")]
    Broken,
    /// This process was forked from the one that has the connection: two that encrypt with the same keys
    /// would give away what they say.
    #[error("the connection belongs to the process that this one was forked from: make another one here")]
    Forked,
}

tensorferry_storage::debug_as_display!(ConnectionError);

impl From<io::Error> for ConnectionError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Lost,
            io::ErrorKind::WouldBlock => Self::Stalled(STALL),
            _ => Self::Io(error),
        }
    }
}

/// Why two sides do not come together.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The address is none, nobody listens there, or the system has no socket.
    #[error("no connection: {0}")]
    Io(io::Error),
    /// The system's error about a socket.
    #[error(transparent)]
    Os(#[from] tensorferry_os::Error),
    /// The other side has another key, or is no such program.
    #[error("the other side has another key, or is none of this kind")]
    Key,
    /// The other side has said nothing for so long.
    #[error("the other side has not introduced itself within {0:?}")]
    TimedOut(Duration),
    /// The connection has failed before both sides were known.
    #[error(transparent)]
    Connection(ConnectionError),
    /// The two sides mean different things.
    #[error("one side sends `{sent}`, and the other one receives `{received}`")]
    Type {
        /// The type that one side sends.
        sent: String,
        /// The type that the other one receives.
        received: String,
    },
    /// There is no shared memory for what will arrive.
    #[error("no shared memory: {0}")]
    Memory(StorageError),
    /// The library for the key exchange has failed.
    #[error("the key exchange has failed: {0}")]
    Noise(snow::Error),
}

tensorferry_storage::debug_as_display!(ConnectError);

impl From<io::Error> for ConnectError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<StorageError> for ConnectError {
    fn from(error: StorageError) -> Self {
        Self::Memory(error)
    }
}

impl From<snow::Error> for ConnectError {
    fn from(error: snow::Error) -> Self {
        Self::Noise(error)
    }
}

/// A value that was not sent, and why.
pub struct SendError<T> {
    /// The value.
    pub value: T,
    /// Why.
    pub kind: SendErrorKind,
}

/// Why a value was not sent.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SendErrorKind {
    /// It cannot be serialised. The connection is as it was.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// It has something that is in one machine only. The connection is as it was.
    #[error("{0} cannot be sent to another machine")]
    Local(&'static str),
    /// The connection has failed. It is not known whether the other side has the value.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

tensorferry_storage::debug_as_display!(SendErrorKind);

impl<T> SendError<T> {
    pub(crate) fn new(value: T, kind: SendErrorKind) -> Self {
        Self { value, kind }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.kind, f)
    }
}

impl<T> std::error::Error for SendError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}

/// Why nothing was received.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The other side has said goodbye, and everything that it has sent was received. Python's `EOFError`.
    #[error("the other side has ended the connection")]
    Disconnected,
    /// Nothing has begun to arrive in time.
    #[error("nothing has arrived in time")]
    TimedOut,
    /// There is no memory for what arrives. It stays where it is, and the next call tries again: drop what is
    /// not needed any more.
    #[error("no memory for what arrives: {0}")]
    Memory(StorageError),
    /// There was no memory for the table of a bundle that has arrived. The message is lost, and the next call
    /// goes on behind it.
    #[error("no memory for a bundle that has arrived: {0}")]
    Lost(StorageError),
    /// What has arrived cannot be read as this type. It is lost, and the next call goes on behind it.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The connection has failed.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
}

tensorferry_storage::debug_as_display!(RecvError);
