//! Why a value could not be sent, or a message could not be decoded.

use std::sync::Arc;

use tensorferry_storage::StorageError;

use crate::HandleKind;

/// Why a handle could not be given or taken.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TransitError {
    /// A handle was serialised or deserialised outside a message.
    #[error(
        "shared memory can be serialised only by sending it through a queue or as a spawn argument, not with another serde format"
    )]
    NotInTransit,
    /// The exclusive block was sent already, in this message or another.
    #[error(
        "an exclusive tensor can be sent once: it was moved already; freeze() it to send it to several receivers"
    )]
    Moved,
    /// The only sender or receiver of a channel was sent already, in this message or another.
    #[error(
        "an end that is the only one of its kind can be sent once: it was moved already; use a channel whose ends are cloned"
    )]
    MovedEnd,
    /// A value for any number of receivers holds something that only one can have.
    #[error(
        "an exclusive tensor, or an end that is the only one of its kind, cannot go to several receivers: freeze() or \
         share() the tensor, use a channel whose ends are cloned"
    )]
    NotRepeatable,
    /// The block belongs to another domain and cannot be copied into this one; or this process was forked,
    /// and cannot read it.
    #[error(
        "what lies in another domain cannot be sent through this queue: copy a tensor first, make a queue in this domain"
    )]
    ForeignDomain,
    /// The payload names a handle that the message does not have, or no longer.
    #[error("the payload names handle {index} as {wanted}, but the message has no such handle")]
    NoSuchHandle {
        /// The index in the payload.
        index: u32,
        /// The kind of handle that the payload names.
        wanted: HandleKind,
    },
    /// What arrived was sent as something else than it is received as.
    #[error("{found} arrived where {wanted} is wanted: {}", found.hint())]
    WrongKind {
        /// What the sender has sent.
        found: HandleKind,
        /// What the receiver's type wants.
        wanted: HandleKind,
    },
    /// A reducer refused. The text is its own.
    #[error("{0}")]
    Refused(String),
    /// What the value stands for cannot be had by this process now; another one may have it, or this one
    /// later. The text is the reducer's.
    #[error("{0}")]
    NotNow(String),
    /// There was no memory to copy a tensor into the domain of the message.
    ///
    /// The error is shared, because a refusal is kept for the message and returned to the reducer.
    #[error("copying a tensor into the message's domain failed: {0}")]
    NoMemory(Arc<StorageError>),
}

tensorferry_storage::debug_as_display!(TransitError);

/// Why a value could not be encoded.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A part of the value cannot travel.
    #[error(transparent)]
    Transit(#[from] TransitError),
    /// The value's own `Serialize` failed.
    #[error("the value cannot be serialised: {0}")]
    Serialize(Box<dyn std::error::Error + Send + Sync>),
    /// There was no memory for the message.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

tensorferry_storage::debug_as_display!(EncodeError);

impl EncodeError {
    /// Whether the memory of the domain ran out, for the message or for the copy of a tensor in it.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Transit(error) => {
                matches!(error, TransitError::NoMemory(shortage) if shortage.is_out_of_memory())
            }
            Self::Storage(error) => error.is_out_of_memory(),
            Self::Serialize(_) => false,
        }
    }
}

/// Why a message could not be decoded. The message is lost, and the queue goes on.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A handle in the message is not what the payload says.
    #[error(transparent)]
    Transit(#[from] TransitError),
    /// The payload is not of the expected type.
    #[error("the message is not of the expected type: {0}")]
    Deserialize(Box<dyn std::error::Error + Send + Sync>),
    /// The payload goes on after the value.
    #[error("the message is longer than the expected type")]
    LeftOver,
    /// The message could not be opened.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

tensorferry_storage::debug_as_display!(DecodeError);

impl DecodeError {
    /// Whether another process, or this one later, may well decode the same message.
    #[must_use]
    pub fn is_for_now(&self) -> bool {
        matches!(self, Self::Transit(TransitError::NotNow(_)))
    }
}
