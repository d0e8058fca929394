//! Where in a payload a handle stands.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::{Serialize, Serializer};

/// The first byte of an index that was written. No UTF-8 text begins with it, and no description of a tensor
/// does, so a reader that knows no types can tell what stands there.
const MARK: u8 = 0xfe;
const LEN_BYTES: usize = 5;

/// The place of a handle in the table of its message.
///
/// It is written as five bytes, a mark and the number, and not as a number. A reader that does not know the
/// type of the value (a Python program, say) would take a number for what the user has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandleIndex(u32);

impl HandleIndex {
    /// The handle with this number, from 0 in the order in which they were given.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Reads what was written. `None` if these bytes are no index.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        match bytes {
            &[MARK, a, b, c, d] => Some(Self(u32::from_le_bytes([a, b, c, d]))),
            _ => None,
        }
    }

    const fn to_bytes(self) -> [u8; LEN_BYTES] {
        let [a, b, c, d] = self.0.to_le_bytes();
        [MARK, a, b, c, d]
    }
}

impl fmt::Display for HandleIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for HandleIndex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.to_bytes())
    }
}

impl<'de> Deserialize<'de> for HandleIndex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl<'de> Visitor<'de> for Bytes {
            type Value = HandleIndex;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the index of a handle")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<HandleIndex, E> {
                HandleIndex::from_bytes(bytes)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Bytes(bytes), &self))
            }

            /// Reads a format without bytes, which the value may have passed through on its way.
            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<HandleIndex, A::Error> {
                let mut bytes = [0; LEN_BYTES];
                for (at, byte) in bytes.iter_mut().enumerate() {
                    *byte = sequence.next_element()?.ok_or_else(|| de::Error::invalid_length(at, &self))?;
                }
                match sequence.next_element::<u8>()? {
                    Some(_) => Err(de::Error::invalid_length(LEN_BYTES + 1, &self)),
                    None => self.visit_bytes(&bytes),
                }
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_comes_back_from_each_kind_of_format() {
        for number in [0, 1, 0xfe, 0x1234_5678, u32::MAX] {
            let index = HandleIndex::new(number);
            let bytes = rmp_serde::to_vec(&index).unwrap();
            assert_eq!(rmp_serde::from_slice::<HandleIndex>(&bytes).unwrap(), index);
            // A sequence of numbers.
            let bytes = rmp_serde::to_vec(&index.to_bytes().as_slice()).unwrap();
            assert_eq!(rmp_serde::from_slice::<HandleIndex>(&bytes).unwrap(), index);
        }
    }

    #[test]
    fn what_is_no_index_is_refused() {
        for bytes in [&[][..], &[MARK], &[MARK, 0, 0, 0], &[MARK, 0, 0, 0, 0, 0], &[0xff, 0, 0, 0, 0]] {
            assert_eq!(HandleIndex::from_bytes(bytes), None);
            assert!(rmp_serde::from_slice::<HandleIndex>(&rmp_serde::to_vec(bytes).unwrap()).is_err());
        }
        assert!(rmp_serde::from_slice::<HandleIndex>(&rmp_serde::to_vec(&7).unwrap()).is_err());
        assert!(rmp_serde::from_slice::<HandleIndex>(&rmp_serde::to_vec("\u{7f}abcd").unwrap()).is_err());
    }
}
