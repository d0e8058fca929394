//! Why a bundle cannot be made or read.

use tensorferry_storage::StorageError;
use tensorferry_tensor::{DType, LayoutError, TensorError};

/// Why a bundle could not be made, or why one of its tensors could not be read.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BundleError {
    /// Two tensors with one name.
    #[error("two tensors of the bundle are named `{name}`")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A name that is too long.
    #[error("a name of {len_bytes} bytes is too long: at most {limit_bytes} are possible")]
    LongName {
        /// Its length in bytes.
        len_bytes: usize,
        /// The longest possible.
        limit_bytes: usize,
    },
    /// The bundle has no tensor of this name.
    #[error("the bundle has no tensor named `{name}` (tensors: {n_tensors})")]
    NoSuchTensor {
        /// The name that was asked for.
        name: String,
        /// How many tensors there are.
        n_tensors: usize,
    },
    /// A frozen tensor was asked for as a shared one, or the other way around.
    #[error("`{name}` is not a {wanted} tensor")]
    WrongKind {
        /// The name.
        name: String,
        /// What was asked for: `frozen` or `shared`.
        wanted: &'static str,
    },
    /// The tensor cannot be read as it was asked for.
    #[error("`{name}`: {error}")]
    Tensor {
        /// The name.
        name: String,
        /// What is wrong: its type, its layout, or its storage.
        error: TensorError,
    },
    /// A tensor of another domain.
    #[error("`{name}` lies in the memory of another domain: copy it into that of the bundle first")]
    ForeignDomain {
        /// The name.
        name: String,
    },
    /// A tensor of a type that no shared tensor has.
    #[error("`{name}` is of {dtype}, of which no tensor can be shared: an element has more than 8 bytes")]
    NotShareable {
        /// The name.
        name: String,
        /// Its type.
        dtype: DType,
    },
    /// What the bundle says about its tensors cannot be written.
    #[error(transparent)]
    Manifest(#[from] ManifestError),
    /// The bundle could not be made.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

tensorferry_storage::debug_as_display!(BundleError);

impl BundleError {
    pub(crate) fn of(name: &str, error: impl Into<TensorError>) -> Self {
        Self::Tensor { name: name.to_owned(), error: error.into() }
    }

    /// Whether memory was short; see [`StorageError::is_out_of_memory`].
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        match self {
            Self::Storage(error) => error.is_out_of_memory(),
            Self::Tensor { error, .. } => error.is_out_of_memory(),
            _ => false,
        }
    }
}

/// Why what a bundle says about its tensors cannot be believed. Another process has written it.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The bytes are no manifest.
    #[error("the manifest of a bundle cannot be read: {0}")]
    Unreadable(String),
    /// No type has this code.
    #[error("the manifest of a bundle has a tensor of type {code}, which no dtype is")]
    DType {
        /// The code.
        code: u8,
    },
    /// A tensor with a layout that is none.
    #[error("the manifest of a bundle has a tensor with an impossible layout: {0}")]
    Layout(LayoutError),
    /// A number that is no length on this machine.
    #[error("the manifest of a bundle has a length of {0}")]
    Length(u64),
    /// A tensor whose storage the bundle does not have.
    #[error("the manifest of a bundle names storage {index}, and there are {n_blocks}")]
    Storage {
        /// The number of the storage.
        index: u32,
        /// How many there are.
        n_blocks: usize,
    },
    /// Two tensors with one name.
    #[error("the manifest of a bundle names two tensors `{0}`")]
    DuplicateName(String),
}

tensorferry_storage::debug_as_display!(ManifestError);

impl From<LayoutError> for ManifestError {
    fn from(error: LayoutError) -> Self {
        Self::Layout(error)
    }
}
