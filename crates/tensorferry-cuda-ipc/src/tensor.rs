//! Tensors in the memory of a device.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use tensorferry_storage::{BlockId, Heap};
use tensorferry_tensor::{
    __view_methods as view_methods, DType, Element, Layout, LayoutError, Shape, Tensor,
};

use crate::capture::Relaxed;
use crate::device::Uuid;
use crate::registry;
use crate::storage::Hold;
use crate::strategy::CudaStrategy;
use crate::stream::Stream;
use crate::tensor_error::{CudaTensorError, Result};
use crate::timeline::Timeline;
use crate::upload;

/// A tensor in the memory of a device, which travels to other processes without a copy, except for
/// [`CudaTensor::to_staged`]. It is a view of a storage and cheap to clone.
///
/// Like a [`SharedTensor`](tensorferry_tensor::SharedTensor), every process that has it can read and write
/// it. Work in one stream is in order, and so is all work before a send. Beyond that the users agree among
/// themselves: after a send both processes can write the tensor, and nothing keeps them apart. A sender that
/// wants to overwrite it first gets the tensor back from the receiver, or an [`IpcEvent`](crate::IpcEvent),
/// and makes its stream wait for that: `back.get()?.on(&stream)?`. The tensor never lends a reference to its
/// elements.
///
/// The tensor is made on a stream of the caller, and used on streams ([`CudaTensor::on`]). Sending it makes a
/// point behind all work that this process has queued for it so far; the stream of a receiver waits for that
/// point. This holds for the tensor that is received: another tensor of the same memory, which the receiver
/// already holds, waits for the point that it came with. Receiving makes no call of the driver: a process
/// without a device can hold a tensor, drop it, or pass it on.
///
/// With the strategy [`Vmm`](crate::CudaStrategy::Vmm), the first choice where the device has it, the memory
/// lives as long as any process has the tensor, however the other processes end. With the strategies legacy
/// and pool, it ends with the process that made it; so does memory that was shared from cudarc without a
/// copy. [`CudaTensor::outlives_maker`] tells whether the maker has to stay. When the last holder has let go
/// and no device uses the memory any more, the process that made it may use it again.
pub struct CudaTensor<T> {
    /// `None` when there are no elements.
    memory: Option<Memory>,
    /// INVARIANT: the layout fits into the storage.
    layout: Layout,
    elements: PhantomData<T>,
}

/// A storage, and the point to wait for before it is used.
#[derive(Clone)]
pub(crate) struct Memory {
    /// The sender's point. Declared before `hold`, so dropped first: dropping the hold collects what is no
    /// longer needed.
    pub(crate) ready: Option<Point>,
    pub(crate) hold: Arc<Hold>,
}

/// A point of a stream, of this process or another: its timeline and its number.
pub(crate) type Point = (Arc<Timeline>, u64);

impl Memory {
    pub(crate) fn device_uuid(&self) -> Uuid {
        self.hold.storage().slab().uuid()
    }

    pub(crate) fn strategy(&self) -> CudaStrategy {
        self.hold.storage().slab().strategy()
    }

    pub(crate) fn storage_id(&self) -> BlockId {
        self.hold.storage().control().0.id()
    }

    /// Memory of this process, to be written on `stream`; none for no bytes.
    pub(crate) fn allocate(
        heap: &Heap,
        stream: &Stream,
        len_bytes: usize,
        strategy: Option<CudaStrategy>,
    ) -> Result<Option<Self>> {
        if len_bytes == 0 {
            return Ok(None);
        }
        stream.refuse_capture()?;
        let hold = registry::get().allocate(heap, stream, len_bytes, strategy)?;
        Ok(Some(Self { hold, ready: None }))
    }

    /// Makes it ready for work on `stream`, as [`CudaTensor::on`] says. The device address of the storage; 0
    /// if there is none.
    pub(crate) fn base_on(memory: Option<&Self>, stream: &Stream) -> Result<u64> {
        let current = stream.context().enter()?;
        stream.refuse_capture()?;
        let Some(Self { hold, ready }) = memory else { return Ok(0) };
        if let Some((timeline, number)) = ready {
            timeline.hold_up(stream, *number)?;
        }
        // Streams that are forgotten next may be another library's to destroy.
        drop(current);
        hold.address_on(stream)
    }

    pub(crate) fn is_written(&self) -> Result<bool> {
        self.ready.as_ref().map_or(Ok(true), |(timeline, number)| timeline.is_reached(*number))
    }

    pub(crate) fn wait_for_users(&self, stream: &Stream) -> Result<()> {
        self.hold.wait_for_users(stream)
    }
}

view_methods!(CudaTensor<T: Element>);

impl<T: Element> CudaTensor<T> {
    /// A tensor of zeros, made on this stream in the default domain.
    ///
    /// # Errors
    /// [`CudaTensorError::Layout`] for a shape that overflows; [`CudaTensorError::DeviceFull`];
    /// [`CudaTensorError::Cuda`] with the driver's error, or with
    /// [`CudaError::Capturing`](crate::CudaError::Capturing); [`CudaTensorError::Storage`].
    ///
    /// # Blocking
    /// Only when the device is full and memory that this process has let go of is on its way back. It waits
    /// for at most [`CacheLimits::full_device_timeout`](crate::CacheLimits::full_device_timeout).
    pub fn zeros(stream: &Stream, shape: impl Into<Shape>) -> Result<Self> {
        Self::zeros_in(Heap::current()?, stream, shape)
    }

    /// [`CudaTensor::zeros`] in the domain of this heap, so it can be sent through the queues of that domain.
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`].
    pub fn zeros_in(heap: &Heap, stream: &Stream, shape: impl Into<Shape>) -> Result<Self> {
        let tensor = Self::empty_in(heap, stream, shape)?;
        tensor.fill_with_zeros(stream)?;
        Ok(tensor)
    }

    /// For tensors of which all bytes lie side by side.
    pub(crate) fn fill_with_zeros(&self, stream: &Stream) -> Result<()> {
        self.on(stream)?.driver_fill(0)
    }

    /// A tensor with unspecified contents: the bytes that the last tensor of this process left in this
    /// memory.
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

    /// [`CudaTensor::empty`], shared by this strategy. `None` means the strategy of the process
    /// ([`set_cuda_strategy`](crate::set_cuda_strategy)) if one is set, else the first that works on the
    /// device.
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`]; the driver's error when the device does not have the strategy.
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
        let memory = Memory::allocate(heap, stream, layout.n_elements() * size_of::<T>(), strategy.into())?;
        Ok(Self::from_parts(memory, layout))
    }

    /// A tensor with a copy of `data`, in row-major order.
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`], and [`LayoutError::LengthMismatch`].
    ///
    /// # Blocking
    /// Until the elements are on the device.
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

    /// A tensor with a copy of a tensor of the host.
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`].
    ///
    /// # Blocking
    /// Until the elements are on the device.
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

    /// A tensor with a copy of a tensor of the host, for which nobody waits: PyTorch's
    /// `tensor.to(device, non_blocking=True)`, without the need to pin the tensor before.
    ///
    /// The elements are copied into page-locked memory of this process. From there the device copies them by
    /// itself, behind all work that is queued on the stream. So `tensor` may be dropped, or its batch be used
    /// for another one, as soon as this returns.
    ///
    /// At most 256 MiB are page-locked, and used again. [`empty_cache`](crate::empty_cache) unlocks what is
    /// free.
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`]. Where the driver locks no memory, it is a copy as
    /// [`CudaTensor::from_tensor`] makes it.
    ///
    /// # Blocking
    /// For a copy in memory. While 256 MiB are on their way to devices, until some of them are there.
    pub fn from_tensor_non_blocking(stream: &Stream, tensor: &Tensor<T>) -> Result<Self> {
        Self::from_tensor_non_blocking_in(Heap::current()?, stream, tensor)
    }

    /// [`CudaTensor::from_tensor_non_blocking`] in the domain of this heap.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Blocking
    /// As there.
    pub fn from_tensor_non_blocking_in(heap: &Heap, stream: &Stream, tensor: &Tensor<T>) -> Result<Self> {
        let copy = Self::empty_in(heap, stream, tensor.shape())?;
        match tensor.as_slice() {
            Ok(elements) => copy.write_from_non_blocking(stream, elements)?,
            Err(_) => copy.write_from_non_blocking(stream, &tensor.to_vec())?,
        }
        Ok(copy)
    }

    /// `memory` must have room for `layout`, and must be there if `layout` has elements.
    pub(crate) const fn from_parts(memory: Option<Memory>, layout: Layout) -> Self {
        Self { memory, layout, elements: PhantomData }
    }

    pub(crate) const fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    fn with_layout(&self, layout: Layout) -> Self {
        Self::from_parts(self.memory.clone(), layout)
    }

    /// The shape, strides and offset.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The data type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        T::DTYPE
    }

    /// The device whose memory holds the tensor; `None` when the tensor has no elements.
    #[must_use]
    pub fn device_uuid(&self) -> Option<Uuid> {
        self.memory.as_ref().map(Memory::device_uuid)
    }

    /// The strategy by which the memory is shared; `None` when the tensor has no elements.
    #[must_use]
    pub fn strategy(&self) -> Option<CudaStrategy> {
        self.memory.as_ref().map(Memory::strategy)
    }

    /// Whether the memory lives on without the process that made it. If not, that process has to stay until
    /// every user is done. True when the tensor has no elements.
    #[must_use]
    pub fn outlives_maker(&self) -> bool {
        self.strategy().is_none_or(CudaStrategy::outlives_maker)
    }

    /// The id of the storage that this is a view of. Equal ids in one domain are the same memory. `None` when
    /// the tensor has no elements.
    #[must_use]
    pub fn storage_id(&self) -> Option<BlockId> {
        self.memory.as_ref().map(Memory::storage_id)
    }

    /// True when both tensors are views of the same memory. False when either has no elements.
    #[must_use]
    pub fn shares_storage_with<U: Element>(&self, other: &CudaTensor<U>) -> bool {
        let storages = self.memory.as_ref().zip(other.memory.as_ref());
        storages.is_some_and(|(one, two)| Arc::ptr_eq(one.hold.storage(), two.hold.storage()))
    }

    /// Makes the tensor ready for work on `stream`. The first use in this process maps the memory for the
    /// stream's device. Each use makes the stream wait for the sender's work.
    ///
    /// All work that is queued on the stream before this process drops its last handle on the memory
    /// completes before the memory is used for anything else. So a tensor can be dropped without
    /// synchronizing. This covers work that is queued while the program has the [`Stream`], or the stream of
    /// cudarc that it came from; a tensor does not keep a stream for the program.
    ///
    /// # Errors
    /// [`CudaError::Capturing`](crate::CudaError::Capturing);
    /// [`CudaError::NoPeerAccess`](crate::CudaError::NoPeerAccess) and
    /// [`CudaError::DeviceNotVisible`](crate::CudaError::DeviceNotVisible) for memory of a device that this
    /// stream's device cannot reach; [`CudaTensorError::ProducerGone`]; [`CudaTensorError::MemoryGone`];
    /// [`CudaTensorError::FdStore`]; [`CudaTensorError::DeviceFull`] for the copy of a staged tensor.
    ///
    /// # Blocking
    /// Not on the device, with one exception: the first use of a staged tensor blocks until its copy is on
    /// the device. The first use of a slab of another process blocks until the process that made the domain
    /// has handed over its descriptor.
    pub fn on<'a>(&'a self, stream: &'a Stream) -> Result<OnStream<'a, T>> {
        Ok(OnStream { tensor: self, stream, base: Memory::base_on(self.memory.as_ref(), stream)? })
    }

    /// Whether the device of the process that sent the tensor has done the work that was queued for it
    /// before. Always true for a tensor that this process has made.
    ///
    /// A stream that waits for such a device goes on without it when that process is killed. Calls of this
    /// library that wait for a stream say so: with [`CudaTensorError::ProducerGone`] where they read the
    /// tensor itself, else with [`CudaError::WaitCutShort`](crate::CudaError::WaitCutShort). A program that
    /// waits by other means, for example with `cudarc`, and works with senders that may be killed, asks here
    /// afterwards.
    ///
    /// Makes no call of the driver where the device has stream memory operations. Elsewhere the sender notes
    /// what is done, so that the answer comes up to 200 ms later.
    ///
    /// # Errors
    /// [`CudaTensorError::ProducerGone`] if it never will be.
    pub fn is_written(&self) -> Result<bool> {
        self.memory.as_ref().map_or(Ok(true), Memory::is_written)
    }

    /// The elements in row-major order, copied to the host.
    ///
    /// # Errors
    /// As [`CudaTensor::on`]; [`CudaError::WaitCutShort`](crate::CudaError::WaitCutShort).
    ///
    /// # Blocking
    /// Until all work that was queued on the stream is done.
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
    /// As [`CudaTensor::to_vec`]; [`LayoutError::LengthMismatch`].
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
    /// As [`CudaTensor::to_vec`].
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
    /// Until the elements are on the device.
    pub fn write_from(&self, stream: &Stream, data: &[T]) -> Result<()> {
        check_len(&self.layout, data.len())?;
        self.check_contiguous()?;
        self.on(stream)?.driver_write(data)
    }

    /// [`CudaTensor::write_from`] without waiting, as [`CudaTensor::from_tensor_non_blocking`].
    ///
    /// # Errors
    /// As [`CudaTensor::write_from`].
    ///
    /// # Blocking
    /// As [`CudaTensor::from_tensor_non_blocking`].
    pub fn write_from_non_blocking(&self, stream: &Stream, data: &[T]) -> Result<()> {
        check_len(&self.layout, data.len())?;
        self.check_contiguous()?;
        self.on(stream)?.driver_upload(data)
    }

    /// Overwrites all elements with those of `other`, in row-major order. `other` must have as many elements,
    /// and must lie on this stream's device or on one that it can reach.
    ///
    /// # Errors
    /// As [`CudaTensor::on`], for both; [`LayoutError::LengthMismatch`]; [`LayoutError::NotContiguous`], for
    /// both.
    pub fn copy_from(&self, stream: &Stream, other: &Self) -> Result<()> {
        check_len(&self.layout, other.n_elements())?;
        self.check_contiguous()?;
        other.check_contiguous()?;
        let (to, from) = (self.on(stream)?, other.on(stream)?);
        to.driver_copy_from(from.address())
    }

    /// Copies the tensor into shared memory of the host and returns a tensor of that copy, which travels like
    /// any other. It is for devices and machines that cannot share memory, and for a receiver on a device
    /// that cannot reach this one.
    ///
    /// Each process that uses the copy copies it to the device of its stream on the first use
    /// ([`CudaTensor::on`]). So one process does not see what another writes, and a tensor that is sent on
    /// carries the staged contents. The host memory is pinned during the copies if it is larger than 32 KiB
    /// and the driver allows it.
    ///
    /// # Errors
    /// As [`CudaTensor::to_vec`]; [`CudaTensorError::Storage`] when the host's shared memory is not
    /// sufficient.
    ///
    /// # Blocking
    /// Until all work that was queued on the stream is done, and the copy.
    pub fn to_staged(&self, stream: &Stream) -> Result<Self> {
        let Some(memory) = self.memory.as_ref().filter(|_| self.n_elements() > 0) else {
            return Ok(self.clone());
        };
        let slab = memory.hold.storage().control().0.heap();
        let heap = slab.ok_or(CudaTensorError::BadMessage { what: "a storage without a block" })?;
        let on = self.on(stream)?;
        // The whole range from first to last element, so that views keep their strides.
        let n_elements = self.layout.end().saturating_sub(self.layout.offset());
        let hold = registry::get().stage(heap, stream, on.address(), n_elements * size_of::<T>())?;
        on.check_waits()?;
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
        let storage = self.memory.as_ref().map(|memory| memory.storage_id().0);
        f.debug_struct("CudaTensor").field("layout", &self.layout).field("storage", &storage).finish()
    }
}

/// A tensor that is ready for work on a stream.
#[derive(Debug)]
pub struct OnStream<'a, T> {
    tensor: &'a CudaTensor<T>,
    stream: &'a Stream,
    /// The device address of the storage; 0 when there are no elements.
    base: u64,
}

impl<T: Element> OnStream<'_, T> {
    /// The device address of the first element of the view (`CUdeviceptr`), for kernels and copies that are
    /// queued on this stream; 0 when there are no elements. [`CudaTensor::layout`] gives the positions of the
    /// other elements.
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

    fn driver_upload(&self, data: &[T]) -> Result<()> {
        let context = self.stream.context();
        // Allows locking memory while another stream captures.
        let _relaxed = Relaxed::begin();
        let mut to = self.address();
        for part in bytemuck::cast_slice::<T, u8>(data).chunks(upload::MAX_BYTES) {
            match upload::memory(context, part.len()) {
                Ok(memory) => {
                    memory.fill(part);
                    self.queue(part.len(), |driver, _| {
                        upload::keep(driver.queue_from_page_locked(to, memory, part.len(), self.stream)?);
                        Ok(())
                    })?;
                }
                Err(_) => {
                    self.queue(part.len(), |driver, stream| driver.queue_to_device(to, part, stream))?
                }
            }
            to += part.len() as u64;
        }
        Ok(())
    }

    fn driver_read(&self, data: &mut [T]) -> Result<()> {
        let (from, bytes) = (self.address(), bytemuck::cast_slice_mut(data));
        self.queue(bytes.len(), |driver, stream| driver.queue_to_host(from, bytes, stream))?;
        self.check_waits()
    }

    /// Called where the stream was waited for, and has read the tensor.
    fn check_waits(&self) -> Result<()> {
        let waits = self.stream.check_waits();
        let ready = self.tensor.memory.as_ref().and_then(|memory| memory.ready.as_ref());
        match ready {
            Some((timeline, number)) if timeline.is_cut_short(*number) => Err(CudaTensorError::ProducerGone),
            _ => Ok(waits?),
        }
    }

    /// Returns when `from` is read no more.
    pub(crate) fn driver_copy_from_lent(&self, from: u64) -> Result<()> {
        let (to, len_bytes) = (self.address(), self.len_bytes());
        self.queue(len_bytes, |driver, stream| driver.queue_copy_from_lent(to, from, len_bytes, stream))
    }

    pub(crate) fn driver_copy_from(&self, from: u64) -> Result<()> {
        let (to, len_bytes) = (self.address(), self.len_bytes());
        self.queue(len_bytes, |driver, stream| driver.queue_copy(to, from, len_bytes, stream))
    }
}
