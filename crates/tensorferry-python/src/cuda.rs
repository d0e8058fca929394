//! Tensors in the memory of a device.
//!
//! # Safety
//! Of a consumer's stream, Python knows a number. That it is a stream, and outlives what is done with it, is
//! the consumer's word: docs/SAFETY.md, "Python".
#![expect(unsafe_code, reason = "other libraries' streams are numbers")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use dlpark::ffi::DLDevice;
use dlpark::python::{CudaStreamRequest, ExportRequest};
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyTuple};
use tensorferry_cuda_ipc::{AnyCudaTensor, CudaError, CudaTensorError, Driver, Stream};
use tensorferry_storage::Heap;
use tensorferry_tensor::{AnyTensor, AnyTensorMut, DType, Layout};

use crate::error::of_cuda;
use crate::tensor::{Tensor, repr};
use crate::view::{forked, is_forked};
use crate::{dlpack, dtype};

/// A tensor in the memory of a CUDA device. Any number of processes read and write it at the same time, each
/// in the order of its streams. Streams with which other libraries take it must not be destroyed while the
/// process lives, as PyTorch's never are; work on other streams is the program's to order.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct CudaTensor {
    pub(crate) inner: AnyCudaTensor,
    /// Of its device in this process, once it was asked for.
    ordinal: OnceLock<i32>,
}

/// Where a tensor is to be.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    Host,
    /// The ordinal of the device in this process.
    Device(i32),
}

impl Place {
    /// A number, `cpu`, `cuda`, `cuda:1`, or PyTorch's object for one of these. Without a number it is the
    /// first device.
    pub(crate) fn of(device: &Bound<'_, PyAny>) -> PyResult<Self> {
        // A bool is a number to Python.
        if !device.is_instance_of::<PyBool>()
            && let Ok(ordinal) = device.extract()
        {
            return Ok(Self::Device(ordinal));
        }
        let text = device.str()?;
        let text = text.to_cow()?;
        let ordinal = match &*text {
            "cpu" => return Ok(Self::Host),
            "cuda" => Some(0),
            text => text.strip_prefix("cuda:").and_then(|ordinal| ordinal.parse().ok()),
        };
        ordinal.map(Self::Device).ok_or_else(|| {
            PyValueError::new_err(format!("no device {text:?}: it is `cpu`, `cuda`, `cuda:1` or a number"))
        })
    }
}

/// The stream of this module on a device, by the ordinal of the device.
fn stream_on(ordinal: i32) -> Result<Stream, CudaTensorError> {
    static STREAMS: Mutex<BTreeMap<i32, Stream>> = Mutex::new(BTreeMap::new());
    let mut streams = STREAMS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stream) = streams.get(&ordinal) {
        return Ok(stream.clone());
    }
    let context = Driver::load()?.device(ordinal)?.retain_primary_context()?;
    let stream = Stream::create(&context)?;
    streams.insert(ordinal, stream.clone());
    Ok(stream)
}

/// The handle of the stream of this module on a device.
pub(crate) fn stream_handle(py: Python<'_>, ordinal: i32) -> PyResult<usize> {
    without_interpreter(py, || Ok(stream_on(ordinal)?.handle()))
}

/// Waits until what was queued on a stream of this module is done.
fn finish(stream: &Stream) -> Result<(), CudaTensorError> {
    unless_cut_short(stream.synchronize().map_err(Into::into))
}

/// That a stream of this module went on without a sender that was killed is told whoever reads what that one
/// has sent, and nobody else who waits for the stream.
fn unless_cut_short(waited: Result<(), CudaTensorError>) -> Result<(), CudaTensorError> {
    match waited {
        Err(CudaTensorError::Cuda(CudaError::WaitCutShort)) => Ok(()),
        waited => waited,
    }
}

/// Lets other threads run meanwhile.
pub(crate) fn without_interpreter<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, CudaTensorError> + Send,
) -> PyResult<T> {
    if is_forked() {
        return Err(forked());
    }
    py.detach(work).map_err(|error| of_cuda(&error))
}

pub(crate) fn zeros(dtype: DType, shape: Vec<usize>, ordinal: i32) -> Result<AnyCudaTensor, CudaTensorError> {
    let stream = stream_on(ordinal)?;
    let tensor = AnyCudaTensor::zeros(&stream, dtype, shape)?;
    finish(&stream)?;
    Ok(tensor)
}

pub(crate) fn empty(dtype: DType, shape: Vec<usize>, ordinal: i32) -> Result<AnyCudaTensor, CudaTensorError> {
    AnyCudaTensor::empty(&stream_on(ordinal)?, dtype, shape)
}

/// A copy on a device.
pub(crate) fn upload(py: Python<'_>, tensor: &AnyTensor, ordinal: i32) -> PyResult<CudaTensor> {
    without_interpreter(py, || {
        let stream = stream_on(ordinal)?;
        let inner = AnyCudaTensor::empty(&stream, tensor.dtype(), tensor.shape())?;
        inner.as_bytes()?.write_from(&stream, &tensor.to_bytes())?;
        Ok(CudaTensor::on(ordinal, inner))
    })
}

/// A copy on the same device; `None` if the elements do not lie side by side.
pub(crate) fn copied(py: Python<'_>, tensor: &CudaTensor) -> PyResult<Option<CudaTensor>> {
    let from = &tensor.inner;
    if !from.is_contiguous() {
        return Ok(None);
    }
    without_interpreter(py, || {
        let ordinal = tensor.ordinal()?;
        let stream = stream_on(ordinal)?;
        let copy = AnyCudaTensor::empty(&stream, from.dtype(), from.shape().clone())?;
        from.wait_for_users(&stream)?;
        copy.as_bytes()?.copy_from(&stream, &from.as_bytes()?)?;
        finish(&stream)?;
        // An error if the stream went on without the sender of this one.
        from.is_written()?;
        Ok(Some(CudaTensor::on(ordinal, copy)))
    })
}

/// A copy of the memory that begins at this address of a device, which nobody lets go of meanwhile.
///
/// # Safety
/// As many bytes lie there as these elements have, which the device's stream of this module may read.
pub(crate) unsafe fn copied_from(
    py: Python<'_>,
    address: u64,
    (shape, dtype): (Vec<usize>, DType),
    ordinal: i32,
) -> PyResult<CudaTensor> {
    without_interpreter(py, || {
        let stream = stream_on(ordinal)?;
        let tensor = AnyCudaTensor::empty(&stream, dtype, shape)?;
        let bytes = tensor.as_bytes()?;
        // SAFETY: `copy_from_address` reads the bytes of all elements until it returns. So long this
        // function's caller keeps them there, where the device may read them.
        unsafe { bytes.copy_from_address(&stream, address)? };
        Ok(CudaTensor::on(ordinal, tensor))
    })
}

impl CudaTensor {
    pub(crate) fn new(inner: AnyCudaTensor) -> Self {
        Self { inner, ordinal: OnceLock::new() }
    }

    pub(crate) fn on(ordinal: i32, inner: AnyCudaTensor) -> Self {
        Self { inner, ordinal: ordinal.into() }
    }

    /// The ordinal of its device in this process; that of the first one if it came without elements.
    fn ordinal(&self) -> Result<i32, CudaTensorError> {
        if let Some(known) = self.ordinal.get() {
            return Ok(*known);
        }
        let Some(uuid) = self.inner.device_uuid() else { return Ok(0) };
        let ordinal = Driver::load()?.device_by_uuid(uuid)?.ordinal();
        Ok(*self.ordinal.get_or_init(|| ordinal))
    }

    fn checked_ordinal(&self, py: Python<'_>) -> PyResult<i32> {
        without_interpreter(py, || self.ordinal())
    }

    /// The address for work on the consumer's stream, which waits for the sender.
    fn address_for(&self, py: Python<'_>, consumer: CudaStreamRequest) -> PyResult<u64> {
        if matches!(consumer, CudaStreamRequest::PerThreadDefault) {
            return Err(PyBufferError::new_err(
                "the per-thread default stream is another one in each thread: use the legacy default stream, or one \
                 that was made",
            ));
        }
        without_interpreter(py, || {
            let own = stream_on(self.ordinal()?)?;
            let stream = match consumer {
                CudaStreamRequest::Omitted | CudaStreamRequest::LegacyDefault => Stream::null(own.context()),
                // SAFETY: `from_raw` wants a stream of this context that lives as long as the process:
                // - the array API says that this number is the handle of a stream of the tensor's device.
                //   Libraries for Python use the primary context, which is the one of `own`;
                // - it is neither of the numbers that stand for several streams, which dlpark tells apart;
                // - how long it lives is said in the documentation of `CudaTensor`.
                CudaStreamRequest::Pointer(handle) => unsafe { Stream::from_raw(own.context(), handle) },
                // Nobody waits: the consumer wants it so.
                CudaStreamRequest::NoSync | CudaStreamRequest::PerThreadDefault => own.clone(),
            };
            if !matches!(consumer, CudaStreamRequest::NoSync) {
                // The consumer knows of none of them: other consumers in this process, and `own`, which waits
                // for whoever used the memory before a tensor that was made here.
                self.inner.wait_for_users(&stream)?;
            }
            self.inner.address_on(&stream)
        })
    }

    fn dlpack_device(&self, py: Python<'_>) -> PyResult<DLDevice> {
        self.checked_ordinal(py).map(DLDevice::cuda)
    }

    /// An error if it is not where it was to be: a copy to another device is PyTorch's affair.
    pub(crate) fn refuse_elsewhere(&self, py: Python<'_>, place: Place) -> PyResult<()> {
        match place {
            // Of no elements it does not matter where they are.
            Place::Device(_) if self.inner.device_uuid().is_none() => Ok(()),
            Place::Device(ordinal) if self.checked_ordinal(py)? == ordinal => Ok(()),
            Place::Host => Err(PyValueError::new_err("the array is on a device: take `tensor(array).cpu()`")),
            Place::Device(_) => {
                Err(PyValueError::new_err("the array is on another device: copy it there first"))
            }
        }
    }

    /// A copy in shared memory of the host.
    fn download(&self) -> Result<AnyTensor, CudaTensorError> {
        let (tensor, bytes) = (&self.inner, self.inner.as_bytes()?);
        let mut span = AnyTensorMut::empty(DType::U8, [bytes.n_elements()])?;
        if bytes.n_elements() > 0 {
            let stream = stream_on(self.ordinal()?)?;
            tensor.wait_for_users(&stream)?;
            unless_cut_short(bytes.read_into(&stream, span.as_mut_bytes()))?;
        }
        let block = span.freeze().to_block(Heap::current()?)?;
        let layout = Layout::new(tensor.shape().clone(), tensor.strides(), 0)?;
        Ok(AnyTensor::from_block(tensor.dtype(), block, layout)?)
    }
}

/// Lengths and strides, as other libraries have them.
fn numbers(dims: &[usize], size: usize) -> PyResult<Vec<i64>> {
    let number = |&dim: &usize| dim.checked_mul(size).and_then(|number| i64::try_from(number).ok());
    let numbers = dims.iter().map(number).collect::<Option<Vec<_>>>();
    numbers.ok_or_else(|| PyBufferError::new_err("the strides have more than 64 bits"))
}

#[pymethods]
impl CudaTensor {
    /// The length of each dimension.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.inner.shape().as_slice())
    }

    /// PyTorch's name of the elements' type.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.inner.dtype().name()
    }

    /// The bytes of the elements.
    #[getter]
    pub(crate) fn nbytes(&self) -> usize {
        self.inner.n_elements() * self.inner.dtype().size_bytes()
    }

    /// The ordinal of its device in this process.
    #[getter]
    fn device(&self, py: Python<'_>) -> PyResult<i32> {
        self.checked_ordinal(py)
    }

    /// Whether others may write at the same time.
    #[getter]
    fn is_shared(&self) -> bool {
        true
    }

    /// Whether the device of the process that sent it has done the work that was queued for it before. An
    /// error if it never will, because that process was killed.
    fn is_written(&self, py: Python<'_>) -> PyResult<bool> {
        without_interpreter(py, || self.inner.is_written())
    }

    /// A copy in shared memory of the host, when what was queued with the tensor in this process is done.
    fn cpu(&self, py: Python<'_>) -> PyResult<Tensor> {
        let copy = without_interpreter(py, || self.download())?;
        tensorferry_reduce::count_copied(self.nbytes());
        Ok(Tensor::new(copy))
    }

    fn __repr__(&self) -> PyResult<String> {
        Ok(repr("CudaTensor", &numbers(self.inner.shape(), 1)?, self.inner.dtype()))
    }

    /// The length of the first dimension.
    fn __len__(&self) -> PyResult<usize> {
        let first = self.inner.shape().first().copied();
        first.ok_or_else(|| PyTypeError::new_err("a tensor without dimensions has no length"))
    }

    /// DLPack: the same memory in another library (`torch.from_dlpack`), whose stream waits for the sender.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(u32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Py<PyAny>> {
        let request = ExportRequest::parse(stream, max_version, dl_device, copy)?;
        let (device, flags) = (self.dlpack_device(py)?, dlpark::DlpackFlags::empty());
        request.validate_zero_copy(device, flags)?;
        let exported = dlpack::OnDevice {
            tensor: &self.inner,
            address: self.address_for(py, request.cuda_stream()?)?,
            shape: numbers(self.inner.shape(), 1)?,
            strides: numbers(self.inner.strides(), 1)?,
            device,
        };
        request.export_zero_copy(py, device, flags, || exported.managed(), || exported.managed())
    }

    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(u32, i32)> {
        self.dlpack_device(py).map(Into::into)
    }

    /// The CUDA array interface: the same memory in another library, ready on the legacy default stream.
    #[getter(__cuda_array_interface__)]
    fn cuda_array_interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dtype = self.inner.dtype();
        // `hasattr` is to be false.
        let typestr = dtype::typestr_of(dtype)
            .ok_or_else(|| PyAttributeError::new_err(format!("NumPy has no elements like {dtype}")))?;
        let address = self.address_for(py, CudaStreamRequest::LegacyDefault)?;
        let strides = match self.inner.is_contiguous() {
            true => None,
            false => Some(PyTuple::new(py, numbers(self.inner.strides(), dtype.size_bytes())?)?),
        };
        let interface = PyDict::new(py);
        interface.set_item("shape", self.shape(py)?)?;
        interface.set_item("typestr", typestr)?;
        interface.set_item("data", (address, false))?;
        interface.set_item("strides", strides)?;
        interface.set_item("version", 3)?;
        interface.set_item("stream", 1)?;
        Ok(interface)
    }
}

/// An address of a device, which nothing here reads or writes.
pub(crate) fn pointer(address: u64) -> PyResult<*mut c_void> {
    let address = usize::try_from(address);
    let address =
        address.map_err(|_| PyBufferError::new_err("an address of the device fits into no pointer here"));
    address.map(ptr::without_provenance_mut)
}
