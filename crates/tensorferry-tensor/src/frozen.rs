//! Tensors that nobody writes any more: what is sent, cloned and viewed.

use std::fmt;
use std::marker::PhantomData;

use tensorferry_storage::{BlockId, FrozenBlock, Heap};

use crate::bytes;
use crate::dtype::DType;
use crate::element::Element;
use crate::error::{FromVecError, TensorError, TryIntoMutError};
use crate::exclusive::TensorMut;
use crate::layout::{Layout, LayoutError, LayoutRef, Offsets};
use crate::shape::Shape;
use crate::storage::FrozenStorage;
use crate::views::view_methods;

/// A tensor whose elements do not change while anybody holds it: a view of a storage, cheap to clone.
///
/// It begins private, from a vector and without a copy ([`Tensor::from_vec`]), or in shared memory
/// ([`TensorMut::freeze`], or received). Private storage is copied into shared memory when one of its views is sent or
/// [shared](Tensor::share_memory), once; the bytes are counted. A view keeps the whole storage alive;
/// [`Tensor::compact`] copies what the view covers.
#[derive(Clone)]
pub struct Tensor<T> {
    /// INVARIANT: aligned for `T`, and large enough for `layout`.
    storage: FrozenStorage,
    layout: LayoutRef,
    elements: PhantomData<T>,
}

view_methods!(Tensor<T: Element>);

impl<T: Element> Tensor<T> {
    /// A private tensor of these elements in row-major order. Nothing is copied.
    ///
    /// # Errors
    /// [`FromVecError`], which holds the vector, when the shape has another number of elements or overflows.
    pub fn from_vec(data: Vec<T>, shape: impl Into<Shape>) -> Result<Self, FromVecError<T>> {
        let checked = Layout::contiguous(shape)
            .and_then(|layout| bytes::check_len(&layout, data.len()).map(|()| layout));
        match checked {
            Ok(layout) => Ok(Self::from_checked(FrozenStorage::private(data), layout)),
            Err(source) => Err(FromVecError::new(data, source)),
        }
    }

    /// A private tensor of rank 0.
    #[must_use]
    pub fn scalar(value: T) -> Self {
        // Rank 0 has one element and one layout.
        let layout = Layout::contiguous(Shape::scalar()).unwrap_or_else(|_| Layout::empty());
        Self::from_checked(FrozenStorage::private(vec![value]), layout)
    }

    /// The storage is aligned for `T`, and the layout fits it.
    #[inline]
    pub(crate) fn from_checked(storage: FrozenStorage, layout: impl Into<LayoutRef>) -> Self {
        Self { storage, layout: layout.into(), elements: PhantomData }
    }

    /// A view of a block, which is aligned for every element. Refuses one that is too small.
    #[inline]
    pub(crate) fn from_block(block: FrozenBlock, layout: LayoutRef) -> Result<Self, TensorError> {
        layout.check_fits(block.len_bytes() / size_of::<T>())?;
        Ok(Self::from_checked(FrozenStorage::Block(block), layout))
    }

    pub(crate) fn into_parts(self) -> (FrozenStorage, LayoutRef) {
        (self.storage, self.layout)
    }

    pub(crate) const fn storage(&self) -> &FrozenStorage {
        &self.storage
    }

    fn with_layout(&self, layout: Layout) -> Self {
        Self::from_checked(self.storage.clone(), layout)
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

    /// Every element of the storage.
    pub(crate) fn whole(&self) -> &[T] {
        bytes::elements(self.storage.bytes()).unwrap_or_default()
    }

    /// The elements as one slice.
    ///
    /// # Errors
    /// [`LayoutError::NotContiguous`] for a view whose elements do not lie side by side.
    pub fn as_slice(&self) -> Result<&[T], LayoutError> {
        if !self.is_contiguous() {
            return Err(LayoutError::NotContiguous {
                shape: Box::new(self.shape().clone()),
                strides: Box::from(self.strides()),
            });
        }
        Ok(self.whole().get(self.offset()..self.offset() + self.n_elements()).unwrap_or_default())
    }

    /// The elements in row-major order, copied. As everywhere, none in a process that was forked from a member by something else
    /// than this library, which has none of its memory.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        if self.layout.check_fits(self.whole().len()).is_err() {
            return Vec::new();
        }
        let mut elements = vec![T::zeroed(); self.n_elements()];
        bytes::gather(self.whole(), &self.layout, 1, &mut elements);
        elements
    }

    /// The elements in row-major order. This is the vector of [`Tensor::from_vec`] itself, uncopied, when this is the
    /// only view of all of it.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        if !self.is_whole() {
            return self.to_vec();
        }
        let Self { storage, layout, .. } = self;
        storage.try_into_vec().unwrap_or_else(|storage| Self::from_checked(storage, layout).to_vec())
    }

    /// The elements in row-major order, by reference.
    #[must_use]
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(match self.as_slice() {
            Ok(slice) => Walk::Contiguous(slice.iter()),
            // See `to_vec`.
            Err(_) if self.layout.check_fits(self.whole().len()).is_err() => Walk::Contiguous([].iter()),
            Err(_) => Walk::Strided { elements: self.whole(), offsets: self.layout.offsets() },
        })
    }

    /// One element.
    ///
    /// # Errors
    /// [`LayoutError::IndexRank`], [`LayoutError::IndexOutOfRange`]. [`LayoutError::StorageTooSmall`] in a process that has none
    /// of this memory (see [`Tensor::to_vec`]).
    pub fn get(&self, index: impl AsRef<[usize]>) -> Result<T, LayoutError> {
        self.at(self.layout.offset_of(index.as_ref())?)
    }

    fn at(&self, position: usize) -> Result<T, LayoutError> {
        let elements = self.whole();
        self.layout.check_fits(elements.len())?;
        Ok(elements[position])
    }

    /// The element of a tensor that has exactly one, of whatever rank.
    ///
    /// # Errors
    /// [`LayoutError::NotOneElement`]; [`LayoutError::StorageTooSmall`] as of [`Tensor::get`].
    pub fn item(&self) -> Result<T, LayoutError> {
        match self.n_elements() {
            1 => self.at(self.offset()),
            n_elements => {
                Err(LayoutError::NotOneElement { shape: Box::new(self.shape().clone()), n_elements })
            }
        }
    }

    /// The same elements in row-major order: this tensor if it is contiguous, a copy otherwise, private or in the
    /// default domain as this one is.
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn contiguous(&self) -> Result<Self, TensorError> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        let layout = Layout::contiguous(self.shape())?;
        Ok(Self::from_checked(self.storage.gathered(T::DTYPE, &self.layout)?, layout))
    }

    /// The same view over a storage of its own that holds no more than the span between the view's first and last
    /// element, so that the rest of the old one can be freed. A view of a whole storage is returned as it is.
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn compact(&self) -> Result<Self, TensorError> {
        if self.layout.offset() == 0 && self.layout.end() == self.whole().len() {
            return Ok(self.clone());
        }
        Ok(Self::from_checked(self.storage.span(T::DTYPE, &self.layout)?, self.layout.rebased()))
    }

    /// True when the elements lie in shared memory: sending the tensor copies nothing then.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.storage.block().is_some()
    }

    /// This tensor in the default domain's shared memory. A private storage is copied, once for all its views, and the
    /// bytes are counted; a shared one is only named again.
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn share_memory(&self) -> Result<Self, TensorError> {
        let block = self.storage.share(|| Heap::current().cloned().map_err(TensorError::from))?;
        Ok(self.over(block))
    }

    /// [`Tensor::share_memory`] in the given memory, unless the tensor is shared already.
    ///
    /// # Errors
    /// As [`Tensor::share_memory`].
    pub fn share_memory_in(&self, heap: &Heap) -> Result<Self, TensorError> {
        let block = self.storage.share(|| Ok::<_, TensorError>(heap.clone()))?;
        Ok(self.over(block))
    }

    fn over(&self, block: FrozenBlock) -> Self {
        Self::from_checked(FrozenStorage::Block(block), self.layout.clone())
    }

    /// Which storage in shared memory this is a view of, or `None` while it is private.
    #[must_use]
    pub fn storage_id(&self) -> Option<BlockId> {
        self.storage.id()
    }

    /// True when both are views of the same memory. Storages without bytes are nobody's memory.
    #[must_use]
    pub fn shares_storage_with<U: Element>(&self, other: &Tensor<U>) -> bool {
        self.storage.is_same(&other.storage)
    }

    /// A copy in shared memory that can be written.
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn to_mut(&self) -> Result<TensorMut<T>, TensorError> {
        self.to_mut_in(Heap::current()?)
    }

    /// [`Tensor::to_mut`] in the given memory.
    ///
    /// # Errors
    /// As [`Tensor::to_mut`].
    pub fn to_mut_in(&self, heap: &Heap) -> Result<TensorMut<T>, TensorError> {
        self.layout.check_fits(self.whole().len())?;
        let mut copy = TensorMut::empty_in(heap, self.shape())?;
        bytes::gather(self.whole(), &self.layout, 1, copy.as_mut_slice());
        Ok(copy)
    }

    /// This tensor as one that can be written: the same memory where [`Tensor::try_into_mut`] allows it, a copy
    /// otherwise.
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn into_mut(self) -> Result<TensorMut<T>, TensorError> {
        self.try_into_mut().or_else(|refused| refused.into_tensor().to_mut())
    }

    /// This memory, to write again, if this is the only view of it anywhere and covers all of it.
    ///
    /// A process that has sent the tensor holds it until it has seen that it was taken, which may be a tenth of a second
    /// later. So buffers that go round between processes are better sent as [`TensorMut`], which is the receiver's at
    /// once.
    ///
    /// # Errors
    /// [`TryIntoMutError`] gives the tensor back and says what is in the way.
    pub fn try_into_mut(self) -> Result<TensorMut<T>, TryIntoMutError<Self>> {
        if !self.is_whole() {
            return Err(TryIntoMutError::new(self, "the tensor is a view of part of its storage"));
        }
        let Self { storage, layout, .. } = self;
        let refused =
            |storage, layout, reason| TryIntoMutError::new(Self::from_checked(storage, layout), reason);
        let FrozenStorage::Block(block) = storage else {
            return Err(refused(storage, layout, "the tensor is private; to_mut() copies it"));
        };
        match block.try_into_exclusive() {
            Ok(block) => Ok(TensorMut::from_checked(block, layout)),
            Err(block) => Err(refused(FrozenStorage::Block(block), layout, SOMEBODY_ELSE)),
        }
    }

    /// True for the row-major view of the whole storage.
    fn is_whole(&self) -> bool {
        self.offset() == 0 && self.is_contiguous() && self.n_elements() == self.whole().len()
    }
}

/// Two tensors are equal when shape and elements are, wherever the elements lie.
impl<T: Element> PartialEq for Tensor<T> {
    fn eq(&self, other: &Self) -> bool {
        self.shape() == other.shape() && self.iter().eq(other.iter())
    }
}

impl<T: Element> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tensor")
            .field("dtype", &T::DTYPE)
            .field("shape", self.shape())
            .field("strides", &self.strides())
            .field("offset", &self.offset())
            .field("storage", &self.storage)
            .finish()
    }
}

impl<T: Element> From<Vec<T>> for Tensor<T> {
    /// A private tensor of rank 1. Nothing is copied.
    fn from(data: Vec<T>) -> Self {
        // A vector's length is a valid shape.
        let layout = Layout::contiguous([data.len()]).unwrap_or_else(|_| Layout::empty());
        Self::from_checked(FrozenStorage::private(data), layout)
    }
}

impl<'a, T: Element> IntoIterator for &'a Tensor<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Why a whole tensor cannot be written.
const SOMEBODY_ELSE: &str = "somebody else holds it too: a clone, another process, a message on its way, or the process that \
     sent it, which lets go within a tenth of a second; send a TensorMut where buffers go round";

/// The elements of a tensor in row-major order; made by [`Tensor::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a, T>(Walk<'a, T>);

#[derive(Clone, Debug)]
enum Walk<'a, T> {
    /// As fast as a slice, which is what it is.
    Contiguous(std::slice::Iter<'a, T>),
    Strided {
        elements: &'a [T],
        offsets: Offsets<'a>,
    },
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        match &mut self.0 {
            Walk::Contiguous(slice) => slice.next(),
            Walk::Strided { elements, offsets } => elements.get(offsets.next()?),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match &self.0 {
            Walk::Contiguous(slice) => slice.size_hint(),
            Walk::Strided { offsets, .. } => offsets.size_hint(),
        }
    }

    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, mut f: F) -> B {
        match self.0 {
            Walk::Contiguous(slice) => slice.fold(init, f),
            Walk::Strided { elements, offsets } => {
                offsets.fold(init, |value, offset| match elements.get(offset) {
                    Some(element) => f(value, element),
                    None => value,
                })
            }
        }
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}
