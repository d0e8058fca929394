//! Walking a layout in row-major order.

use crate::dims::Dims;

/// An iterator over the positions of the elements in the storage, in row-major order. [`Layout::offsets`]
/// makes it.
///
/// [`Layout::offsets`]: crate::Layout::offsets
#[derive(Clone, Debug)]
pub struct Offsets<'a> {
    shape: &'a [usize],
    strides: &'a [usize],
    index: Dims,
    next: usize,
    remaining: usize,
}

impl<'a> Offsets<'a> {
    /// `n_elements` is the product of `shape`.
    pub(super) fn new(shape: &'a [usize], strides: &'a [usize], offset: usize, n_elements: usize) -> Self {
        Self { shape, strides, index: Dims::from_elem(0, shape.len()), next: offset, remaining: n_elements }
    }
}

impl Iterator for Offsets<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.remaining = self.remaining.checked_sub(1)?;
        let current = self.next;
        for ((index, len), stride) in self.index.iter_mut().zip(self.shape).zip(self.strides).rev() {
            // No overflow: offsets and strides are far below `usize::MAX`, and a full dimension is subtracted
            // at once.
            *index += 1;
            self.next += stride;
            if *index < *len {
                break;
            }
            self.next -= stride * len;
            *index = 0;
        }
        Some(current)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.remaining, Some(self.remaining))
    }
}

impl ExactSizeIterator for Offsets<'_> {}

/// An iterator over the starts of runs of adjacent elements, all of one length, in row-major order.
#[derive(Clone, Debug)]
pub(crate) struct Runs<'a> {
    starts: Offsets<'a>,
    run_len: usize,
}

impl<'a> Runs<'a> {
    pub(super) const fn new(starts: Offsets<'a>, run_len: usize) -> Self {
        Self { starts, run_len }
    }

    /// The number of elements in each run. Never 0, so that it can be the length of a chunk.
    pub(crate) fn run_len(&self) -> usize {
        self.run_len.max(1)
    }
}

impl Iterator for Runs<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        self.starts.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.starts.size_hint()
    }
}

impl ExactSizeIterator for Runs<'_> {}
