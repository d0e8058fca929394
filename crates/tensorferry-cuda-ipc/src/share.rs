//! Memory that cudarc allocated, shared without a copy where that is possible.

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
    /// Shares the memory as it is, by whichever strategy fits it; otherwise copies it once on the device.
    #[must_use]
    pub const fn new() -> Self {
        Self { strategy: None, is_strict: false }
    }

    /// Shares by this strategy only. Memory that does not fit it is copied into memory that does.
    #[must_use]
    pub const fn strategy(self, strategy: CudaStrategy) -> Self {
        Self { strategy: Some(strategy), ..self }
    }

    /// Never copies: memory that cannot be shared as it is, is an error ([`CudaTensorError::NotShareable`]).
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
    /// Makes a tensor of memory that cudarc allocated, in the default domain.
    ///
    /// Two kinds of memory are shared as they are, without a copy: memory of `cuMemAlloc` in multiples of 2
    /// MiB, and memory from a pool that can be exported
    /// ([`use_exportable_pool`](crate::use_exportable_pool)). Such memory is freed when no process has the
    /// tensor any more. It ends with this process ([`CudaTensorError::MemoryGone`]), so this process should
    /// not end before the others have said that they are done.
    ///
    /// Other memory is copied once, to the stream's device, and the copy is like any tensor that is made
    /// here. This is the default case: where the device has memory pools, cudarc allocates with
    /// `cuMemAllocAsync` from the default pool, which cannot be exported. [`ShareOptions::strict`] makes a
    /// copy an error, and [`CudaTensor::is_lent`] tells whether there was one.
    ///
    /// Memory of `cuMemCreate` is refused, whatever the options. It cannot be freed by its address, and the
    /// driver cannot be asked which part of which handle lies there. [`CudaTensor::from_cuda_slice`] copies
    /// it and leaves the slice alone. To share such memory without a copy, begin with a tensor of the
    /// strategy vmm and use [`OnStream::as_cuda_slice`](crate::OnStream::as_cuda_slice).
    ///
    /// The stream waits for all work that was queued on the slice's own stream, and for what cudarc has
    /// tracked elsewhere. The caller has to order work that was queued by raw address on other streams.
    ///
    /// A receiver of the tensor can reach the whole allocation that the slice lies in, and no other. A
    /// smaller allocation of `cuMemAlloc` may be part of a piece of 2 MiB. A handle opens the whole piece to
    /// others, with everything else that this process has there. So such memory is copied, or refused.
    ///
    /// # Errors
    /// The error gives the slice back. [`LayoutError::LengthMismatch`]; [`CudaError::NotOfCudarc`];
    /// [`CudaError::Capturing`] while the stream or the slice's stream captures;
    /// [`CudaTensorError::NotShareable`], for memory of `cuMemCreate` and with [`ShareOptions::strict`]; as
    /// [`CudaTensor::zeros`].
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

    /// Whether the tensor lies in memory that another library of this process has allocated, so
    /// [`CudaTensor::share`] did not copy. False after a copy, and in every other process that has received
    /// the tensor. [`CudaTensor::outlives_maker`] tells, in every process, whether the memory lives on
    /// without the process that made it.
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
                // cudarc would free the memory on the slice's stream, which may capture by then. A slice that
                // was copied stays cudarc's.
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
        // Makes the stream wait for all work on the slice that cudarc has queued elsewhere.
        let (address, _written) = slice.device_ptr_mut(theirs);
        Lent::refuse_mapped(stream.context(), address)?;
        match Lent::around(heap, stream.context(), address, options.strategy) {
            Ok(lent) => Self::lend(heap, stream, lent, address, &layout),
            Err(CudaTensorError::NotShareable { .. }) if !options.is_strict => {
                let tensor = Self::empty_by_in(heap, stream, layout.shape(), options.strategy)?;
                tensor.on(stream)?.driver_copy_from(address)?;
                // The slice is freed on its own stream, which has to wait for the copy.
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
        // Storages begin at multiples of `ALIGN_BYTES`; the elements may begin a little later.
        let offset_bytes = begin - begin % ALIGN_BYTES;
        let end = begin + layout.n_elements() * size_of::<T>();
        if end > lent.len_bytes || !(begin - offset_bytes).is_multiple_of(size_of::<T>()) {
            return Err(outside);
        }
        let first = (begin - offset_bytes) / size_of::<T>();
        let layout = Layout::new(layout.shape(), layout.strides(), first)?;
        let hold = registry::get().lend(heap, lent, offset_bytes, end - offset_bytes)?;
        let tensor = Self::from_parts(Some(Memory { hold, ready: None }), layout);
        // Notes the stream, which waits for the last writer. A receiver of the tensor waits for the stream.
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
