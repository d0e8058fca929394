//! The position of a view's elements in its storage: shape, strides and offset, always checked.
//!
//! A [`Layout`] can be walked without overflow checks. Its constructors refuse numbers that overflow, and
//! every operation ends in one of them. [`Layout::check_fits`] checks once that a layout fits a storage, when
//! the two are combined.

mod error;
mod interned;
mod offsets;
mod reshape;
mod slice;
mod view;

pub use error::LayoutError;
pub(crate) use interned::LayoutRef;
pub use offsets::Offsets;
pub(crate) use offsets::Runs;
pub use slice::DimSlice;

use crate::dims::Dims;
use crate::shape::Shape;

/// The largest rank that a layout can have. NumPy has the same limit.
pub const MAX_RANK: usize = 64;

/// The largest element count, offset and stride: the largest elements have 16 bytes, and no allocation can
/// hold more of them. A number of elements times their size therefore never overflows.
const MAX_ELEMENTS: usize = isize::MAX.cast_unsigned() / 16;

/// Shape, strides and offset of a view, in elements.
///
/// Element `[i, j, ..]` is at position `offset + i * strides[0] + j * strides[1] + ..` of the storage.
/// Strides are never negative. A stride of 0 repeats an element ([`Layout::expand`]).
///
/// A layout without elements (a length of 0) addresses nothing: its offset is 0 and its strides are those of
/// a contiguous layout.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    /// INVARIANT: as many as `shape` has; each at most `MAX_ELEMENTS`.
    strides: Dims,
    /// INVARIANT: with elements, `offset + sum((len - 1) * stride)` is below `MAX_ELEMENTS`. Without, the
    /// offset is 0.
    offset: usize,
    /// INVARIANT: the product of the shape.
    n_elements: usize,
    /// INVARIANT: one past the last element that the layout addresses; 0 when it has none.
    end: usize,
    /// INVARIANT: whether the elements are adjacent, in row-major order.
    is_contiguous: bool,
}

impl Clone for Layout {
    /// Builds the clone in place, because moving memory just after writing it stalls.
    #[inline(always)]
    fn clone(&self) -> Self {
        let &Self { ref shape, ref strides, offset, n_elements, end, is_contiguous } = self;
        Self { shape: shape.clone(), strides: strides.clone(), offset, n_elements, end, is_contiguous }
    }
}

/// Row-major strides, and the product of the lengths. `None` when the product of the non-zero lengths exceeds
/// [`MAX_ELEMENTS`].
#[inline]
fn contiguous_strides(shape: &[usize]) -> Option<(Dims, usize)> {
    let mut strides = Dims::from_elem(1, shape.len());
    let (mut stride, mut is_empty) = (1_usize, false);
    for (slot, len) in strides.iter_mut().zip(shape).rev() {
        *slot = stride;
        match len {
            0 => is_empty = true,
            len => stride = stride.checked_mul(*len)?,
        }
    }
    let n_elements = if is_empty { 0 } else { stride };
    (stride <= MAX_ELEMENTS).then_some((strides, n_elements))
}

impl Layout {
    /// A layout from unchecked numbers.
    ///
    /// # Errors
    /// - [`LayoutError::RanksDiffer`] when shape and strides differ in rank.
    /// - [`LayoutError::RankTooLarge`] when the rank exceeds [`MAX_RANK`].
    /// - [`LayoutError::TooManyElements`] and [`LayoutError::OutOfAddressRange`] when an element would lie
    ///   beyond what any memory can hold.
    pub fn new(shape: impl Into<Shape>, strides: &[usize], offset: usize) -> Result<Self, LayoutError> {
        let shape = shape.into();
        if shape.rank() != strides.len() {
            return Err(LayoutError::RanksDiffer { shape_rank: shape.rank(), strides_rank: strides.len() });
        }
        let layout = Self::contiguous(shape)?;
        if layout.n_elements == 0 {
            return Ok(layout);
        }
        let in_range = |number: &usize| *number <= MAX_ELEMENTS;
        let last = layout
            .shape
            .iter()
            .zip(strides)
            .try_fold(offset, |last, (len, stride)| last.checked_add((len - 1).checked_mul(*stride)?))
            .filter(|last| *last < MAX_ELEMENTS);
        if last.is_none() || !strides.iter().all(in_range) {
            return Err(LayoutError::OutOfAddressRange {
                shape: Box::new(layout.shape),
                strides: Box::from(strides),
                offset,
            });
        }
        let end = last.map_or(0, |last| last + 1);
        let mut layout = Self { strides: Dims::from_slice(strides), offset, end, ..layout };
        layout.is_contiguous = layout.contiguous_tail() == (0, layout.n_elements);
        Ok(layout)
    }

    /// The row-major layout of a shape, from element 0.
    ///
    /// # Errors
    /// [`LayoutError::RankTooLarge`], or [`LayoutError::TooManyElements`] when the product of the non-zero
    /// lengths exceeds what memory can hold.
    pub fn contiguous(shape: impl Into<Shape>) -> Result<Self, LayoutError> {
        let shape = shape.into();
        if shape.rank() > MAX_RANK {
            return Err(LayoutError::RankTooLarge { rank: shape.rank() });
        }
        match contiguous_strides(&shape) {
            Some((strides, n_elements)) => {
                Ok(Self { shape, strides, offset: 0, n_elements, end: n_elements, is_contiguous: true })
            }
            None => Err(LayoutError::TooManyElements { shape: Box::new(shape) }),
        }
    }

    /// The layout without elements, of shape `[0]`.
    #[must_use]
    pub fn empty() -> Self {
        let (shape, strides) = (Shape::from([0]), Dims::from_slice(&[1]));
        Self { shape, strides, offset: 0, n_elements: 0, end: 0, is_contiguous: true }
    }

    /// The length of each dimension.
    #[must_use]
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The distance between neighbours along each dimension, in elements.
    #[must_use]
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// The position of the first element in the storage, in elements.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// The number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.shape.rank()
    }

    /// The number of elements; 1 for rank 0.
    #[must_use]
    pub const fn n_elements(&self) -> usize {
        self.n_elements
    }

    /// Whether the elements are adjacent, in row-major order. The strides of dimensions of length 1 do not
    /// matter, nor do those of a layout without elements.
    #[must_use]
    pub const fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }

    /// One past the last element that the layout addresses; 0 when it has none.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.end
    }

    /// Refuses a storage that ends before the layout does.
    ///
    /// # Errors
    /// [`LayoutError::StorageTooSmall`] with both numbers.
    pub fn check_fits(&self, storage_elements: usize) -> Result<(), LayoutError> {
        let needed_elements = self.end();
        if needed_elements > storage_elements {
            return Err(LayoutError::StorageTooSmall { needed_elements, storage_elements });
        }
        Ok(())
    }

    /// The position in the storage of the element with this index.
    ///
    /// # Errors
    /// [`LayoutError::IndexRank`] for too few or too many numbers, [`LayoutError::IndexOutOfRange`] for a
    /// number that is not below the length of its dimension.
    pub fn offset_of(&self, index: &[usize]) -> Result<usize, LayoutError> {
        if index.len() != self.rank() {
            return Err(LayoutError::IndexRank { given: index.len(), rank: self.rank() });
        }
        let mut offset = self.offset;
        for (dim, ((index, len), stride)) in
            index.iter().zip(self.shape.iter()).zip(&self.strides).enumerate()
        {
            if index >= len {
                return Err(LayoutError::IndexOutOfRange { dim, index: *index, len: *len });
            }
            offset += index * stride;
        }
        Ok(offset)
    }

    /// The position of every element in the storage, in row-major order.
    #[must_use]
    pub fn offsets(&self) -> Offsets<'_> {
        Offsets::new(&self.shape, &self.strides, self.offset, self.n_elements)
    }

    /// The same order, cut into runs of adjacent elements.
    pub(crate) fn runs(&self) -> Runs<'_> {
        let (outer, run_len) = self.contiguous_tail();
        let n_runs = self.n_elements.checked_div(run_len).unwrap_or(0);
        let starts = Offsets::new(&self.shape[..outer], &self.strides[..outer], self.offset, n_runs);
        Runs::new(starts, run_len)
    }

    /// The number of leading dimensions to walk, and the number of adjacent elements in the others.
    fn contiguous_tail(&self) -> (usize, usize) {
        let mut run_len = 1;
        for (dim, (len, stride)) in self.shape.iter().zip(&self.strides).enumerate().rev() {
            if *len != 1 && *stride != run_len {
                return (dim + 1, run_len);
            }
            run_len *= len;
        }
        (0, run_len)
    }

    /// The same shape and strides from element 0: the layout of a copy of the span.
    pub(crate) fn rebased(&self) -> Self {
        Self { offset: 0, end: self.end - self.offset, ..self.clone() }
    }

    fn check_dim(&self, dim: usize) -> Result<(), LayoutError> {
        if dim >= self.rank() {
            return Err(LayoutError::DimOutOfRange { dim, rank: self.rank() });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
