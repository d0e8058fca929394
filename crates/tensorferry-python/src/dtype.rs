//! The names of element types in each of Python's protocols.

use std::ffi::CStr;

use dlpark::ffi::DLDataType;
use tensorferry_tensor::DType;

/// A dtype in DLPack, and its format in the `struct` module where it has one.
type Row = (DType, DLDataType, Option<&'static CStr>);

/// What DLPack calls complex numbers of two halves, and the small floats that fill a byte with one element.
const C32: DLDataType = DLDataType { bits: 32, ..DLDataType::C64 };

const ROWS: &[Row] = &[
    (DType::Bool, DLDataType::BOOL, Some(c"?")),
    (DType::U8, DLDataType::U8, Some(c"B")),
    (DType::U16, DLDataType::U16, Some(c"H")),
    (DType::U32, DLDataType::U32, Some(c"I")),
    (DType::U64, DLDataType::U64, Some(c"Q")),
    (DType::I8, DLDataType::I8, Some(c"b")),
    (DType::I16, DLDataType::I16, Some(c"h")),
    (DType::I32, DLDataType::I32, Some(c"i")),
    (DType::I64, DLDataType::I64, Some(c"q")),
    (DType::F16, DLDataType::F16, Some(c"e")),
    (DType::BF16, DLDataType::BF16, None),
    (DType::F32, DLDataType::F32, Some(c"f")),
    (DType::F64, DLDataType::F64, Some(c"d")),
    (DType::Complex32, C32, None),
    (DType::Complex64, DLDataType::C64, Some(c"Zf")),
    (DType::Complex128, DLDataType::C128, Some(c"Zd")),
    (DType::F8E3M4, DLDataType::F8E3M4, None),
    (DType::F8E4M3, DLDataType::F8E4M3, None),
    (DType::F8E4M3B11Fnuz, DLDataType::F8E4M3B11FNUZ, None),
    (DType::F8E4M3Fn, DLDataType::F8E4M3FN, None),
    (DType::F8E4M3Fnuz, DLDataType::F8E4M3FNUZ, None),
    (DType::F8E5M2, DLDataType::F8E5M2, None),
    (DType::F8E5M2Fnuz, DLDataType::F8E5M2FNUZ, None),
    (DType::F8E8M0Fnu, DLDataType::F8E8M0FNU, None),
];

/// `None` for elements that DLPack packs in another way.
pub(crate) fn dlpack_of(dtype: DType) -> Option<DLDataType> {
    ROWS.iter().find(|row| row.0 == dtype).map(|row| row.1)
}

pub(crate) fn of_dlpack(dtype: DLDataType) -> Option<DType> {
    ROWS.iter().find(|row| row.1 == dtype).map(|row| row.0)
}

/// `None` for elements that the buffer protocol does not know.
pub(crate) fn format_of(dtype: DType) -> Option<&'static CStr> {
    ROWS.iter().find(|row| row.0 == dtype).and_then(|row| row.2)
}

/// NumPy's name of it in the array interface: byte order, kind and bytes. `None` for elements that NumPy does
/// not know.
pub(crate) fn typestr_of(dtype: DType) -> Option<&'static str> {
    Some(match dtype {
        DType::Bool => "|b1",
        DType::U8 => "|u1",
        DType::I8 => "|i1",
        DType::U16 => "<u2",
        DType::U32 => "<u4",
        DType::U64 => "<u8",
        DType::I16 => "<i2",
        DType::I32 => "<i4",
        DType::I64 => "<i8",
        DType::F16 => "<f2",
        DType::F32 => "<f4",
        DType::F64 => "<f8",
        DType::Complex64 => "<c8",
        DType::Complex128 => "<c16",
        _ => return None,
    })
}
