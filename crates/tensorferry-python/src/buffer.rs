//! Python's buffer protocol: `memoryview(tensor)`, `numpy.asarray(tensor)`, `bytes(tensor)`.
//!
//! # Safety
//! The C structure is filled as PEP 3118 and "Buffer Protocol" of Python's C API want it, and what it points
//! to lives until the structure is released.
#![expect(unsafe_code, reason = "fills a structure of the interpreter")]

use std::ffi::{c_int, c_void};
use std::ptr;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::dtype;
use crate::view::{Hold, View};

/// What lives until the buffer is released: Python's `internal`.
struct Lent {
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
    #[expect(dead_code, reason = "it is held")]
    hold: Hold,
}

/// Fills `buffer`, which belongs to `owner`.
///
/// # Safety
/// `buffer` is null or may be written. What stands there may be anything.
pub(crate) unsafe fn fill(
    owner: &Bound<'_, PyAny>,
    view: PyResult<View>,
    buffer: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    if buffer.is_null() {
        // As `PyBuffer_FillInfo` does: PyObject_GetBuffer passes on what it was called with.
        return Err(PyBufferError::new_err("there is no view to fill"));
    }
    let described = view.and_then(|view| describe(owner, view, flags));
    let (filled, outcome) = match described {
        Ok(filled) => (filled, Ok(())),
        // Without an owner, as the interpreter wants to see it when there is an error.
        Err(error) => (ffi::Py_buffer::new(), Err(error)),
    };
    // SAFETY: `write` wants a pointer that may be written, which is the function's contract for one that is
    // not null, and aligned, which the interpreter's structure is. It reads nothing of what stands there.
    unsafe { buffer.write(filled) };
    outcome
}

fn describe(owner: &Bound<'_, PyAny>, view: View, flags: c_int) -> PyResult<ffi::Py_buffer> {
    let wants = |flag: c_int| flags & flag == flag;
    let format = dtype::format_of(view.dtype).ok_or_else(|| {
        PyBufferError::new_err(format!("buffers have no elements like {}: use DLPack", view.dtype))
    })?;
    if wants(ffi::PyBUF_WRITABLE) && view.is_read_only {
        return Err(PyBufferError::new_err("the tensor is frozen: it can only be read"));
    }
    // Who asks for elements side by side reads `len` bytes from the first one on, whatever the strides say.
    let wants_contiguous = !wants(ffi::PyBUF_STRIDES)
        || [ffi::PyBUF_C_CONTIGUOUS, ffi::PyBUF_F_CONTIGUOUS, ffi::PyBUF_ANY_CONTIGUOUS]
            .into_iter()
            .any(wants);
    if wants_contiguous && !view.is_contiguous {
        return Err(PyBufferError::new_err("the tensor is not contiguous"));
    }
    let wants_columns = wants(ffi::PyBUF_F_CONTIGUOUS) && !wants(ffi::PyBUF_ANY_CONTIGUOUS);
    if wants_columns && view.shape.len() > 1 {
        return Err(PyBufferError::new_err("the tensor is in row-major order"));
    }
    let size_bytes = view.dtype.size_bytes();
    // At most 64.
    let rank = c_int::try_from(view.shape.len()).unwrap_or(c_int::MAX);
    let data: *mut c_void = view.first().cast_mut().cast();
    let mut lent = Box::new(Lent {
        shape: view.shape,
        // Lengths in bytes are below 2^63 (`Layout`).
        strides: view.strides.iter().map(|stride| stride * size_bytes.cast_signed()).collect(),
        hold: view.hold,
    });
    let (shape, strides) = (lent.shape.as_mut_ptr(), lent.strides.as_mut_ptr());
    // A scalar has neither.
    let if_wanted = |flag, dims| if wants(flag) && rank > 0 { dims } else { ptr::null_mut() };
    let mut filled = ffi::Py_buffer::new();
    filled.buf = data;
    filled.len = (view.n_elements * size_bytes).cast_signed();
    filled.itemsize = size_bytes.cast_signed();
    filled.readonly = view.is_read_only.into();
    filled.format = if wants(ffi::PyBUF_FORMAT) { format.as_ptr().cast_mut() } else { ptr::null_mut() };
    filled.ndim = if wants(ffi::PyBUF_ND) { rank } else { 1 };
    filled.shape = if_wanted(ffi::PyBUF_ND, shape);
    filled.strides = if_wanted(ffi::PyBUF_STRIDES, strides);
    filled.internal = Box::into_raw(lent).cast();
    filled.obj = owner.clone().into_ptr();
    Ok(filled)
}

/// Lets go of what the buffer has.
///
/// # Safety
/// [`fill`] has filled it, and nobody has released it since.
pub(crate) unsafe fn release(buffer: *mut ffi::Py_buffer) {
    // SAFETY: by the function's contract it was filled, so it is there.
    let Some(buffer) = (unsafe { buffer.as_mut() }) else { return };
    let lent: *mut Lent = std::mem::replace(&mut buffer.internal, ptr::null_mut()).cast();
    if !lent.is_null() {
        // SAFETY: `fill` made it from a box, and this is the only place that takes it, once.
        drop(unsafe { Box::from_raw(lent) });
    }
}
