//! Samples of different lengths in one batch.

use std::fmt;

use serde::{Deserialize, Serialize};
use tensorferry_storage::Heap;
use tensorferry_tensor::{Element, Tensor, TensorError, TensorMut};

use crate::collate::{Collate, CollateError, MOST_RESERVED};

/// A sequence that may be longer or shorter than others: in a batch all are filled up to the longest.
/// PyTorch's `pad_sequence`, of sequences of numbers.
///
/// So that little is filled up, have samples of similar lengths in a batch:
/// [`BucketBatchSampler`](crate::BucketBatchSampler).
///
/// ```
/// use tensorferry_data::{Collate, Padded};
/// use tensorferry_storage::Heap;
///
/// let texts = [Padded::new(vec![5_i64, 6]).fill(-100), Padded::new(vec![7])];
/// let mut rows = Padded::begin(&texts[0], 2, Heap::current()?)?;
/// texts.into_iter().try_for_each(|text| Padded::push(&mut rows, text))?;
/// let batch = Padded::finish(rows)?;
/// assert_eq!(batch.values.shape(), &[2, 2]);
/// assert_eq!(batch.values.to_vec(), [5, 6, 7, -100]);
/// assert_eq!(batch.lens.to_vec(), [2, 1]);
/// assert!(batch.rows()?.eq([&[5, 6][..], &[7]]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Padded<T> {
    elements: Vec<T>,
    fill: T,
}

impl<T: Element> Padded<T> {
    /// A sample that is filled up with zeros.
    #[must_use]
    pub fn new(elements: Vec<T>) -> Self {
        Self { elements, fill: T::zeroed() }
    }

    /// Sets what it is filled up with. The first sample of a batch decides for all.
    #[must_use]
    pub fn fill(mut self, fill: T) -> Self {
        self.fill = fill;
        self
    }
}

impl<T: Element> From<Vec<T>> for Padded<T> {
    fn from(elements: Vec<T>) -> Self {
        Self::new(elements)
    }
}

/// A batch of [`Padded`] samples.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(bound = "")]
#[non_exhaustive]
pub struct PaddedBatch<T: Element> {
    /// Of shape `[n, longest]`: a row for each sample, filled up behind its end.
    pub values: Tensor<T>,
    /// Of shape `[n]`: the lengths.
    pub lens: Tensor<i64>,
}

impl<T: Element> PaddedBatch<T> {
    /// The samples in order, each without what it was filled up with.
    ///
    /// # Errors
    /// [`TensorError`], where this process may not read them.
    pub fn rows(&self) -> Result<impl ExactSizeIterator<Item = &[T]>, TensorError> {
        let longest = self.values.shape().last().copied().unwrap_or(0);
        let (values, lens) = (self.values.as_slice()?, self.lens.as_slice()?);
        Ok(lens.iter().enumerate().map(move |(nth, len)| {
            let len = usize::try_from(*len).unwrap_or(0).min(longest);
            values.get(nth * longest..nth * longest + len).unwrap_or_default()
        }))
    }
}

/// A batch of [`Padded`] samples in the making: they are copied into shared memory once the longest is known.
pub struct PaddedRows<T> {
    samples: Vec<Vec<T>>,
    fill: T,
    heap: Heap,
}

impl<T: Element> Collate for Padded<T> {
    type Batch = PaddedBatch<T>;
    type Rows = PaddedRows<T>;

    fn begin(first: &Self, n_samples: usize, heap: &Heap) -> Result<PaddedRows<T>, CollateError> {
        let samples = Vec::with_capacity(n_samples.min(MOST_RESERVED));
        Ok(PaddedRows { samples, fill: first.fill, heap: heap.clone() })
    }

    fn push(rows: &mut PaddedRows<T>, sample: Self) -> Result<(), CollateError> {
        rows.samples.push(sample.elements);
        Ok(())
    }

    fn finish(rows: PaddedRows<T>) -> Result<PaddedBatch<T>, CollateError> {
        let PaddedRows { samples, fill, heap } = rows;
        let longest = samples.iter().map(Vec::len).max().unwrap_or(0);
        let mut values = TensorMut::empty_in(&heap, [samples.len(), longest])?;
        let mut lens = TensorMut::empty_in(&heap, [samples.len()])?;
        // Of length 0 there are no rows to be written.
        for (row, sample) in values.as_mut_slice().chunks_exact_mut(longest.max(1)).zip(&samples) {
            let (elements, padding) = row.split_at_mut(sample.len());
            elements.copy_from_slice(sample);
            padding.fill(fill);
        }
        // No vector is longer than that.
        let len = |sample: &Vec<T>| i64::try_from(sample.len()).unwrap_or(i64::MAX);
        lens.as_mut_slice().iter_mut().zip(&samples).for_each(|(place, sample)| *place = len(sample));
        Ok(PaddedBatch { values: values.freeze(), lens: lens.freeze() })
    }
}

impl<T> fmt::Debug for PaddedRows<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PaddedRows").field("n_samples", &self.samples.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(samples: Vec<Vec<u8>>) -> PaddedBatch<u8> {
        let heap = Heap::current().unwrap();
        let mut rows = Padded::begin(&Padded::new(Vec::new()).fill(9), samples.len(), heap).unwrap();
        for sample in samples {
            Padded::push(&mut rows, sample.into()).unwrap();
        }
        Padded::finish(rows).unwrap()
    }

    #[test]
    fn each_length_has_its_row() {
        let padded = batch(vec![vec![1, 2], vec![], vec![3, 4, 5], vec![6]]);
        assert_eq!(padded.values.shape(), &[4, 3]);
        assert_eq!(padded.values.to_vec(), [1, 2, 9, 9, 9, 9, 3, 4, 5, 6, 9, 9]);
        assert_eq!(padded.lens.to_vec(), [2, 0, 3, 1]);
        assert!(padded.clone().rows().unwrap().eq([&[1, 2][..], &[], &[3, 4, 5], &[6]]));
        assert!(padded.values.is_shared() && padded.lens.is_shared());
        let padded = batch(vec![vec![], vec![]]);
        assert_eq!(padded.values.shape(), &[2, 0]);
        assert_eq!(padded.lens.to_vec(), [0, 0]);
        assert!(padded.rows().unwrap().eq([&[][..], &[]]));
    }
}
