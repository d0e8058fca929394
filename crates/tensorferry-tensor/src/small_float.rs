//! Floats of eight bits and fewer, as plain bytes with conversions.
//!
//! The names spell the format as OCP, ONNX and PyTorch do: `E4M3` has 4 bits of exponent and 3 of mantissa,
//! `Fn` is finite with NaN (no infinities), `Uz` has an unsigned zero, and a lone `F`, `N`, `U` drops one of
//! these. Formats without a suffix follow IEEE 754.

use std::fmt;

use bytemuck::{Pod, Zeroable};

/// How a format uses its highest codes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Specials {
    /// The highest exponent holds the infinities and NaN.
    Ieee,
    /// Only the code with all bits set is NaN.
    Fn,
    /// Only the code of negative zero is NaN.
    Fnuz,
    /// Every code is a number.
    Finite,
}

/// A sign bit, then exponent and mantissa; `exponent_bits + mantissa_bits` is 7, 5 or 3.
#[derive(Clone, Copy)]
struct Format {
    exponent_bits: u32,
    mantissa_bits: u32,
    bias: i32,
    specials: Specials,
}

impl Format {
    const fn sign_bit(self) -> u32 {
        1 << (self.exponent_bits + self.mantissa_bits)
    }

    /// The largest code of a finite number, without sign.
    const fn max_code(self) -> u32 {
        match self.specials {
            Specials::Ieee => self.infinity_code() - 1,
            Specials::Fn => self.sign_bit() - 2,
            Specials::Fnuz | Specials::Finite => self.sign_bit() - 1,
        }
    }

    /// The first code of the highest exponent, without sign.
    const fn infinity_code(self) -> u32 {
        ((1 << self.exponent_bits) - 1) << self.mantissa_bits
    }

    const fn nan_code(self) -> u32 {
        match self.specials {
            Specials::Ieee => self.infinity_code() | (1 << (self.mantissa_bits - 1)),
            Specials::Fnuz => self.sign_bit(),
            Specials::Fn | Specials::Finite => self.sign_bit() - 1,
        }
    }

    /// The value of a code. It is exact, because binary32 holds every number of every format.
    fn decode(self, bits: u8) -> f32 {
        let bits = u32::from(bits) & (self.sign_bit() * 2 - 1);
        let code = bits & (self.sign_bit() - 1);
        let negative = bits & self.sign_bit() != 0;
        if self.specials == Specials::Fnuz && bits == self.sign_bit() {
            return f32::NAN;
        }
        let magnitude = if self.specials == Specials::Ieee && code == self.infinity_code() {
            f32::INFINITY
        } else if code > self.max_code() {
            f32::NAN
        } else {
            let exponent = code >> self.mantissa_bits;
            let fraction = code & ((1 << self.mantissa_bits) - 1);
            let significand = if exponent == 0 { fraction } else { fraction | (1 << self.mantissa_bits) };
            let unit = exponent.max(1).cast_signed() - self.bias - self.mantissa_bits.cast_signed();
            // Both factors are exact: the significand has at most 5 bits, and the power is far inside
            // binary32's range.
            (0..significand).fold(0.0, |sum, _| sum + 1.0) * 2_f32.powi(unit)
        };
        if negative { -magnitude } else { magnitude }
    }

    /// The code of the nearest number, ties to even. A number that is too large becomes an infinity; NaN in a
    /// format without infinities; the largest number in one without NaN.
    fn encode(self, value: f32) -> u8 {
        let bits = value.to_bits();
        let sign = if value.is_sign_negative() { self.sign_bit() } else { 0 };
        let code = if value.is_nan() {
            self.nan_code()
        } else if value.is_infinite() {
            self.overflow(sign)
        } else {
            let exponent = ((bits >> 23) & 0xff).cast_signed() - 127;
            let significand = (bits & 0x7f_ffff) | 0x80_0000;
            let target = exponent.max(1 - self.bias);
            // The value is significand * 2^(exponent - 23), and the unit of the result is 2^(target -
            // mantissa_bits).
            let shift = (23 - self.mantissa_bits) + (target - exponent).cast_unsigned();
            let quotient = if shift > 25 { 0 } else { round_shift(significand, shift) };
            let code = ((target + self.bias - 1).cast_unsigned() << self.mantissa_bits) + quotient;
            match code {
                0 if self.specials == Specials::Fnuz => 0,
                _ if code > self.max_code() => self.overflow(sign),
                _ => code | sign,
            }
        };
        code.to_le_bytes()[0]
    }

    const fn overflow(self, sign: u32) -> u32 {
        match self.specials {
            Specials::Ieee => self.infinity_code() | sign,
            Specials::Fn => self.nan_code() | sign,
            Specials::Fnuz => self.nan_code(),
            Specials::Finite => self.max_code() | sign,
        }
    }
}

/// `value / 2^shift`, rounded to the nearest integer, ties to even. `shift` is 1..=25.
const fn round_shift(value: u32, shift: u32) -> u32 {
    let floor = value >> shift;
    let rest = value & ((1 << shift) - 1);
    let half = 1 << (shift - 1);
    if rest > half || (rest == half && floor & 1 == 1) { floor + 1 } else { floor }
}

/// Compares and prints values as the numbers that they represent.
macro_rules! by_number {
    ($name:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.to_f32().fmt(f)
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f32() == other.to_f32()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                self.to_f32().partial_cmp(&other.to_f32())
            }
        }
    };
}

macro_rules! small_float {
    ($(#[$doc:meta])* $name:ident, $exponent_bits:literal, $mantissa_bits:literal, $bias:literal, $specials:ident) => {
        $(#[$doc])*
        ///
        /// Any byte is a valid value. Values are compared as the numbers that they represent: NaN equals
        /// nothing, and the two zeros are equal.
        #[derive(Clone, Copy, Default, Pod, Zeroable)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            const FORMAT: Format = Format {
                exponent_bits: $exponent_bits,
                mantissa_bits: $mantissa_bits,
                bias: $bias,
                specials: Specials::$specials,
            };

            /// The value with these bits.
            #[must_use]
            pub const fn from_bits(bits: u8) -> Self {
                Self(bits)
            }

            /// The bits of this value.
            #[must_use]
            pub const fn to_bits(self) -> u8 {
                self.0
            }

            /// The number that the bits represent, exactly.
            #[must_use]
            pub fn to_f32(self) -> f32 {
                Self::FORMAT.decode(self.0)
            }

            /// The nearest value, ties to even. A number that is too large becomes an infinity; NaN in a
            /// format without infinities; the largest number in one that has no NaN either.
            #[must_use]
            pub fn from_f32(value: f32) -> Self {
                Self(Self::FORMAT.encode(value))
            }
        }

        by_number!($name);

        impl From<$name> for f32 {
            fn from(value: $name) -> Self {
                value.to_f32()
            }
        }
    };
}

small_float!(/// `float8_e3m4`: 3 bits of exponent (bias 3), 4 of mantissa, IEEE specials; largest 15.5.
    F8E3M4, 3, 4, 3, Ieee);
small_float!(/// `float8_e4m3`: 4 bits of exponent (bias 7), 3 of mantissa, IEEE specials; largest 240.
    F8E4M3, 4, 3, 7, Ieee);
small_float!(/// `float8_e4m3b11fnuz`: 4 bits of exponent (bias 11), 3 of mantissa; largest 30.
    F8E4M3B11Fnuz, 4, 3, 11, Fnuz);
small_float!(/// `float8_e4m3fn`: 4 bits of exponent (bias 7), 3 of mantissa, no infinities; largest 448.
    F8E4M3Fn, 4, 3, 7, Fn);
small_float!(/// `float8_e4m3fnuz`: 4 bits of exponent (bias 8), 3 of mantissa; largest 240.
    F8E4M3Fnuz, 4, 3, 8, Fnuz);
small_float!(/// `float8_e5m2`: 5 bits of exponent (bias 15), 2 of mantissa, IEEE specials; largest 57344.
    F8E5M2, 5, 2, 15, Ieee);
small_float!(/// `float8_e5m2fnuz`: 5 bits of exponent (bias 16), 2 of mantissa; largest 57344.
    F8E5M2Fnuz, 5, 2, 16, Fnuz);
small_float!(/// `float6_e2m3fn`, the lower 6 bits of a byte: 2 bits of exponent (bias 1), 3 of mantissa; largest 7.5.
    F6E2M3Fn, 2, 3, 1, Finite);
small_float!(/// `float6_e3m2fn`, the lower 6 bits of a byte: 3 bits of exponent (bias 3), 2 of mantissa; largest 28.
    F6E3M2Fn, 3, 2, 3, Finite);

/// `float8_e8m0fnu`: a power of two from 2^-127 to 2^127, or NaN; the scale of a block of smaller floats.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct F8E8M0Fnu(u8);

by_number!(F8E8M0Fnu);

impl F8E8M0Fnu {
    /// The value with these bits.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The bits of this value.
    #[must_use]
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// The number that the bits represent, exactly.
    #[must_use]
    pub const fn to_f32(self) -> f32 {
        match self.0 {
            0 => f32::from_bits(1 << 22),
            0xff => f32::NAN,
            exponent => f32::from_bits((exponent as u32) << 23),
        }
    }
}

/// `float4_e2m1fn_x2`: two 4-bit floats in one byte (2 bits of exponent, 1 of mantissa); largest 6.
#[derive(Clone, Copy, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct F4E2M1FnX2(u8);

impl fmt::Debug for F4E2M1FnX2 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second] = self.to_f32_pair();
        (first, second).fmt(f)
    }
}

impl PartialEq for F4E2M1FnX2 {
    fn eq(&self, other: &Self) -> bool {
        self.to_f32_pair() == other.to_f32_pair()
    }
}

impl F4E2M1FnX2 {
    const FORMAT: Format = Format { exponent_bits: 2, mantissa_bits: 1, bias: 1, specials: Specials::Finite };

    /// The pair with these bits.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The bits of this pair.
    #[must_use]
    pub const fn to_bits(self) -> u8 {
        self.0
    }

    /// The two numbers: the one in the lower four bits comes first.
    #[must_use]
    pub fn to_f32_pair(self) -> [f32; 2] {
        [Self::FORMAT.decode(self.0 & 0xf), Self::FORMAT.decode(self.0 >> 4)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    macro_rules! check {
        ($name:ident, $largest:expr, $smallest:expr) => {{
            let finite = |bits: u8| Some($name::from_bits(bits).to_f32()).filter(|value| value.is_finite());
            let largest = (0..=u8::MAX).filter_map(finite).fold(0.0, f32::max);
            let smallest =
                (0..=u8::MAX).filter_map(finite).filter(|value| *value > 0.0).fold(f32::MAX, f32::min);
            assert_eq!((largest, smallest), ($largest, $smallest), stringify!($name));
            for bits in 0..$name::FORMAT.sign_bit() * 2 {
                let value = $name::from_bits(u8::try_from(bits).unwrap());
                if value.to_f32().is_nan() {
                    assert!($name::from_f32(value.to_f32()).to_f32().is_nan());
                } else {
                    assert_eq!($name::from_f32(value.to_f32()).to_bits(), value.to_bits(), "{value:?}");
                }
            }
            // Nearest, against a search through all values.
            for step in -4000_i16..4000 {
                let x = f32::from(step) * $largest / 3990.0;
                let rounded = $name::from_f32(x).to_f32();
                let nearest =
                    (0..=u8::MAX).filter_map(finite).map(|value| (value - x).abs()).fold(f32::MAX, f32::min);
                if rounded.is_finite() {
                    assert_eq!((rounded - x).abs(), nearest, "{} of {x}", stringify!($name));
                }
            }
        }};
    }

    #[test]
    fn each_format_has_its_range_and_rounds_to_nearest() {
        check!(F8E3M4, 15.5, 2_f32.powi(-6));
        check!(F8E4M3, 240.0, 2_f32.powi(-9));
        check!(F8E4M3B11Fnuz, 30.0, 2_f32.powi(-13));
        check!(F8E4M3Fn, 448.0, 2_f32.powi(-9));
        check!(F8E4M3Fnuz, 240.0, 2_f32.powi(-10));
        check!(F8E5M2, 57344.0, 2_f32.powi(-16));
        check!(F8E5M2Fnuz, 57344.0, 2_f32.powi(-17));
        check!(F6E2M3Fn, 7.5, 0.125);
        check!(F6E3M2Fn, 28.0, 0.0625);
    }

    #[test]
    fn known_bits() {
        assert_eq!(F8E4M3Fn::from_f32(1.0).to_bits(), 0x38);
        assert_eq!(F8E5M2::from_f32(1.0).to_bits(), 0x3c);
        assert_eq!(F8E4M3Fnuz::from_f32(1.0).to_bits(), 0x40);
        assert_eq!(F8E5M2::from_f32(-2.5).to_bits(), 0xc1);
        // 17 lies between 16 and 18 of e4m3: the even one wins, and so does 20 over 18 at 19.
        assert_eq!(F8E4M3Fn::from_f32(17.0).to_f32(), 16.0);
        assert_eq!(F8E4M3Fn::from_f32(19.0).to_f32(), 20.0);
    }

    #[test]
    fn they_compare_as_numbers() {
        let (zero, minus_zero) = (F8E5M2::from_bits(0), F8E5M2::from_bits(0x80));
        let nan = F8E5M2::from_f32(f32::NAN);
        assert!(zero == minus_zero && nan != nan && F8E8M0Fnu::from_bits(0xff) != F8E8M0Fnu::from_bits(0xff));
        assert!(F8E4M3Fn::from_f32(-2.0) < F8E4M3Fn::from_f32(0.5) && nan.partial_cmp(&zero).is_none());
        assert!(F4E2M1FnX2::from_bits(0x80) == F4E2M1FnX2::from_bits(0x08));
    }

    #[test]
    fn they_print_as_numbers() {
        assert_eq!(format!("{:?} {:?}", F8E4M3Fn::from_f32(1.5), F8E8M0Fnu::from_bits(128)), "1.5 2.0");
        assert_eq!(format!("{:?}", F4E2M1FnX2::from_bits(0x21)), "(0.5, 1.0)");
    }

    #[test]
    fn specials() {
        assert_eq!(F8E5M2::from_f32(1e9).to_f32(), f32::INFINITY);
        assert_eq!(F8E5M2::from_f32(f32::NEG_INFINITY).to_f32(), f32::NEG_INFINITY);
        assert!(F8E4M3Fn::from_f32(1e9).to_f32().is_nan());
        assert!(F8E4M3Fnuz::from_f32(f32::INFINITY).to_f32().is_nan());
        assert_eq!(F8E4M3Fnuz::from_f32(-0.0).to_bits(), 0);
        assert_eq!(F8E4M3Fnuz::from_f32(f32::NAN).to_bits(), 0x80);
        assert_eq!(F8E4M3Fn::from_f32(-0.0).to_bits(), 0x80);
        assert_eq!(F6E2M3Fn::from_f32(100.0).to_f32(), 7.5);
        assert_eq!(F8E4M3Fn::from_f32(f32::MIN_POSITIVE / 2.0).to_bits(), 0);
    }

    #[test]
    fn scales_and_pairs() {
        assert_eq!(F8E8M0Fnu::from_bits(127).to_f32(), 1.0);
        assert_eq!(F8E8M0Fnu::from_bits(0).to_f32(), 2_f32.powi(-127));
        assert_eq!(F8E8M0Fnu::from_bits(254).to_f32(), 2_f32.powi(127));
        assert!(F8E8M0Fnu::from_bits(255).to_f32().is_nan());
        assert_eq!(F4E2M1FnX2::from_bits(0x7f).to_f32_pair(), [-6.0, 6.0]);
        assert_eq!(F4E2M1FnX2::from_bits(0x21).to_f32_pair(), [0.5, 1.0]);
    }
}
