//! What can go wrong with a value or an array.

use tensorferry_reduce::TransitError;
use tensorferry_storage::StorageError;

use crate::ScalarKind;

/// Why a value or an array could not be sent or received. Whoever puts or gets has its words.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// A block could not be given to the message, or taken from it.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It was serialised outside of a message, or the message has no such handle.
    #[error(transparent)]
    Transit(#[from] TransitError),
    /// What arrived holds another type.
    #[error("a shared value of {expected} was expected, but what arrived holds {found}")]
    WrongType {
        /// What the receiver asked for.
        expected: ScalarKind,
        /// What the sender says it is.
        found: ScalarKind,
    },
    /// What arrived says that it has another length than its memory.
    #[error(
        "a shared array of {claimed} elements arrived with memory of {found_bytes} bytes, 8 for each are needed"
    )]
    WrongLength {
        /// How many elements it is said to have.
        claimed: u64,
        /// How long its memory is, in bytes.
        found_bytes: usize,
    },
}

/// There is no such element.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("index {index} is outside of a shared array of {len} elements")]
pub struct OutOfRangeError {
    /// What was asked for, from 0.
    pub index: usize,
    /// How many elements there are.
    pub len: usize,
}

tensorferry_storage::debug_as_display!(OutOfRangeError);
