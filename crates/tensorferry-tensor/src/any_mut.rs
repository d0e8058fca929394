//! Exclusive tensors whose element type is known at run time only.

use std::fmt;

use tensorferry_storage::{BlockId, ExclusiveBlock, Heap};

use crate::any::{AnyTensor, DowncastError};
use crate::any_shared::AnySharedTensor;
use crate::dtype::DType;
use crate::element::Element;
use crate::error::TensorError;
use crate::exclusive::{EMPTY_SHAPE, TensorMut};
use crate::layout::{Layout, LayoutRef};
use crate::listing;
use crate::shape::Shape;

/// A [`TensorMut`] that carries its [`DType`]: what [`AnyTensor`] is for a frozen tensor.
///
/// ```
/// use tensorferry_tensor::{AnyTensorMut, DType, Tensor};
///
/// let mut tensor = AnyTensorMut::zeros(DType::I16, [2, 2])?;
/// tensor.as_mut_bytes().fill(1);
/// let tensor: Tensor<i16> = tensor.freeze().try_into()?;
/// assert_eq!(tensor.to_vec(), [0x101; 4]);
/// # Ok::<(), tensorferry_tensor::TensorError>(())
/// ```
pub struct AnyTensorMut {
    dtype: DType,
    /// INVARIANT: has all elements of `layout`, unless it was moved away.
    block: ExclusiveBlock,
    /// Contiguous from element 0.
    layout: LayoutRef,
}

impl AnyTensorMut {
    /// A tensor of zero bytes in the default domain's memory.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        Self::zeros_in(Heap::current()?, dtype, shape)
    }

    /// As [`AnyTensorMut::zeros`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn zeros_in(heap: &Heap, dtype: DType, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        Self::allocate(dtype, shape, |len_bytes| Ok(heap.allocate_zeroed(len_bytes)?))
    }

    /// A tensor with unspecified contents, as [`TensorMut::empty`].
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn empty(dtype: DType, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        Self::empty_in(Heap::current()?, dtype, shape)
    }

    /// As [`AnyTensorMut::empty`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn empty_in(heap: &Heap, dtype: DType, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        Self::allocate(dtype, shape, |len_bytes| Ok(heap.allocate(len_bytes)?))
    }

    fn allocate(
        dtype: DType,
        shape: impl Into<Shape>,
        block: impl FnOnce(usize) -> Result<ExclusiveBlock, TensorError>,
    ) -> Result<Self, TensorError> {
        let layout = LayoutRef::contiguous(shape)?;
        let len_bytes = layout.n_elements() * dtype.size_bytes();
        Self::from_parts(dtype, block(len_bytes)?, layout)
    }

    /// Precondition: `layout` is contiguous from element 0. Refuses a block that is too small.
    pub(crate) fn from_parts(
        dtype: DType,
        block: ExclusiveBlock,
        layout: LayoutRef,
    ) -> Result<Self, TensorError> {
        layout.check_fits(block.len_bytes() / dtype.size_bytes())?;
        Ok(Self { dtype, block, layout: layout.with_usual_strides() })
    }

    /// The data type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// The length of each dimension; `[0]` once the tensor was moved away.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        if self.is_moved() { &EMPTY_SHAPE } else { self.layout.shape() }
    }

    /// The number of dimensions; 1 once the tensor was moved away.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// The number of elements; 0 once the tensor was moved away.
    #[must_use]
    pub fn n_elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// Whether the tensor was sent away through an alias. It has no elements then.
    #[must_use]
    pub fn is_moved(&self) -> bool {
        self.block.is_moved()
    }

    /// Whether this process can reach the elements: they were not sent away, and it is no fork of a member.
    #[must_use]
    pub fn is_accessible(&self) -> bool {
        self.block.is_accessible()
    }

    /// The id of the storage. Equal ids in one domain are the same memory.
    #[must_use]
    pub fn storage_id(&self) -> BlockId {
        self.block.id()
    }

    /// The bytes of the elements, in row-major order. [`TensorMut`] says why this takes `&mut self`.
    #[must_use]
    pub fn as_bytes(&mut self) -> &[u8] {
        self.as_mut_bytes()
    }

    /// The bytes of the elements, in row-major order, to write.
    #[must_use]
    pub fn as_mut_bytes(&mut self) -> &mut [u8] {
        let len_bytes = self.n_elements() * self.dtype.size_bytes();
        self.block.bytes_mut().get_mut(..len_bytes).unwrap_or_default()
    }

    /// As [`TensorMut::freeze`].
    #[must_use]
    pub fn freeze(self) -> AnyTensor {
        let dtype = self.dtype;
        let (block, layout) = self.into_parts();
        AnyTensor::over_checked(dtype, block.freeze(), layout)
    }

    /// As [`TensorMut::share`], for elements that can be shared.
    ///
    /// # Errors
    /// The tensor itself when its elements have 16 bytes: accesses of that size are not atomic everywhere.
    pub fn share(self) -> Result<AnySharedTensor, Self> {
        if !AnySharedTensor::can_hold(self.dtype) {
            return Err(self);
        }
        let dtype = self.dtype;
        let (block, layout) = self.into_parts();
        Ok(AnySharedTensor::over_checked(dtype, block.share(), layout))
    }

    /// The tensor with its element type.
    ///
    /// # Errors
    /// [`DowncastError`] gives the tensor back when it holds another type.
    pub fn downcast<T: Element>(mut self) -> Result<TensorMut<T>, DowncastError<Self>> {
        // Shared memory is aligned for every type; what this process has no access to is none.
        if self.dtype != T::DTYPE || bytemuck::try_cast_slice::<u8, T>(self.as_bytes()).is_err() {
            return Err(DowncastError::new(self.dtype, T::DTYPE, self));
        }
        let (block, layout) = self.into_parts();
        Ok(TensorMut::from_checked(block, layout))
    }

    /// The block and its layout, which is empty if the block was moved away.
    fn into_parts(self) -> (ExclusiveBlock, LayoutRef) {
        if self.is_moved() {
            return (self.block, Layout::empty().into());
        }
        (self.block, self.layout)
    }

    /// The block and its layout. A block that was moved away still has the layout that it had before.
    pub(crate) fn parts(&self) -> (&ExclusiveBlock, &LayoutRef) {
        (&self.block, &self.layout)
    }
}

impl<T: Element> From<TensorMut<T>> for AnyTensorMut {
    fn from(tensor: TensorMut<T>) -> Self {
        let (block, layout) = tensor.into_parts();
        Self { dtype: T::DTYPE, block, layout }
    }
}

/// As [`AnyTensorMut::downcast`].
impl<T: Element> TryFrom<AnyTensorMut> for TensorMut<T> {
    type Error = DowncastError<AnyTensorMut>;

    fn try_from(tensor: AnyTensorMut) -> Result<Self, Self::Error> {
        tensor.downcast()
    }
}

/// As for [`TensorMut`].
impl fmt::Debug for AnyTensorMut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        listing::head(f, "AnyTensorMut", self.dtype, self.shape())?;
        f.write_str(if self.is_moved() { " (moved away)" } else { " (as_bytes() has the elements)" })
    }
}
