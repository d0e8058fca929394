//! Batches of samples of about the same length.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::batch::{BatchSampler, IndexBatches};
use crate::random::{EpochKey, shuffle};

/// Batches of samples of about the same length, so that little of a [`Padded`](crate::Padded) batch is
/// padding: texts for a language model, recordings.
///
/// The samples are divided into buckets of similar lengths: the longest of a bucket is at most a quarter
/// longer than the shortest. A batch has samples of one bucket, as many as fit into `max_tokens` when all are
/// filled up to the longest length that the bucket may have. In each epoch other samples come together, and
/// the batches come in another order.
///
/// ```
/// use tensorferry_data::{BatchSampler, BucketBatchSampler, EpochKey};
///
/// // Two long samples and six short ones; at most 64 numbers in a batch, with the padding.
/// let sampler = BucketBatchSampler::new([60, 7, 8, 7, 30, 8, 8, 8], 64)?;
/// assert_eq!(sampler.n_batches(8), 4);
/// let epoch = EpochKey { seed: 0, epoch: 0 };
/// let batches: Vec<_> = sampler.draw_batches(8, epoch).collect();
/// assert!(batches.contains(&vec![0]) && batches.contains(&vec![4]));
/// // In an epoch each sample comes once, as with `DistributedSampler` for several trainers together.
/// assert_eq!(batches.concat().len(), 8);
/// # Ok::<(), tensorferry_data::BucketsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct BucketBatchSampler {
    /// From the shortest samples to the longest.
    buckets: Arc<[Bucket]>,
    max_batch_size: usize,
    drops_last: bool,
}

#[derive(Debug)]
struct Bucket {
    indices: Vec<usize>,
    /// How many samples fit into a batch.
    batch_size: usize,
}

/// Lengths of which no batches can be made.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BucketsError {
    /// A sample does not fit into a batch by itself.
    #[error(
        "sample {index} has the length {len}, and a batch has at most {max_tokens}: cut it, or leave it out"
    )]
    TooLong {
        /// The sample.
        index: usize,
        /// Its length.
        len: usize,
        /// What a batch may have.
        max_tokens: usize,
    },
}

tensorferry_storage::debug_as_display!(BucketsError);

/// The longest length that the bucket of this length may have: the next number of at most three binary
/// digits, apart from zeros at the end.
fn longest_with(len: usize) -> usize {
    let step = len.saturating_sub(1).checked_ilog2().map_or(1, |digits| 1_usize << digits.saturating_sub(2));
    len.checked_next_multiple_of(step).unwrap_or(len)
}

impl BucketBatchSampler {
    /// `lens` are the lengths of the samples, by their index; samples behind them are not drawn. No batch has
    /// more than `max_tokens` numbers, padding included.
    ///
    /// # Errors
    /// [`BucketsError::TooLong`].
    pub fn new(lens: impl IntoIterator<Item = usize>, max_tokens: usize) -> Result<Self, BucketsError> {
        let mut buckets: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, len) in lens.into_iter().enumerate() {
            if len > max_tokens {
                return Err(BucketsError::TooLong { index, len, max_tokens });
            }
            buckets.entry(longest_with(len).min(max_tokens)).or_default().push(index);
        }
        let bucket = |(longest, indices): (usize, _)| {
            let batch_size = max_tokens.checked_div(longest).unwrap_or(usize::MAX).max(1);
            Bucket { indices, batch_size }
        };
        let buckets = buckets.into_iter().map(bucket).collect();
        Ok(Self { buckets, max_batch_size: usize::MAX, drops_last: false })
    }

    /// Sets how many samples a batch has at most, however short they are. Without this call there is no
    /// limit; with 0 it is 1.
    #[must_use]
    pub fn max_batch_size(mut self, n_samples: usize) -> Self {
        self.max_batch_size = n_samples.max(1);
        self
    }

    /// Leaves out the last batch of each bucket if it is not full.
    #[must_use]
    pub fn drop_last(mut self, drops_last: bool) -> Self {
        self.drops_last = drops_last;
        self
    }

    fn batch_size(&self, bucket: &Bucket) -> usize {
        bucket.batch_size.min(self.max_batch_size)
    }

    fn n_batches_of(&self, bucket: &Bucket) -> usize {
        let (n_samples, batch_size) = (bucket.indices.len(), self.batch_size(bucket));
        if self.drops_last { n_samples / batch_size } else { n_samples.div_ceil(batch_size) }
    }
}

impl BatchSampler for BucketBatchSampler {
    fn n_batches(&self, _: usize) -> usize {
        self.buckets.iter().map(|bucket| self.n_batches_of(bucket)).sum()
    }

    fn draw_batches(&self, n_samples: usize, epoch: EpochKey) -> IndexBatches {
        let mut rng = epoch.order_rng();
        let mut batches = Vec::with_capacity(self.n_batches(n_samples));
        for bucket in &*self.buckets {
            let mut indices = bucket.indices.clone();
            shuffle(&mut indices, &mut rng);
            let chunks = indices.chunks(self.batch_size(bucket)).take(self.n_batches_of(bucket));
            batches.extend(chunks.map(<[usize]>::to_vec));
        }
        shuffle(&mut batches, &mut rng);
        Box::new(batches.into_iter())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drawn(sampler: &BucketBatchSampler, epoch: u64) -> Vec<Vec<usize>> {
        sampler.draw_batches(0, EpochKey { seed: 5, epoch }).collect()
    }

    proptest! {
        #[test]
        fn batches_have_all_samples_once_and_fit(
            lens in prop::collection::vec(0_usize..300, 0..200),
            max_batch_size in 1_usize..40,
        ) {
            let max_tokens = 1_000;
            let sampler = BucketBatchSampler::new(lens.iter().copied(), max_tokens).unwrap();
            let sampler = sampler.max_batch_size(max_batch_size);
            let batches = drawn(&sampler, 0);
            prop_assert_eq!(batches.len(), sampler.n_batches(lens.len()));
            for batch in &batches {
                let lens = || batch.iter().map(|index| lens[*index]);
                let (longest, shortest) = (lens().max().unwrap(), lens().min().unwrap());
                prop_assert!(longest * batch.len() <= max_tokens && batch.len() <= max_batch_size);
                prop_assert!(longest - shortest <= shortest / 4, "{} beside {}", longest, shortest);
            }
            let mut all = batches.concat();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..lens.len()));
            let full = sampler.clone().drop_last(true);
            prop_assert_eq!(drawn(&full, 0).len(), full.n_batches(lens.len()));
            prop_assert!(full.n_batches(lens.len()) <= batches.len());
        }

        #[test]
        fn a_bucket_ends_at_most_a_quarter_above_its_lengths(len in 0_usize..=usize::MAX) {
            let longest = longest_with(len);
            prop_assert!(longest >= len && longest - len <= len / 4);
            prop_assert_eq!(longest_with(longest), longest);
        }
    }

    #[test]
    fn epochs_have_other_batches_in_another_order() {
        let sampler = BucketBatchSampler::new((0..200).map(|n| 10 + n % 3), 120).unwrap();
        let sets = |epoch| {
            let mut batches = drawn(&sampler, epoch);
            batches.iter_mut().for_each(|batch| batch.sort_unstable());
            batches
        };
        assert_eq!(drawn(&sampler, 1), drawn(&sampler, 1));
        let (first, mut second) = (sets(0), sets(1));
        assert_ne!(first, second);
        second.retain(|batch| first.contains(batch));
        assert!(second.len() < first.len(), "others come together");
    }

    #[test]
    fn samples_that_are_too_long_are_refused_and_those_of_no_length_are_not() {
        let error = BucketBatchSampler::new([3, 9, 8], 8).unwrap_err();
        assert_eq!(error, BucketsError::TooLong { index: 1, len: 9, max_tokens: 8 });
        let sampler = BucketBatchSampler::new([0, 0, 0], 0).unwrap();
        assert_eq!(drawn(&sampler, 0).concat().len(), 3);
        // Of what would be in a bucket up to 80 only one fits by itself.
        let sampler = BucketBatchSampler::new([65, 66, 75], 75).unwrap();
        assert_eq!(sampler.n_batches(3), 3);
        assert_eq!(BucketBatchSampler::new([], 5).unwrap().n_batches(0), 0);
    }
}
