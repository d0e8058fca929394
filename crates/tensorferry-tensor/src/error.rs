//! Why a tensor could not be made or changed.

use std::fmt;

use tensorferry_storage::StorageError;

use crate::dtype::DType;
use crate::layout::LayoutError;

/// Why an operation on a tensor failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// A shape, a view or an index was refused.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Shared memory could not be had; the message carries the numbers.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The elements have another type than was asked for.
    #[error("the tensor holds {found}, not {expected}")]
    DTypeMismatch {
        /// The type that was asked for.
        expected: DType,
        /// The type of the tensor.
        found: DType,
    },
    /// The storage does not begin at an address that its elements need.
    #[error("the storage is not aligned for {dtype}")]
    Misaligned {
        /// The type of the elements.
        dtype: DType,
    },
}

tensorferry_storage::debug_as_display!(TensorError);

/// The vector does not fit the shape; [`FromVecError::into_data`] gives it back.
#[derive(thiserror::Error)]
#[error("{reason}")]
pub struct FromVecError<T> {
    data: Vec<T>,
    reason: LayoutError,
}

/// Without the elements, of which there may be millions.
impl<T> fmt::Debug for FromVecError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T> FromVecError<T> {
    pub(crate) const fn new(data: Vec<T>, reason: LayoutError) -> Self {
        Self { data, reason }
    }

    /// The vector, unchanged.
    #[must_use]
    pub fn into_data(self) -> Vec<T> {
        self.data
    }

    /// What is wrong with the shape.
    #[must_use]
    pub const fn reason(&self) -> &LayoutError {
        &self.reason
    }
}

impl<T> From<FromVecError<T>> for TensorError {
    fn from(error: FromVecError<T>) -> Self {
        Self::Layout(error.reason)
    }
}

impl<T> From<FromVecError<T>> for LayoutError {
    fn from(error: FromVecError<T>) -> Self {
        error.reason
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
