//! The errors of values and arrays.

use tensorferry_reduce::TransitError;
use tensorferry_storage::StorageError;

use crate::ScalarKind;

/// Why a value or an array could not be sent or received. The caller of `put` or `get` sees its text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// A block could not be put into the message, or taken from it.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The handle was serialised outside a message, or the message has no such handle.
    #[error(transparent)]
    Transit(#[from] TransitError),
    /// The value or array that arrived holds another type.
    #[error("a shared value of {expected} was expected, but what arrived holds {found}")]
    WrongType {
        /// The type that the receiver asked for.
        expected: ScalarKind,
        /// The type in the payload.
        found: ScalarKind,
    },
    /// The length in the payload is not that of the memory.
    #[error(
        "a shared array of {claimed} elements arrived with memory of {found_bytes} bytes, 8 for each are needed"
    )]
    WrongLength {
        /// The number of elements in the payload.
        claimed: u64,
        /// The length of the memory in bytes.
        found_bytes: usize,
    },
}

/// The array has no such element.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("index {index} is outside of a shared array of {len} elements")]
pub struct OutOfRangeError {
    /// The index that the caller asked for, from 0.
    pub index: usize,
    /// The number of elements.
    pub len: usize,
}

tensorferry_storage::debug_as_display!(OutOfRangeError);
