//! Why a layout was refused.

use crate::shape::Shape;

/// Why a shape, a view or an index was refused. All numbers are elements.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// More dimensions than [`MAX_RANK`](crate::MAX_RANK).
    #[error("rank {rank} exceeds the largest rank {}", crate::MAX_RANK)]
    RankTooLarge {
        /// The rank that the caller asked for.
        rank: usize,
    },
    /// A shape needs one stride for each length.
    #[error("a shape of rank {shape_rank} needs as many strides, not {strides_rank}")]
    RanksDiffer {
        /// The number of lengths.
        shape_rank: usize,
        /// The number of strides.
        strides_rank: usize,
    },
    /// The product of the non-zero lengths is too large.
    #[error("shape {shape} has more elements than memory can hold")]
    TooManyElements {
        /// The shape in question.
        shape: Box<Shape>,
    },
    /// The last element, or a stride, lies beyond what memory can hold.
    #[error(
        "shape {shape} with strides {strides:?} from offset {offset} reaches beyond what memory can hold"
    )]
    OutOfAddressRange {
        /// The shape in question.
        shape: Box<Shape>,
        /// Its strides.
        strides: Box<[usize]>,
        /// Its offset.
        offset: usize,
    },
    /// The storage ends before the view does.
    #[error("the view needs a storage of {needed_elements} elements, but it has {storage_elements}")]
    StorageTooSmall {
        /// One past the last element of the view.
        needed_elements: usize,
        /// The number of elements in the storage.
        storage_elements: usize,
    },
    /// The data that came with a shape has another length.
    #[error("shape {shape} has {n_elements} elements, but {given} were given")]
    LengthMismatch {
        /// The shape in question.
        shape: Box<Shape>,
        /// The number of elements of that shape.
        n_elements: usize,
        /// The number of elements that were given.
        given: usize,
    },
    /// There is no such dimension.
    #[error("dimension {dim} does not exist in rank {rank}")]
    DimOutOfRange {
        /// The dimension that the caller asked for, counted from 0.
        dim: usize,
        /// The rank of the tensor.
        rank: usize,
    },
    /// A range does not lie inside its dimension, or ends before it starts.
    #[error("range {start}..{end} is outside dimension {dim} of length {len}")]
    RangeOutOfBounds {
        /// The dimension, counted from 0.
        dim: usize,
        /// First index of the range.
        start: usize,
        /// One past its last index.
        end: usize,
        /// The length of the dimension.
        len: usize,
    },
    /// A slice with step 0 would never end.
    #[error("the slice of dimension {dim} has step 0")]
    ZeroStep {
        /// The dimension, counted from 0.
        dim: usize,
    },
    /// More slices than dimensions.
    #[error("{given} slices were given for rank {rank}")]
    TooManySlices {
        /// The number of slices that were given.
        given: usize,
        /// The rank of the tensor.
        rank: usize,
    },
    /// An index needs one number for each dimension.
    #[error("an index of {given} numbers was given for rank {rank}")]
    IndexRank {
        /// The number of numbers in the index.
        given: usize,
        /// The rank of the tensor.
        rank: usize,
    },
    /// An index is not below the length of its dimension.
    #[error("index {index} is outside dimension {dim} of length {len}")]
    IndexOutOfRange {
        /// The dimension, counted from 0.
        dim: usize,
        /// The index that the caller asked for.
        index: usize,
        /// The length of the dimension.
        len: usize,
    },
    /// `permute` needs each dimension exactly once.
    #[error("{dims:?} is not a permutation of the dimensions of rank {rank}")]
    NotAPermutation {
        /// The dimensions that were given.
        dims: Box<[usize]>,
        /// The rank of the tensor.
        rank: usize,
    },
    /// A reshape has to keep the number of elements.
    #[error("shape {from} of {from_elements} elements cannot become {to}")]
    ReshapeCount {
        /// The present shape.
        from: Box<Shape>,
        /// The number of elements of that shape.
        from_elements: usize,
        /// The shape that the caller asked for.
        to: Box<Shape>,
    },
    /// The strides do not allow this reshape without a copy.
    #[error(
        "shape {from} with strides {strides:?} cannot become {to} without a copy; call contiguous() first"
    )]
    ReshapeNeedsCopy {
        /// The present shape.
        from: Box<Shape>,
        /// Its strides.
        strides: Box<[usize]>,
        /// The shape that the caller asked for.
        to: Box<Shape>,
    },
    /// Only lengths of 1 expand, and dimensions are added only in front.
    #[error("shape {from} cannot be expanded to {to}")]
    Expand {
        /// The present shape.
        from: Box<Shape>,
        /// The shape that the caller asked for.
        to: Box<Shape>,
    },
    /// The elements of the view are not adjacent.
    #[error(
        "shape {shape} with strides {strides:?} is not contiguous; call contiguous(), iter() or to_vec()"
    )]
    NotContiguous {
        /// The shape of the view.
        shape: Box<Shape>,
        /// Its strides.
        strides: Box<[usize]>,
    },
    /// `item` needs exactly one element.
    #[error("shape {shape} has {n_elements} elements, but item() needs exactly one")]
    NotOneElement {
        /// The shape in question.
        shape: Box<Shape>,
        /// The number of elements of that shape.
        n_elements: usize,
    },
}

tensorferry_storage::debug_as_display!(LayoutError);
