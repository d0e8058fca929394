//! Rows of tensors as samples.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tensorferry_spawn::BoxedError;
use tensorferry_storage::Heap;
use tensorferry_tensor::{Element, LayoutError, Tensor, TensorError};

use crate::collate::{Collate, CollateError};
use crate::dataset::{Batch, Dataset};
use crate::random::SampleRng;
use crate::rows::TensorRows;
use crate::samples::Samples;

/// Rows of tensors as samples: PyTorch's `TensorDataset`.
///
/// The tensors are shared memory, which all workers see: no worker has a copy. To be loaded by workers, each
/// of its types is registered under a name:
///
/// ```
/// use tensorferry_data::{DataLoader, TensorDataset, dataset};
/// use tensorferry_tensor::Tensor;
///
/// #[dataset]
/// type Digits = TensorDataset<(Tensor<f32>, Tensor<u8>)>;
///
/// let pixels = Tensor::from_vec(vec![0.5; 100 * 64], [100, 8, 8])?;
/// let labels = Tensor::from_vec((0..100).collect(), [100])?;
/// let digits = Digits::new((pixels, labels))?;
///
/// let loader = DataLoader::builder(digits).batch_size(32).shuffle().workers(2).start()?;
/// for batch in loader.epoch(0) {
///     let (pixels, labels) = batch?;
///     assert_eq!(pixels.shape(), &[labels.n_elements(), 8, 8]);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Serialize, Deserialize)]
#[serde(bound = "C: Columns")]
pub struct TensorDataset<C> {
    columns: C,
    n_rows: usize,
}

/// A tensor, or a tuple of tensors, with a row for each sample.
pub trait Columns: Serialize + DeserializeOwned + Send + Sized + 'static {
    /// One row, or a tuple of rows.
    type Row: Collate;

    /// How many rows there are.
    ///
    /// # Errors
    /// [`ColumnsError::Scalar`], [`ColumnsError::Lengths`].
    fn n_rows(&self) -> Result<usize, ColumnsError>;

    /// The same with elements in order, in shared memory.
    ///
    /// # Errors
    /// [`ColumnsError::Tensor`] when there is no memory for it.
    fn share(self) -> Result<Self, ColumnsError>;

    /// One row, as a view.
    ///
    /// # Errors
    /// [`LayoutError`] when there is no such row.
    fn row(&self, index: usize) -> Result<Self::Row, LayoutError>;

    /// A batch of these rows.
    ///
    /// # Errors
    /// [`CollateError`].
    fn gather(&self, indices: &[usize], heap: &Heap) -> Result<<Self::Row as Collate>::Batch, CollateError>;
}

/// Tensors that have no rows in common.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum ColumnsError {
    /// A tensor without dimensions has no rows.
    #[error("a tensor without dimensions has no rows")]
    Scalar,
    /// The tensors have different numbers of rows.
    #[error("the tensors have different numbers of rows: {0} and {1}")]
    Lengths(usize, usize),
    /// There is no memory for a tensor.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

tensorferry_storage::debug_as_display!(ColumnsError);

impl<C: Columns> TensorDataset<C> {
    /// The rows of a tensor, or of a tuple of tensors with as many rows each. A tensor that is not in shared
    /// memory, or whose elements are not in order, is copied there once.
    ///
    /// # Errors
    /// [`ColumnsError`].
    pub fn new(columns: C) -> Result<Self, ColumnsError> {
        let n_rows = columns.n_rows()?;
        Ok(Self { columns: columns.share()?, n_rows })
    }

    /// The tensors.
    #[must_use]
    pub fn columns(&self) -> &C {
        &self.columns
    }
}

impl<C: Columns> Dataset for TensorDataset<C> {
    type Sample = C::Row;

    fn len(&self) -> usize {
        self.n_rows
    }

    fn get(&self, index: usize, _: &mut SampleRng) -> Result<C::Row, BoxedError> {
        Ok(self.columns.row(index)?)
    }

    fn get_batch(&self, samples: &Samples<'_>) -> Result<Batch<Self>, BoxedError> {
        Ok(self.columns.gather(samples.indices(), samples.heap())?)
    }
}

impl<C> fmt::Debug for TensorDataset<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorDataset").field("n_rows", &self.n_rows).finish_non_exhaustive()
    }
}

impl<T: Element> Columns for Tensor<T> {
    type Row = Self;

    fn n_rows(&self) -> Result<usize, ColumnsError> {
        self.shape().first().copied().ok_or(ColumnsError::Scalar)
    }

    fn share(self) -> Result<Self, ColumnsError> {
        Ok(self.contiguous()?.share_memory()?)
    }

    fn row(&self, index: usize) -> Result<Self, LayoutError> {
        self.select(0, index)
    }

    fn gather(&self, indices: &[usize], heap: &Heap) -> Result<Self, CollateError> {
        let shape = self.shape().get(1..).unwrap_or_default();
        let elements = self.as_slice().map_err(TensorError::from)?;
        let n_rows = self.shape().first().copied().unwrap_or(0);
        let row_len = elements.len().checked_div(n_rows).unwrap_or(0);
        let mut rows = TensorRows::begin(shape, indices.len(), heap)?;
        for &index in indices {
            let row = || elements.get(index.checked_mul(row_len)?..)?.get(..row_len);
            match row().filter(|_| index < n_rows) {
                Some(row) => rows.next_row()?.copy_from_slice(row),
                // Says what is wrong with the index.
                None => drop(self.row(index).map_err(TensorError::from)?),
            }
        }
        rows.finish()
    }
}

macro_rules! tuples {
    ($(($first:ident $a:ident $(, $Type:ident $name:ident)*))+) => {$(
        impl<$first: Columns $(, $Type: Columns)*> Columns for ($first, $($Type,)*) {
            type Row = ($first::Row, $($Type::Row,)*);

            fn n_rows(&self) -> Result<usize, ColumnsError> {
                let ($a, $($name,)*) = self;
                let n_rows = $a.n_rows()?;
                $(
                    let of_this = $name.n_rows()?;
                    if of_this != n_rows {
                        return Err(ColumnsError::Lengths(n_rows, of_this));
                    }
                )*
                Ok(n_rows)
            }

            fn share(self) -> Result<Self, ColumnsError> {
                let ($a, $($name,)*) = self;
                Ok(($a.share()?, $($name.share()?,)*))
            }

            fn row(&self, index: usize) -> Result<Self::Row, LayoutError> {
                let ($a, $($name,)*) = self;
                Ok(($a.row(index)?, $($name.row(index)?,)*))
            }

            fn gather(
                &self,
                indices: &[usize],
                heap: &Heap,
            ) -> Result<<Self::Row as Collate>::Batch, CollateError> {
                let ($a, $($name,)*) = self;
                Ok(($a.gather(indices, heap)?, $($name.gather(indices, heap)?,)*))
            }
        }
    )+};
}

tuples! {
    (A a)
    (A a, B b)
    (A a, B b, C c)
    (A a, B b, C c, D d)
}
