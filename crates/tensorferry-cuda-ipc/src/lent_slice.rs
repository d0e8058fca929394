//! cudarc's types in the public interface: its streams as [`Stream`]s, its slices over tensors.
//!
//! # Safety
//! cudarc trusts the addresses that it is given. Here it gets memory of a tensor that the guard borrows, on
//! the stream on which the tensor was made ready. The slice is taken back without being freed, because cudarc
//! does not own the memory. The slice is lent by shared reference only: code that could move it out of the
//! guard could have cudarc free it.
#![expect(unsafe_code, reason = "tells cudarc of memory that it did not allocate")]

use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::sync::Arc;

use cudarc::driver::{
    CudaSlice, CudaStream, CudaView, CudaViewMut, DevicePtr, DevicePtrMut as _, DeviceRepr,
};
use tensorferry_storage::Heap;
use tensorferry_tensor::{Element, LayoutError, Shape};

use crate::driver::Driver;
use crate::error::CudaError;
use crate::stream::{Lender, Stream};
use crate::tensor::{CudaTensor, OnStream};
use crate::tensor_error::{CudaTensorError, Result};

/// `CU_STREAM_PER_THREAD`: one handle for a different stream in each thread.
const PER_THREAD: usize = 2;

/// The same stream, kept alive as long as a tensor has work in it. Make it once for each stream: making it
/// costs some calls of the driver.
impl TryFrom<&Arc<CudaStream>> for Stream {
    type Error = CudaError;

    /// # Errors
    /// [`CudaError::ForeignDriver`] if cudarc has loaded another driver than this library;
    /// [`CudaError::PerThreadStream`]; the driver's error.
    fn try_from(stream: &Arc<CudaStream>) -> Result<Self, CudaError> {
        let handle = stream.cu_stream().addr();
        if handle == PER_THREAD {
            return Err(CudaError::PerThreadStream);
        }
        let theirs = stream.context();
        let ordinal = i32::try_from(theirs.ordinal()).unwrap_or(i32::MAX);
        let context = Driver::load()?.device(ordinal)?.retain_primary_context()?;
        if context.handle() != theirs.cu_ctx().addr() {
            return Err(CudaError::ForeignDriver);
        }
        Ok(Self::lent_once(context, handle, Lender::new(Arc::clone(stream), is_used)))
    }
}

/// Whether the program can still queue work through the `Arc` that keeps a stream of cudarc alive. It can if
/// it has another clone, if a slice has one, or if this is the null stream, of which cudarc makes a new `Arc`
/// each time.
fn is_used(lender: &(dyn Any + Send + Sync)) -> bool {
    lender
        .downcast_ref::<Arc<CudaStream>>()
        .is_none_or(|stream| Arc::strong_count(stream) > 1 || stream.cu_stream().is_null())
}

/// A tensor on a stream, as a slice of cudarc. Other streams on which cudarc uses the slice wait until the
/// tensor is ready on this stream. When the slice is dropped, this stream waits for the work that cudarc has
/// queued for it on other streams. Drop the slice before you send the tensor, and not while the stream
/// captures a graph: the stream cannot wait for the others then, so the slice and the memory are kept for
/// good. If cudarc's event tracking is switched off, you have to order other streams yourself. Nor does
/// cudarc track anything while it has no stream but the default one: where you drop the last of the others,
/// wait for its work before.
pub struct LentSlice<'a, T: DeviceRepr> {
    /// INVARIANT: never freed by cudarc.
    slice: ManuallyDrop<CudaSlice<T>>,
    stream: &'a Stream,
    /// A slice that is forgotten keeps the memory for good: nobody has waited for what other streams do with
    /// it.
    tensor: CudaTensor<T>,
}

impl<T: Element + DeviceRepr> OnStream<'_, T> {
    /// The elements as a slice of cudarc, in row-major order. The stream must have come from cudarc.
    ///
    /// # Errors
    /// [`CudaError::NotOfCudarc`]; [`LayoutError::NotContiguous`]; [`CudaError::Capturing`] while the stream
    /// captures; [`CudaError::Cudarc`] if cudarc cannot make its events.
    pub fn as_cuda_slice(&self) -> Result<LentSlice<'_, T>> {
        self.tensor().check_contiguous()?;
        // A graph would have the address for longer than the slice is lent.
        self.stream().refuse_capture()?;
        let stream = self.stream().lender::<Arc<CudaStream>>().ok_or(CudaError::NotOfCudarc)?;
        // Making the slice makes events, and panics where that fails. So making an event is tried first.
        stream.context().new_event(None).map_err(|error| CudaError::Cudarc { text: error.to_string() })?;
        let (address, n_elements) = (self.address(), self.tensor().n_elements());
        // SAFETY: upgrade_device_ptr requires a valid allocation with room for `n_elements`, whose bytes are
        // valid elements. It is the memory of the tensor, which `self` borrows and which has the elements of
        // its layout; elements are plain data. The allocation is not cudarc's to free, and `LentSlice` never
        // lets it be freed.
        let slice = unsafe { stream.upgrade_device_ptr(address, n_elements) };
        let (slice, tensor) = (ManuallyDrop::new(slice), self.tensor().clone());
        let mut lent = LentSlice { slice, stream: self.stream(), tensor };
        // Marks the slice as just written by this stream, so that cudarc makes other streams wait for what
        // this one waits for.
        drop(lent.slice.device_ptr_mut(stream));
        Ok(lent)
    }
}

impl<T: DeviceRepr> LentSlice<'_, T> {
    /// A read-only view of all elements.
    #[must_use]
    pub fn view(&self) -> CudaView<'_, T> {
        self.slice.as_view()
    }

    /// A writable view of all elements.
    #[must_use]
    pub fn view_mut(&mut self) -> CudaViewMut<'_, T> {
        self.slice.as_view_mut()
    }
}

/// For reading, wherever cudarc takes a slice. There is no `&mut CudaSlice`, because it could be swapped for
/// another.
impl<T: DeviceRepr> Deref for LentSlice<'_, T> {
    type Target = CudaSlice<T>;

    fn deref(&self) -> &CudaSlice<T> {
        &self.slice
    }
}

impl<T: DeviceRepr> fmt::Debug for LentSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LentSlice").field("len", &self.slice.len()).finish_non_exhaustive()
    }
}

impl<T: DeviceRepr> Drop for LentSlice<'_, T> {
    fn drop(&mut self) {
        let asked = self.stream.refuse_capture();
        if asked.is_err_and(|error| matches!(error, CudaError::Capturing) || error.is_about_capture()) {
            // A wait would become a part of the graph, and nobody would wait now.
            let _kept = ManuallyDrop::new(self.tensor.clone());
            return;
        }
        // SAFETY: take requires that the value is not used again: this is the drop.
        let slice = unsafe { ManuallyDrop::take(&mut self.slice) };
        // Makes the stream wait for the work that was queued for the slice on other streams, and does not
        // free the memory.
        let _ = slice.leak();
    }
}

/// Memory of cudarc: a `CudaSlice`, or a view of one. Anybody may implement `DevicePtr` of cudarc, for any
/// address; this trait is for what only cudarc makes.
pub trait CudarcMemory<T>: DevicePtr<T> + sealed::Sealed {}

impl<T> CudarcMemory<T> for CudaSlice<T> {}
impl<T> CudarcMemory<T> for CudaView<'_, T> {}
impl<T> CudarcMemory<T> for CudaViewMut<'_, T> {}

mod sealed {
    use cudarc::driver::{CudaSlice, CudaView, CudaViewMut};

    pub trait Sealed {}

    impl<T> Sealed for CudaSlice<T> {}
    impl<T> Sealed for CudaView<'_, T> {}
    impl<T> Sealed for CudaViewMut<'_, T> {}
}

impl<T: Element + DeviceRepr> CudaTensor<T> {
    /// Makes a tensor with a copy of what cudarc has in its memory, in the default domain. The copy is made
    /// on the device; no byte passes the host, so it is not counted as a copy.
    ///
    /// The stream waits for all work that was queued on the slice's own stream, and for what cudarc has
    /// tracked elsewhere.
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`]; [`LayoutError::LengthMismatch`]; [`CudaError::NotOfCudarc`];
    /// [`CudaError::Capturing`] while the stream or the slice's stream captures.
    pub fn from_cuda_slice(
        stream: &Stream,
        slice: &impl CudarcMemory<T>,
        shape: impl Into<Shape>,
    ) -> Result<Self> {
        Self::from_cuda_slice_in(Heap::current()?, stream, slice, shape)
    }

    /// [`CudaTensor::from_cuda_slice`] in the domain of this heap.
    ///
    /// # Errors
    /// As [`CudaTensor::from_cuda_slice`].
    pub fn from_cuda_slice_in(
        heap: &Heap,
        stream: &Stream,
        slice: &impl CudarcMemory<T>,
        shape: impl Into<Shape>,
    ) -> Result<Self> {
        let theirs = stream.lender::<Arc<CudaStream>>().ok_or(CudaError::NotOfCudarc)?;
        let tensor = Self::empty_in(heap, stream, shape)?;
        let (given, n_elements) = (slice.len(), tensor.n_elements());
        if given != n_elements {
            let shape = Box::new(tensor.shape().clone());
            return Err(LayoutError::LengthMismatch { shape, n_elements, given }.into());
        }
        wait_for_own_stream(stream, theirs, slice.stream())?;
        // Makes the stream wait for the slice's last writer, and the slice's next writer wait for the copy.
        let (from, _copied) = slice.device_ptr(theirs);
        tensor.on(stream)?.driver_copy_from(from)?;
        // The slice may be freed next, on its own stream. That stream has to wait for the copy even where
        // cudarc does not track it.
        slice.stream().join(theirs)?;
        Ok(tensor)
    }
}

/// Makes a stream wait for all work that was queued on a slice's stream, whether or not cudarc tracks it.
pub(crate) fn wait_for_own_stream(stream: &Stream, theirs: &CudaStream, own: &Arc<CudaStream>) -> Result<()> {
    stream.refuse_capture()?;
    Stream::lent(stream.context().clone(), own.cu_stream().addr(), Lender::nobody()).refuse_capture()?;
    Ok(theirs.join(own)?)
}

impl From<cudarc::driver::DriverError> for CudaTensorError {
    fn from(error: cudarc::driver::DriverError) -> Self {
        CudaError::Cudarc { text: error.to_string() }.into()
    }
}
