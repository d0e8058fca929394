//! Why a value was not put or not got.

use std::fmt;

use tensorferry_reduce::{DecodeError, EncodeError};
use tensorferry_storage::{RingPutError, RingTakeError, StorageError};

/// Why an end of a queue could not be taken over from a message. Whoever gets has its words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError {
    /// The kernel had no memory to map it.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The message grants another role than this end has.
    #[error("the message does not grant what this end of a queue does")]
    WrongRole,
    /// The queue carries values of another type.
    #[error("the queue carries another type than {0}")]
    WrongType(&'static str),
}

/// Why a value was not put.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutErrorKind {
    /// The queue was full for as long as the call may wait.
    #[error("the queue is full")]
    Full,
    /// Somebody closed the queue.
    #[error("the queue is closed")]
    Closed,
    /// Every other process that could receive has let go of its end.
    ///
    /// A [`Sender`](crate::Sender) whose process has no receiving end is told at every put. A [`Queue`](crate::Queue) can
    /// receive too, so this process itself could still make room: it is told once when the others are gone and the queue
    /// is full, and whoever puts again has decided to wait.
    #[error("every receiver of the queue is gone")]
    Disconnected,
    /// As [`Disconnected`](Self::Disconnected), and at least one of the receivers was killed. (One that panics or returns
    /// an error lets go of its end in order: whether all is well is for `join` to say.)
    #[error("every process that could receive from the queue is gone, and at least one of them died")]
    PeerDied,
    /// This end was sent to another process.
    #[error("this end of the queue was moved to another process")]
    Moved,
    /// The value cannot be sent.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The value has something exclusive in it, and a message of a queue with leases may be delivered again.
    #[error("{}", RingPutError::NotRepeatable)]
    NotRepeatable,
    /// The message could not be placed: too many handles, or this process was declared dead.
    #[error("the message could not be placed: {0}")]
    Refused(String),
}

/// A value that was not put, and why. Nothing was sent.
pub struct PutError<T> {
    /// The value, whole.
    pub value: T,
    /// Why.
    pub kind: PutErrorKind,
}

impl<T> PutError<T> {
    /// The value, to try again or to drop.
    pub fn into_value(self) -> T {
        self.value
    }

    /// Whether the queue was full.
    pub fn is_full(&self) -> bool {
        matches!(self.kind, PutErrorKind::Full)
    }

    /// Whether it makes no sense to put again: the queue is closed, everybody else who could receive is gone, or this end was
    /// moved. (Where this process could itself receive, a later put may succeed: see [`PutErrorKind::Disconnected`].)
    pub fn is_final(&self) -> bool {
        use PutErrorKind::{Closed, Disconnected, Moved, PeerDied};
        matches!(self.kind, Closed | Disconnected | PeerDied | Moved)
    }

    /// Whether there was no shared memory for it: what it takes is to be freed, by whoever has it, before it is put again.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(&self.kind, PutErrorKind::Encode(error) if error.is_out_of_memory())
    }
}

impl<T> fmt::Debug for PutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.kind, f)
    }
}

impl<T> fmt::Display for PutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<T> std::error::Error for PutError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}

/// Why no value was got. `Debug`, which is what a `main` that returns it prints, says the same as `Display`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// Nothing came for as long as the call may wait.
    #[error("the queue is empty")]
    Empty,
    /// The queue is closed, and everything that was in it has been got.
    #[error("the queue is closed")]
    Closed,
    /// Every other process that could put has let go of its end, and everything that was put has been got.
    ///
    /// A [`Receiver`](crate::Receiver) whose process has no sending end is told at every get. A [`Queue`](crate::Queue) can
    /// put too, so this process itself could still send: it is told once when the others are gone, and whoever gets again
    /// has decided to wait.
    #[error("every sender of the queue is gone")]
    Disconnected,
    /// As [`Disconnected`](Self::Disconnected), and at least one of the senders was killed. (One that panics or returns an
    /// error lets go of its end in order: whether all is well is for `join` to say.)
    #[error("every process that could send to the queue is gone, and at least one of them died")]
    PeerDied,
    /// This end was sent to another process.
    #[error("this end of the queue was moved to another process")]
    Moved,
    /// The queue was made without leases; see [`Queue::with_leases`](crate::Queue::with_leases).
    #[error("the queue was made without leases: make it by `Queue::with_leases`")]
    NoLeases,
    /// This process has every lease of the queue already.
    #[error("this process has all {0} leases of the queue: acknowledge one first")]
    AllLeased(usize),
    /// A message came that is not what it should be. It is lost; the next `get` gets the next one. With
    /// [`DecodeError::Storage`] of a kernel error (no memory to map what the message names) it stays in the queue.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

tensorferry_storage::debug_as_display!(GetError);

impl GetError {
    /// Whether it makes no sense to get again: the queue is closed, everybody else who could put is gone, this end was moved, or
    /// there are no leases. (Where this process could itself put, a later get may succeed: see [`GetError::Disconnected`].)
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Closed | Self::Disconnected | Self::PeerDied | Self::Moved | Self::NoLeases)
    }
}

impl PutErrorKind {
    pub(crate) fn of(failure: RingPutError) -> Self {
        match failure {
            RingPutError::Full => Self::Full,
            RingPutError::Closed => Self::Closed,
            RingPutError::NoReceivers => Self::Disconnected,
            RingPutError::PeerDied => Self::PeerDied,
            RingPutError::NotRepeatable => Self::NotRepeatable,
            RingPutError::Storage(error) => Self::Encode(EncodeError::Storage(*error)),
            other => Self::Refused(other.to_string()),
        }
    }
}

impl GetError {
    pub(crate) fn of(failure: RingTakeError) -> Self {
        match failure {
            RingTakeError::Empty => Self::Empty,
            RingTakeError::NoSenders => Self::Disconnected,
            RingTakeError::PeerDied => Self::PeerDied,
            RingTakeError::NoLeases => Self::NoLeases,
            RingTakeError::AllLeased(max_leases) => Self::AllLeased(max_leases),
            RingTakeError::Storage(error) => Self::Decode(DecodeError::Storage(*error)),
            _ => Self::Closed,
        }
    }
}
