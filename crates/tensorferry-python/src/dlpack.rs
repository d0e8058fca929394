//! DLPack, in and out.
//!
//! # Safety
//! What is exported must be as it is described, for as long as the consumer has it. What is imported is
//! copied at once, as its producer has described it: memory of the CPU to shared memory, memory of a device
//! to shared memory of that device.
#![expect(unsafe_code, reason = "says to other libraries what lies where, and reads what they say")]

use std::ptr;

use dlpark::ffi::{DLDataType, DLDevice, DLDeviceType, DLManagedTensor, DLManagedTensorVersioned};
use dlpark::metadata::Dynamic;
use dlpark::python::{DlpackExporter, ExportRequest, export_dlpack};
use dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};
use tensorferry_cuda_ipc::AnyCudaTensor;
use tensorferry_tensor::{AnyTensor, AnyTensorMut, DType, Layout};

use crate::cuda::CudaTensor;
use crate::error::of_tensor;
use crate::view::View;
use crate::{cuda, dtype};

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

/// A tensor of a device, for DLPack.
pub(crate) struct OnDevice<'a> {
    pub(crate) tensor: &'a AnyCudaTensor,
    /// Of its first element, for work on the consumer's stream.
    pub(crate) address: u64,
    pub(crate) shape: Vec<i64>,
    /// In elements.
    pub(crate) strides: Vec<i64>,
    pub(crate) device: DLDevice,
}

impl OnDevice<'_> {
    pub(crate) fn managed<M: ManagedTensorBase>(&self) -> PyResult<Managed<M>> {
        let dtype = described_dtype(self.tensor.dtype())?;
        let refused = |error: dlpark::metadata::Error| PyBufferError::new_err(error.to_string());
        let dims = Dynamic::new(self.shape.clone(), self.strides.clone());
        let mut tensor = dims.initialize_as::<M>(Box::new(self.tensor.clone())).map_err(refused)?;
        tensor.set_data(cuda::pointer(self.address)?).set_dtype(dtype).set_device(self.device);
        // SAFETY: `finish` wants pointers, lifetimes, flags and layout to be as DLPack says:
        // - `address` is that of the first element in the memory of this device. The layout lies within its
        //   storage, which the handle that goes along keeps where it is;
        // - without elements there is no address, and DLPack wants none;
        // - parts of slabs begin at multiples of 256, and elements lie at multiples of their size;
        // - any number of processes may write it, which its class says; there are no flags.
        Ok(unsafe { tensor.finish() })
    }
}

fn described_dtype(dtype: DType) -> PyResult<DLDataType> {
    dtype::dlpack_of(dtype)
        .ok_or_else(|| PyBufferError::new_err(format!("DLPack has no elements like {dtype}")))
}

fn managed<M: ManagedTensorBase>(view: &View) -> PyResult<Managed<M>> {
    let dtype = described_dtype(view.dtype)?;
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
    //   and it is not given away while there is one; a shared one may be written by anybody, and its class
    //   says so. That a consumer keeps to the mark is its part of DLPack's contract. PyTorch leaves it to
    //   its user (docs/SAFETY.md, "Python").
    Ok(unsafe { tensor.finish() })
}

/// A copy of an array, where the array was.
pub(crate) enum Copied {
    Host(AnyTensor),
    Device(CudaTensor),
}

/// The arguments that ask for a capsule that can say that it is read-only.
fn newest(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let arguments = PyDict::new(py);
    arguments.set_item(intern!(py, "max_version"), (1, 0))?;
    Ok(arguments)
}

/// A copy in shared memory: frozen, where it is memory of the CPU.
pub(crate) fn copied(array: &Bound<'_, PyAny>) -> PyResult<Copied> {
    if let Ok(tensor) = array.cast::<CudaTensor>() {
        let copy = cuda::copied(array.py(), tensor.get())?.ok_or_else(not_contiguous)?;
        tensorferry_reduce::count_copied(copy.nbytes());
        return Ok(Copied::Device(copy));
    }
    match copied_if_contiguous(array)? {
        Some(tensor) => Ok(tensor),
        // PyTorch and NumPy gather the elements themselves.
        None if array.hasattr(intern!(array.py(), "contiguous"))? => {
            copied_once_more(&array.call_method0(intern!(array.py(), "contiguous"))?)
        }
        None if array.hasattr(intern!(array.py(), "copy"))? => {
            copied_once_more(&array.call_method1(intern!(array.py(), "copy"), ("C",))?)
        }
        None => Err(not_contiguous()),
    }
}

fn copied_once_more(array: &Bound<'_, PyAny>) -> PyResult<Copied> {
    copied_if_contiguous(array)?.ok_or_else(not_contiguous)
}

fn not_contiguous() -> PyErr {
    PyBufferError::new_err("the elements of the array do not lie side by side, in row-major order")
}

/// Whether the elements lie side by side, in row-major order. The stride of a single index has no meaning.
fn is_dense(shape: &[i64], strides: &[i64]) -> bool {
    let mut expected = 1;
    let mut fits = |(&dim, &stride): (&i64, &i64)| {
        let is_next = dim == 1 || stride == expected;
        expected = expected.saturating_mul(dim.max(1));
        is_next
    };
    shape.contains(&0) || shape.iter().zip(strides).rev().all(&mut fits)
}

/// The device of an array of CUDA, by its ordinal.
fn device_of(array: &Bound<'_, PyAny>) -> PyResult<Option<i32>> {
    let py = array.py();
    if !array.hasattr(intern!(py, "__dlpack_device__"))? {
        return Ok(None);
    }
    let (kind, ordinal): (u32, i32) = array.call_method0(intern!(py, "__dlpack_device__"))?.extract()?;
    Ok((kind == DLDeviceType::CUDA.0).then_some(ordinal))
}

/// That it is one, and not another array, which would be asked again, and without a stream.
fn check_capsule(object: &Bound<'_, PyAny>) -> PyResult<()> {
    let capsule = object.cast::<PyCapsule>()?;
    if [c"dltensor", c"dltensor_versioned"].iter().any(|name| capsule.is_valid_checked(Some(name))) {
        return Ok(());
    }
    Err(PyBufferError::new_err("the capsule is none of DLPack, or was used before"))
}

fn copied_if_contiguous(array: &Bound<'_, PyAny>) -> PyResult<Option<Copied>> {
    let py = array.py();
    // What is to be done to a tensor of PyTorch when it is read, DLPack does not know of.
    let mut array = array.clone();
    for resolve in [intern!(py, "resolve_conj"), intern!(py, "resolve_neg")] {
        if array.hasattr(resolve)? {
            array = array.call_method0(resolve)?;
        }
    }
    let ordinal = device_of(&array)?;
    let arguments = newest(py)?;
    if let Some(ordinal) = ordinal {
        // Which waits for what the producer has queued.
        arguments.set_item(intern!(py, "stream"), cuda::stream_handle(py, ordinal)?)?;
    }
    // By the method, and not by PyTorch's table of functions, which refuses less: gradients, say.
    let capsule = match array.call_method(intern!(py, "__dlpack__"), (), Some(&arguments)) {
        // Older libraries do not know the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            arguments.del_item(intern!(py, "max_version"))?;
            array.call_method(intern!(py, "__dlpack__"), (), Some(&arguments))?
        }
        capsule => capsule?,
    };
    check_capsule(&capsule)?;
    let imported = dlpark::python::from_dlpack(capsule.as_borrowed(), None, None)?;
    let described = imported.validate().map_err(|error| PyBufferError::new_err(error.to_string()))?;
    let dtype = dtype::of_dlpack(described.dtype()).ok_or_else(|| {
        PyTypeError::new_err(format!("no tensor has elements like {:?}", described.dtype()))
    })?;
    let negative = |_| PyBufferError::new_err("an array has a negative length");
    let shape = described.shape().iter().map(|&dim| usize::try_from(dim)).collect::<Result<Vec<_>, _>>();
    if described.device() != ordinal.map_or(DLDevice::CPU, DLDevice::cuda) {
        return Err(PyBufferError::new_err(
            "the array is neither in the memory of the CPU nor in that of CUDA",
        ));
    }
    let failed = |error: dlpark::tensor::Error| PyBufferError::new_err(error.to_string());
    let strides = described.strides_or_compact().map_err(failed)?;
    if !is_dense(described.shape(), &strides) {
        return Ok(None);
    }
    let layout = Layout::contiguous(shape.map_err(negative)?);
    let layout = layout.map_err(|error| PyBufferError::new_err(error.to_string()))?;
    let (bytes, expected) = (described.num_bytes(), layout.n_elements() * dtype.size_bytes());
    if bytes != expected {
        return Err(PyBufferError::new_err(format!("{bytes} bytes for {expected} of elements")));
    }
    let offset = usize::try_from(described.byte_offset());
    let offset = offset.map_err(|_| PyBufferError::new_err("an array begins beyond the memory"))?;
    let first = described.data_ptr().expose_provenance();
    let address = first.checked_add(offset).filter(|&address| address.checked_add(bytes).is_some());
    let address = address.filter(|_| first != 0 || bytes == 0);
    let address =
        address.ok_or_else(|| PyBufferError::new_err("an array without memory for its elements"))?;
    if let Some(ordinal) = ordinal {
        let shape = layout.shape().to_vec();
        // SAFETY: `copied_from` reads as many bytes as these elements have:
        // - the producer has said that they are there, on this device, and ready on the stream that it was
        //   given; they lie side by side (`is_dense`);
        // - it keeps them for as long as `imported` lives, which is longer than this call.
        let copy = unsafe { cuda::copied_from(py, address as u64, (shape, dtype), ordinal)? };
        tensorferry_reduce::count_copied(bytes);
        return Ok(Some(Copied::Device(copy)));
    }
    let made = py.detach(|| AnyTensorMut::empty(dtype, layout.shape()));
    let mut tensor = made.map_err(|error| of_tensor(&error))?;
    let place = tensor.as_mut_bytes();
    py.detach(|| {
        let array = ptr::with_exposed_provenance::<u8>(address);
        // SAFETY: `copy_nonoverlapping` reads and writes `place.len()` bytes, which are apart from each
        // other:
        // - the array has as many (`bytes`, checked above), side by side from its first element on
        //   (`is_dense`), which is not null if there is any. The producer has said that they are there
        //   (`validate` has checked what can be checked), and keeps them for as long as `imported` lives,
        //   which is longer than this call;
        // - `place` is a mutable slice of that length, and was just allocated, so it is no part of the array;
        // - of no bytes the address does not matter.
        // That nobody writes the array meanwhile is, as with any array, up to its user.
        unsafe { ptr::copy_nonoverlapping(array, place.as_mut_ptr(), place.len()) };
    });
    tensorferry_reduce::count_copied(bytes);
    Ok(Some(Copied::Host(tensor.freeze())))
}
