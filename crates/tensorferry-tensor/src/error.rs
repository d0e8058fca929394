//! Why a tensor could not be made, changed, sent or received.

use std::fmt;

use tensorferry_reduce::TransitError;
use tensorferry_storage::StorageError;

use crate::dtype::DType;
use crate::layout::LayoutError;

/// Why an operation on a tensor failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// A shape, a view or an index was refused.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Shared memory could not be had; the message carries the numbers.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A handle could not be put into a message, or taken out of one.
    #[error(transparent)]
    Transit(#[from] TransitError),
    /// The elements have another type than was asked for.
    #[error("the tensor holds {found}, not {expected}")]
    DTypeMismatch {
        /// The type that was asked for.
        expected: DType,
        /// The type of the tensor.
        found: DType,
    },
    /// The message gives a tensor without elements a storage, or one with elements none.
    #[error("the message has {given} storage for a tensor of {n_elements} elements")]
    StorageAndShapeDisagree {
        /// `a` or `no`.
        given: &'static str,
        /// The elements of the shape that came along.
        n_elements: usize,
    },
    /// An exclusive tensor owns a whole storage in row-major order, and the message describes another.
    #[error(
        "an exclusive tensor is contiguous from element 0, but the message has strides or offset {offset}"
    )]
    NotWhole {
        /// The offset in the message, in elements.
        offset: usize,
    },
    /// The storage does not begin at an address that its elements need.
    #[error("the storage is not aligned for {dtype}")]
    Misaligned {
        /// The type of the elements.
        dtype: DType,
    },
}

/// The vector does not fit the shape; [`FromVecError::into_data`] gives it back.
#[derive(Debug, thiserror::Error)]
#[error("{source}")]
pub struct FromVecError<T> {
    data: Vec<T>,
    source: LayoutError,
}

impl<T> FromVecError<T> {
    pub(crate) const fn new(data: Vec<T>, source: LayoutError) -> Self {
        Self { data, source }
    }

    /// The vector, unchanged.
    #[must_use]
    pub fn into_data(self) -> Vec<T> {
        self.data
    }

    /// What is wrong with the shape.
    #[must_use]
    pub const fn reason(&self) -> &LayoutError {
        &self.source
    }
}

impl<T> From<FromVecError<T>> for TensorError {
    fn from(error: FromVecError<T>) -> Self {
        Self::Layout(error.source)
    }
}

impl<T> From<FromVecError<T>> for LayoutError {
    fn from(error: FromVecError<T>) -> Self {
        error.source
    }
}

/// The tensor cannot be written; [`TryIntoMutError::into_tensor`] gives it back. `V` is the kind of tensor.
pub struct TryIntoMutError<V> {
    tensor: Box<V>,
    reason: &'static str,
}

impl<V> TryIntoMutError<V> {
    pub(crate) fn new(tensor: V, reason: &'static str) -> Self {
        Self { tensor: Box::new(tensor), reason }
    }

    /// The tensor, unchanged.
    #[must_use]
    pub fn into_tensor(self) -> V {
        *self.tensor
    }
}

impl<V> fmt::Debug for TryIntoMutError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryIntoMutError").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<V> fmt::Display for TryIntoMutError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tensor cannot become exclusive: {}", self.reason)
    }
}

impl<V> std::error::Error for TryIntoMutError<V> {}
