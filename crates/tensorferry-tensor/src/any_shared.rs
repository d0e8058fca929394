//! Shared tensors whose element type is known at run time only.

use std::fmt;

use tensorferry_storage::{BlockId, SharedBlock};

use crate::any::DowncastError;
use crate::dtype::DType;
use crate::element::AtomicElement;
use crate::error::TensorError;
use crate::layout::{Layout, LayoutRef};
use crate::listing;
use crate::shared::SharedTensor;
use crate::views::view_methods;

/// The longest element that can be loaded and stored as one.
const MAX_ELEMENT_BYTES: usize = 8;

/// A [`SharedTensor`] that carries its [`DType`]: what [`AnyTensor`](crate::AnyTensor) is for a frozen
/// tensor. It can be viewed and forwarded; [`AnySharedTensor::downcast`] gives access to the elements.
///
/// ```
/// use tensorferry_tensor::{AnySharedTensor, SharedTensor};
///
/// let counters = SharedTensor::<u32>::zeros([4])?;
/// let any = AnySharedTensor::from(counters.clone());
/// assert!(any.shares_storage_with(&AnySharedTensor::from(counters.clone())));
/// let last: SharedTensor<u32> = any.narrow(0, 3, 1)?.downcast()?;
/// last.store([0], 7)?;
/// assert_eq!(counters.load([3])?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct AnySharedTensor {
    dtype: DType,
    /// INVARIANT: large enough for `layout`.
    block: SharedBlock,
    layout: LayoutRef,
}

view_methods!(AnySharedTensor);

impl AnySharedTensor {
    /// A view of a block of shared memory, as elements of this type.
    ///
    /// # Errors
    /// [`TensorError::Layout`] for a block that is too small for the layout; [`TensorError::NotShareable`]
    /// for elements of 16 bytes.
    pub fn from_block(dtype: DType, block: SharedBlock, layout: Layout) -> Result<Self, TensorError> {
        Self::over_block(dtype, block, layout.into())
    }

    pub(crate) fn over_block(
        dtype: DType,
        block: SharedBlock,
        layout: LayoutRef,
    ) -> Result<Self, TensorError> {
        if !Self::can_hold(dtype) {
            return Err(TensorError::NotShareable { dtype });
        }
        layout.check_fits(block.len_bytes() / dtype.size_bytes())?;
        Ok(Self::over_checked(dtype, block, layout))
    }

    /// Precondition: the layout fits the block, and the elements can be shared.
    pub(crate) fn over_checked(dtype: DType, block: SharedBlock, layout: LayoutRef) -> Self {
        Self { dtype, block, layout }
    }

    /// Whether elements of this type can be shared: loaded and stored as one.
    pub(crate) const fn can_hold(dtype: DType) -> bool {
        dtype.size_bytes() <= MAX_ELEMENT_BYTES
    }

    /// The storage, as a block of shared memory.
    #[must_use]
    pub const fn block(&self) -> &SharedBlock {
        &self.block
    }

    fn with_layout(&self, layout: Layout) -> Self {
        Self { dtype: self.dtype, block: self.block.clone(), layout: layout.into() }
    }

    /// Shape, strides and offset.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) const fn layout_ref(&self) -> &LayoutRef {
        &self.layout
    }

    /// The data type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// The storage that this is a view of.
    #[must_use]
    pub fn storage_id(&self) -> BlockId {
        self.block.id()
    }

    /// Whether both are views of the same memory. False for storages without bytes.
    #[must_use]
    pub fn shares_storage_with(&self, other: &Self) -> bool {
        self.block.ptr_eq(&other.block)
    }

    /// The tensor with its element type.
    ///
    /// # Errors
    /// [`DowncastError`] gives the tensor back when it holds another type.
    pub fn downcast<T: AtomicElement>(self) -> Result<SharedTensor<T>, DowncastError<Self>> {
        if self.dtype != T::DTYPE {
            return Err(DowncastError::new(self.dtype, T::DTYPE, self));
        }
        Ok(SharedTensor::from_checked(self.block, self.layout))
    }
}

impl<T: AtomicElement> From<SharedTensor<T>> for AnySharedTensor {
    fn from(tensor: SharedTensor<T>) -> Self {
        let layout = tensor.layout_ref().clone();
        Self { dtype: T::DTYPE, block: tensor.into_block(), layout }
    }
}

/// As [`AnySharedTensor::downcast`].
impl<T: AtomicElement> TryFrom<AnySharedTensor> for SharedTensor<T> {
    type Error = DowncastError<AnySharedTensor>;

    fn try_from(tensor: AnySharedTensor) -> Result<Self, Self::Error> {
        tensor.downcast()
    }
}

/// Prints type and shape.
impl fmt::Debug for AnySharedTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        listing::head(f, "AnySharedTensor", self.dtype, self.layout.shape())?;
        f.write_str(" (downcast() has the elements)")
    }
}
