//! Memory that cudarc allocated, shared as it is where that is possible.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::{CudaSlice, CudaStream, DevicePtrMut, DeviceRepr};
use tensorferry_storage::Heap;
use tensorferry_tensor::{Element, Layout, LayoutError, Shape};

use crate::backing::Lent;
use crate::error::CudaError;
use crate::lent_slice::wait_for_own_stream;
use crate::pool::ALIGN_BYTES;
use crate::registry;
use crate::strategy::CudaStrategy;
use crate::stream::Stream;
use crate::tensor::{CudaTensor, Memory};
use crate::tensor_error::{CudaTensorError, Result};

/// How memory of another library is shared ([`CudaTensor::share_with`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareOptions {
    strategy: Option<CudaStrategy>,
    is_strict: bool,
}

impl ShareOptions {
    /// As it is, by whatever strategy fits the memory; else with one copy on the device.
    #[must_use]
    pub const fn new() -> Self {
        Self { strategy: None, is_strict: false }
    }

    /// By this strategy only. Memory that it does not fit is copied into memory that it fits.
    #[must_use]
    pub const fn strategy(self, strategy: CudaStrategy) -> Self {
        Self { strategy: Some(strategy), ..self }
    }

    /// Never with a copy: what cannot be shared as it is, is an error ([`CudaTensorError::NotShareable`]).
    #[must_use]
    pub const fn strict(self) -> Self {
        Self { is_strict: true, ..self }
    }
}

/// A slice that was not shared, and why.
pub struct ShareError<T> {
    /// The slice, as it was.
    pub slice: CudaSlice<T>,
    /// The reason.
    pub error: Box<CudaTensorError>,
}

impl<T> ShareError<T> {
    fn new(slice: CudaSlice<T>, error: CudaTensorError) -> Self {
        Self { slice, error: Box::new(error) }
    }
}

impl<T: Element + DeviceRepr> CudaTensor<T> {
    /// Makes a tensor of memory that cudarc allocated, in the default domain. Memory of `cuMemAlloc` in
    /// multiples of 2 MiB, and memory from a pool that can be exported ([`use_exportable_pool`](crate::use_exportable_pool)), is
    /// shared as it is: nothing is copied, the memory is freed when nobody has the tensor any more, and it goes with this process
    /// ([`CudaTensorError::MemoryGone`]): it should not end before the others have said that they are done. Other memory is
    /// copied once, to the stream's device, and the copy is like any tensor that is made here; [`ShareOptions::strict`] makes an
    /// error of that, and [`CudaTensor::is_lent`] tells. By default that is what happens: where the device has memory pools
    /// cudarc allocates with `cuMemAllocAsync`, from the default pool, which cannot be exported.
    ///
    /// Memory of `cuMemCreate` is refused, whatever the options: a slice over it is one that nobody can free by its address, nor could the driver be
    /// asked which part of which handle lies there. [`CudaTensor::from_cuda_slice`] copies it and leaves the slice alone. Who
    /// wants such memory shared makes a tensor of it to begin with, by the strategy vmm, and uses
    /// [`OnStream::as_cuda_slice`](crate::OnStream::as_cuda_slice).
    ///
    /// The stream waits for all that was queued on the slice's own stream, and for what cudarc has tracked elsewhere. What was
    /// queued by raw address on other streams is the caller's to order.
    ///
    /// Whoever receives the tensor can reach the whole allocation that the slice lies in, and no other: a smaller allocation of
    /// `cuMemAlloc` may be part of a piece of 2 MiB, all of which a handle opens to others, with whatever else this process has
    /// there. So that is copied, or refused.
    ///
    /// # Errors
    /// With the slice: [`LayoutError::LengthMismatch`]; [`CudaError::NotOfCudarc`]; [`CudaError::Capturing`] while the stream
    /// or that of the slice captures; [`CudaTensorError::NotShareable`], for memory of `cuMemCreate` and with
    /// [`ShareOptions::strict`]; as [`CudaTensor::zeros`].
    pub fn share(
        stream: &Stream,
        slice: CudaSlice<T>,
        shape: impl Into<Shape>,
    ) -> Result<Self, ShareError<T>> {
        Self::share_with(stream, slice, shape, ShareOptions::new())
    }

    /// [`CudaTensor::share`] with options.
    ///
    /// # Errors
    /// As [`CudaTensor::share`].
    pub fn share_with(
        stream: &Stream,
        slice: CudaSlice<T>,
        shape: impl Into<Shape>,
        options: ShareOptions,
    ) -> Result<Self, ShareError<T>> {
        match Heap::current() {
            Ok(heap) => Self::share_with_in(heap, stream, slice, shape, options),
            Err(error) => Err(ShareError::new(slice, error.into())),
        }
    }

    /// Whether it lies in memory that another library of this process has allocated: [`CudaTensor::share`] has not copied. False
    /// after a copy, and in every other process that has received it. Whether the memory lives
    /// on without the process that made it, [`CudaTensor::outlives_maker`] tells, here and there.
    #[must_use]
    pub fn is_lent(&self) -> bool {
        self.memory().is_some_and(|memory| memory.hold.storage().slab().is_lent())
    }

    /// [`CudaTensor::share_with`] in the domain of this heap.
    ///
    /// # Errors
    /// As [`CudaTensor::share`].
    pub fn share_with_in(
        heap: &Heap,
        stream: &Stream,
        mut slice: CudaSlice<T>,
        shape: impl Into<Shape>,
        options: ShareOptions,
    ) -> Result<Self, ShareError<T>> {
        match Self::try_share(heap, stream, &mut slice, shape.into(), options) {
            Ok(tensor) => {
                // cudarc would free it on the slice's stream, which may capture by then. A slice that was copied is cudarc's.
                if let Some(memory) = tensor.memory()
                    && memory.hold.storage().slab().is_lent()
                {
                    memory.hold.storage().slab().take_over(slice.leak());
                }
                Ok(tensor)
            }
            Err(error) => Err(ShareError::new(slice, error)),
        }
    }

    fn try_share(
        heap: &Heap,
        stream: &Stream,
        slice: &mut CudaSlice<T>,
        shape: Shape,
        options: ShareOptions,
    ) -> Result<Self> {
        let theirs = stream.lender::<Arc<CudaStream>>().ok_or(CudaError::NotOfCudarc)?;
        let layout = Layout::contiguous(shape)?;
        if slice.len() != layout.n_elements() {
            let (shape, n_elements) = (Box::new(layout.shape().clone()), layout.n_elements());
            return Err(LayoutError::LengthMismatch { shape, n_elements, given: slice.len() }.into());
        }
        if layout.n_elements() == 0 {
            return Ok(Self::from_parts(None, layout));
        }
        let own = Arc::clone(slice.stream());
        wait_for_own_stream(stream, theirs, &own)?;
        // Has the stream wait for all that cudarc has queued for the slice elsewhere.
        let (address, _written) = slice.device_ptr_mut(theirs);
        Lent::refuse_mapped(stream.context(), address)?;
        match Lent::around(heap, stream.context(), address, options.strategy) {
            Ok(lent) => Self::lend(heap, stream, lent, address, &layout),
            Err(CudaTensorError::NotShareable { .. }) if !options.is_strict => {
                let tensor = Self::empty_by_in(heap, stream, layout.shape(), options.strategy)?;
                tensor.on(stream)?.driver_copy_from(address)?;
                // Where it is freed, which has to wait for the copy.
                own.join(theirs)?;
                Ok(tensor)
            }
            Err(error) => Err(error),
        }
    }

    fn lend(heap: &Heap, stream: &Stream, lent: Lent, address: u64, layout: &Layout) -> Result<Self> {
        let outside =
            CudaTensorError::NotShareable { why: "it does not lie in the allocation that the driver knows" };
        let Some(begin) = address.checked_sub(lent.address).and_then(|at| usize::try_from(at).ok()) else {
            return Err(outside);
        };
        // Storages begin at round offsets, the elements perhaps a little later.
        let offset_bytes = begin - begin % ALIGN_BYTES;
        let end = begin + layout.n_elements() * size_of::<T>();
        if end > lent.len_bytes || !(begin - offset_bytes).is_multiple_of(size_of::<T>()) {
            return Err(outside);
        }
        let first = (begin - offset_bytes) / size_of::<T>();
        let layout = Layout::new(layout.shape(), layout.strides(), first)?;
        let hold = registry::get().lend(heap, lent, offset_bytes, end - offset_bytes)?;
        let tensor = Self::from_parts(Some(Memory { hold, ready: None }), layout);
        // Notes the stream, which waits for the last writer: whoever receives the tensor waits for the stream.
        tensor.on(stream)?;
        Ok(tensor)
    }
}

impl<T> fmt::Debug for ShareError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShareError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for ShareError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for ShareError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}
