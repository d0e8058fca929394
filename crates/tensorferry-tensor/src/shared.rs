//! Tensors that several processes read and write at the same time.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::AtomicU64;

use tensorferry_storage::{BlockId, Heap, SharedBlock};

use crate::bytes;
use crate::dtype::DType;
use crate::element::{AtomicElement, AtomicNumber};
use crate::error::{TensorError, TryIntoMutError, TryIntoMutErrorKind};
use crate::exclusive::TensorMut;
use crate::layout::{Layout, LayoutError, LayoutRef};
use crate::listing;
use crate::shape::Shape;
use crate::views::view_methods;
use crate::words;

/// A tensor whose elements every holder may read and write while other holders do. Parameters in Hogwild
/// training, counters and flags are such tensors. It is a view of a storage, and cheap to clone; a clone is
/// the same memory.
///
/// The tensor lends out no slices. All access is atomic, element by element:
///
/// - An element is never torn: a reader sees a whole value that some process stored.
/// - A bulk operation is *not* atomic as a whole. A [`SharedTensor::to_vec`] during a write may see some
///   elements from before it and some from after it.
/// - [`SharedTensor::fetch_add`], [`SharedTensor::add_from`] and [`SharedTensor::add_scaled_from`] lose no
///   addition, even when several processes add at the same time.
/// - Single-element operations acquire and release: a [`SharedTensor::load`] that sees a
///   [`SharedTensor::store`] also sees everything that the storing process did before it. Bulk operations
///   order nothing. Send a message or store to an element, so that the other side sees all of a bulk write.
///
/// Elements smaller than 8 bytes share a 64-bit word with their neighbours, because memory has no atomics of
/// mixed sizes. The only visible effect is that a write of part of a word takes a compare-and-swap.
///
/// Elements of 16 bytes cannot be shared:
///
/// ```compile_fail,E0277
/// fn shared(tensor: tensorferry_tensor::TensorMut<tensorferry_tensor::Complex<f64>>) {
///     tensor.share();
/// }
/// ```
#[derive(Clone)]
pub struct SharedTensor<T> {
    /// INVARIANT: large enough for `layout`.
    block: SharedBlock,
    layout: LayoutRef,
    elements: PhantomData<T>,
}

view_methods!(SharedTensor<T: AtomicElement>);

// Each method has the bound, and not the `impl`, so that the compiler says what an element is.
impl<T> SharedTensor<T> {
    /// A shared tensor of zeros in the default domain's memory.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn zeros(shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: AtomicElement,
    {
        Ok(TensorMut::zeros(shape)?.share())
    }

    /// As [`SharedTensor::zeros`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn zeros_in(heap: &Heap, shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: AtomicElement,
    {
        Ok(TensorMut::zeros_in(heap, shape)?.share())
    }

    /// A shared tensor with a copy of `data`, in row-major order.
    ///
    /// # Errors
    /// As [`TensorMut::from_slice`].
    pub fn from_slice(data: &[T], shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: AtomicElement,
    {
        Ok(TensorMut::from_slice(data, shape)?.share())
    }

    /// As [`SharedTensor::from_slice`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`TensorMut::from_slice`].
    pub fn from_slice_in(heap: &Heap, data: &[T], shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: AtomicElement,
    {
        Ok(TensorMut::from_slice_in(heap, data, shape)?.share())
    }

    /// A shared tensor whose elements are all one; true for [`Bool`](crate::Bool).
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn ones(shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: AtomicElement,
    {
        Ok(TensorMut::ones(shape)?.share())
    }

    /// As [`SharedTensor::ones`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn ones_in(heap: &Heap, shape: impl Into<Shape>) -> Result<Self, TensorError>
    where
        T: AtomicElement,
    {
        Ok(TensorMut::ones_in(heap, shape)?.share())
    }

    /// A shared tensor whose elements are all `value`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn full(shape: impl Into<Shape>, value: T) -> Result<Self, TensorError>
    where
        T: AtomicElement,
    {
        Ok(TensorMut::full(shape, value)?.share())
    }

    /// As [`SharedTensor::full`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`TensorMut::zeros`].
    pub fn full_in(heap: &Heap, shape: impl Into<Shape>, value: T) -> Result<Self, TensorError>
    where
        T: AtomicElement,
    {
        Ok(TensorMut::full_in(heap, shape, value)?.share())
    }
}

impl<T: AtomicElement> SharedTensor<T> {
    /// Precondition: the layout fits the block.
    pub(crate) fn from_checked(block: SharedBlock, layout: impl Into<LayoutRef>) -> Self {
        Self { block, layout: layout.into(), elements: PhantomData }
    }

    /// Refuses a block that is too small.
    pub(crate) fn from_parts(block: SharedBlock, layout: LayoutRef) -> Result<Self, TensorError> {
        layout.check_fits(block.len_bytes() / size_of::<T>())?;
        Ok(Self::from_checked(block, layout))
    }

    /// A view of a block of shared memory.
    ///
    /// # Errors
    /// [`TensorError::Layout`] for a block that is too small for the layout.
    pub fn from_block(block: SharedBlock, layout: Layout) -> Result<Self, TensorError> {
        Self::from_parts(block, layout.into())
    }

    /// The storage, as a block of shared memory.
    #[must_use]
    pub fn into_block(self) -> SharedBlock {
        self.block
    }

    pub(crate) const fn block(&self) -> &SharedBlock {
        &self.block
    }

    fn with_layout(&self, layout: Layout) -> Self {
        Self::from_checked(self.block.clone(), layout)
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
        T::DTYPE
    }

    /// The storage that this is a view of.
    #[must_use]
    pub fn storage_id(&self) -> BlockId {
        self.block.id()
    }

    /// Whether both are views of the same memory. False for storages without bytes.
    #[must_use]
    pub fn shares_storage_with<U: AtomicElement>(&self, other: &SharedTensor<U>) -> bool {
        self.block.ptr_eq(&other.block)
    }

    /// The words of the storage.
    ///
    /// # Errors
    /// [`LayoutError::StorageTooSmall`] in a process that was forked, but not by this library: it has no
    /// access to the words.
    fn words(&self) -> Result<&[AtomicU64], LayoutError> {
        let words = self.block.words();
        self.layout.check_fits(words.len() * T::N_LANES)?;
        Ok(words)
    }

    /// Reads one element.
    ///
    /// # Errors
    /// [`LayoutError::IndexRank`], [`LayoutError::IndexOutOfRange`]. [`LayoutError::StorageTooSmall`] in a
    /// process that was forked from a member, but not by this library: no access to the member's memory
    /// succeeds there.
    pub fn load(&self, index: impl AsRef<[usize]>) -> Result<T, LayoutError> {
        Ok(words::load(self.words()?, self.layout.offset_of(index.as_ref())?))
    }

    /// Writes one element.
    ///
    /// # Errors
    /// As [`SharedTensor::load`].
    pub fn store(&self, index: impl AsRef<[usize]>, value: T) -> Result<(), LayoutError> {
        words::update(self.words()?, self.layout.offset_of(index.as_ref())?, |_| value);
        Ok(())
    }

    /// Writes one element and returns the old value.
    ///
    /// # Errors
    /// As [`SharedTensor::load`].
    pub fn swap(&self, index: impl AsRef<[usize]>, value: T) -> Result<T, LayoutError> {
        Ok(words::update(self.words()?, self.layout.offset_of(index.as_ref())?, |_| value))
    }

    /// Copies all elements to `out` in row-major order. Not atomic as a whole; see [`SharedTensor`].
    ///
    /// # Errors
    /// [`LayoutError::LengthMismatch`] when `out` has another length; [`LayoutError::StorageTooSmall`] as for
    /// [`SharedTensor::load`].
    pub fn read_into(&self, out: &mut [T]) -> Result<(), LayoutError> {
        bytes::check_len(&self.layout, out.len())?;
        let (words, runs) = (self.words()?, self.layout.runs());
        let run_len = runs.run_len();
        for (start, out) in runs.zip(out.chunks_exact_mut(run_len)) {
            words::read(words, start, out);
        }
        Ok(())
    }

    /// A copy of all elements in row-major order. Not atomic as a whole; see [`SharedTensor`]. Empty in a
    /// process that has no access to this memory (see [`SharedTensor::load`]).
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        let mut elements = vec![T::zeroed(); self.n_elements()];
        // The length matches, so that only missing memory is an error.
        if self.read_into(&mut elements).is_err() {
            elements.clear();
        }
        elements
    }

    /// Writes all elements, given in row-major order. Not atomic as a whole; see [`SharedTensor`].
    ///
    /// # Errors
    /// [`LayoutError::LengthMismatch`] when `data` has another length; [`LayoutError::StorageTooSmall`] as
    /// for [`SharedTensor::load`].
    pub fn write_from(&self, data: &[T]) -> Result<(), LayoutError> {
        self.for_each_run(data, words::write)
    }

    /// Writes one value to all elements. Not atomic as a whole; see [`SharedTensor`]. Does nothing in a
    /// process that has no access to this memory (see [`SharedTensor::load`]).
    pub fn fill(&self, value: T) {
        let Ok(words) = self.words() else { return };
        let runs = self.layout.runs();
        let run_len = runs.run_len();
        let same = [value; 256];
        for start in runs {
            for first in (0..run_len).step_by(same.len()) {
                words::write(words, start + first, &same[..same.len().min(run_len - first)]);
            }
        }
    }

    fn for_each_run(&self, data: &[T], apply: impl Fn(&[AtomicU64], usize, &[T])) -> Result<(), LayoutError> {
        bytes::check_len(&self.layout, data.len())?;
        let (words, runs) = (self.words()?, self.layout.runs());
        let run_len = runs.run_len();
        for (start, data) in runs.zip(data.chunks_exact(run_len)) {
            apply(words, start, data);
        }
        Ok(())
    }

    /// Makes the tensor exclusive in the same memory, to write without atomics, if this is the only view of
    /// it in any process and covers all of it.
    ///
    /// # Errors
    /// [`TryIntoMutError`] gives the tensor back, and its [`kind`](TryIntoMutError::kind) says why.
    pub fn try_into_mut(self) -> Result<TensorMut<T>, TryIntoMutError<Self>> {
        let storage_elements = self.block.len_bytes() / size_of::<T>();
        if self.offset() != 0 || !self.is_contiguous() || self.n_elements() != storage_elements {
            return Err(TryIntoMutError::new(self, TryIntoMutErrorKind::PartialView));
        }
        let Self { block, layout, .. } = self;
        match block.try_into_exclusive() {
            Ok(block) => Ok(TensorMut::from_checked(block, layout)),
            Err(block) => {
                Err(TryIntoMutError::new(Self::from_checked(block, layout), TryIntoMutErrorKind::InUse))
            }
        }
    }
}

impl<T: AtomicNumber> SharedTensor<T> {
    /// Adds to one element and returns the old value. Integers wrap around.
    ///
    /// # Errors
    /// As [`SharedTensor::load`].
    pub fn fetch_add(&self, index: impl AsRef<[usize]>, value: T) -> Result<T, LayoutError> {
        Ok(words::update(self.words()?, self.layout.offset_of(index.as_ref())?, |old: T| old.plus(value)))
    }

    /// Adds `data`, given in row-major order, element by element. No addition is lost, but the whole is not
    /// atomic.
    ///
    /// A zero in `data` changes nothing, and where there are only zeros nothing is written.
    ///
    /// # Errors
    /// [`LayoutError::LengthMismatch`] when `data` has another length; [`LayoutError::StorageTooSmall`] as
    /// for [`SharedTensor::load`].
    pub fn add_from(&self, data: &[T]) -> Result<(), LayoutError> {
        self.for_each_run(data, |words, start, data| words::add(words, start, data, |value| value))
    }

    /// As [`SharedTensor::add_from`], for `alpha * data`. With `alpha` = minus the learning rate this is a
    /// step of gradient descent. A zero in `data` changes nothing, also where `alpha` is infinite or no
    /// number.
    ///
    /// # Errors
    /// [`LayoutError::LengthMismatch`] when `data` has another length; [`LayoutError::StorageTooSmall`] as
    /// for [`SharedTensor::load`].
    pub fn add_scaled_from(&self, data: &[T], alpha: T) -> Result<(), LayoutError> {
        self.for_each_run(data, |words, start, data| {
            words::add(words, start, data, |value| value.times(alpha))
        })
    }
}

impl<T: AtomicElement> From<TensorMut<T>> for SharedTensor<T> {
    /// As [`TensorMut::share`].
    fn from(tensor: TensorMut<T>) -> Self {
        tensor.share()
    }
}

/// As for [`Tensor`](crate::Tensor). The elements are loaded one by one, while others may change them.
impl<T: AtomicElement> fmt::Debug for SharedTensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.words().ok();
        let read = words.map(|words| move |position| Some(words::load::<T>(words, position)));
        listing::write(f, "SharedTensor", T::DTYPE, &self.layout, read)
    }
}
