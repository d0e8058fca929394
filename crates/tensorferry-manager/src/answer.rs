//! What comes back from a call.

use serde::{Deserialize, Serialize};

use crate::guarded::Guarded;
use crate::panic::HandlerPanic;

/// The answer of the object, or why there is none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer<R> {
    /// What the handler has returned.
    Done(Guarded<R>),
    /// The handler has panicked, in this call or in an earlier one.
    Panicked(Box<HandlerPanic>),
    /// The request could not be read.
    Unreadable(String),
    /// What the handler has returned cannot be sent.
    Unsendable(String),
}

impl<R> Answer<R> {
    /// What the handler has returned, if this is that.
    pub(crate) fn into_done(self) -> Option<R> {
        match self {
            Self::Done(answer) => answer.into_inner(),
            Self::Panicked(_) | Self::Unreadable(_) | Self::Unsendable(_) => None,
        }
    }
}
