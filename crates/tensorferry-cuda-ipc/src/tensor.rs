//! Tensors in the memory of a device.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use tensorferry_storage::{BlockId, Heap};
use tensorferry_tensor::{
    __view_methods as view_methods, DType, Element, Layout, LayoutError, Shape, Tensor,
};

use crate::device::Uuid;
use crate::registry;
use crate::storage::Hold;
use crate::strategy::CudaStrategy;
use crate::stream::Stream;
use crate::tensor_error::{CudaTensorError, Result};
use crate::timeline::Timeline;

/// A tensor in the memory of a device, which travels to other processes without a copy ([`CudaTensor::to_staged`] apart). A view
/// of a storage, cheap to clone.
///
/// Like a [`SharedTensor`](tensorferry_tensor::SharedTensor), it is for whoever has it to read and to write: what is done
/// in one stream, and before a tensor is sent, is in order; beyond that its users agree among themselves. After it was sent
/// both processes can write it, and nothing keeps them apart. A sender that wants to overwrite it gets the tensor back from the
/// receiver, or an [`IpcEvent`](crate::IpcEvent), and brings it on its stream first: `back.get()?.on(&stream)?`. Nothing of it
/// is ever lent as a reference.
///
/// It is made on a stream of the caller, and used on streams ([`CudaTensor::on`]). Sending it makes a point behind all that
/// this process has queued for it so far; whoever receives it has its stream wait for that point. That is for the tensor that is
/// received: one that the receiver already holds, of the same memory, waits for what it came with. Receiving makes no call of
/// the driver: a process without a device can hold a tensor, drop it, or pass it on.
///
/// By the strategy [`Vmm`](crate::CudaStrategy::Vmm), the first choice where the device has it, the memory lives as long as
/// anybody has the tensor, in whichever process, however the others end. By the strategies legacy and pool, and so what was
/// shared from cudarc without a copy, it goes with the process that made it: whether that one has to stay,
/// [`CudaTensor::outlives_maker`] tells. When the last one has let go of it and no device is
/// at it any more, the process that made it may use the memory again.
pub struct CudaTensor<T> {
    /// `None` when there are no elements.
    memory: Option<Memory>,
    /// INVARIANT: fits into the storage.
    layout: Layout,
    elements: PhantomData<T>,
}

/// A storage, and what has to be done before it may be used.
#[derive(Clone)]
pub(crate) struct Memory {
    /// A point of somebody else's stream. Goes first: when the hold does, it is looked at what is not needed any more.
    pub(crate) ready: Option<Point>,
    pub(crate) hold: Arc<Hold>,
}

/// A point of a stream, of this process or another.
pub(crate) type Point = (Arc<Timeline>, u64);

view_methods!(CudaTensor<T: Element>);

impl<T: Element> CudaTensor<T> {
    /// A tensor of zeros, made on this stream in the default domain.
    ///
    /// # Errors
    /// [`CudaTensorError::Layout`] for a shape that overflows; [`CudaTensorError::DeviceFull`]; [`CudaTensorError::Cuda`] with
    /// what the driver says, and [`CudaError::Capturing`](crate::CudaError::Capturing); [`CudaTensorError::Storage`].
    ///
    /// # Blocking
    /// Only when the device is full and memory that this process has let go of is on its way back, for
    /// [`CacheLimits::full_device_timeout`](crate::CacheLimits::full_device_timeout) at most.
    pub fn zeros(stream: &Stream, shape: impl Into<Shape>) -> Result<Self> {
        Self::zeros_in(Heap::current()?, stream, shape)
    }

    /// [`CudaTensor::zeros`] in the domain of this heap: it can be sent through the queues of that domain.
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`].
    pub fn zeros_in(heap: &Heap, stream: &Stream, shape: impl Into<Shape>) -> Result<Self> {
        let tensor = Self::empty_in(heap, stream, shape)?;
        let on = tensor.on(stream)?;
        on.driver_fill(0)?;
        Ok(tensor)
    }

    /// A tensor with unspecified contents: whatever the last tensor of this process in this memory left.
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`].
    pub fn empty(stream: &Stream, shape: impl Into<Shape>) -> Result<Self> {
        Self::empty_in(Heap::current()?, stream, shape)
    }

    /// [`CudaTensor::empty`] in the domain of this heap.
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`].
    pub fn empty_in(heap: &Heap, stream: &Stream, shape: impl Into<Shape>) -> Result<Self> {
        Self::empty_by_in(heap, stream, shape, None)
    }

    /// [`CudaTensor::empty`], shared by this strategy; by the one of the process ([`set_cuda_strategy`](crate::set_cuda_strategy)),
    /// or the best that the device has, for `None`.
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`]; what the driver says when the device does not have the strategy.
    pub fn empty_by(
        stream: &Stream,
        shape: impl Into<Shape>,
        strategy: impl Into<Option<CudaStrategy>>,
    ) -> Result<Self> {
        Self::empty_by_in(Heap::current()?, stream, shape, strategy)
    }

    /// [`CudaTensor::empty_by`] in the domain of this heap.
    ///
    /// # Errors
    /// As [`CudaTensor::empty_by`].
    pub fn empty_by_in(
        heap: &Heap,
        stream: &Stream,
        shape: impl Into<Shape>,
        strategy: impl Into<Option<CudaStrategy>>,
    ) -> Result<Self> {
        let layout = Layout::contiguous(shape)?;
        if layout.n_elements() == 0 {
            return Ok(Self::from_parts(None, layout));
        }
        stream.refuse_capture()?;
        let len_bytes = layout.n_elements() * size_of::<T>();
        let hold = registry::get().allocate(heap, stream, len_bytes, strategy.into())?;
        Ok(Self::from_parts(Some(Memory { hold, ready: None }), layout))
    }

    /// A tensor with a copy of `data`, in row-major order.
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`], and [`LayoutError::LengthMismatch`].
    ///
    /// # Blocking
    /// Until the elements are there.
    pub fn from_slice(stream: &Stream, data: &[T], shape: impl Into<Shape>) -> Result<Self> {
        Self::from_slice_in(Heap::current()?, stream, data, shape)
    }

    /// [`CudaTensor::from_slice`] in the domain of this heap.
    ///
    /// # Errors
    /// As [`CudaTensor::from_slice`].
    ///
    /// # Blocking
    /// As [`CudaTensor::from_slice`].
    pub fn from_slice_in(heap: &Heap, stream: &Stream, data: &[T], shape: impl Into<Shape>) -> Result<Self> {
        let layout = Layout::contiguous(shape)?;
        check_len(&layout, data.len())?;
        let tensor = Self::empty_in(heap, stream, layout.shape())?;
        tensor.write_from(stream, data)?;
        Ok(tensor)
    }

    /// A tensor with a copy of one of the host.
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`].
    ///
    /// # Blocking
    /// Until the elements are there.
    pub fn from_tensor(stream: &Stream, tensor: &Tensor<T>) -> Result<Self> {
        Self::from_tensor_in(Heap::current()?, stream, tensor)
    }

    /// [`CudaTensor::from_tensor`] in the domain of this heap.
    ///
    /// # Errors
    /// As [`CudaTensor::from_tensor`].
    ///
    /// # Blocking
    /// As [`CudaTensor::from_tensor`].
    pub fn from_tensor_in(heap: &Heap, stream: &Stream, tensor: &Tensor<T>) -> Result<Self> {
        match tensor.as_slice() {
            Ok(elements) => Self::from_slice_in(heap, stream, elements, tensor.shape()),
            Err(_) => Self::from_slice_in(heap, stream, &tensor.to_vec(), tensor.shape()),
        }
    }

    /// `memory` has room for `layout`, and is there if there are elements.
    pub(crate) const fn from_parts(memory: Option<Memory>, layout: Layout) -> Self {
        Self { memory, layout, elements: PhantomData }
    }

    pub(crate) const fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    fn with_layout(&self, layout: Layout) -> Self {
        Self::from_parts(self.memory.clone(), layout)
    }

    /// Shape, strides and offset.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The data type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        T::DTYPE
    }

    /// The device whose memory it lies in; `None` when it has no elements.
    #[must_use]
    pub fn device_uuid(&self) -> Option<Uuid> {
        self.memory.as_ref().map(|memory| memory.hold.storage().slab().uuid())
    }

    /// How it is shared; `None` when it has no elements.
    #[must_use]
    pub fn strategy(&self) -> Option<CudaStrategy> {
        self.memory.as_ref().map(|memory| memory.hold.storage().slab().strategy())
    }

    /// Whether its memory lives on without the process that made it. If not, that one has to stay until everybody is done with it.
    /// True when it has no elements.
    #[must_use]
    pub fn outlives_maker(&self) -> bool {
        self.strategy().is_none_or(CudaStrategy::outlives_maker)
    }

    /// Which storage this is a view of; equal ids in one domain are the same memory. `None` when it has no elements.
    #[must_use]
    pub fn storage_id(&self) -> Option<BlockId> {
        self.memory.as_ref().map(|memory| memory.hold.storage().control().0.id())
    }

    /// True when both are views of the same memory. Tensors without elements are nobody's memory.
    #[must_use]
    pub fn shares_storage_with<U: Element>(&self, other: &CudaTensor<U>) -> bool {
        let storages = self.memory.as_ref().zip(other.memory.as_ref());
        storages.is_some_and(|(one, two)| Arc::ptr_eq(one.hold.storage(), two.hold.storage()))
    }

    /// Makes the tensor ready for work on `stream`: the memory is mapped for its device, the first time in this process;
    /// the stream waits for whoever sent the tensor, each time. What is queued on the stream before the last handle of this
    /// process on the memory is dropped is over before the memory is used for anything else, so nobody has to synchronize
    /// before dropping a tensor. That is for work that is queued while the program has the [`Stream`], or the stream of cudarc that
    /// it came from; a tensor keeps no stream for the program.
    ///
    /// # Errors
    /// [`CudaError::Capturing`](crate::CudaError::Capturing); [`CudaError::NoPeerAccess`](crate::CudaError::NoPeerAccess)
    /// and [`CudaError::DeviceNotVisible`](crate::CudaError::DeviceNotVisible) for memory of a device that this stream's
    /// device cannot reach; [`CudaTensorError::ProducerGone`]; [`CudaTensorError::MemoryGone`]; [`CudaTensorError::FdStore`];
    /// [`CudaTensorError::DeviceFull`] for the copy of a tensor that was staged.
    ///
    /// # Blocking
    /// Not for the device. The first time for a slab of another process: until the process that made the domain has handed
    /// over its descriptor. The first time for a tensor that was staged: until its copy is there.
    pub fn on<'a>(&'a self, stream: &'a Stream) -> Result<OnStream<'a, T>> {
        stream.refuse_capture()?;
        let mut base = 0;
        if let Some(Memory { hold, ready }) = &self.memory {
            if let Some((timeline, number)) = ready {
                timeline.hold_up(stream, *number)?;
            }
            base = hold.address_on(stream)?;
        }
        Ok(OnStream { tensor: self, stream, base })
    }

    /// The elements in row-major order, copied to the host.
    ///
    /// # Errors
    /// As [`CudaTensor::on`].
    ///
    /// # Blocking
    /// Until everything is done that was queued on the stream.
    pub fn to_vec(&self, stream: &Stream) -> Result<Vec<T>> {
        let on = self.on(stream)?;
        let (start, end) = (self.layout.offset(), self.layout.end());
        let mut span = vec![T::zeroed(); end.saturating_sub(start)];
        on.driver_read(&mut span)?;
        if self.is_contiguous() {
            return Ok(span);
        }
        Ok(self.layout.offsets().filter_map(|at| span.get(at - start).copied()).collect())
    }

    /// Copies the elements to the host, in row-major order.
    ///
    /// # Errors
    /// As [`CudaTensor::on`]; [`LayoutError::LengthMismatch`].
    ///
    /// # Blocking
    /// As [`CudaTensor::to_vec`].
    pub fn read_into(&self, stream: &Stream, data: &mut [T]) -> Result<()> {
        check_len(&self.layout, data.len())?;
        if self.is_contiguous() {
            return self.on(stream)?.driver_read(data);
        }
        data.copy_from_slice(&self.to_vec(stream)?);
        Ok(())
    }

    /// The elements as a tensor of the host.
    ///
    /// # Errors
    /// As [`CudaTensor::on`].
    ///
    /// # Blocking
    /// As [`CudaTensor::to_vec`].
    pub fn to_tensor(&self, stream: &Stream) -> Result<Tensor<T>> {
        let elements = self.to_vec(stream)?;
        Tensor::from_vec(elements, self.shape()).map_err(|error| LayoutError::from(error).into())
    }

    /// Overwrites all elements, given in row-major order.
    ///
    /// # Errors
    /// As [`CudaTensor::on`]; [`LayoutError::LengthMismatch`]; [`LayoutError::NotContiguous`].
    ///
    /// # Blocking
    /// Until the elements are there.
    pub fn write_from(&self, stream: &Stream, data: &[T]) -> Result<()> {
        check_len(&self.layout, data.len())?;
        self.check_contiguous()?;
        self.on(stream)?.driver_write(data)
    }

    /// Overwrites all elements with those of a tensor with as many elements, in row-major order, on this device or one that it
    /// can reach.
    ///
    /// # Errors
    /// As [`CudaTensor::on`], for both; [`LayoutError::LengthMismatch`]; [`LayoutError::NotContiguous`], for both.
    pub fn copy_from(&self, stream: &Stream, other: &Self) -> Result<()> {
        check_len(&self.layout, other.n_elements())?;
        self.check_contiguous()?;
        other.check_contiguous()?;
        let (to, from) = (self.on(stream)?, other.on(stream)?);
        to.driver_copy_from(from.address())
    }

    /// A copy of the tensor in shared memory of the host, which travels like any tensor: for devices and machines that cannot
    /// share memory, and for a receiver on a device that cannot reach this one. Each process that uses it copies it to
    /// the device of its stream the first time ([`CudaTensor::on`]), so what one writes the others do not see. Sent on, it is
    /// what was staged. The host memory is pinned during the copies where the driver lets it be, and above 32 KiB.
    ///
    /// # Errors
    /// As [`CudaTensor::on`]; [`CudaTensorError::Storage`] when the host's shared memory does not suffice.
    ///
    /// # Blocking
    /// Until everything is done that was queued on the stream, and the copy.
    pub fn to_staged(&self, stream: &Stream) -> Result<Self> {
        let Some(memory) = self.memory.as_ref().filter(|_| self.n_elements() > 0) else {
            return Ok(self.clone());
        };
        let slab = memory.hold.storage().control().0.heap();
        let heap = slab.ok_or(CudaTensorError::BadMessage { what: "a storage without a block" })?;
        let on = self.on(stream)?;
        // All of the span, so that views stay views.
        let n_elements = self.layout.end().saturating_sub(self.layout.offset());
        let hold = registry::get().stage(heap, stream, on.address(), n_elements * size_of::<T>())?;
        let layout = Layout::new(self.shape().clone(), self.strides(), 0)?;
        tensorferry_reduce::count_copied(n_elements * size_of::<T>());
        Ok(Self::from_parts(Some(Memory { hold, ready: None }), layout))
    }

    pub(crate) fn check_contiguous(&self) -> Result<(), LayoutError> {
        if self.is_contiguous() {
            return Ok(());
        }
        let (shape, strides) = (Box::new(self.shape().clone()), Box::from(self.strides()));
        Err(LayoutError::NotContiguous { shape, strides })
    }
}

fn check_len(layout: &Layout, given: usize) -> Result<(), LayoutError> {
    if layout.n_elements() == given {
        return Ok(());
    }
    let shape = Box::new(layout.shape().clone());
    Err(LayoutError::LengthMismatch { shape, n_elements: layout.n_elements(), given })
}

impl<T> Clone for CudaTensor<T> {
    fn clone(&self) -> Self {
        Self { memory: self.memory.clone(), layout: self.layout.clone(), elements: PhantomData }
    }
}

impl<T> fmt::Debug for CudaTensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let storage = self.memory.as_ref().map(|memory| memory.hold.storage().control().0.id().0);
        f.debug_struct("CudaTensor").field("layout", &self.layout).field("storage", &storage).finish()
    }
}

/// A tensor that is ready for work on a stream.
#[derive(Debug)]
pub struct OnStream<'a, T> {
    tensor: &'a CudaTensor<T>,
    stream: &'a Stream,
    /// Of the storage; 0 when there are no elements.
    base: u64,
}

impl<T: Element> OnStream<'_, T> {
    /// The device address of the first element of the view (`CUdeviceptr`), for kernels and copies that are queued on this
    /// stream; 0 when there are no elements. The other elements follow as [`CudaTensor::layout`] says.
    #[must_use]
    pub fn address(&self) -> u64 {
        match self.base {
            0 => 0,
            base => base + (self.tensor.offset() * size_of::<T>()) as u64,
        }
    }

    /// The stream.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        self.stream
    }

    /// The tensor.
    #[must_use]
    pub fn tensor(&self) -> &CudaTensor<T> {
        self.tensor
    }

    fn len_bytes(&self) -> usize {
        self.tensor.n_elements() * size_of::<T>()
    }

    fn queue(
        &self,
        len_bytes: usize,
        work: impl FnOnce(&crate::Driver, usize) -> Result<(), crate::CudaError>,
    ) -> Result<()> {
        if len_bytes == 0 {
            return Ok(());
        }
        let context = self.stream.context();
        let _current = context.make_current()?;
        Ok(work(context.device().driver(), self.stream.handle())?)
    }

    fn driver_fill(&self, byte: u8) -> Result<()> {
        let (to, len_bytes) = (self.address(), self.len_bytes());
        self.queue(len_bytes, |driver, stream| driver.queue_fill(to, byte, len_bytes, stream))
    }

    fn driver_write(&self, data: &[T]) -> Result<()> {
        let (to, bytes) = (self.address(), bytemuck::cast_slice(data));
        self.queue(bytes.len(), |driver, stream| driver.queue_to_device(to, bytes, stream))
    }

    fn driver_read(&self, data: &mut [T]) -> Result<()> {
        let (from, bytes) = (self.address(), bytemuck::cast_slice_mut(data));
        self.queue(bytes.len(), |driver, stream| driver.queue_to_host(from, bytes, stream))
    }

    pub(crate) fn driver_copy_from(&self, from: u64) -> Result<()> {
        let (to, len_bytes) = (self.address(), self.len_bytes());
        self.queue(len_bytes, |driver, stream| driver.queue_copy(to, from, len_bytes, stream))
    }
}
