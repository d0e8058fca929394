//! The types of values and elements: plain data that fits into a 64-bit word.

use std::fmt;

use serde_repr::{Deserialize_repr, Serialize_repr};

mod sealed {
    pub trait Sealed {}
}

/// A value of up to 8 bytes, which is stored in one 64-bit word of shared memory.
///
/// The trait is sealed. It is implemented for `bool`, the integers up to 64 bits and the two floats.
pub trait Scalar: Copy + fmt::Debug + PartialEq + Send + Sync + 'static + sealed::Sealed {
    /// The type at run time. It travels with every handle.
    const KIND: ScalarKind;

    /// The word with the value's bits at its low end and zeroes above.
    #[doc(hidden)]
    #[must_use]
    fn to_word(self) -> u64;

    /// The value in the low end of a word. The bits above are ignored, so any word is a value. For `bool`,
    /// every low byte but zero is true.
    #[doc(hidden)]
    #[must_use]
    fn from_word(word: u64) -> Self;
}

/// A scalar that can be added.
pub trait Number: Scalar {
    /// The sum. Integers wrap around, floats round.
    #[must_use]
    fn plus(self, other: Self) -> Self;
}

/// The type that the words of a value or an array hold.
///
/// The number of the variant travels, from 0 in this order. New types are added at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize_repr, Deserialize_repr)]
#[non_exhaustive]
#[repr(u8)]
pub enum ScalarKind {
    /// `bool`
    Bool,
    /// `u8`
    U8,
    /// `u16`
    U16,
    /// `u32`
    U32,
    /// `u64`
    U64,
    /// `i8`
    I8,
    /// `i16`
    I16,
    /// `i32`
    I32,
    /// `i64`
    I64,
    /// `f32`
    F32,
    /// `f64`
    F64,
}

impl fmt::Display for ScalarKind {
    /// The name of the type in Rust.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bool => "bool",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F32 => "f32",
            Self::F64 => "f64",
        })
    }
}

impl sealed::Sealed for bool {}
impl Scalar for bool {
    const KIND: ScalarKind = ScalarKind::Bool;

    fn to_word(self) -> u64 {
        u64::from(self)
    }

    fn from_word(word: u64) -> Self {
        word.to_le_bytes()[0] != 0
    }
}

macro_rules! scalar {
    ($($type:ty => $kind:ident, $plus:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Scalar for $type {
            const KIND: ScalarKind = ScalarKind::$kind;

            fn to_word(self) -> u64 {
                let mut bytes = [0; 8];
                bytes[..size_of::<Self>()].copy_from_slice(&self.to_le_bytes());
                u64::from_le_bytes(bytes)
            }

            fn from_word(word: u64) -> Self {
                let mut low = [0; size_of::<Self>()];
                low.copy_from_slice(&word.to_le_bytes()[..size_of::<Self>()]);
                Self::from_le_bytes(low)
            }
        }
        impl Number for $type {
            fn plus(self, other: Self) -> Self {
                let plus: fn(Self, Self) -> Self = $plus;
                plus(self, other)
            }
        }
    )*};
}

scalar! {
    u8 => U8, Self::wrapping_add;
    u16 => U16, Self::wrapping_add;
    u32 => U32, Self::wrapping_add;
    u64 => U64, Self::wrapping_add;
    i8 => I8, Self::wrapping_add;
    i16 => I16, Self::wrapping_add;
    i32 => I32, Self::wrapping_add;
    i64 => I64, Self::wrapping_add;
    f32 => F32, std::ops::Add::add;
    f64 => F64, std::ops::Add::add;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn survives<T: Scalar>(value: T, noise: u64) {
        let word = value.to_word();
        assert_eq!(T::from_word(word).to_word(), word);
        let n_bits = 8 * size_of::<T>();
        let above = u64::MAX.checked_shl(u32::try_from(n_bits).unwrap()).unwrap_or(0);
        assert_eq!(word & above, 0, "{value:?} leaves the bits above its own at zero");
        assert_eq!(T::from_word(word | noise & above).to_word(), word, "bits above are ignored");
    }

    proptest! {
        #[test]
        fn every_value_survives_its_word(bits: u64, noise: u64) {
            survives(bits % 2 == 0, noise);
            survives(u8::from_word(bits), noise);
            survives(u16::from_word(bits), noise);
            survives(u32::from_word(bits), noise);
            survives(bits, noise);
            survives(i8::from_word(bits), noise);
            survives(i16::from_word(bits), noise);
            survives(i32::from_word(bits), noise);
            survives(i64::from_word(bits), noise);
            survives(f32::from_word(bits), noise);
            survives(f64::from_word(bits), noise);
        }
    }

    #[test]
    fn negative_numbers_and_odd_truths_are_what_they_seem() {
        assert_eq!(i8::from_word((-5_i8).to_word()), -5);
        assert_eq!((-5_i8).to_word(), 0xfb);
        assert_eq!(f32::from_word((-0.5_f32).to_word()).to_bits(), (-0.5_f32).to_bits());
        assert!(bool::from_word(2), "any byte but zero is true");
        assert!(!bool::from_word(0x100), "the other bytes do not count");
    }

    #[test]
    fn integers_wrap_around() {
        assert_eq!(250_u8.plus(10), 4);
        assert_eq!(i64::MAX.plus(1), i64::MIN);
    }
}
