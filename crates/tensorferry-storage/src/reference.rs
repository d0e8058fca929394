//! References: how a block is named in a message.

use crate::class::LINE_BYTES;

/// The identity of a block within its domain. Equal ids name the same memory; empty blocks share the id 0.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, serde::Serialize, serde::Deserialize,
)]
pub struct BlockId(pub u64);

/// What a message grants on a block that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Grant {
    /// The right to read bytes that nobody writes any more.
    Frozen,
    /// The right to read and write words that others read and write too.
    Shared,
    /// The right to have the bytes alone; the sender gave up access.
    Exclusive,
    /// The right to use a ring in a role.
    Ring(Role),
    /// The right to read a message that was too long for its slot, or a parcel.
    Message,
    /// The right to a bundle, and to what it grants.
    Bundle,
}

/// How a member is attached to a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Role {
    /// It may put.
    pub sends: bool,
    /// It may get.
    pub receives: bool,
}

impl Role {
    /// May put, but not get.
    pub const SENDER: Self = Self { sends: true, receives: false };
    /// May get, but not put.
    pub const RECEIVER: Self = Self { sends: false, receives: true };
    /// May put and get.
    pub const BOTH: Self = Self { sends: true, receives: true };
}

/// A reference in a message: `header line:34 | generation:26 | grant:4`.
///
/// The line is the header's offset in the data area in units of 64 bytes; the generation is defence in depth
/// against a reference that outlived its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    pub(crate) header_offset_bytes: usize,
    pub(crate) generation: u32,
    pub(crate) grant: Grant,
}

const GENERATION_BITS: u32 = 26;
const GRANT_BITS: u32 = 4;
/// The bits of a generation that travel.
pub(crate) const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

impl Reference {
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        let grant = match self.grant {
            Grant::Frozen => 1,
            Grant::Shared => 2,
            Grant::Exclusive => 3,
            Grant::Message => 4,
            Grant::Bundle => 5,
            Grant::Ring(role) => 8 | u64::from(role.sends) | u64::from(role.receives) << 1,
        };
        let line = (self.header_offset_bytes / LINE_BYTES) as u64;
        line << (GENERATION_BITS + GRANT_BITS)
            | u64::from(self.generation & GENERATION_MASK) << GRANT_BITS
            | grant
    }

    /// `None` when the grant is not [`Grant::Frozen`].
    #[inline]
    pub(crate) fn unpack_frozen(word: u64) -> Option<Self> {
        if word & 15 == 1 { Self::with_grant(word, Grant::Frozen) } else { None }
    }

    /// `None` when the grant is unknown.
    #[inline]
    pub(crate) fn unpack(word: u64) -> Option<Self> {
        let grant = match word & 15 {
            1 => Grant::Frozen,
            2 => Grant::Shared,
            3 => Grant::Exclusive,
            4 => Grant::Message,
            5 => Grant::Bundle,
            bits @ 8..=11 => Grant::Ring(Role { sends: bits & 1 != 0, receives: bits & 2 != 0 }),
            _ => return None,
        };
        Self::with_grant(word, grant)
    }

    #[inline]
    fn with_grant(word: u64, grant: Grant) -> Option<Self> {
        let line = usize::try_from(word >> (GENERATION_BITS + GRANT_BITS)).ok()?;
        let generation = u32::try_from(word >> GRANT_BITS & u64::from(GENERATION_MASK)).ok()?;
        Some(Self { header_offset_bytes: line * LINE_BYTES, generation, grant })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn references_survive_their_word(line in 0_usize..1 << 34, generation in 0..=GENERATION_MASK, which in 0..9_usize) {
            let role = |sends, receives| Grant::Ring(Role { sends, receives });
            let grants = [
                Grant::Frozen, Grant::Shared, Grant::Exclusive, Grant::Message, Grant::Bundle,
                role(false, false), role(true, false), role(false, true), role(true, true),
            ];
            let reference = Reference { header_offset_bytes: line * 64, generation, grant: grants[which] };
            prop_assert_eq!(Reference::unpack(reference.pack()), Some(reference));
        }

        #[test]
        fn any_word_is_read_without_harm(word: u64) {
            if let Some(reference) = Reference::unpack(word) {
                prop_assert_eq!(reference.pack(), word);
            }
        }
    }
}
