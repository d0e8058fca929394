//! The part of a value or an array that travels in the payload of a message. The memory travels as a handle
//! beside it.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_reduce::HandleIndex;
use tensorferry_storage::SharedBlock;

use crate::ScalarKind;
use crate::error::WireError;

/// The bytes of one element in memory, the same for every type.
pub(crate) const ELEMENT_LEN_BYTES: usize = size_of::<u64>();

/// The payload of one value or array: a tuple. A value is an array of one element.
#[derive(Debug)]
pub(crate) struct Wire {
    kind: ScalarKind,
    n_elements: u64,
    /// Index in the message's table of handles; absent when there are no elements.
    memory: Option<HandleIndex>,
}

impl Serialize for Wire {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.kind, self.n_elements, self.memory).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Wire {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (kind, n_elements, memory) = Deserialize::deserialize(deserializer)?;
        Ok(Self { kind, n_elements, memory })
    }
}

impl Wire {
    /// Puts the memory into the message that is being built on this thread.
    pub(crate) fn give(kind: ScalarKind, block: &SharedBlock) -> Result<Self, WireError> {
        let n_elements = (block.len_bytes() / ELEMENT_LEN_BYTES) as u64;
        let memory = if n_elements == 0 { None } else { Some(tensorferry_reduce::give_shared(block)?) };
        Ok(Self { kind, n_elements, memory })
    }

    /// Takes the memory out of the message that is being read. Its type and length must be those of the
    /// payload.
    pub(crate) fn take(self, expected: ScalarKind) -> Result<SharedBlock, WireError> {
        if self.kind != expected {
            return Err(WireError::WrongType { expected, found: self.kind });
        }
        let block = match self.memory {
            Some(index) => tensorferry_reduce::take_shared(index)?,
            None => SharedBlock::empty(),
        };
        let found_bytes = block.len_bytes();
        if self.n_elements.checked_mul(ELEMENT_LEN_BYTES as u64) != Some(found_bytes as u64) {
            return Err(WireError::WrongLength { claimed: self.n_elements, found_bytes });
        }
        Ok(block)
    }
}

/// Records the error in the message in progress, so that the caller of `put` or `get` gets a typed error.
/// Returns its text.
pub(crate) fn refuse(error: impl fmt::Display) -> String {
    tensorferry_reduce::refuse(&error);
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_types_are_those_of_the_document() {
        const WIRE: &str = include_str!("../../../docs/WIRE.md");
        let kinds: Vec<ScalarKind> =
            (0..).map_while(|number| rmp_serde::from_slice(&[number]).ok()).collect();
        let names: Vec<String> = kinds.iter().map(ScalarKind::to_string).collect();
        assert_eq!(names.len(), 11);
        assert!(WIRE.contains(&format!("from 0: {};", names.join(", "))), "{names:?}");
    }

    #[test]
    fn the_payload_is_type_length_and_index() {
        let wire = Wire { kind: ScalarKind::F64, n_elements: 300, memory: Some(HandleIndex::new(2)) };
        assert_eq!(
            rmp_serde::to_vec_named(&wire).unwrap(),
            [0x93, 10, 0xcd, 1, 0x2c, 0xc4, 5, 0xfe, 2, 0, 0, 0]
        );
        let empty = Wire { kind: ScalarKind::Bool, n_elements: 0, memory: None };
        assert_eq!(rmp_serde::to_vec_named(&empty).unwrap(), [0x93, 0, 0, 0xc0]);
    }
}
