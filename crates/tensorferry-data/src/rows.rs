//! A tensor in the making, one row for each sample.

use std::fmt;

use tensorferry_storage::Heap;
use tensorferry_tensor::{Element, Shape, Tensor, TensorError, TensorMut};

use crate::collate::CollateError;

/// A batch of equal shapes in the making, in shared memory from the start.
///
/// For a [`Collate`](crate::Collate) of your own:
///
/// ```
/// use tensorferry_data::TensorRows;
/// use tensorferry_storage::Heap;
///
/// let mut rows = TensorRows::begin(&[3], 2, Heap::current()?)?;
/// rows.push(&[3], &[1.0_f32, 2.0, 3.0])?;
/// rows.next_row()?.copy_from_slice(&[4.0, 5.0, 6.0]);
/// let batch = rows.finish()?;
/// assert_eq!(batch.shape(), &[2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TensorRows<T> {
    tensor: TensorMut<T>,
    row_shape: Shape,
    row_len: usize,
    n_rows: usize,
    n_filled: usize,
}

impl<T: Element> TensorRows<T> {
    /// Room for `n_rows` rows of this shape.
    ///
    /// # Errors
    /// [`CollateError::Tensor`] when there is no memory for them.
    pub fn begin(row_shape: &[usize], n_rows: usize, heap: &Heap) -> Result<Self, CollateError> {
        let shape: Vec<_> = std::iter::once(n_rows).chain(row_shape.iter().copied()).collect();
        let tensor = TensorMut::empty_in(heap, shape)?;
        // It fits, since the tensor does; of no rows nothing is asked.
        let row_len = tensor.n_elements().checked_div(n_rows).unwrap_or(0);
        Ok(Self { tensor, row_shape: Shape::from(row_shape), row_len, n_rows, n_filled: 0 })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`CollateError::Shape`] when it has another shape than the rows, or another number of elements than
    /// its shape; [`CollateError::Full`] when there is no room.
    pub fn push(&mut self, shape: &[usize], row: &[T]) -> Result<(), CollateError> {
        self.check(shape)?;
        if row.len() != self.row_len && self.n_filled < self.n_rows {
            return Err(self.other_shape(&[row.len()]));
        }
        self.next_row()?.copy_from_slice(row);
        Ok(())
    }

    /// Adds a tensor as a row, whatever its strides.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_tensor(&mut self, row: &Tensor<T>) -> Result<(), CollateError> {
        if let Ok(elements) = row.as_slice() {
            return self.push(row.shape(), elements);
        }
        self.check(row.shape())?;
        self.next_row()?.iter_mut().zip(row).for_each(|(place, element)| *place = *element);
        Ok(())
    }

    /// Adds a row, whose elements are to be written. Until then they are whatever was in the memory.
    ///
    /// # Errors
    /// [`CollateError::Full`] when there is no room.
    pub fn next_row(&mut self) -> Result<&mut [T], CollateError> {
        if self.n_filled == self.n_rows {
            return Err(CollateError::Full(self.n_rows));
        }
        let start = self.n_filled * self.row_len;
        self.n_filled += 1;
        let row = self.tensor.as_mut_slice().get_mut(start..start + self.row_len);
        row.ok_or(CollateError::Full(self.n_rows))
    }

    /// The rows that were added, as a tensor with one more dimension in front.
    ///
    /// # Errors
    /// None for now.
    pub fn finish(self) -> Result<Tensor<T>, CollateError> {
        let tensor = self.tensor.freeze();
        if self.n_filled == self.n_rows {
            return Ok(tensor);
        }
        tensor.narrow(0, 0, self.n_filled).map_err(|error| TensorError::from(error).into())
    }

    fn check(&self, shape: &[usize]) -> Result<(), CollateError> {
        if *shape == *self.row_shape { Ok(()) } else { Err(self.other_shape(shape)) }
    }

    fn other_shape(&self, found: &[usize]) -> CollateError {
        CollateError::Shape { expected: self.row_shape.clone(), found: Shape::from(found) }
    }
}

impl<T> fmt::Debug for TensorRows<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TensorRows")
            .field("row_shape", &self.row_shape)
            .field("n_filled", &self.n_filled)
            .field("n_rows", &self.n_rows)
            .finish_non_exhaustive()
    }
}
