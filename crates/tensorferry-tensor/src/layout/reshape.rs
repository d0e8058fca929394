//! Another shape over the same elements, as a view.

use super::{Layout, LayoutError, contiguous_strides};
use crate::dims::Dims;
use crate::shape::Shape;

impl Layout {
    /// The same elements in the same row-major order under another shape, without a copy.
    ///
    /// # Errors
    /// [`LayoutError::ReshapeCount`] when the number of elements differs, [`LayoutError::ReshapeNeedsCopy`]
    /// when the strides have no such view, and the errors of [`Layout::contiguous`].
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self, LayoutError> {
        let target = Self::contiguous(shape)?;
        if target.n_elements != self.n_elements {
            return Err(LayoutError::ReshapeCount {
                from: Box::new(self.shape.clone()),
                from_elements: self.n_elements,
                to: Box::new(target.shape),
            });
        }
        if self.n_elements == 0 || (self.is_contiguous && self.offset == 0) {
            return Ok(target);
        }
        match self.strides_for(&target.shape) {
            Some(strides) => Self::new(target.shape, &strides, self.offset),
            None => Err(LayoutError::ReshapeNeedsCopy {
                from: Box::new(self.shape.clone()),
                strides: Box::from(self.strides()),
                to: Box::new(target.shape),
            }),
        }
    }

    /// All elements in one dimension.
    ///
    /// # Errors
    /// [`LayoutError::ReshapeNeedsCopy`] when the strides have no such view.
    pub fn flatten(&self) -> Result<Self, LayoutError> {
        self.reshape([self.n_elements])
    }

    /// The strides that make `target` (of as many elements, at least one) a view of this layout.
    ///
    /// Adjacent dimensions that step evenly form a chunk. A view exists if each chunk is a product of new
    /// lengths.
    fn strides_for(&self, target: &[usize]) -> Option<Dims> {
        if self.is_contiguous() {
            return contiguous_strides(target).map(|(strides, _)| strides);
        }
        // Dimensions of length 1 say nothing about the memory, so they are left out. `old` is not empty,
        // because a layout of one element is contiguous.
        let mut old =
            self.shape.iter().copied().zip(self.strides.iter().copied()).filter(|(len, _)| *len != 1).rev();
        let mut strides = Dims::from_elem(1, target.len());
        let mut unfilled = target.len();
        let mut chunk = old.next();
        while let Some((mut chunk_len, base_stride)) = chunk.take() {
            for (len, stride) in old.by_ref() {
                if stride != chunk_len.checked_mul(base_stride)? {
                    chunk = Some((len, stride));
                    break;
                }
                chunk_len *= len;
            }
            let mut filled_len = 1;
            while unfilled > 0 && (filled_len < chunk_len || target[unfilled - 1] == 1) {
                unfilled -= 1;
                strides[unfilled] = if target[unfilled] == 1 { 1 } else { filled_len * base_stride };
                filled_len *= target[unfilled];
            }
            if filled_len != chunk_len {
                return None;
            }
        }
        Some(strides)
    }
}
