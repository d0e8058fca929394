//! Tensors with one owner in all processes, to be filled before they are sent.

use std::fmt;
use std::marker::PhantomData;
use std::sync::LazyLock;

use tensorferry_storage::{BlockId, ExclusiveBlock, Heap};

use crate::bytes;
use crate::dtype::DType;
use crate::element::{AtomicElement, Element};
use crate::error::TensorError;
use crate::frozen::Tensor;
use crate::layout::{Layout, LayoutError, LayoutRef};
use crate::listing;
use crate::shape::Shape;
use crate::shared::SharedTensor;
use crate::storage::FrozenStorage;

/// A tensor in shared memory that only this handle can read and write. It is contiguous and covers its whole
/// storage.
///
/// Sending the tensor moves it: the receiver owns it, and the tensor here reads as empty. This can happen
/// through a shared reference, because a clone of an `Arc` around the tensor may be sent. Reading therefore
/// takes `&mut self` too, so that no slice is alive when the tensor leaves.
///
/// Dropping the tensor, in any process, returns the memory to the free list of the process that owns the
/// memory.
///
/// An element is plain data ([`Element`]): [`Bool`](crate::Bool) instead of `bool`, and `u64` instead of
/// `usize`. The compiler says so for other types:
///
/// ```compile_fail,E0277
/// let flags = tensorferry_tensor::TensorMut::<bool>::zeros([3])?;
/// # Ok::<(), tensorferry_tensor::TensorError>(())
/// ```
pub struct TensorMut<T> {
    /// INVARIANT: holds at least the bytes of `layout`, aligned for `T`, unless it was moved away.
    block: ExclusiveBlock,
    /// Contiguous from element 0.
    layout: LayoutRef,
    elements: PhantomData<T>,
}

/// The shape of a tensor that was moved away.
pub(crate) static EMPTY_SHAPE: LazyLock<Shape> = LazyLock::new(|| Shape::from([0]));

// Each method has the bound, and not the `impl`, so that the compiler says what an element is.
impl<T> TensorMut<T> {
    /// A tensor of zeros in the default domain's memory.
    ///
    /// # Errors
    /// [`TensorError::Layout`] for a shape that overflows, [`TensorError::Storage`] when memory runs out.
    pub fn zeros(shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: Element,
    {
        Self::zeros_in(Heap::current()?, shape)
    }

    /// As [`TensorMut::zeros`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn zeros_in(heap: &Heap, shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: Element,
    {
        Self::allocate(shape, |len_bytes| Ok(heap.allocate_zeroed(len_bytes)?))
    }

    /// A tensor with unspecified contents: the bytes that the last user of this memory in the same domain
    /// left. It is the cheapest way to allocate memory that is overwritten anyway.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn empty(shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: Element,
    {
        Self::empty_in(Heap::current()?, shape)
    }

    /// As [`TensorMut::empty`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn empty_in(heap: &Heap, shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: Element,
    {
        Self::allocate(shape, |len_bytes| Ok(heap.allocate(len_bytes)?))
    }

    /// A tensor whose elements are all one; true for [`Bool`](crate::Bool).
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn ones(shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: Element,
    {
        Self::ones_in(Heap::current()?, shape)
    }

    /// As [`TensorMut::ones`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn ones_in(heap: &Heap, shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: Element,
    {
        Self::full_in(heap, shape, T::ONE)
    }

    /// A tensor whose elements are all `value`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn full(shape: impl Into<Shape>, value: T) -> Result<Self, TensorError>
    where
        T: Element,
    {
        Self::full_in(Heap::current()?, shape, value)
    }

    /// As [`TensorMut::full`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn full_in(heap: &Heap, shape: impl Into<Shape>, value: T) -> Result<Self, TensorError>
    where
        T: Element,
    {
        let mut tensor = Self::empty_in(heap, shape)?;
        tensor.as_mut_slice().fill(value);
        Ok(tensor)
    }

    /// A tensor in shared memory with a copy of `data`, in row-major order.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`], and [`LayoutError::LengthMismatch`].
    pub fn from_slice(data: &[T], shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: Element,
    {
        Self::from_slice_in(Heap::current()?, data, shape)
    }

    /// As [`TensorMut::from_slice`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`TensorMut::from_slice`].
    pub fn from_slice_in(heap: &Heap, data: &[T], shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: Element,
    {
        let layout = Layout::contiguous(shape)?;
        bytes::check_len(&layout, data.len())?;
        let mut tensor = Self::empty_in(heap, layout.shape())?;
        tensor.as_mut_slice().copy_from_slice(data);
        Ok(tensor)
    }
}

impl<T: Element> TensorMut<T> {
    fn allocate(
        shape: impl Into<Shape>,
        block: impl FnOnce(usize) -> Result<ExclusiveBlock, TensorError>,
    ) -> Result<Self, TensorError> {
        let layout = LayoutRef::contiguous(shape)?;
        Self::from_parts(block(layout.n_elements() * size_of::<T>())?, layout)
    }

    /// Precondition: `layout` is contiguous from element 0. Refuses a block that is too small or not aligned.
    pub(crate) fn from_parts(mut block: ExclusiveBlock, layout: LayoutRef) -> Result<Self, TensorError> {
        layout.check_fits(bytes::elements::<T>(block.bytes())?.len())?;
        Ok(Self::from_checked(block, layout))
    }

    /// Precondition: the block is aligned for `T` and holds the elements of `layout`, which is contiguous
    /// from element 0.
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

    /// The data type of the elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        T::DTYPE
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

    /// The elements in row-major order. [`TensorMut`] says why this takes `&mut self`.
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

    /// Gives this tensor another shape with as many elements. The bytes stay where they are.
    ///
    /// The other kinds of tensor have `reshape`, which returns a view. An exclusive tensor has no views.
    ///
    /// # Errors
    /// [`LayoutError::ReshapeCount`], and the errors of [`Layout::contiguous`]. The tensor is unchanged then.
    pub fn set_shape(&mut self, shape: impl Into<Shape>) -> Result<(), LayoutError> {
        let reshaped = Layout::contiguous(self.shape().clone())?.reshape(shape)?;
        if !self.is_moved() {
            self.layout = reshaped.into();
        }
        Ok(())
    }

    /// Ends writing: from now on every holder may read. [`Tensor::try_into_mut`] reverses this.
    #[must_use]
    pub fn freeze(self) -> Tensor<T> {
        let (block, layout) = self.into_parts();
        Tensor::from_checked(FrozenStorage::Block(block.freeze()), layout)
    }

    /// Lets several processes read and write the elements at the same time, atomically.
    #[must_use]
    pub fn share(self) -> SharedTensor<T>
    where
        T: AtomicElement,
    {
        let (block, layout) = self.into_parts();
        SharedTensor::from_checked(block.share(), layout)
    }

    /// The block and its layout, which is empty if the block was moved away.
    pub(crate) fn into_parts(self) -> (ExclusiveBlock, LayoutRef) {
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

/// Prints type and shape, or that the tensor was moved away. The elements can be read through `&mut self`
/// only: `Debug` of [`TensorMut::as_slice`] prints them, or of the [frozen](TensorMut::freeze) tensor.
impl<T: Element> fmt::Debug for TensorMut<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        listing::head(f, "TensorMut", T::DTYPE, self.shape())?;
        f.write_str(if self.is_moved() { " (moved away)" } else { " (as_slice() has the elements)" })
    }
}
