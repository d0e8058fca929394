//! DLPack, in and out.
//!
//! # Safety
//! What is exported must be as it is described, for as long as the consumer has it. What is imported is
//! copied at once, as its producer has described it.
#![expect(unsafe_code, reason = "says to other libraries what lies where, and reads what they say")]

use dlpark::ffi::{DLDevice, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::python::{DlpackExporter, ExportRequest, export_dlpack};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tensorferry_tensor::{AnyTensor, AnyTensorMut};

use crate::dtype;
use crate::error::of_tensor;
use crate::view::View;

/// Memory of the CPU (`kDLCPU`).
pub(crate) const CPU: (i32, i32) = (1, 0);

/// The arguments of `__dlpack__`.
pub(crate) fn request<'py>(
    stream: Option<&Bound<'py, PyAny>>,
    max_version: Option<(u32, u32)>,
    device: Option<(i32, i32)>,
    copy: Option<bool>,
) -> PyResult<ExportRequest<'py>> {
    if let Some(device) = device
        && device != CPU
    {
        return Err(PyBufferError::new_err("the tensor is in the memory of the CPU"));
    }
    ExportRequest::parse(stream, max_version, None, copy)
}

/// A capsule with the memory of a view. A consumer of an old version cannot be told that a tensor is
/// read-only, and gets none.
pub(crate) fn export<'py>(py: Python<'py>, view: &View, request: ExportRequest<'py>) -> PyResult<Py<PyAny>> {
    export_dlpack(view, py, request)
}

impl DlpackExporter for View {
    fn device(&self) -> DLDevice {
        DLDevice::CPU
    }

    fn flags(&self) -> DlpackFlags {
        if self.is_read_only { DlpackFlags::READ_ONLY } else { DlpackFlags::empty() }
    }

    fn prepare_export(&self, _: Python<'_>, _: &ExportRequest<'_>) -> PyResult<()> {
        Ok(())
    }

    fn export_legacy(&self, _: Python<'_>) -> PyResult<Managed<DLManagedTensor>> {
        managed(self)
    }

    fn export_versioned(&self, _: Python<'_>) -> PyResult<Managed<DLManagedTensorVersioned>> {
        managed(self)
    }
}

fn managed<M: ManagedTensorBase>(view: &View) -> PyResult<Managed<M>> {
    let dtype = dtype::dlpack_of(view.dtype)
        .ok_or_else(|| PyBufferError::new_err(format!("DLPack has no elements like {}", view.dtype)))?;
    let refused = |error: dlpark::metadata::Error| PyBufferError::new_err(error.to_string());
    let numbers = |dims: &[isize]| dims.iter().map(|&dim| dim as i64).collect::<Vec<_>>();
    let dims = Dynamic::new(numbers(&view.shape), numbers(&view.strides));
    // What the consumer lets go of in the end, in any thread.
    let mut tensor = dims.initialize_as::<M>(Box::new(view.hold.clone())).map_err(refused)?;
    tensor.set_data(view.first().cast_mut().cast()).set_dtype(dtype).set_device(DLDevice::CPU);
    tensor.set_flags(view.flags()).map_err(|error| PyBufferError::new_err(error.to_string()))?;
    // SAFETY: `finish` wants pointers, lifetimes, flags and layout to be as DLPack says:
    // - `View::of` has checked that the layout lies within the storage, so each element that shape and
    //   strides reach from `first` is memory of this process, and `hold` keeps it;
    // - it is aligned, because blocks are, and elements lie at multiples of their size;
    // - a frozen tensor is marked as read-only. An old consumer, which cannot see the mark, is refused
    //   before this is called (`ExportRequest::validate_zero_copy`). Of an exclusive one `hold` is counted,
    //   and it is not given away while there is one; a shared one may be written by anybody, and its class says so. That a
    //   consumer keeps to the mark is its part of DLPack's contract. PyTorch leaves it to its user (docs/SAFETY.md,
    //   "Python").
    Ok(unsafe { tensor.finish() })
}

/// The arguments that ask for a capsule that can say that it is read-only.
fn newest(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let arguments = PyDict::new(py);
    arguments.set_item(intern!(py, "max_version"), (1, 0))?;
    Ok(arguments)
}

/// A frozen copy in shared memory.
pub(crate) fn copied(array: &Bound<'_, PyAny>) -> PyResult<AnyTensor> {
    // By the method, and not by PyTorch's table of functions, which leaves out what a tensor has to have done to it
    // when it is read: a conjugate, a negative. The method refuses those.
    let py = array.py();
    let capsule = match array.call_method(intern!(py, "__dlpack__"), (), Some(&newest(py)?)) {
        // Older libraries do not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            array.call_method0(intern!(py, "__dlpack__"))?
        }
        capsule => capsule?,
    };
    let imported = dlpark::python::from_dlpack(capsule.as_borrowed(), None, None)?;
    let described = imported.validate().map_err(|error| PyBufferError::new_err(error.to_string()))?;
    let dtype = dtype::of_dlpack(described.dtype()).ok_or_else(|| {
        PyTypeError::new_err(format!("no tensor has elements like {:?}", described.dtype()))
    })?;
    let negative = |_| PyBufferError::new_err("an array has a negative length");
    let shape = described.shape().iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    // SAFETY: the bytes of `num_elements` elements must be there while they are borrowed. The producer has
    // said so (`validate` has checked what can be checked), and keeps them for as long as `imported` lives,
    // which is longer than this borrow. That nobody writes them meanwhile is, as with any array, up to its
    // user: they are only copied.
    let bytes = unsafe { described.cpu_bytes() }.map_err(|error| {
        PyBufferError::new_err(format!("the array must be contiguous, in the memory of the CPU: {error}"))
    })?;
    let mut tensor =
        AnyTensorMut::empty(dtype, shape.map_err(negative)?).map_err(|error| of_tensor(&error))?;
    let place = tensor.as_mut_bytes();
    if place.len() != bytes.len() {
        return Err(PyBufferError::new_err(format!("{} bytes for {} of elements", bytes.len(), place.len())));
    }
    place.copy_from_slice(bytes);
    tensorferry_reduce::count_copied(bytes.len());
    Ok(tensor.freeze())
}
