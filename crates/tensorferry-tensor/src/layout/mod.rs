//! Where the elements of a view lie in its storage: shape, strides and offset, always checked.
//!
//! A [`Layout`] that exists can be walked without a further check: one constructor refuses what overflows, and every
//! operation ends in it. Whether it fits a storage is asked once, with [`Layout::check_fits`], when the two meet.

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

/// The largest rank that a layout can have; NumPy's limit too.
pub const MAX_RANK: usize = 64;

/// The largest element count, offset and stride: what an allocation can hold at all of the largest elements, which have
/// 16 bytes. A number of elements times their size therefore never overflows.
const MAX_ELEMENTS: usize = isize::MAX.cast_unsigned() / 16;

/// Shape, strides and offset of a view, in elements.
///
/// Element `[i, j, ..]` lies at `offset + i * strides[0] + j * strides[1] + ..` of the storage. Strides are never
/// negative; a stride of 0 repeats an element ([`Layout::expand`]).
///
/// A layout without elements (a length of 0) addresses nothing: its offset is 0 and its strides are those of a
/// contiguous layout.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    shape: Shape,
    /// INVARIANT: as many as `shape` has; each at most `MAX_ELEMENTS`.
    strides: Dims,
    /// INVARIANT: with elements, `offset + sum((len - 1) * stride)` is below `MAX_ELEMENTS`; without, it is 0.
    offset: usize,
    /// INVARIANT: the product of the shape.
    n_elements: usize,
    /// INVARIANT: one past the last element that it addresses; 0 when it has none.
    end: usize,
    /// INVARIANT: whether the elements lie one after the other in row-major order.
    is_contiguous: bool,
}

impl Clone for Layout {
    /// Written where it is to be: what is written and moved at once is waited for.
    #[inline(always)]
    fn clone(&self) -> Self {
        let &Self { ref shape, ref strides, offset, n_elements, end, is_contiguous } = self;
        Self { shape: shape.clone(), strides: strides.clone(), offset, n_elements, end, is_contiguous }
    }
}

/// Row-major strides, and the product of the lengths. `None` when that of the non-zero ones exceeds [`MAX_ELEMENTS`].
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
    /// A layout from numbers that nobody has checked.
    ///
    /// # Errors
    /// [`LayoutError`] when the rank exceeds [`MAX_RANK`], when shape and strides differ in rank, or when an element
    /// would lie beyond what any memory can hold.
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
    /// [`LayoutError::RankTooLarge`], or [`LayoutError::TooManyElements`] when the product of the non-zero lengths
    /// exceeds what memory can hold.
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

    /// The layout of no elements at all: shape `[0]`.
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

    /// Where the first element lies in the storage, in elements.
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

    /// True when the elements lie one after the other in row-major order. Lengths of 1 and layouts without elements
    /// do not disturb that, whatever their strides.
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

    /// Where the element with this index lies in the storage.
    ///
    /// # Errors
    /// [`LayoutError::IndexRank`] for too few or too many numbers, [`LayoutError::IndexOutOfRange`] for one that is
    /// not below its length.
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

    /// The place of every element in the storage, in row-major order.
    #[must_use]
    pub fn offsets(&self) -> Offsets<'_> {
        Offsets::new(&self.shape, &self.strides, self.offset, self.n_elements)
    }

    /// The same order, cut into runs of elements that lie side by side.
    pub(crate) fn runs(&self) -> Runs<'_> {
        let (outer, run_len) = self.contiguous_tail();
        let n_runs = self.n_elements.checked_div(run_len).unwrap_or(0);
        let starts = Offsets::new(&self.shape[..outer], &self.strides[..outer], self.offset, n_runs);
        Runs::new(starts, run_len)
    }

    /// The number of leading dimensions that have to be walked, and the elements in a run of the others.
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

    /// The same shape and strides from element 0: what a copy of only the span looks like.
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
