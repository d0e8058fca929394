//! Why a value was not put or not got.

use std::fmt;
use std::io;

use tensorferry_reduce::{DecodeError, EncodeError};
use tensorferry_storage::{RingPutError, RingTakeError, StorageError};

/// Why an end of a queue could not be made from what was received. Inside of a message the caller of `get`
/// sees its text.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The kernel had no memory to map the ring.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The message grants another role than this end has.
    #[error("the message does not grant what this end of a queue does")]
    WrongRole,
    /// The queue carries values of another type.
    #[error("the queue carries another type than {0}")]
    WrongType(&'static str),
}

tensorferry_storage::debug_as_display!(OpenError);

/// Why a value was not put.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PutErrorKind {
    /// The queue was full until the time of the call was over.
    #[error("the queue is full")]
    Full,
    /// The queue is closed.
    #[error("the queue is closed")]
    Closed,
    /// Every other process that could receive has let go of its end.
    ///
    /// A [`Sender`](crate::Sender) gets this from every put, unless its process has a receiving end. A
    /// [`Queue`](crate::Queue) can receive too, so its own process can still make room. It gets this once,
    /// when the others are gone and the queue is full; the next put waits.
    #[error("every other process that could receive from the queue has let go of it")]
    Disconnected,
    /// As [`Disconnected`](Self::Disconnected), and at least one of the receivers was killed.
    ///
    /// A receiver that panics or returns an error still lets go of its end in order; `join` reports such
    /// failures.
    #[error(
        "every process that could receive from the queue is gone, and at least one of them died or was killed"
    )]
    PeerDied,
    /// This end was sent to another process.
    #[error("this end of the queue was moved to another process")]
    Moved,
    /// The value cannot be sent, or there is no memory for its message.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The value holds something exclusive, and a message of a queue with leases may be delivered again.
    #[error("{}", RingPutError::NotRepeatable)]
    NotRepeatable,
    /// The value holds more handles (tensors, queues) than one message can carry.
    #[error("the message could not be placed: {}", RingPutError::TooManyHandles(*.n_handles))]
    TooManyHandles {
        /// The handles in the message.
        n_handles: usize,
    },
    /// Another member of the domain declared this process dead while it was putting.
    #[error("the message could not be placed: {}", RingPutError::DeclaredDead)]
    DeclaredDead,
    /// The thread could not be started that waits for all tasks of the process.
    #[error("no thread could be started to wait for room in the queue: {0}")]
    NoThread(io::Error),
    /// The ring failed in a way that this version of the crate does not know.
    #[error("the message could not be placed: {0}")]
    Other(RingPutError),
}

tensorferry_storage::debug_as_display!(PutErrorKind);

/// A value that was not put, and why. Nothing was sent.
#[non_exhaustive]
pub struct PutError<T> {
    /// The value, unchanged.
    pub value: T,
    /// Why it was not put.
    pub kind: PutErrorKind,
}

impl<T> PutError<T> {
    pub(crate) const fn new(value: T, kind: PutErrorKind) -> Self {
        Self { value, kind }
    }

    /// Returns the value, to put it again or to drop it.
    #[must_use]
    pub fn into_value(self) -> T {
        self.value
    }

    /// Whether the queue was full.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        matches!(self.kind, PutErrorKind::Full)
    }

    /// Whether no later put can be expected to succeed: the queue is closed, every other process that could
    /// receive is gone, this end was moved, or this process was declared dead.
    ///
    /// A process that can itself receive may still put after [`Disconnected`](PutErrorKind::Disconnected) or
    /// [`PeerDied`](PutErrorKind::PeerDied).
    #[must_use]
    pub const fn is_final(&self) -> bool {
        use PutErrorKind::{Closed, DeclaredDead, Disconnected, Moved, PeerDied};
        matches!(self.kind, Closed | Disconnected | PeerDied | Moved | DeclaredDead)
    }

    /// Whether there was no shared memory for the message. A later put can succeed once the holders of other
    /// blocks have freed them.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(&self.kind, PutErrorKind::Encode(error) if error.is_out_of_memory())
    }
}

/// Drops the value.
impl<T> From<PutError<T>> for PutErrorKind {
    fn from(error: PutError<T>) -> Self {
        error.kind
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

/// Why no value was got.
///
/// `Debug` prints the same text as `Display`, because a `main` that returns the error prints `Debug`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum GetError {
    /// No value came until the time of the call was over.
    #[error("the queue is empty")]
    Empty,
    /// The queue is closed, and everything that was in it has been got.
    #[error("the queue is closed")]
    Closed,
    /// Every other process that could put has let go of its end, and everything that was put has been got.
    ///
    /// A [`Receiver`](crate::Receiver) gets this from every get, unless its process has a sending end. A
    /// [`Queue`](crate::Queue) can put too, so its own process can still send. It gets this once, when the
    /// others are gone; the next get waits.
    #[error("every other process that could send to the queue has let go of it")]
    Disconnected,
    /// As [`Disconnected`](Self::Disconnected), and at least one of the senders was killed.
    ///
    /// A sender that panics or returns an error still lets go of its end in order; `join` reports such
    /// failures.
    #[error(
        "every process that could send to the queue is gone, and at least one of them died or was killed"
    )]
    PeerDied,
    /// This end was sent to another process.
    #[error("this end of the queue was moved to another process")]
    Moved,
    /// The queue was made without leases; see [`Queue::with_leases`](crate::Queue::with_leases).
    #[error("the queue was made without leases: make it by `Queue::with_leases` or `channel_with_leases`")]
    NoLeases,
    /// This process holds every lease of the queue. The field is their number.
    #[error("this process has all {0} leases of the queue: acknowledge one first")]
    AllLeased(usize),
    /// The message that was taken cannot be decoded. It is lost; the next `get` gets the next message.
    ///
    /// A leased message is lost only if nobody can decode it. Where it is about this process or this moment
    /// ([`DecodeError::is_for_now`]), it goes back to the queue.
    ///
    /// With a [`DecodeError::Storage`] that holds an error of the kernel (no memory to map what the message
    /// names), the message stays in the queue.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The thread could not be started that waits for all tasks of the process.
    #[error("no thread could be started to wait for the queue: {0}")]
    NoThread(io::Error),
    /// The ring failed in a way that this version of the crate does not know.
    #[error("no message could be taken: {0}")]
    Other(RingTakeError),
}

tensorferry_storage::debug_as_display!(GetError);

impl GetError {
    /// Whether the queue was empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }

    /// Whether no later get can be expected to succeed: the queue is closed, every other process that could
    /// put is gone, this end was moved, or the queue has no leases.
    ///
    /// A process that can itself put may still get after [`Disconnected`](Self::Disconnected) or
    /// [`PeerDied`](Self::PeerDied).
    #[must_use]
    pub const fn is_final(&self) -> bool {
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
            RingPutError::DeclaredDead => Self::DeclaredDead,
            RingPutError::TooManyHandles(n_handles) => Self::TooManyHandles { n_handles },
            RingPutError::NotRepeatable => Self::NotRepeatable,
            RingPutError::Storage(error) => Self::Encode(EncodeError::Storage(*error)),
            other => Self::Other(other),
        }
    }
}

impl GetError {
    pub(crate) fn of(failure: RingTakeError) -> Self {
        match failure {
            RingTakeError::Empty => Self::Empty,
            RingTakeError::Closed => Self::Closed,
            RingTakeError::NoSenders => Self::Disconnected,
            RingTakeError::PeerDied => Self::PeerDied,
            RingTakeError::NoLeases => Self::NoLeases,
            RingTakeError::AllLeased(max_leases) => Self::AllLeased(max_leases),
            RingTakeError::Storage(error) => Self::Decode(DecodeError::Storage(*error)),
            other => Self::Other(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_ring_keeps_its_kind_and_its_text() {
        let dead = PutError::new((), PutErrorKind::of(RingPutError::DeclaredDead));
        assert!(matches!(dead.kind, PutErrorKind::DeclaredDead) && dead.is_final());
        assert!(dead.to_string().ends_with(&RingPutError::DeclaredDead.to_string()), "{dead}");
        let too_many = PutError::new((), PutErrorKind::of(RingPutError::TooManyHandles(65_536)));
        let too_many = PutErrorKind::from(too_many);
        assert!(matches!(too_many, PutErrorKind::TooManyHandles { n_handles: 65_536 }));
        assert!(too_many.to_string().contains("65536 handles"), "{too_many}");
        assert!(matches!(GetError::of(RingTakeError::Closed), GetError::Closed));
        assert!(GetError::of(RingTakeError::Empty).is_empty());
    }
}
