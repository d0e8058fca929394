//! Why a call has no answer, and why an object is not served.

use std::fmt;

use tensorferry_queue::GetError;
use tensorferry_reduce::EncodeError;
use tensorferry_storage::{RingPutError, StorageError};

use crate::answer::Failure;
use crate::panic::HandlerPanic;

/// Why an object could not be served.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// There is no memory for its queue.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// There is no thread for it: see `RLIMIT_NPROC` and `pids.max`.
    #[error("no thread could be started for the object: {error}")]
    NoThread {
        /// The kernel's answer.
        error: std::io::Error,
    },
}

tensorferry_storage::debug_as_display!(ServeError);

/// Why a call has no answer.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CallErrorKind {
    /// There was no answer in the time of the call. If the request comes back with the error, it was not
    /// made; otherwise it may have been, or may be later. What it takes out of a [`Dict`](crate::Dict) or a
    /// [`List`](crate::List) then is put back.
    #[error("the object has not answered in time")]
    TimedOut,
    /// The object is not served any more.
    #[error("the object is not served any more")]
    Ended,
    /// The process of the object has died: of an object of another machine the one there, or the one here
    /// that has the connection.
    #[error("the process of the object (pid {pid}) has died")]
    OwnerDied {
        /// Its ID, as it knew itself, on its own machine.
        pid: u32,
    },
    /// The handler has panicked, in this call or in an earlier one: in which process and where, and what it
    /// said.
    #[error("{0}")]
    Panicked(Box<HandlerPanic>),
    /// The call was made by the handler of this very object, which would have to answer it. A circle of
    /// several objects is not found out: it waits for ever, unless a call of it has a time-out.
    #[error("the object's own handler has called it, and cannot answer")]
    WithinItself,
    /// An index beyond the end of a list.
    #[error("index {index} is beyond the end of a list of {len}")]
    OutOfRange {
        /// The index asked for.
        index: usize,
        /// How long the list is.
        len: usize,
    },
    /// The request cannot be sent.
    #[error("the request cannot be sent: {0}")]
    Unsendable(EncodeError),
    /// The message of the request could not be placed.
    #[error("the request cannot be sent: {0}")]
    NotPlaced(RingPutError),
    /// The object's process could not read the request. The text is its own.
    #[error("the object could not read the request: {0}")]
    Unreadable(String),
    /// The handler has returned something that cannot be sent: there is no memory for it, say. The text says
    /// why. The call was made, but what it took out of a [`Dict`](crate::Dict) or a [`List`](crate::List) is
    /// where it was.
    #[error("the object's answer could not be sent: {0}")]
    NoAnswer(String),
    /// The answer could not be read here. What was in it is lost.
    #[error("the object's answer could not be read: {0}")]
    Answer(GetError),
    /// The object has lost the way back to this caller: its process could not open it, for lack of memory,
    /// say. Whether the call was made is not known; the next one has a new way.
    #[error("the object has no way back to this caller: call again")]
    WayLost,
    /// The object has answered another question than was asked: somebody else calls it by other requests.
    #[error("the object has answered another request")]
    OtherAnswer,
    /// The request cannot go to the object's machine: it has something that is in one machine only, or there
    /// is no memory for it there. The call was not made.
    #[error("the request was not forwarded to the object: {0}")]
    NotForwarded(String),
    /// The answer of an object of another machine was lost on its way: it could not be read, or there was no
    /// memory for it for 30 s. The call may have been made, and what was in the answer is lost.
    #[error("the object's answer was lost on its way: {0}")]
    AnswerLost(String),
    /// There is no connection to the object's machine any more: it has ended or failed before. The call was
    /// not made.
    #[error("there is no connection to the object's machine any more: {0}")]
    Disconnected(String),
    /// The connection to the object's machine has failed in the middle of the call. Whether the call was made
    /// is not known.
    #[error("the connection to the object's machine was lost, and the call may have been made or not: {0}")]
    ConnectionLost(String),
}

tensorferry_storage::debug_as_display!(CallErrorKind);

impl CallErrorKind {
    /// Whether no later call can be expected to succeed.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Ended
                | Self::OwnerDied { .. }
                | Self::Panicked(_)
                | Self::Disconnected(_)
                | Self::ConnectionLost(_)
        )
    }

    /// `pid` is that of the object's process.
    pub(crate) fn of_put(error: RingPutError, pid: u32) -> Self {
        match error {
            RingPutError::Full => Self::TimedOut,
            RingPutError::Closed | RingPutError::NoReceivers => Self::Ended,
            RingPutError::PeerDied => Self::OwnerDied { pid },
            RingPutError::Storage(error) => Self::Unsendable(EncodeError::Storage(*error)),
            other => Self::NotPlaced(other),
        }
    }

    /// `pid` is that of the object's process.
    pub(crate) fn of_get(error: GetError, pid: u32) -> Self {
        match error {
            GetError::Empty => Self::TimedOut,
            GetError::Disconnected | GetError::Closed => Self::Ended,
            GetError::PeerDied => Self::OwnerDied { pid },
            other => Self::Answer(other),
        }
    }
}

/// What is said of a call to the other machine that it was made for.
#[cfg(feature = "remote")]
impl From<CallErrorKind> for Failure {
    fn from(kind: CallErrorKind) -> Self {
        match kind {
            CallErrorKind::Panicked(panic) => Self::Panicked(panic),
            CallErrorKind::Unreadable(text) => Self::Unreadable(text),
            CallErrorKind::NoAnswer(text) => Self::Unsendable(text),
            CallErrorKind::TimedOut => Self::TimedOut,
            CallErrorKind::Ended => Self::Ended,
            CallErrorKind::OwnerDied { pid } => Self::OwnerDied { pid },
            CallErrorKind::WayLost => Self::WayLost,
            CallErrorKind::OtherAnswer => Self::OtherAnswer,
            CallErrorKind::NotForwarded(text) => Self::NotForwarded(text),
            CallErrorKind::AnswerLost(text) => Self::AnswerLost(text),
            CallErrorKind::Disconnected(text) => Self::Disconnected(text),
            CallErrorKind::ConnectionLost(text) => Self::ConnectionLost(text),
            CallErrorKind::Answer(error) => Self::AnswerLost(error.to_string()),
            unmade @ (CallErrorKind::WithinItself
            | CallErrorKind::OutOfRange { .. }
            | CallErrorKind::Unsendable(_)
            | CallErrorKind::NotPlaced(_)) => Self::NotForwarded(unmade.to_string()),
        }
    }
}

impl From<Failure> for CallErrorKind {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Panicked(panic) => Self::Panicked(panic),
            Failure::Unreadable(text) => Self::Unreadable(text),
            Failure::Unsendable(text) => Self::NoAnswer(text),
            Failure::TimedOut => Self::TimedOut,
            Failure::Ended => Self::Ended,
            Failure::OwnerDied { pid } => Self::OwnerDied { pid },
            Failure::WayLost => Self::WayLost,
            Failure::OtherAnswer => Self::OtherAnswer,
            Failure::NotForwarded(text) => Self::NotForwarded(text),
            Failure::AnswerLost(text) => Self::AnswerLost(text),
            Failure::Disconnected(text) => Self::Disconnected(text),
            Failure::ConnectionLost(text) => Self::ConnectionLost(text),
        }
    }
}

/// A call without an answer, and why. It has the request, if that was not sent.
#[non_exhaustive]
pub struct CallError<Q> {
    /// The request, if it was not sent.
    pub request: Option<Q>,
    /// Why there is no answer.
    pub kind: CallErrorKind,
}

impl<Q> CallError<Q> {
    pub(crate) const fn new(request: Option<Q>, kind: CallErrorKind) -> Self {
        Self { request, kind }
    }

    /// The same error about a part of the request.
    pub(crate) fn map<P>(self, part: impl FnOnce(Q) -> Option<P>) -> CallError<P> {
        CallError { request: self.request.and_then(part), kind: self.kind }
    }
}

impl<Q> fmt::Debug for CallError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.kind, f)
    }
}

impl<Q> fmt::Display for CallError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<Q> std::error::Error for CallError<Q> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.kind.source()
    }
}

/// Drops the request.
impl<Q> From<CallError<Q>> for CallErrorKind {
    fn from(error: CallError<Q>) -> Self {
        error.kind
    }
}

/// Why an object does not give its state back as it was.
#[non_exhaustive]
pub enum StateError<S> {
    /// A handler has panicked.
    Panicked {
        /// The state as the panic has left it: a step may be half done.
        state: S,
        /// Where it panicked, and what it said.
        panic: Box<HandlerPanic>,
    },
    /// The object's own handler has asked for it, or a process that something else has forked from the one
    /// that has the object.
    WithinItself,
}

impl<S> fmt::Debug for StateError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<S> fmt::Display for StateError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panicked { panic, .. } => panic.fmt(f),
            Self::WithinItself => {
                f.write_str("an object cannot wait for its own end, nor a fork for that of its parent's")
            }
        }
    }
}

impl<S> std::error::Error for StateError<S> {}

/// Objects whose handlers have panicked, as [`Manager::shutdown`](crate::Manager::shutdown) tells of them.
#[derive(thiserror::Error)]
#[error("the handlers of {} of the objects have panicked: {}", panics.len(), joined(panics))]
#[non_exhaustive]
pub struct PanickedError {
    /// The panics, in the order in which the objects were made.
    pub panics: Vec<HandlerPanic>,
}

tensorferry_storage::debug_as_display!(PanickedError);

fn joined(panics: &[HandlerPanic]) -> String {
    panics.iter().map(HandlerPanic::to_string).collect::<Vec<_>>().join("; ")
}
