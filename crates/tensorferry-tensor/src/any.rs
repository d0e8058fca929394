//! Tensors whose element type is known at run time only.

use std::fmt;

use num_complex::Complex;
use tensorferry_storage::{BlockId, FrozenBlock, Heap};

use crate::bytes;
use crate::dtype::DType;
use crate::element::{Bool, Element};
use crate::error::TensorError;
use crate::frozen::Tensor;
use crate::layout::{Layout, LayoutRef};
use crate::listing;
use crate::small_float::{
    F4E2M1FnX2, F6E2M3Fn, F6E3M2Fn, F8E3M4, F8E4M3, F8E4M3B11Fnuz, F8E4M3Fn, F8E4M3Fnuz, F8E5M2, F8E5M2Fnuz,
    F8E8M0Fnu,
};
use crate::storage::FrozenStorage;
use crate::views::view_methods;

/// A frozen tensor that carries its [`DType`], for a receiver that does not know the element type in advance.
///
/// It is made from a [`Tensor`], and [`AnyTensor::downcast`] turns it back into one. It can hold, view and
/// forward a type that this build has no element for, such as `float16` without the feature `half`.
#[derive(Clone)]
pub struct AnyTensor {
    dtype: DType,
    /// INVARIANT: large enough for `layout`; private storage is aligned for `dtype`.
    storage: FrozenStorage,
    layout: LayoutRef,
}

view_methods!(AnyTensor);

impl AnyTensor {
    /// A view of a block of shared memory, as elements of this type.
    ///
    /// # Errors
    /// [`TensorError::Layout`] for a block that is too small for the layout.
    pub fn from_block(dtype: DType, block: FrozenBlock, layout: Layout) -> Result<Self, TensorError> {
        Self::over_block(dtype, block, layout.into())
    }

    #[inline]
    pub(crate) fn over_block(
        dtype: DType,
        block: FrozenBlock,
        layout: LayoutRef,
    ) -> Result<Self, TensorError> {
        layout.check_fits(block.len_bytes() / dtype.size_bytes())?;
        Ok(Self::over_checked(dtype, block, layout))
    }

    /// Precondition: the layout fits the block.
    pub(crate) const fn over_checked(dtype: DType, block: FrozenBlock, layout: LayoutRef) -> Self {
        Self { dtype, storage: FrozenStorage::Block(block), layout }
    }

    /// The storage, as a block of shared memory. A private storage is copied into the domain of `heap` first,
    /// and the bytes are counted: once, and each time if it was first shared in another domain.
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn to_block(&self, heap: &Heap) -> Result<FrozenBlock, TensorError> {
        Ok(self.storage.share_in(heap)?)
    }

    pub(crate) const fn storage(&self) -> &FrozenStorage {
        &self.storage
    }

    fn with_layout(&self, layout: Layout) -> Self {
        Self { dtype: self.dtype, storage: self.storage.clone(), layout: layout.into() }
    }

    /// The data type of the elements.
    #[must_use]
    pub const fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape, strides and offset.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) const fn layout_ref(&self) -> &LayoutRef {
        &self.layout
    }

    /// The bytes of the whole storage, of which the tensor is a view. The element at `index` has
    /// [`DType::size_bytes`] of them, from [`Layout::offset_of`] times as many. Empty in a process that has
    /// no access to this memory (see [`Tensor::to_vec`]).
    #[must_use]
    pub fn storage_bytes(&self) -> &[u8] {
        self.storage.bytes()
    }

    /// The tensor with its element type.
    ///
    /// # Errors
    /// [`DowncastError`] gives the tensor back when it holds another type.
    pub fn downcast<T: Element>(self) -> Result<Tensor<T>, DowncastError> {
        if self.dtype != T::DTYPE || bytes::elements::<T>(self.storage.bytes()).is_err() {
            return Err(DowncastError::new(self.dtype, T::DTYPE, self));
        }
        Ok(Tensor::from_checked(self.storage, self.layout))
    }

    /// A copy of the bytes of the elements, in row-major order. Empty in a process that has no access to this
    /// memory (see [`Tensor::to_vec`]).
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let size_bytes = self.dtype.size_bytes();
        if self.layout.check_fits(self.storage.bytes().len() / size_bytes).is_err() {
            return Vec::new();
        }
        let mut bytes = vec![0; self.n_elements() * size_bytes];
        bytes::gather(self.storage.bytes(), &self.layout, size_bytes, &mut bytes);
        bytes
    }

    /// As [`Tensor::contiguous`].
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn contiguous(&self) -> Result<Self, TensorError> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        let layout = Layout::contiguous(self.shape())?;
        let storage = self.storage.gathered(self.dtype, &self.layout)?;
        Ok(Self { dtype: self.dtype, storage, layout: layout.into() })
    }

    /// As [`Tensor::compact`].
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn compact(&self) -> Result<Self, TensorError> {
        let storage_elements = self.storage.bytes().len() / self.dtype.size_bytes();
        if self.layout.offset() == 0 && self.layout.end() == storage_elements {
            return Ok(self.clone());
        }
        let storage = self.storage.span(self.dtype, &self.layout)?;
        Ok(Self { dtype: self.dtype, storage, layout: self.layout.rebased().into() })
    }

    /// Whether the elements lie in shared memory.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.storage.block().is_some()
    }

    /// As [`Tensor::share_memory`].
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn share_memory(&self) -> Result<Self, TensorError> {
        let block = self.storage.share(|| Heap::current().cloned().map_err(TensorError::from))?;
        Ok(self.over(block))
    }

    /// As [`Tensor::share_memory_in`].
    ///
    /// # Errors
    /// [`TensorError::Storage`] when shared memory runs out.
    pub fn share_memory_in(&self, heap: &Heap) -> Result<Self, TensorError> {
        let block = self.storage.share(|| Ok::<_, TensorError>(heap.clone()))?;
        Ok(self.over(block))
    }

    fn over(&self, block: FrozenBlock) -> Self {
        Self { dtype: self.dtype, storage: FrozenStorage::Block(block), layout: self.layout.clone() }
    }

    /// The storage in shared memory that this is a view of, or `None` while it is private.
    #[must_use]
    pub fn storage_id(&self) -> Option<BlockId> {
        self.storage.id()
    }

    /// Whether both are views of the same memory. False for storages without bytes.
    #[must_use]
    pub fn shares_storage_with(&self, other: &Self) -> bool {
        self.storage.is_same(&other.storage)
    }
}

/// As for [`Tensor`], if this build has an element for the type. Type and shape otherwise.
impl fmt::Debug for AnyTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match WRITERS.iter().find(|(dtype, _)| *dtype == self.dtype) {
            Some((_, write)) => write(self, f),
            None => {
                listing::head(f, "AnyTensor", self.dtype, self.shape())?;
                f.write_str(" (this build has no element for it)")
            }
        }
    }
}

type Writer = fn(&AnyTensor, &mut fmt::Formatter<'_>) -> fmt::Result;

/// How the elements of each type are printed. `half`'s are missing where the feature is.
const WRITERS: &[(DType, Writer)] = &[
    writer::<Bool>(),
    writer::<u8>(),
    writer::<u16>(),
    writer::<u32>(),
    writer::<u64>(),
    writer::<i8>(),
    writer::<i16>(),
    writer::<i32>(),
    writer::<i64>(),
    #[cfg(feature = "half")]
    writer::<half::f16>(),
    #[cfg(feature = "half")]
    writer::<half::bf16>(),
    writer::<f32>(),
    writer::<f64>(),
    #[cfg(feature = "half")]
    writer::<Complex<half::f16>>(),
    writer::<Complex<f32>>(),
    writer::<Complex<f64>>(),
    writer::<F8E3M4>(),
    writer::<F8E4M3>(),
    writer::<F8E4M3B11Fnuz>(),
    writer::<F8E4M3Fn>(),
    writer::<F8E4M3Fnuz>(),
    writer::<F8E5M2>(),
    writer::<F8E5M2Fnuz>(),
    writer::<F8E8M0Fnu>(),
    writer::<F6E2M3Fn>(),
    writer::<F6E3M2Fn>(),
    writer::<F4E2M1FnX2>(),
];

const fn writer<T: Element>() -> (DType, Writer) {
    (T::DTYPE, |tensor, f| {
        let elements = bytes::elements::<T>(tensor.storage.bytes()).unwrap_or_default();
        listing::write_slice(f, "AnyTensor", &tensor.layout, elements)
    })
}

impl<T: Element> From<Tensor<T>> for AnyTensor {
    fn from(tensor: Tensor<T>) -> Self {
        let (storage, layout) = tensor.into_parts();
        Self { dtype: T::DTYPE, storage, layout }
    }
}

/// As [`AnyTensor::downcast`].
impl<T: Element> TryFrom<AnyTensor> for Tensor<T> {
    type Error = DowncastError;

    fn try_from(tensor: AnyTensor) -> Result<Self, DowncastError> {
        tensor.downcast()
    }
}

/// The tensor holds another type. [`DowncastError::into_tensor`] gives the tensor back.
#[derive(thiserror::Error)]
#[error("the tensor holds {found}, not {expected}")]
pub struct DowncastError<A = AnyTensor> {
    found: DType,
    expected: DType,
    tensor: Box<A>,
}

impl<A> fmt::Debug for DowncastError<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<A> DowncastError<A> {
    pub(crate) fn new(found: DType, expected: DType, tensor: A) -> Self {
        Self { found, expected, tensor: Box::new(tensor) }
    }

    /// The tensor, unchanged.
    #[must_use]
    pub fn into_tensor(self) -> A {
        *self.tensor
    }
}

impl<A> From<DowncastError<A>> for TensorError {
    fn from(error: DowncastError<A>) -> Self {
        Self::DTypeMismatch { expected: error.expected, found: error.found }
    }
}

#[cfg(all(test, feature = "half"))]
mod tests {
    use super::*;

    #[test]
    fn elements_of_every_type_are_printed() {
        for dtype in DType::all() {
            assert!(WRITERS.iter().any(|(known, _)| *known == dtype), "{dtype:?}");
        }
    }
}
