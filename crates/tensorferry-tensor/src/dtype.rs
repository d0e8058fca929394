//! The data types of elements, and their names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// The type of one element, at run time.
///
/// The list covers the types of DLPack 1.1 and of safetensors 0.8. The number of a variant ([`DType::code`])
/// travels between processes. It never changes, and new types get new numbers.
///
/// `Display` and [`DType::name`] give PyTorch's name (`float32`). `FromStr` reads that name, with or without
/// the prefix `torch.`, and also Rust's (`f32`) and safetensors' (`F32`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum DType {
    /// A boolean in one byte: zero is false, every other value is true.
    Bool = 1,
    /// Unsigned, 1 byte.
    U8 = 2,
    /// Unsigned, 2 bytes.
    U16 = 3,
    /// Unsigned, 4 bytes.
    U32 = 4,
    /// Unsigned, 8 bytes.
    U64 = 5,
    /// Signed, 1 byte.
    I8 = 6,
    /// Signed, 2 bytes.
    I16 = 7,
    /// Signed, 4 bytes.
    I32 = 8,
    /// Signed, 8 bytes.
    I64 = 9,
    /// IEEE 754 binary16.
    F16 = 10,
    /// The upper half of a binary32.
    BF16 = 11,
    /// IEEE 754 binary32.
    F32 = 12,
    /// IEEE 754 binary64.
    F64 = 13,
    /// Two binary16: real, imaginary.
    Complex32 = 14,
    /// Two binary32: real, imaginary.
    Complex64 = 15,
    /// Two binary64: real, imaginary.
    Complex128 = 16,
    /// 8 bits: 3 of exponent, 4 of mantissa, with infinities.
    F8E3M4 = 17,
    /// 8 bits: 4 of exponent, 3 of mantissa, with infinities.
    F8E4M3 = 18,
    /// 8 bits: 4 of exponent (bias 11), 3 of mantissa, one NaN, no negative zero.
    F8E4M3B11Fnuz = 19,
    /// 8 bits: 4 of exponent, 3 of mantissa, no infinities. Safetensors calls it `F8_E4M3`.
    F8E4M3Fn = 20,
    /// 8 bits: 4 of exponent (bias 8), 3 of mantissa, one NaN, no negative zero.
    F8E4M3Fnuz = 21,
    /// 8 bits: 5 of exponent, 2 of mantissa, with infinities.
    F8E5M2 = 22,
    /// 8 bits: 5 of exponent (bias 16), 2 of mantissa, one NaN, no negative zero.
    F8E5M2Fnuz = 23,
    /// 8 bits of exponent and nothing else: a scale.
    F8E8M0Fnu = 24,
    /// 6 bits (2 of exponent, 3 of mantissa) in the lower bits of one byte; the packed form is not an
    /// element.
    F6E2M3Fn = 25,
    /// 6 bits (3 of exponent, 2 of mantissa) in the lower bits of one byte; the packed form is not an
    /// element.
    F6E3M2Fn = 26,
    /// Two 4-bit floats (2 of exponent, 1 of mantissa) in one byte, which counts as one element.
    F4E2M1FnX2 = 27,
}

/// The text or the number names no known data type.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown dtype {given:?}; known are torch's names such as float32, and bool, u8, i64, bf16, F8_E5M2")]
pub struct ParseDTypeError {
    given: String,
}

tensorferry_storage::debug_as_display!(ParseDTypeError);

/// Every type with its name in PyTorch (or in DLPack, if PyTorch has none), in Rust, and in safetensors.
const NAMES: &[(DType, &str, &str, &str)] = &[
    (DType::Bool, "bool", "bool", "BOOL"),
    (DType::U8, "uint8", "u8", "U8"),
    (DType::U16, "uint16", "u16", "U16"),
    (DType::U32, "uint32", "u32", "U32"),
    (DType::U64, "uint64", "u64", "U64"),
    (DType::I8, "int8", "i8", "I8"),
    (DType::I16, "int16", "i16", "I16"),
    (DType::I32, "int32", "i32", "I32"),
    (DType::I64, "int64", "i64", "I64"),
    (DType::F16, "float16", "f16", "F16"),
    (DType::BF16, "bfloat16", "bf16", "BF16"),
    (DType::F32, "float32", "f32", "F32"),
    (DType::F64, "float64", "f64", "F64"),
    (DType::Complex32, "complex32", "c32", "C32"),
    (DType::Complex64, "complex64", "c64", "C64"),
    (DType::Complex128, "complex128", "c128", "C128"),
    (DType::F8E3M4, "float8_e3m4", "f8_e3m4", "F8_E3M4"),
    (DType::F8E4M3, "float8_e4m3", "f8_e4m3", "F8_E4M3_IEEE"),
    (DType::F8E4M3B11Fnuz, "float8_e4m3b11fnuz", "f8_e4m3b11fnuz", "F8_E4M3B11FNUZ"),
    (DType::F8E4M3Fn, "float8_e4m3fn", "f8_e4m3fn", "F8_E4M3"),
    (DType::F8E4M3Fnuz, "float8_e4m3fnuz", "f8_e4m3fnuz", "F8_E4M3FNUZ"),
    (DType::F8E5M2, "float8_e5m2", "f8_e5m2", "F8_E5M2"),
    (DType::F8E5M2Fnuz, "float8_e5m2fnuz", "f8_e5m2fnuz", "F8_E5M2FNUZ"),
    (DType::F8E8M0Fnu, "float8_e8m0fnu", "f8_e8m0fnu", "F8_E8M0"),
    (DType::F6E2M3Fn, "float6_e2m3fn", "f6_e2m3fn", "F6_E2M3"),
    (DType::F6E3M2Fn, "float6_e3m2fn", "f6_e3m2fn", "F6_E3M2"),
    (DType::F4E2M1FnX2, "float4_e2m1fn_x2", "f4_e2m1fn_x2", "F4_X2"),
];

impl DType {
    /// All data types, in the order of their codes.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        NAMES.iter().map(|row| row.0)
    }

    /// Size of one element in bytes.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::F8E3M4
            | Self::F8E4M3
            | Self::F8E4M3B11Fnuz
            | Self::F8E4M3Fn
            | Self::F8E4M3Fnuz
            | Self::F8E5M2
            | Self::F8E5M2Fnuz
            | Self::F8E8M0Fnu
            | Self::F6E2M3Fn
            | Self::F6E3M2Fn
            | Self::F4E2M1FnX2 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 | Self::Complex32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
        }
    }

    /// Whether the type is a floating-point type of any width. False for complex types.
    #[must_use]
    pub const fn is_floating_point(self) -> bool {
        matches!(self as u8, 10..=13 | 17..=27)
    }

    /// Whether the type is one of the three complex types.
    #[must_use]
    pub const fn is_complex(self) -> bool {
        matches!(self, Self::Complex32 | Self::Complex64 | Self::Complex128)
    }

    /// The number of this type in a message.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type with this code, if there is one.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::all().find(|dtype| dtype.code() == code)
    }

    /// Rust's name, such as `f32`.
    pub(crate) fn rust_name(self) -> &'static str {
        NAMES.iter().find(|row| row.0 == self).map_or("unknown", |row| row.2)
    }

    /// PyTorch's name without its prefix, such as `float32`. DLPack's name if PyTorch has no such type.
    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|row| row.0 == self).map_or("unknown", |row| row.1)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = ParseDTypeError;

    fn from_str(text: &str) -> Result<Self, ParseDTypeError> {
        let name = text.strip_prefix("torch.").unwrap_or(text);
        NAMES
            .iter()
            .find(|row| [row.1, row.2, row.3].contains(&name))
            .map(|row| row.0)
            .ok_or_else(|| ParseDTypeError { given: text.to_owned() })
    }
}

/// Writes the name in a human-readable format, and the code (one byte) in any other.
impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(self.name())
        } else {
            serializer.serialize_u8(self.code())
        }
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
        } else {
            let code = u8::deserialize(deserializer)?;
            Self::from_code(code).ok_or_else(|| {
                de::Error::custom(format_args!("unknown dtype code {code}; is the sender newer?"))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_fixed_and_names_parse_back() {
        let codes: Vec<u8> = DType::all().map(DType::code).collect();
        assert_eq!(codes, (1..=27).collect::<Vec<u8>>());
        for (dtype, torch, rust, safetensors) in NAMES {
            assert_eq!(DType::from_code(dtype.code()), Some(*dtype));
            for name in [torch, rust, safetensors] {
                assert_eq!(name.parse::<DType>(), Ok(*dtype), "{name}");
            }
            assert_eq!(format!("torch.{dtype}").parse::<DType>(), Ok(*dtype));
        }
        assert_eq!(DType::from_code(0), None);
        assert_eq!(DType::from_code(28), None);
    }

    #[test]
    fn no_name_means_two_types() {
        for (dtype, torch, rust, safetensors) in NAMES {
            for (other, a, b, c) in NAMES {
                let clash = [torch, rust, safetensors].iter().any(|name| [a, b, c].contains(name));
                assert_eq!(clash, dtype == other, "{dtype} and {other}");
            }
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_that_repeats_it() {
        let error = "float33".parse::<DType>().unwrap_err();
        assert!(error.to_string().contains("float33"), "{error}");
    }

    #[test]
    fn serde_writes_a_name_for_people_and_one_byte_for_machines() {
        assert_eq!(serde_json::to_string(&DType::BF16).unwrap(), "\"bfloat16\"");
        assert_eq!(serde_json::from_str::<DType>("\"bf16\"").unwrap(), DType::BF16);
        assert_eq!(rmp_serde::to_vec_named(&DType::F32).unwrap(), [12]);
        assert_eq!(rmp_serde::from_slice::<DType>(&[12]).unwrap(), DType::F32);
        assert!(rmp_serde::from_slice::<DType>(&[99]).is_err());
        assert!(serde_json::from_str::<DType>("\"f33\"").is_err());
    }

    #[test]
    fn kinds() {
        assert!(
            DType::F8E5M2.is_floating_point()
                && DType::F16.is_floating_point()
                && DType::F64.is_floating_point()
        );
        assert!(
            !DType::Complex64.is_floating_point()
                && !DType::Bool.is_floating_point()
                && !DType::I64.is_floating_point()
        );
        assert!(DType::Complex32.is_complex() && !DType::F32.is_complex());
    }
}
