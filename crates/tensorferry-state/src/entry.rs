//! One tensor of a bundle, borrowed from it.

use std::fmt;
use std::iter::FusedIterator;

use tensorferry_storage::{BundleBlocks, FrozenBlock, SharedBlock};
use tensorferry_tensor::{
    AnyTensor, AtomicElement, DType, Element, Layout, LayoutError, Shape, SharedTensor, Tensor, TensorError,
};

use crate::manifest::Described;
use crate::{Bundle, BundleError};

/// One tensor of a bundle.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    bundle: &'a Bundle,
    blocks: BundleBlocks<'a>,
    tensor: &'a Described,
}

impl<'a> Entry<'a> {
    pub(crate) fn new(bundle: &'a Bundle, tensor: &'a Described) -> Self {
        Self { bundle, blocks: bundle.raw().blocks(), tensor }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        &self.tensor.name
    }

    /// The data type of its elements.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.tensor.dtype
    }

    /// Shape, strides and offset.
    #[must_use]
    pub fn layout(&self) -> &'a Layout {
        &self.tensor.layout
    }

    /// The lengths of its dimensions, in elements.
    #[must_use]
    pub fn shape(&self) -> &'a Shape {
        self.tensor.layout.shape()
    }

    /// How many elements it has.
    #[must_use]
    pub fn n_elements(&self) -> usize {
        self.tensor.layout.n_elements()
    }

    /// Whether it is a [`SharedTensor`], which any process may write.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.tensor.is_shared
    }

    /// The elements of a frozen tensor as one slice, where they lie. Touches nothing in shared memory but
    /// them.
    ///
    /// # Errors
    /// [`BundleError::WrongKind`] for a shared tensor. [`BundleError::Tensor`] with
    /// [`TensorError::DTypeMismatch`] for elements of another type, with [`LayoutError::NotContiguous`] for a
    /// view whose elements are not adjacent, with [`TensorError::Storage`] when the memory cannot be read.
    pub fn as_slice<T: Element>(&self) -> Result<&'a [T], BundleError> {
        let layout = self.layout();
        self.check_frozen()?;
        self.check_dtype::<T>()?;
        let Some(index) = self.tensor.storage else { return Ok(&[]) };
        if !layout.is_contiguous() {
            return Err(self.fails(LayoutError::NotContiguous {
                shape: Box::new(layout.shape().clone()),
                strides: Box::from(layout.strides()),
            }));
        }
        let bytes = self.blocks.bytes(index).map_err(|error| self.fails(error))?;
        let whole = bytes.len() - bytes.len() % size_of::<T>();
        let elements: &[T] = bytemuck::try_cast_slice(bytes.get(..whole).unwrap_or_default())
            .map_err(|_| self.fails(TensorError::Misaligned { dtype: T::DTYPE }))?;
        layout.check_fits(elements.len()).map_err(|error| self.fails(error))?;
        Ok(elements.get(layout.offset()..layout.offset() + layout.n_elements()).unwrap_or_default())
    }

    /// The frozen tensor, which lives without the bundle.
    ///
    /// # Errors
    /// [`BundleError::WrongKind`] for a shared tensor. [`BundleError::Tensor`] with
    /// [`TensorError::DTypeMismatch`] for elements of another type, with [`TensorError::Storage`] when the
    /// memory cannot be read.
    pub fn tensor<T: Element>(&self) -> Result<Tensor<T>, BundleError> {
        self.check_dtype::<T>()?;
        let mismatch = |found| self.fails(TensorError::DTypeMismatch { expected: T::DTYPE, found });
        self.any_tensor()?.downcast().map_err(|error| mismatch(error.into_tensor().dtype()))
    }

    /// As [`Entry::tensor`], of any type.
    ///
    /// # Errors
    /// As [`Entry::tensor`].
    pub fn any_tensor(&self) -> Result<AnyTensor, BundleError> {
        self.check_frozen()?;
        let block = match self.tensor.storage {
            Some(index) => self.bundle.raw().frozen(index).map_err(|error| self.fails(error))?,
            None => FrozenBlock::empty(),
        };
        AnyTensor::from_block(self.dtype(), block, self.layout().clone()).map_err(|error| self.fails(error))
    }

    /// The shared tensor, which lives without the bundle.
    ///
    /// # Errors
    /// [`BundleError::WrongKind`] for a frozen tensor; otherwise as [`Entry::tensor`].
    pub fn shared_tensor<T: AtomicElement>(&self) -> Result<SharedTensor<T>, BundleError> {
        if !self.is_shared() {
            return Err(BundleError::WrongKind { name: self.name().to_owned(), wanted: "shared" });
        }
        self.check_dtype::<T>()?;
        let block = match self.tensor.storage {
            Some(index) => self.bundle.raw().shared(index).map_err(|error| self.fails(error))?,
            None => SharedBlock::empty(),
        };
        SharedTensor::from_block(block, self.layout().clone()).map_err(|error| self.fails(error))
    }

    fn check_frozen(&self) -> Result<(), BundleError> {
        if self.is_shared() {
            return Err(BundleError::WrongKind { name: self.name().to_owned(), wanted: "frozen" });
        }
        Ok(())
    }

    fn check_dtype<T: Element>(&self) -> Result<(), BundleError> {
        if self.dtype() != T::DTYPE {
            return Err(self.fails(TensorError::DTypeMismatch { expected: T::DTYPE, found: self.dtype() }));
        }
        Ok(())
    }

    fn fails(&self, error: impl Into<TensorError>) -> BundleError {
        BundleError::of(self.name(), error)
    }

    /// The bundle's table of storages, and which of them the tensor lies in.
    #[cfg(feature = "safetensors")]
    pub(crate) fn raw(&self) -> &'a tensorferry_storage::Bundle {
        self.bundle.raw()
    }

    #[cfg(feature = "safetensors")]
    pub(crate) fn storage(&self) -> Option<usize> {
        self.tensor.storage
    }

    /// Type and shape, for `Debug`.
    pub(crate) fn described(&self) -> impl fmt::Debug + use<'a> {
        let (kind, dtype, shape) = (self.is_shared(), self.dtype(), self.shape());
        fmt::from_fn(move |f| {
            let kind = if kind { "SharedTensor" } else { "Tensor" };
            write!(f, "{kind}<{dtype}>{shape:?}")
        })
    }
}

/// Prints name, type and shape.
impl fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {:?}", self.name(), self.described())
    }
}

/// The tensors of a bundle; from [`Bundle::iter`].
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    bundle: &'a Bundle,
    blocks: BundleBlocks<'a>,
    tensors: std::slice::Iter<'a, Described>,
}

impl<'a> Iter<'a> {
    pub(crate) fn over(bundle: &'a Bundle) -> Self {
        Self { bundle, blocks: bundle.raw().blocks(), tensors: bundle.manifest().tensors().iter() }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let (bundle, blocks) = (self.bundle, self.blocks);
        self.tensors.next().map(|tensor| Entry { bundle, blocks, tensor })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.tensors.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}
impl FusedIterator for Iter<'_> {}
