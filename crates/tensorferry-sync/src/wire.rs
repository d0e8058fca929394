//! What of a value or an array stands in the payload of a message; the memory itself travels as a handle beside it.

use std::fmt;

use serde::{Deserialize, Serialize};
use tensorferry_storage::SharedBlock;

use crate::{ScalarKind, SyncError};

/// Bytes of one element in memory, whatever its type.
pub(crate) const ELEMENT_LEN_BYTES: usize = size_of::<u64>();

/// The payload of one value or array. A value is an array of one element.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename = "RawArray")]
pub(crate) struct Wire {
    kind: ScalarKind,
    n_elements: u64,
    /// Index in the message's table of handles; absent when there are no elements.
    memory: Option<u32>,
}

impl Wire {
    /// Puts the memory into the message that is being built on this thread.
    pub(crate) fn give(kind: ScalarKind, block: &SharedBlock) -> Result<Self, SyncError> {
        let n_elements = (block.len_bytes() / ELEMENT_LEN_BYTES) as u64;
        let memory = if n_elements == 0 { None } else { Some(tensorferry_reduce::give_shared(block)?) };
        Ok(Self { kind, n_elements, memory })
    }

    /// Takes the memory out of the message that is being read. Type and length must be what they are said to be.
    pub(crate) fn take(self, expected: ScalarKind) -> Result<SharedBlock, SyncError> {
        if self.kind != expected {
            return Err(SyncError::WrongType { expected, found: self.kind });
        }
        let block = match self.memory {
            Some(index) => tensorferry_reduce::take_shared(index)?,
            None => SharedBlock::empty(),
        };
        let found_bytes = block.len_bytes();
        if self.n_elements.checked_mul(ELEMENT_LEN_BYTES as u64) != Some(found_bytes as u64) {
            return Err(SyncError::WrongLength { claimed: self.n_elements, found_bytes });
        }
        Ok(block)
    }
}

/// Tells the message in progress why, because the text of a serde error is lost in the wire format.
pub(crate) fn told(error: impl fmt::Display) -> String {
    tensorferry_reduce::refuse(&error);
    error.to_string()
}
