//! Tensors that are no longer written. They can be sent, cloned and viewed.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;

use tensorferry_storage::{BlockId, FrozenBlock, Heap};

use crate::bytes;
use crate::dtype::DType;
use crate::element::Element;
use crate::error::{FromVecError, TensorError, TryIntoMutError, TryIntoMutErrorKind};
use crate::exclusive::TensorMut;
use crate::layout::{Layout, LayoutError, LayoutRef, Offsets};
use crate::listing;
use crate::shape::Shape;
use crate::storage::FrozenStorage;
use crate::views::view_methods;

/// A tensor whose elements do not change while it has a holder. It is a view of a storage, and cheap to
/// clone.
///
/// The storage is private or in shared memory. [`Tensor::from_vec`] makes a private one without a copy;
/// [`TensorMut::freeze`] and receiving give one in shared memory. A private storage is copied into shared
/// memory once, when one of its views is sent or [shared](Tensor::share_memory); the bytes are counted.
///
/// A view keeps the whole storage alive. [`Tensor::compact`] copies the part that the view covers.
#[derive(Clone)]
pub struct Tensor<T> {
    /// INVARIANT: aligned for `T`, and large enough for `layout`.
    storage: FrozenStorage,
    layout: LayoutRef,
    elements: PhantomData<T>,
}

view_methods!(Tensor<T: Element>);

// Each method has the bound, and not the `impl`, so that the compiler says what an element is.
impl<T> Tensor<T> {
    /// A private tensor of these elements in row-major order. Nothing is copied.
    ///
    /// # Errors
    /// [`FromVecError`] when the shape has another number of elements or overflows. It holds the vector.
    pub fn from_vec(data: Vec<T>, shape: impl Into<Shape>) -> Result<Self, FromVecError<T>>
    where
        T: Element,
    {
        let checked = Layout::contiguous(shape)
            .and_then(|layout| bytes::check_len(&layout, data.len()).map(|()| layout));
        match checked {
            Ok(layout) => Ok(Self::from_checked(FrozenStorage::private(data), layout)),
            Err(source) => Err(FromVecError::new(data, source)),
        }
    }

    /// A private tensor of rank 0.
    #[must_use]
    pub fn scalar(value: T) -> Self
    where
        T: Element,
    {
        // Rank 0 has one element and one layout.
        let layout = Layout::contiguous(Shape::scalar()).unwrap_or_else(|_| Layout::empty());
        Self::from_checked(FrozenStorage::private(vec![value]), layout)
    }
}

impl<T: Element> Tensor<T> {
    /// Precondition: the storage is aligned for `T`, and the layout fits it.
    #[inline]
    pub(crate) fn from_checked(storage: FrozenStorage, layout: impl Into<LayoutRef>) -> Self {
        Self { storage, layout: layout.into(), elements: PhantomData }
    }

    /// A view of a block. Blocks are aligned for every element type; one that is too small is refused.
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
    /// [`LayoutError::NotContiguous`] for a view whose elements are not adjacent.
    pub fn as_slice(&self) -> Result<&[T], LayoutError> {
        if !self.is_contiguous() {
            return Err(LayoutError::NotContiguous {
                shape: Box::new(self.shape().clone()),
                strides: Box::from(self.strides()),
            });
        }
        Ok(self.whole().get(self.offset()..self.offset() + self.n_elements()).unwrap_or_default())
    }

    /// A copy of the elements in row-major order.
    ///
    /// Empty in a process that was forked from a member, but not by this library: such a process has no
    /// access to the member's memory.
    #[must_use]
    pub fn to_vec(&self) -> Vec<T> {
        if self.layout.check_fits(self.whole().len()).is_err() {
            return Vec::new();
        }
        let mut elements = vec![T::zeroed(); self.n_elements()];
        bytes::gather(self.whole(), &self.layout, 1, &mut elements);
        elements
    }

    /// The elements in row-major order. Returns the vector of [`Tensor::from_vec`] without a copy, if this is
    /// its only view and covers all of it.
    #[must_use]
    pub fn into_vec(self) -> Vec<T> {
        if !self.is_whole() {
            return self.to_vec();
        }
        let Self { storage, layout, .. } = self;
        storage.try_into_vec().unwrap_or_else(|storage| Self::from_checked(storage, layout).to_vec())
    }

    /// Iterates over the elements by reference, in row-major order.
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
    /// [`LayoutError::IndexRank`], [`LayoutError::IndexOutOfRange`]. [`LayoutError::StorageTooSmall`] in a
    /// process that has no access to this memory (see [`Tensor::to_vec`]).
    pub fn get(&self, index: impl AsRef<[usize]>) -> Result<T, LayoutError> {
        self.at(self.layout.offset_of(index.as_ref())?)
    }

    fn at(&self, position: usize) -> Result<T, LayoutError> {
        let elements = self.whole();
        self.layout.check_fits(elements.len())?;
        Ok(elements[position])
    }

    /// The element of a tensor of any rank that has exactly one.
    ///
    /// # Errors
    /// [`LayoutError::NotOneElement`]; [`LayoutError::StorageTooSmall`] as for [`Tensor::get`].
    pub fn item(&self) -> Result<T, LayoutError> {
        match self.n_elements() {
            1 => self.at(self.offset()),
            n_elements => {
                Err(LayoutError::NotOneElement { shape: Box::new(self.shape().clone()), n_elements })
            }
        }
    }

    /// The same elements in row-major order: this tensor if it is contiguous, a copy otherwise. The copy of a
    /// private tensor is private; any other copy lies in the default domain.
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

    /// The same view over a storage of its own, so that the old one can be freed. The new storage holds the
    /// span from the view's first to its last element. A view of a whole storage is returned as it is.
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn compact(&self) -> Result<Self, TensorError> {
        if self.layout.offset() == 0 && self.layout.end() == self.whole().len() {
            return Ok(self.clone());
        }
        Ok(Self::from_checked(self.storage.span(T::DTYPE, &self.layout)?, self.layout.rebased()))
    }

    /// Whether the elements lie in shared memory, so that sending the tensor copies nothing.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.storage.block().is_some()
    }

    /// This tensor in the default domain's shared memory. A private storage is copied once for all its views,
    /// and the bytes are counted. A tensor that lies in shared memory already is cloned.
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn share_memory(&self) -> Result<Self, TensorError> {
        let block = self.storage.share(|| Heap::current().cloned().map_err(TensorError::from))?;
        Ok(self.over(block))
    }

    /// As [`Tensor::share_memory`], in the domain of `heap`, unless the tensor lies in shared memory already.
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

    /// The storage in shared memory that this is a view of, or `None` while it is private.
    #[must_use]
    pub fn storage_id(&self) -> Option<BlockId> {
        self.storage.id()
    }

    /// Whether both are views of the same memory. False for storages without bytes.
    #[must_use]
    pub fn shares_storage_with<U: Element>(&self, other: &Tensor<U>) -> bool {
        self.storage.is_same(&other.storage)
    }

    /// A writable copy in the default domain's shared memory.
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn to_mut(&self) -> Result<TensorMut<T>, TensorError> {
        self.to_mut_in(Heap::current()?)
    }

    /// As [`Tensor::to_mut`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Tensor::to_mut`].
    pub fn to_mut_in(&self, heap: &Heap) -> Result<TensorMut<T>, TensorError> {
        self.layout.check_fits(self.whole().len())?;
        let mut copy = TensorMut::empty_in(heap, self.shape())?;
        bytes::gather(self.whole(), &self.layout, 1, copy.as_mut_slice());
        Ok(copy)
    }

    /// Makes the tensor writable: in the same memory if [`Tensor::try_into_mut`] allows it, as a copy
    /// otherwise.
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn into_mut(self) -> Result<TensorMut<T>, TensorError> {
        self.try_into_mut().or_else(|refused| refused.into_tensor().to_mut())
    }

    /// Makes the tensor exclusive in the same memory, if this is the only view of it in any process and
    /// covers all of it.
    ///
    /// A process that has sent the tensor holds it until it notices that the message was taken. That may be a
    /// tenth of a second later. Buffers that go round between processes are therefore better sent as
    /// [`TensorMut`], which the receiver owns at once.
    ///
    /// ```
    /// use tensorferry_tensor::{TensorMut, TryIntoMutErrorKind};
    ///
    /// let tensor = TensorMut::<u8>::zeros([3])?.freeze();
    /// let clone = tensor.clone();
    /// let refused = tensor.try_into_mut().unwrap_err();
    /// assert_eq!(refused.kind(), TryIntoMutErrorKind::InUse);
    /// drop(clone);
    /// assert!(refused.into_tensor().try_into_mut().is_ok());
    /// # Ok::<(), tensorferry_tensor::TensorError>(())
    /// ```
    ///
    /// # Errors
    /// [`TryIntoMutError`] gives the tensor back, and its [`kind`](TryIntoMutError::kind) says why.
    pub fn try_into_mut(self) -> Result<TensorMut<T>, TryIntoMutError<Self>> {
        if !self.is_whole() {
            return Err(TryIntoMutError::new(self, TryIntoMutErrorKind::PartialView));
        }
        let Self { storage, layout, .. } = self;
        let refused = |storage, layout, kind| TryIntoMutError::new(Self::from_checked(storage, layout), kind);
        let FrozenStorage::Block(block) = storage else {
            return Err(refused(storage, layout, TryIntoMutErrorKind::Private));
        };
        match block.try_into_exclusive() {
            Ok(block) => Ok(TensorMut::from_checked(block, layout)),
            Err(block) => Err(refused(FrozenStorage::Block(block), layout, TryIntoMutErrorKind::InUse)),
        }
    }

    /// Whether this is the row-major view of the whole storage.
    fn is_whole(&self) -> bool {
        self.offset() == 0 && self.is_contiguous() && self.n_elements() == self.whole().len()
    }
}

/// Two tensors are equal if their shapes and elements are, whatever their storage.
impl<T: Element> PartialEq for Tensor<T> {
    fn eq(&self, other: &Self) -> bool {
        self.shape() == other.shape() && self.iter().eq(other.iter())
    }
}

/// Prints type, shape and elements: `Tensor<f32>[2, 2] [[1.0, 2.0], [3.0, 4.0]]`. A tensor with more than 100
/// elements shows the first and last three of each dimension.
impl<T: Element> fmt::Debug for Tensor<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        listing::write_slice(f, "Tensor", &self.layout, self.whole())
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

impl<T: Element> From<TensorMut<T>> for Tensor<T> {
    /// As [`TensorMut::freeze`].
    fn from(tensor: TensorMut<T>) -> Self {
        tensor.freeze()
    }
}

impl<'a, T: Element> IntoIterator for &'a Tensor<T> {
    type Item = &'a T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// The elements of a tensor in row-major order; made by [`Tensor::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a, T>(Walk<'a, T>);

#[derive(Clone, Debug)]
enum Walk<'a, T> {
    /// A slice, which is the fastest to walk.
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

impl<T> FusedIterator for Iter<'_, T> {}
