//! A range of one dimension, with a step.

use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo};

/// The indexes of one dimension that a slice keeps: `start`, `start + step`, .. below `end`.
///
/// It is made from a range: `DimSlice::from(1..5).step(2)`, `(..).into()`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DimSlice {
    pub(super) start: usize,
    pub(super) end: Option<usize>,
    pub(super) step: usize,
}

impl DimSlice {
    /// The whole dimension.
    pub const ALL: Self = Self { start: 0, end: None, step: 1 };

    /// The same range with only every `step`-th index. [`Layout::slice`](super::Layout::slice) refuses 0.
    #[must_use]
    pub const fn step(self, step: usize) -> Self {
        Self { step, ..self }
    }
}

impl From<Range<usize>> for DimSlice {
    fn from(range: Range<usize>) -> Self {
        Self { start: range.start, end: Some(range.end), step: 1 }
    }
}

impl From<RangeInclusive<usize>> for DimSlice {
    fn from(range: RangeInclusive<usize>) -> Self {
        Self { start: *range.start(), end: Some(range.end().saturating_add(1)), step: 1 }
    }
}

impl From<RangeFrom<usize>> for DimSlice {
    fn from(range: RangeFrom<usize>) -> Self {
        Self { start: range.start, ..Self::ALL }
    }
}

impl From<RangeTo<usize>> for DimSlice {
    fn from(range: RangeTo<usize>) -> Self {
        Self { end: Some(range.end), ..Self::ALL }
    }
}

impl From<RangeFull> for DimSlice {
    fn from(_: RangeFull) -> Self {
        Self::ALL
    }
}
