//! The types that a tensor can hold: plain data of a known [`DType`].

use std::fmt::{self, Debug};

use bytemuck::{Pod, Zeroable};
use num_complex::Complex;

use crate::dtype::DType;
use crate::small_float::{
    F4E2M1FnX2, F6E2M3Fn, F6E3M2Fn, F8E3M4, F8E4M3, F8E4M3B11Fnuz, F8E4M3Fn, F8E4M3Fnuz, F8E5M2, F8E5M2Fnuz,
    F8E8M0Fnu,
};

mod sealed {
    pub trait Sealed {}
}

/// A boolean in one byte of memory: zero is false, every other value is true.
///
/// Rust's `bool` has only two valid bytes, so memory that another process filled cannot be read as `bool`.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool(u8);

impl Bool {
    /// The byte 0.
    pub const FALSE: Self = Self(0);
    /// The byte 1.
    pub const TRUE: Self = Self(1);

    /// 1 for true, 0 for false.
    #[must_use]
    pub const fn new(value: bool) -> Self {
        Self(value as u8)
    }

    /// True unless the byte is zero.
    #[must_use]
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Self {
        Self::new(value)
    }
}

impl From<Bool> for bool {
    fn from(value: Bool) -> Self {
        value.get()
    }
}

impl Debug for Bool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// Two values are equal when both are true or both are false, whatever the bytes.
impl PartialEq for Bool {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl Eq for Bool {}

/// Plain data that can be an element: every bit pattern is a value, and there are no pointers and no padding.
///
/// The trait is sealed. It is implemented for Rust's integers and floats, [`Bool`], `half`'s floats,
/// [`Complex`] and the small floats of this crate.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a tensor",
    note = "elements are integers and floats, `Complex` of them, and `tensorferry_tensor::Bool`",
    note = "write `Bool` for `bool`, `u64` for `usize`, `i64` for `isize`; a struct becomes a tensor for each of its \
            fields"
)]
pub trait Element: Pod + Debug + Default + PartialEq + Send + Sync + sealed::Sealed {
    /// The data type of `Self` at run time; `size_of::<Self>()` is its `size_bytes`.
    const DTYPE: DType;

    /// One: true of [`Bool`], and a pair of ones of [`F4E2M1FnX2`].
    const ONE: Self;
}

/// An element that fits into a 64-bit word, so that it can be read and written atomically.
///
/// Only `complex128` does not fit, because it has 16 bytes. The compiler refuses a shared tensor of it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an element of a shared tensor",
    note = "its elements are those of other tensors (`Bool` for `bool`, `u64` for `usize`), of at most 8 bytes: not \
            `Complex<f64>`"
)]
pub trait AtomicElement: Element {
    /// The elements in one 64-bit word, in the order of their addresses.
    #[doc(hidden)]
    type Lanes: Pod + AsRef<[Self]> + AsMut<[Self]>;

    /// The number of elements that share one word.
    #[doc(hidden)]
    const N_LANES: usize = size_of::<u64>() / size_of::<Self>();
}

/// An atomic element that can be added: integers wrap around, floats round.
pub trait AtomicNumber: AtomicElement {
    /// `self + other`.
    #[must_use]
    fn plus(self, other: Self) -> Self;

    /// `self * factor`.
    #[must_use]
    fn times(self, factor: Self) -> Self;
}

macro_rules! element {
    ($($type:ty => $dtype:ident, $n_lanes:literal, $one:expr;)*) => {$(
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            const ONE: Self = $one;
        }
        const _: () = assert!(size_of::<$type>() == DType::$dtype.size_bytes());
        impl AtomicElement for $type {
            type Lanes = [$type; $n_lanes];
        }
    )*};
}

macro_rules! integer {
    ($($type:ty)*) => {$(
        impl AtomicNumber for $type {
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            fn times(self, factor: Self) -> Self {
                self.wrapping_mul(factor)
            }
        }
    )*};
}

macro_rules! float {
    ($($type:ty)*) => {$(
        impl AtomicNumber for $type {
            fn plus(self, other: Self) -> Self {
                self + other
            }
            fn times(self, factor: Self) -> Self {
                self * factor
            }
        }
    )*};
}

element! {
    Bool => Bool, 8, Self::TRUE;
    u8 => U8, 8, 1;
    u16 => U16, 4, 1;
    u32 => U32, 2, 1;
    u64 => U64, 1, 1;
    i8 => I8, 8, 1;
    i16 => I16, 4, 1;
    i32 => I32, 2, 1;
    i64 => I64, 1, 1;
    f32 => F32, 2, 1.0;
    f64 => F64, 1, 1.0;
    Complex<f32> => Complex64, 1, Self::new(1.0, 0.0);
    F8E3M4 => F8E3M4, 8, Self::from_bits(0x30);
    F8E4M3 => F8E4M3, 8, Self::from_bits(0x38);
    F8E4M3B11Fnuz => F8E4M3B11Fnuz, 8, Self::from_bits(0x58);
    F8E4M3Fn => F8E4M3Fn, 8, Self::from_bits(0x38);
    F8E4M3Fnuz => F8E4M3Fnuz, 8, Self::from_bits(0x40);
    F8E5M2 => F8E5M2, 8, Self::from_bits(0x3c);
    F8E5M2Fnuz => F8E5M2Fnuz, 8, Self::from_bits(0x40);
    F8E8M0Fnu => F8E8M0Fnu, 8, Self::from_bits(0x7f);
    F6E2M3Fn => F6E2M3Fn, 8, Self::from_bits(0x08);
    F6E3M2Fn => F6E3M2Fn, 8, Self::from_bits(0x0c);
    F4E2M1FnX2 => F4E2M1FnX2, 8, Self::from_bits(0x22);
}

integer!(u8 u16 u32 u64 i8 i16 i32 i64);
float!(f32 f64 Complex<f32>);

#[cfg(feature = "half")]
element! {
    half::f16 => F16, 4, Self::ONE;
    half::bf16 => BF16, 4, Self::ONE;
    Complex<half::f16> => Complex32, 2, Self::new(half::f16::ONE, half::f16::ZERO);
}

#[cfg(feature = "half")]
float!(half::f16 half::bf16);

impl sealed::Sealed for Complex<f64> {}
impl Element for Complex<f64> {
    const DTYPE: DType = DType::Complex128;
    const ONE: Self = Self::new(1.0, 0.0);
}
const _: () = assert!(size_of::<Complex<f64>>() == DType::Complex128.size_bytes());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_byte_but_zero_is_true() {
        let bytes = [0_u8, 1, 2, 255];
        let values: Vec<bool> =
            bytemuck::cast_slice::<u8, Bool>(&bytes).iter().map(|value| value.get()).collect();
        assert_eq!(values, [false, true, true, true]);
        assert_eq!(Bool(2), Bool::TRUE);
        assert_ne!(Bool::from(false), Bool::TRUE);
        assert!(bool::from(Bool::new(true)));
    }

    #[test]
    fn a_word_holds_lanes_in_address_order() {
        let lanes: [u16; 4] = bytemuck::must_cast(u64::from_ne_bytes([1, 0, 2, 0, 3, 0, 4, 0]));
        assert_eq!(lanes.map(u16::from_le), [1, 2, 3, 4]);
        assert_eq!(<u16 as AtomicElement>::N_LANES, 4);
    }

    #[test]
    fn one_is_the_number_one() {
        let small = [
            F8E3M4::ONE.to_f32(),
            F8E4M3::ONE.to_f32(),
            F8E4M3B11Fnuz::ONE.to_f32(),
            F8E4M3Fn::ONE.to_f32(),
            F8E4M3Fnuz::ONE.to_f32(),
            F8E5M2::ONE.to_f32(),
            F8E5M2Fnuz::ONE.to_f32(),
            F8E8M0Fnu::ONE.to_f32(),
            F6E2M3Fn::ONE.to_f32(),
            F6E3M2Fn::ONE.to_f32(),
        ];
        assert_eq!(small, [1.0; 10]);
        assert_eq!(F4E2M1FnX2::ONE.to_f32_pair(), [1.0; 2]);
        assert_eq!((Bool::ONE, Complex::<f64>::ONE * 2.0), (Bool::TRUE, Complex::new(2.0, 0.0)));
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(250_u8.plus(10), 4);
        assert_eq!(i8::MIN.times(-1), i8::MIN);
    }
}
