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
    /// Shared memory could not be allocated or opened. The text has the numbers.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The elements have another type than the caller asked for.
    #[error("the tensor holds {found}, not {expected}")]
    DTypeMismatch {
        /// The type that was asked for.
        expected: DType,
        /// The type of the tensor.
        found: DType,
    },
    /// Elements of more than 8 bytes, which no instruction loads and stores as one.
    #[error("elements of {dtype} have {} bytes and cannot be shared: at most 8", dtype.size_bytes())]
    NotShareable {
        /// The type of the elements.
        dtype: DType,
    },
    /// The address of the storage is not aligned for its elements.
    #[error("the storage is not aligned for {dtype}")]
    Misaligned {
        /// The type of the elements.
        dtype: DType,
    },
    /// A sealed tensor could not be made, sent or received.
    #[error(transparent)]
    Sealed(#[from] SealedError),
}

tensorferry_storage::debug_as_display!(TensorError);

impl TensorError {
    /// Whether memory was short; see [`StorageError::is_out_of_memory`]. The call can succeed once any member
    /// of the domain has freed some.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Storage(error) => error.is_out_of_memory(),
            Self::Sealed(SealedError::Os(error)) => error.is_out_of_memory(),
            _ => false,
        }
    }
}

/// Why the memory of a sealed tensor could not be made, sent or received.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SealedError {
    /// The kernel refused: there is no memory or no descriptor left; or the file is not sealed against
    /// writing and shrinking, so that others could change it.
    #[error(transparent)]
    Os(#[from] tensorferry_os::Error),
    /// The file has fewer bytes than the tensor.
    #[error("the sealed file has {len_bytes} bytes, and the tensor needs {needed_bytes}")]
    TooShort {
        /// What the file has.
        len_bytes: u64,
        /// What the shape needs.
        needed_bytes: u64,
    },
    /// The file is another one than was sent: the process that sent it, or the one that keeps it, does not
    /// follow the protocol.
    #[error(
        "the sealed file that was sent has {needed_bytes} bytes, and the one that was fetched {len_bytes}"
    )]
    OtherLength {
        /// What the file has.
        len_bytes: u64,
        /// What it had when it was sent.
        needed_bytes: u64,
    },
    /// What came through a socket is no sealed tensor.
    #[error("what came through the socket is no sealed tensor: {0}")]
    NoTensor(&'static str),
    /// The other side has not sent, or not taken, all of it in time.
    #[error("the other side of the socket was not ready in time")]
    TimedOut,
    /// What came in the place of a sealed tensor's memory is something else.
    #[error("what arrived where a sealed tensor is wanted is none")]
    NoTicket,
    /// The descriptor could not be stored for those who receive the tensor, or fetched. The process that made
    /// the domain has to live until each receiver has received it.
    #[error("a sealed tensor's memory cannot be handed over: {0}")]
    FdStore(tensorferry_domain::FdStoreError),
}

tensorferry_storage::debug_as_display!(SealedError);

impl SealedError {
    /// Whether it is about this process or this moment, and not about the tensor: no descriptor is left here,
    /// say, or the process that keeps the file is stopped.
    pub(crate) fn is_for_now(&self) -> bool {
        use tensorferry_domain::FdStoreError::{Exhausted, NotConnected, Os, Silent};
        matches!(self, Self::Os(_) | Self::FdStore(Silent { .. } | Exhausted { .. } | NotConnected | Os(_)))
    }
}

impl From<tensorferry_domain::FdStoreError> for SealedError {
    fn from(error: tensorferry_domain::FdStoreError) -> Self {
        Self::FdStore(error)
    }
}

/// The vector does not fit the shape. [`FromVecError::into_data`] gives the vector back.
#[derive(thiserror::Error)]
#[error("{reason}")]
pub struct FromVecError<T> {
    data: Vec<T>,
    reason: LayoutError,
}

/// Prints the text without the elements, because there may be millions.
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

/// Why a tensor cannot become exclusive.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TryIntoMutErrorKind {
    /// The tensor is not the row-major view of its whole storage.
    #[error("the tensor is a view of part of its storage")]
    PartialView,
    /// The storage is private memory, even if a copy in shared memory exists already.
    /// [`Tensor::to_mut`](crate::Tensor::to_mut) makes a writable copy.
    #[error("the tensor is private; to_mut() copies it")]
    Private,
    /// There is another holder: a clone, another process, a message on its way, or the process that sent the
    /// tensor. The sender lets go within a tenth of a second.
    #[error(
        "somebody else holds it too: a clone, another process, a message on its way, or the process that \
         sent it, which lets go within a tenth of a second; send a TensorMut where buffers go round"
    )]
    InUse,
}

tensorferry_storage::debug_as_display!(TryIntoMutErrorKind);

/// The tensor cannot become exclusive. [`TryIntoMutError::into_tensor`] gives it back. `V` is the kind of
/// tensor.
pub struct TryIntoMutError<V> {
    tensor: Box<V>,
    kind: TryIntoMutErrorKind,
}

impl<V> TryIntoMutError<V> {
    pub(crate) fn new(tensor: V, kind: TryIntoMutErrorKind) -> Self {
        Self { tensor: Box::new(tensor), kind }
    }

    /// Why the tensor cannot become exclusive.
    #[must_use]
    pub const fn kind(&self) -> TryIntoMutErrorKind {
        self.kind
    }

    /// The tensor, unchanged.
    #[must_use]
    pub fn into_tensor(self) -> V {
        *self.tensor
    }
}

impl<V> fmt::Debug for TryIntoMutError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryIntoMutError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<V> fmt::Display for TryIntoMutError<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the tensor cannot become exclusive: {}", self.kind)
    }
}

impl<V> std::error::Error for TryIntoMutError<V> {}
