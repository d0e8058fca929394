//! Tensors with one owner in all processes: what is filled before it is sent.

use std::fmt;
use std::marker::PhantomData;
use std::sync::LazyLock;

use tensorferry_storage::{BlockId, ExclusiveBlock, Heap};

use crate::bytes;
use crate::dtype::DType;
use crate::element::Element;
use crate::error::TensorError;
use crate::frozen::Tensor;
use crate::layout::{Layout, LayoutError, LayoutRef};
use crate::shape::Shape;
use crate::shared::SharedTensor;
use crate::storage::FrozenStorage;

/// A tensor in shared memory that nobody else can read or write: contiguous, and the whole of its storage.
///
/// Sending it moves it: the receiver owns it, and what stays here reads as empty. That can happen through a shared
/// reference (a clone of an `Arc` around the tensor may be sent), which is why reading wants `&mut self` too: no slice
/// can be alive when the tensor leaves.
///
/// The memory goes back to its owner's free list when the tensor is dropped, in whichever process that is.
pub struct TensorMut<T> {
    /// INVARIANT: holds at least the bytes of `layout`, aligned for `T`, unless it has been moved away.
    block: ExclusiveBlock,
    /// Contiguous from element 0.
    layout: LayoutRef,
    elements: PhantomData<T>,
}

/// What the shape of a tensor reads as once it was moved away.
static EMPTY_SHAPE: LazyLock<Shape> = LazyLock::new(|| Shape::from([0]));

impl<T: Element> TensorMut<T> {
    /// A tensor of zeros in the default domain's memory.
    ///
    /// # Errors
    /// [`TensorError::Layout`] for a shape that overflows, [`TensorError::Storage`] when memory runs out.
    pub fn zeros(shape: impl Into<Shape>) -> Result<Self, TensorError> {
        Self::zeros_in(Heap::current()?, shape)
    }

    /// [`TensorMut::zeros`] in the given memory.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn zeros_in(heap: &Heap, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        Self::allocate(shape, |len_bytes| Ok(heap.allocate_zeroed(len_bytes)?))
    }

    /// A tensor with unspecified contents: whatever the last user of this memory left, never another domain's.
    /// The cheapest way to memory that will be overwritten anyway.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn empty(shape: impl Into<Shape>) -> Result<Self, TensorError> {
        Self::empty_in(Heap::current()?, shape)
    }

    /// [`TensorMut::empty`] in the given memory.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn empty_in(heap: &Heap, shape: impl Into<Shape>) -> Result<Self, TensorError> {
        Self::allocate(shape, |len_bytes| Ok(heap.allocate(len_bytes)?))
    }

    /// A tensor with one value everywhere.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn full(shape: impl Into<Shape>, value: T) -> Result<Self, TensorError> {
        Self::full_in(Heap::current()?, shape, value)
    }

    /// [`TensorMut::full`] in the given memory.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn full_in(heap: &Heap, shape: impl Into<Shape>, value: T) -> Result<Self, TensorError> {
        let mut tensor = Self::empty_in(heap, shape)?;
        tensor.as_mut_slice().fill(value);
        Ok(tensor)
    }

    /// A tensor in shared memory with a copy of `data`, in row-major order.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`], and [`LayoutError::LengthMismatch`].
    pub fn from_slice(data: &[T], shape: impl Into<Shape>) -> Result<Self, TensorError> {
        Self::from_slice_in(Heap::current()?, data, shape)
    }

    /// [`TensorMut::from_slice`] in the given memory.
    ///
    /// # Errors
    /// As [`TensorMut::from_slice`].
    pub fn from_slice_in(heap: &Heap, data: &[T], shape: impl Into<Shape>) -> Result<Self, TensorError> {
        let layout = Layout::contiguous(shape)?;
        bytes::check_len(&layout, data.len())?;
        let mut tensor = Self::empty_in(heap, layout.shape())?;
        tensor.as_mut_slice().copy_from_slice(data);
        Ok(tensor)
    }

    fn allocate(
        shape: impl Into<Shape>,
        block: impl FnOnce(usize) -> Result<ExclusiveBlock, TensorError>,
    ) -> Result<Self, TensorError> {
        let layout = LayoutRef::contiguous(shape)?;
        Self::from_parts(block(layout.n_elements() * size_of::<T>())?, layout)
    }

    /// `layout` is contiguous from element 0. Refuses a block that is too small or not aligned.
    pub(crate) fn from_parts(mut block: ExclusiveBlock, layout: LayoutRef) -> Result<Self, TensorError> {
        layout.check_fits(bytes::elements::<T>(block.bytes())?.len())?;
        Ok(Self::from_checked(block, layout))
    }

    /// The block is aligned for `T` and holds the elements of `layout`, which is contiguous from element 0.
    pub(crate) fn from_checked(block: ExclusiveBlock, layout: LayoutRef) -> Self {
        Self { block, layout: layout.with_usual_strides(), elements: PhantomData }
    }

    /// The length of each dimension; `[0]` once the tensor was moved away.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        if self.block.is_moved() { &EMPTY_SHAPE } else { self.layout.shape() }
    }

    /// The number of dimensions; 1 once the tensor was moved away.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// The type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        T::DTYPE
    }

    /// The number of elements; 0 once the tensor was moved away.
    #[must_use]
    pub fn n_elements(&self) -> usize {
        self.shape().iter().product()
    }

    /// True when the tensor was sent away through an alias. It has no elements any more.
    #[must_use]
    pub fn is_moved(&self) -> bool {
        self.block.is_moved()
    }

    /// Which storage this is; equal ids in one domain are the same memory.
    #[must_use]
    pub fn storage_id(&self) -> BlockId {
        self.block.id()
    }

    /// The elements in row-major order. See [`TensorMut`] for why this takes `&mut self`.
    #[must_use]
    pub fn as_slice(&mut self) -> &[T] {
        let n_elements = self.n_elements();
        bytes::elements(self.block.bytes()).ok().and_then(|all| all.get(..n_elements)).unwrap_or_default()
    }

    /// The elements in row-major order, to write.
    #[must_use]
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        let n_elements = self.n_elements();
        bytes::elements_mut(self.block.bytes_mut())
            .ok()
            .and_then(|all| all.get_mut(..n_elements))
            .unwrap_or_default()
    }

    /// Gives this tensor another shape with as many elements; the bytes stay where they are. Other kinds of tensor have
    /// `reshape`, which leaves them as they are and returns a view; of what is exclusive there are no views.
    ///
    /// # Errors
    /// [`LayoutError::ReshapeCount`], and what [`Layout::contiguous`] refuses. The tensor is unchanged then.
    pub fn set_shape(&mut self, shape: impl Into<Shape>) -> Result<(), LayoutError> {
        let reshaped = Layout::contiguous(self.shape().clone())?.reshape(shape)?;
        if !self.is_moved() {
            self.layout = reshaped.into();
        }
        Ok(())
    }

    /// Ends writing for good, or until [`Tensor::try_into_mut`]: from here on everybody may read.
    #[must_use]
    pub fn freeze(self) -> Tensor<T> {
        let (block, layout) = self.into_parts();
        Tensor::from_checked(FrozenStorage::Block(block.freeze()), layout)
    }

    /// The block and its layout, which is empty if it was moved away.
    fn into_parts(self) -> (ExclusiveBlock, LayoutRef) {
        if self.is_moved() {
            return (self.block, Layout::empty().into());
        }
        (self.block, self.layout)
    }

    /// The block, and the layout that it had before it was moved away, if it was.
    pub(crate) fn parts(&self) -> (&ExclusiveBlock, &LayoutRef) {
        (&self.block, &self.layout)
    }
}

impl<T: crate::element::AtomicElement> TensorMut<T> {
    /// Lets several processes read and write the elements at once, atomically.
    #[must_use]
    pub fn share(self) -> SharedTensor<T> {
        let (block, layout) = self.into_parts();
        SharedTensor::from_checked(block.share(), layout)
    }
}

impl<T: Element> fmt::Debug for TensorMut<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorMut")
            .field("dtype", &T::DTYPE)
            .field("shape", self.shape())
            .field("storage", &self.block)
            .finish()
    }
}
