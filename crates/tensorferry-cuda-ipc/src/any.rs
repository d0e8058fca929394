//! Device tensors whose element type is known at run time only.

use std::fmt;

use tensorferry_storage::{BlockId, Heap};
use tensorferry_tensor::{__view_methods as view_methods, DType, Element, Layout, LayoutError, Shape};

use crate::device::Uuid;
use crate::stream::Stream;
use crate::tensor::{CudaTensor, Memory};
use crate::tensor_error::{CudaTensorError, Result};

/// A [`CudaTensor`] that carries its [`DType`], for a receiver that does not know the element type in
/// advance: what [`AnyTensor`](tensorferry_tensor::AnyTensor) is for a tensor of the host.
///
/// It is made from a [`CudaTensor`], and [`AnyCudaTensor::downcast`] makes one of it. Its bytes are a tensor
/// too ([`AnyCudaTensor::as_bytes`]), which can be read, written and copied.
#[derive(Clone)]
pub struct AnyCudaTensor {
    dtype: DType,
    /// `None` when there are no elements.
    memory: Option<Memory>,
    /// INVARIANT: the layout fits into the storage.
    layout: Layout,
}

view_methods!(AnyCudaTensor);

impl AnyCudaTensor {
    /// As [`CudaTensor::zeros`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # Blocking
    /// As there.
    pub fn zeros(stream: &Stream, dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        Self::zeros_in(Heap::current()?, stream, dtype, shape)
    }

    /// As [`CudaTensor::zeros_in`].
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`].
    pub fn zeros_in(heap: &Heap, stream: &Stream, dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        let tensor = Self::empty_in(heap, stream, dtype, shape)?;
        tensor.as_bytes()?.fill_with_zeros(stream)?;
        Ok(tensor)
    }

    /// As [`CudaTensor::empty`].
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`].
    pub fn empty(stream: &Stream, dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        Self::empty_in(Heap::current()?, stream, dtype, shape)
    }

    /// As [`CudaTensor::empty_in`].
    ///
    /// # Errors
    /// As [`CudaTensor::zeros`].
    pub fn empty_in(heap: &Heap, stream: &Stream, dtype: DType, shape: impl Into<Shape>) -> Result<Self> {
        let layout = Layout::contiguous(shape)?;
        let memory = Memory::allocate(heap, stream, layout.n_elements() * dtype.size_bytes(), None)?;
        Ok(Self::from_parts(dtype, memory, layout))
    }

    /// `memory` must have room for `layout`, and must be there if `layout` has elements.
    pub(crate) const fn from_parts(dtype: DType, memory: Option<Memory>, layout: Layout) -> Self {
        Self { dtype, memory, layout }
    }

    pub(crate) const fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    fn with_layout(&self, layout: Layout) -> Self {
        Self::from_parts(self.dtype, self.memory.clone(), layout)
    }

    /// The shape, strides and offset.
    #[must_use]
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The data type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// As [`CudaTensor::device_uuid`].
    #[must_use]
    pub fn device_uuid(&self) -> Option<Uuid> {
        self.memory.as_ref().map(Memory::device_uuid)
    }

    /// As [`CudaTensor::outlives_maker`].
    #[must_use]
    pub fn outlives_maker(&self) -> bool {
        self.memory.as_ref().is_none_or(|memory| memory.strategy().outlives_maker())
    }

    /// As [`CudaTensor::storage_id`].
    #[must_use]
    pub fn storage_id(&self) -> Option<BlockId> {
        self.memory.as_ref().map(Memory::storage_id)
    }

    /// Makes the tensor ready for work on `stream`, as [`CudaTensor::on`], and returns the device address of
    /// its first element, as [`OnStream::address`](crate::OnStream::address).
    ///
    /// # Errors
    /// As [`CudaTensor::on`].
    ///
    /// # Blocking
    /// As [`CudaTensor::on`].
    pub fn address_on(&self, stream: &Stream) -> Result<u64> {
        match Memory::base_on(self.memory.as_ref(), stream)? {
            0 => Ok(0),
            base => Ok(base + (self.offset() * self.dtype.size_bytes()) as u64),
        }
    }

    /// As [`CudaTensor::is_written`].
    ///
    /// # Errors
    /// As there.
    pub fn is_written(&self) -> Result<bool> {
        self.memory.as_ref().map_or(Ok(true), Memory::is_written)
    }

    /// Makes `stream` wait for all work that was queued so far on the streams to which this process gave the
    /// address ([`AnyCudaTensor::address_on`], [`CudaTensor::on`]): for what others do with the tensor here,
    /// without an event of theirs.
    ///
    /// # Errors
    /// The driver's error; [`CudaError::Capturing`](crate::CudaError::Capturing), for any of these streams.
    pub fn wait_for_users(&self, stream: &Stream) -> Result<()> {
        self.memory.as_ref().map_or(Ok(()), |memory| memory.wait_for_users(stream))
    }

    /// The tensor with its element type: another handle on the same memory.
    ///
    /// # Errors
    /// [`CudaTensorError::DTypeMismatch`].
    pub fn downcast<T: Element>(&self) -> Result<CudaTensor<T>> {
        if self.dtype != T::DTYPE {
            return Err(CudaTensorError::DTypeMismatch { expected: T::DTYPE, found: self.dtype });
        }
        Ok(CudaTensor::from_parts(self.memory.clone(), self.layout.clone()))
    }

    /// The bytes from the first element to the end of the last one: another handle on the same memory. If the
    /// tensor is not contiguous, what lies between its elements is among them.
    ///
    /// # Errors
    /// [`LayoutError`], if memory of so many bytes cannot be described.
    pub fn as_bytes(&self) -> Result<CudaTensor<u8>, LayoutError> {
        let size_bytes = self.dtype.size_bytes();
        let n_elements = self.layout.end().saturating_sub(self.offset());
        let layout = Layout::new([n_elements * size_bytes], &[1], self.offset() * size_bytes)?;
        Ok(CudaTensor::from_parts(self.memory.clone().filter(|_| n_elements > 0), layout))
    }
}

impl<T: Element> From<CudaTensor<T>> for AnyCudaTensor {
    fn from(tensor: CudaTensor<T>) -> Self {
        Self::from_parts(T::DTYPE, tensor.memory().cloned(), tensor.layout().clone())
    }
}

impl fmt::Debug for AnyCudaTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyCudaTensor")
            .field("dtype", &self.dtype)
            .field("layout", &self.layout)
            .field("storage", &self.storage_id())
            .finish()
    }
}
