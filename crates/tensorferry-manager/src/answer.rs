//! What comes back from a call.

use serde::{Deserialize, Serialize};

use crate::guarded::Guarded;

/// The answer of the object, or why there is none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer<R> {
    /// What the handler has returned.
    Done(Guarded<R>),
    /// The handler has panicked, in this call or in an earlier one.
    Panicked(String),
    /// The request could not be read.
    Unreadable(String),
    /// What the handler has returned cannot be sent.
    Unsendable(String),
}
