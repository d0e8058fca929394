//! What comes back from a call.

use serde::{Deserialize, Serialize};

use crate::guarded::Guarded;
use crate::panic::HandlerPanic;

/// The answer of the object, or why there is none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer<R> {
    /// What the handler has returned.
    Done(Guarded<R>),
    /// The call has failed.
    Failed(Failure),
}

/// Why a call has no answer, as the object's process says it, or one on the way there from another machine.
/// [`CallErrorKind`](crate::CallErrorKind) has the same for callers.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Failure {
    /// The handler has panicked, in this call or in an earlier one.
    Panicked(Box<HandlerPanic>),
    /// The request could not be read.
    Unreadable(String),
    /// What the handler has returned cannot be sent.
    Unsendable(String),
    // Only on the way to an object of another machine, where somebody else has called it:
    TimedOut,
    Ended,
    OwnerDied {
        pid: u32,
    },
    WayLost,
    OtherAnswer,
    NotForwarded(String),
    AnswerLost(String),
    Disconnected(String),
    ConnectionLost(String),
}

impl<R> Answer<R> {
    /// What the handler has returned, if this is that.
    pub(crate) fn into_done(self) -> Option<R> {
        match self {
            Self::Done(answer) => answer.into_inner(),
            Self::Failed(_) => None,
        }
    }
}
