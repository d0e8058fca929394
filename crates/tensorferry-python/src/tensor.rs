//! The three kinds of tensor, as classes.
//!
//! # Safety
//! The interpreter calls the functions of the buffer protocol as its documentation says, with a buffer to
//! fill and with one that was filled. Nothing else calls them.
#![expect(unsafe_code, reason = "the functions of the buffer protocol are unsafe to call")]
#![expect(unsafe_op_in_unsafe_fn, reason = "what pyo3 makes of a method calls it in an unsafe function")]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::BoundObject as _;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict as _, PyTuple};
use tensorferry_cuda_ipc::{AnyCudaTensor, CudaTensorError};
use tensorferry_storage::Heap;
use tensorferry_tensor::{AnySharedTensor, AnyTensor, AnyTensorMut, DType, Layout, TensorError};

use crate::buffer;
use crate::cuda::{self, CudaTensor, Place};
use crate::dlpack::{self, Copied};
use crate::error::of_tensor;
use crate::view::{Hold, View, forked};

/// A tensor that nobody writes any more. Any number of processes may hold it.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct Tensor {
    pub(crate) inner: Arc<AnyTensor>,
}

/// A tensor that nobody else can see, to fill. Sending it moves it, and the receiver may go on writing;
/// `freeze` makes it a `Tensor`. While a view of it exists (an array, a memoryview) it can be neither sent
/// nor frozen.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct TensorMut {
    inner: Mutex<Option<Arc<Mutable>>>,
}

/// A tensor that any number of processes read and write at the same time: parameters in Hogwild training.
#[pyclass(frozen, module = "tensorferry")]
pub(crate) struct SharedTensor {
    pub(crate) inner: Arc<AnySharedTensor>,
}

/// An exclusive tensor, and where its elements are. Whoever has the only `Arc` may send it.
pub(crate) struct Mutable {
    pub(crate) tensor: AnyTensorMut,
    /// Where its bytes were when they were borrowed to write, and how many. Nothing borrows them after that.
    address: usize,
    len_bytes: usize,
}

impl Mutable {
    /// While nothing has a view of it.
    fn hold(mut tensor: AnyTensorMut) -> Arc<Self> {
        let bytes = tensor.as_mut_bytes();
        let (address, len_bytes) = (bytes.as_mut_ptr().expose_provenance(), bytes.len());
        Arc::new(Self { tensor, address, len_bytes })
    }
}

impl Tensor {
    pub(crate) fn new(tensor: AnyTensor) -> Self {
        Self { inner: Arc::new(tensor) }
    }

    pub(crate) fn view(&self) -> PyResult<View> {
        let bytes = self.inner.storage_bytes();
        let memory = (bytes.as_ptr(), bytes.len());
        View::of(Hold::Frozen(Arc::clone(&self.inner)), memory, self.inner.dtype(), self.inner.layout(), true)
    }
}

impl SharedTensor {
    pub(crate) fn new(tensor: AnySharedTensor) -> Self {
        Self { inner: Arc::new(tensor) }
    }

    pub(crate) fn view(&self) -> PyResult<View> {
        let words = self.inner.block().words();
        let memory = (words.as_ptr().cast(), self.inner.block().len_bytes().min(words.len() * 8));
        View::of(
            Hold::Shared(Arc::clone(&self.inner)),
            memory,
            self.inner.dtype(),
            self.inner.layout(),
            false,
        )
    }
}

impl TensorMut {
    pub(crate) fn new(tensor: AnyTensorMut) -> Self {
        Self { inner: Mutex::new(Some(Mutable::hold(tensor))) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Mutable>>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn view(&self) -> PyResult<View> {
        let inner = self.lock();
        let mutable = inner.as_ref().filter(|mutable| !mutable.tensor.is_moved()).ok_or_else(moved)?;
        if !mutable.tensor.is_accessible() {
            return Err(forked());
        }
        let storage = std::ptr::with_exposed_provenance(mutable.address);
        let layout = Layout::contiguous(mutable.tensor.shape());
        let layout = layout.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let memory = (storage, mutable.len_bytes);
        View::of(Hold::Exclusive(Arc::clone(mutable)), memory, mutable.tensor.dtype(), &layout, false)
    }

    /// Lets `use_it` have the tensor while there is no view of it. Nobody can make one before it returns;
    /// after it has given the tensor away, the tensor is moved.
    pub(crate) fn with_sole<R>(&self, use_it: impl FnOnce(&AnyTensorMut) -> R) -> Result<R, String> {
        let mut inner = self.lock();
        let mutable = inner.as_mut().ok_or("the tensor was frozen or shared")?;
        let n_views = Arc::strong_count(mutable) - 1;
        // Not the count alone: what a view has written before it was let go of is to be seen here too.
        let sole = Arc::get_mut(mutable).ok_or_else(|| viewed(n_views))?;
        Ok(use_it(&sole.tensor))
    }

    /// Takes the tensor out, if there is no view of it.
    fn take(&self) -> PyResult<AnyTensorMut> {
        let mut inner = self.lock();
        // It may come back: a message that waits for room has it.
        if inner.as_ref().is_none_or(|mutable| mutable.tensor.is_moved()) {
            return Err(moved());
        }
        let mutable = inner.take().ok_or_else(moved)?;
        Arc::try_unwrap(mutable).map(|mutable| mutable.tensor).map_err(|mutable| {
            let n_views = Arc::strong_count(&mutable) - 1;
            *inner = Some(mutable);
            PyBufferError::new_err(viewed(n_views))
        })
    }
}

fn moved() -> PyErr {
    PyValueError::new_err("the tensor was sent away, frozen or shared")
}

fn viewed(n_views: usize) -> String {
    let views = if n_views == 1 {
        "1 view of the tensor exists"
    } else {
        &format!("{n_views} views of the tensor exist")
    };
    format!("{views} (arrays, memoryviews): delete what could still write first, or gc.collect() it")
}

/// A tensor of zeros in shared memory, to fill: of the host (a `TensorMut`), or of a device (a `CudaTensor`).
#[pyfunction]
#[pyo3(signature = (shape, dtype = None, device = None), text_signature = "(shape, dtype='float32', device='cpu')")]
pub(crate) fn zeros<'py>(
    py: Python<'py>,
    shape: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    made(py, (shape, dtype, device), AnyTensorMut::zeros, cuda::zeros)
}

/// As `zeros`, with unspecified contents.
#[pyfunction]
#[pyo3(signature = (shape, dtype = None, device = None), text_signature = "(shape, dtype='float32', device='cpu')")]
pub(crate) fn empty<'py>(
    py: Python<'py>,
    shape: &Bound<'py, PyAny>,
    dtype: Option<&Bound<'py, PyAny>>,
    device: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    made(py, (shape, dtype, device), AnyTensorMut::empty, cuda::empty)
}

type Given<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// A tensor of this shape, dtype and place.
fn made<'py>(
    py: Python<'py>,
    (shape, dtype, device): (&Bound<'py, PyAny>, Given<'_, 'py>, Given<'_, 'py>),
    on_host: fn(DType, Vec<usize>) -> Result<AnyTensorMut, TensorError>,
    on_device: fn(DType, Vec<usize>, i32) -> Result<AnyCudaTensor, CudaTensorError>,
) -> PyResult<Bound<'py, PyAny>> {
    let (dtype, shape) = (dtype_of(dtype)?, shape_of(shape)?);
    match device.map_or(Ok(Place::Host), Place::of)? {
        // Memory that is used for the first time takes a while.
        Place::Host => match py.detach(|| on_host(dtype, shape)) {
            Ok(tensor) => object(py, TensorMut::new(tensor)),
            Err(error) => Err(of_tensor(&error)),
        },
        Place::Device(ordinal) => {
            let tensor = cuda::without_interpreter(py, || on_device(dtype, shape, ordinal))?;
            object(py, CudaTensor::on(ordinal, tensor))
        }
    }
}

/// A copy in shared memory of anything with `__dlpack__`: where it is, or on this device. In the memory of
/// the CPU it is frozen.
#[pyfunction]
#[pyo3(signature = (array, device = None))]
pub(crate) fn tensor<'py>(
    array: &Bound<'py, PyAny>,
    device: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = array.py();
    let place = device.map(Place::of).transpose()?;
    match (dlpack::copied(array)?, place) {
        (Copied::Host(tensor), Some(Place::Device(ordinal))) => {
            object(py, cuda::upload(py, &tensor, ordinal)?)
        }
        (Copied::Host(tensor), _) => object(py, Tensor::new(tensor)),
        (Copied::Device(tensor), None) => object(py, tensor),
        (Copied::Device(tensor), Some(place)) => {
            tensor.refuse_elsewhere(py, place)?;
            object(py, tensor)
        }
    }
}

fn object<'py>(
    py: Python<'py>,
    tensor: impl IntoPyObject<'py, Error: Into<PyErr>>,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(tensor.into_pyobject(py).map_err(Into::into)?.into_bound().into_any())
}

/// Gives memory of tensors that are gone, which is kept for the next ones, back to the system. Returns its
/// bytes.
#[pyfunction]
pub(crate) fn trim(py: Python<'_>) -> u64 {
    py.detach(|| Heap::current_if_any().map_or(0, Heap::trim))
}

/// How many bytes this process has copied so far because they were not in the memory that they were sent to.
#[pyfunction]
pub(crate) fn bytes_copied() -> u64 {
    tensorferry_reduce::bytes_copied()
}

/// A name, or what NumPy and PyTorch have for one: an object with a name, or whose text is one.
fn dtype_of(dtype: Option<&Bound<'_, PyAny>>) -> PyResult<DType> {
    let Some(dtype) = dtype else { return Ok(DType::F32) };
    let text = match dtype.extract::<String>() {
        Ok(name) => name,
        Err(_) => {
            let named = dtype.getattr("name").or_else(|_| dtype.getattr("__name__"));
            named.and_then(|name| name.extract()).or_else(|_| dtype.str()?.extract())?
        }
    };
    text.parse()
        .map_err(|error: tensorferry_tensor::ParseDTypeError| PyValueError::new_err(error.to_string()))
}

/// A number, or a sequence of numbers.
fn shape_of(shape: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    if let Ok(length) = shape.extract::<usize>() {
        return Ok(vec![length]);
    }
    shape
        .extract()
        .map_err(|_| PyTypeError::new_err("a shape is a non-negative number, or a sequence of those"))
}

pub(crate) fn repr(class: &str, shape: &[impl ToString], dtype: DType) -> String {
    let dims: Vec<_> = shape.iter().map(ToString::to_string).collect();
    format!(
        "tensorferry.{class}(shape=({}{}), dtype='{dtype}')",
        dims.join(", "),
        if dims.len() == 1 { "," } else { "" }
    )
}

/// The protocols that all three classes have.
macro_rules! protocols {
    ($class:ident { $($own:item)* }) => {
        #[pymethods]
        impl $class {
            /// The length of each dimension.
            #[getter]
            fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
                PyTuple::new(py, self.view()?.shape)
            }

            /// PyTorch's name of the elements' type.
            #[getter]
            fn dtype(&self) -> PyResult<&'static str> {
                Ok(self.view()?.dtype.name())
            }

            /// The bytes of the elements.
            #[getter]
            fn nbytes(&self) -> PyResult<usize> {
                let view = self.view()?;
                Ok(view.n_elements * view.dtype.size_bytes())
            }

            fn __repr__(&self) -> String {
                match self.view() {
                    Ok(view) => {
                        repr(stringify!($class), &view.shape, view.dtype)
                    }
                    Err(_) => concat!("tensorferry.", stringify!($class), "(moved)").to_owned(),
                }
            }

            /// The length of the first dimension.
            fn __len__(&self) -> PyResult<usize> {
                let first = self.view()?.shape.first().copied();
                first.map(isize::cast_unsigned).ok_or_else(|| PyTypeError::new_err("a tensor without dimensions has no length"))
            }

            /// For `numpy.asarray`, where the elements are none that buffers know, or the tensor is not
            /// there.
            #[pyo3(signature = (dtype = None, copy = None))]
            fn __array__<'py>(
                slf: Bound<'py, Self>,
                dtype: Option<Bound<'py, PyAny>>,
                copy: Option<bool>,
            ) -> PyResult<Bound<'py, PyAny>> {
                slf.get().view()?;
                let array = slf.py().import("numpy")?.call_method1("from_dlpack", (slf,))?;
                match (dtype, copy) {
                    (Some(dtype), Some(true)) => array.call_method1("astype", (dtype,)),
                    (None, Some(true)) => array.call_method0("copy"),
                    (None, _) => Ok(array),
                    (Some(dtype), may_copy) => {
                        let only_if_needed = [("copy", false)].into_py_dict(array.py())?;
                        let converted = array.call_method("astype", (dtype,), Some(&only_if_needed))?;
                        if may_copy == Some(false) && !converted.is(&array) {
                            return Err(PyValueError::new_err("an array of another dtype would be a copy"));
                        }
                        Ok(converted)
                    }
                }
            }

            /// DLPack: the same memory in another library (`torch.from_dlpack`, `numpy.from_dlpack`).
            #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
            fn __dlpack__<'py>(
                &self,
                py: Python<'py>,
                stream: Option<&Bound<'py, PyAny>>,
                max_version: Option<(u32, u32)>,
                dl_device: Option<(i32, i32)>,
                copy: Option<bool>,
            ) -> PyResult<Py<PyAny>> {
                let request = dlpack::request(stream, max_version, dl_device, copy)?;
                dlpack::export(py, &self.view()?, request)
            }

            fn __dlpack_device__(&self) -> (i32, i32) {
                dlpack::CPU
            }

            unsafe fn __getbuffer__(
                slf: Bound<'_, Self>,
                buffer: *mut ffi::Py_buffer,
                flags: std::ffi::c_int,
            ) -> PyResult<()> {
                let view = slf.get().view();
                // SAFETY: the interpreter passes what PyObject_GetBuffer was called with: a buffer to fill,
                // or null.
                unsafe { buffer::fill(slf.as_any(), view, buffer, flags) }
            }

            unsafe fn __releasebuffer__(&self, buffer: *mut ffi::Py_buffer) {
                // SAFETY: the interpreter passes a buffer that `__getbuffer__` has filled, once.
                unsafe { buffer::release(buffer) }
            }

            $($own)*
        }
    };
}

protocols!(Tensor {
    /// Whether others may write at the same time.
    #[getter]
    fn is_shared(&self) -> bool {
        false
    }
});

protocols!(TensorMut {
    /// Whether others may write at the same time.
    #[getter]
    fn is_shared(&self) -> bool {
        false
    }

    /// Ends writing: the tensor as one that any number of processes may read. This object is empty then.
    fn freeze(&self) -> PyResult<Tensor> {
        self.take().map(|tensor| Tensor::new(tensor.freeze()))
    }

    /// The tensor as one that several processes write at the same time. This object is empty then.
    fn share(&self) -> PyResult<SharedTensor> {
        let tensor = self.take()?;
        tensor.share().map(SharedTensor::new).map_err(|tensor| {
            let error = TensorError::NotShareable { dtype: tensor.dtype() };
            *self.lock() = Some(Mutable::hold(tensor));
            PyTypeError::new_err(error.to_string())
        })
    }
});

protocols!(SharedTensor {
    /// Whether others may write at the same time.
    #[getter]
    fn is_shared(&self) -> bool {
        true
    }
});
