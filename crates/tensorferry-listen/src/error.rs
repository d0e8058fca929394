//! Why two processes did not meet.

use std::io;
use std::path::PathBuf;

use tensorferry_domain::{DomainError, OsError};
use tensorferry_reduce::{DecodeError, EncodeError};
use tensorferry_storage::StorageError;

use crate::Token;

/// Why an address could not be listened at.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The kernel refused: the address is in use, too long, or in a folder that is missing or closed to this
    /// user.
    #[error("cannot listen at {}: {error}", address.display())]
    Bind {
        /// The address.
        address: PathBuf,
        /// The kernel's answer.
        error: io::Error,
    },
    /// The default domain could not be made.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

tensorferry_storage::debug_as_display!(ListenError);

/// Why a value was not published.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PublishError {
    /// The address could not be listened at.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The value cannot be sent, or it holds something that only one process can have
    /// ([`TransitError::NotRepeatable`](tensorferry_reduce::TransitError::NotRepeatable)).
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// There is no descriptor left.
    #[error(transparent)]
    Os(#[from] OsError),
    /// There is no thread for it.
    #[error("cannot start a thread that serves {}: {error}", address.display())]
    NoThread {
        /// The address.
        address: PathBuf,
        /// The kernel's answer.
        error: io::Error,
    },
}

tensorferry_storage::debug_as_display!(PublishError);

/// Why nobody was let in.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// Nobody came in the time of the call.
    #[error("nobody has connected")]
    TimedOut,
    /// The kernel failed to accept: no descriptor is left, say.
    #[error("cannot accept a connection: {0}")]
    Accept(io::Error),
    /// A process of another user.
    #[error("process {pid} of user {uid} was refused: only user {own_uid} may connect")]
    OtherUser {
        /// The process in this PID namespace; 0 when it has no number there.
        pid: u32,
        /// Its user.
        uid: u32,
        /// The user of this process.
        own_uid: u32,
    },
    /// It went away, did not speak in time, or speaks another protocol.
    #[error("process {pid} was refused: {reason}")]
    BadGreeting {
        /// The process.
        pid: u32,
        /// What was wrong.
        reason: &'static str,
    },
    /// The process cannot become a member of the domain.
    #[error("process {pid} was refused: {error}")]
    Admit {
        /// The process.
        pid: u32,
        /// Why.
        error: DomainError,
    },
    /// There is no memory for the connection.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// As [`AcceptError::Storage`].
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The socket to the process failed.
    #[error("the socket to process {pid}: {error}")]
    Socket {
        /// The process.
        pid: u32,
        /// The kernel's answer.
        error: OsError,
    },
}

tensorferry_storage::debug_as_display!(AcceptError);

impl AcceptError {
    /// Whether it is about one process that wanted to connect. The next one may be let in.
    #[must_use]
    pub const fn is_of_peer(&self) -> bool {
        matches!(
            self,
            Self::OtherUser { .. } | Self::BadGreeting { .. } | Self::Admit { .. } | Self::Socket { .. }
        )
    }
}

/// Why there is no connection.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody listens there, or this user may not connect.
    #[error("cannot connect to {}: {error}", address.display())]
    Connect {
        /// The address.
        address: PathBuf,
        /// The kernel's answer.
        error: OsError,
    },
    /// Another user listens there.
    #[error("user {uid} listens at {}: user {own_uid} connects to listeners of its own only", address.display())]
    OtherUser {
        /// The address.
        address: PathBuf,
        /// The listener's user.
        uid: u32,
        /// The user of this process.
        own_uid: u32,
    },
    /// Nobody has come to listen in the time of the call.
    #[error("nobody has come to listen at {}", address.display())]
    NobodyListens {
        /// The address.
        address: PathBuf,
    },
    /// The listener did not accept in the time of the call.
    #[error("the listener has not accepted")]
    TimedOut,
    /// The listener refused, and said why.
    #[error("the listener refused: {0}")]
    Refused(String),
    /// The listener went away, or something else listens there.
    #[error("what listens there is no listener of this library and version: {0}")]
    BadGreeting(&'static str),
    /// The socket failed.
    #[error(transparent)]
    Socket(#[from] OsError),
    /// The domain could not be joined.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A value of another type is published there.
    #[error(
        "a value of type {published} is published at {}, and not one of type {wanted}", address.display()
    )]
    WrongType {
        /// The address.
        address: PathBuf,
        /// The type of the value, as its program names it.
        published: String,
        /// The type that was asked for.
        wanted: &'static str,
    },
    /// Nobody can take what the token stands for.
    #[error(
        "what the token {token} stands for was taken already, or is offered no more: a token is for one \
         process, and an offer ends with the process that made it"
    )]
    NotOffered {
        /// The token.
        token: Token,
    },
    /// The token is an invitation.
    #[error("the token {token} is an invitation, by which a process joins and takes nothing")]
    NoValue {
        /// The token.
        token: Token,
    },
    /// The token stands for a value of another type than was asked for. It is still offered.
    #[error("the token {token} stands for a value of another type than {wanted}")]
    OfferedType {
        /// The token.
        token: Token,
        /// The type that was asked for.
        wanted: &'static str,
    },
    /// The connection carries values of other types than were asked for; or what was published is none, or
    /// not of the type that it is said to be.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

tensorferry_storage::debug_as_display!(ConnectError);

impl ConnectError {
    /// Whether the time of the call was over before anything was decided.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut | Self::NobodyListens { .. })
    }
}
