//! Some of the samples.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Indices, Sampler};
use crate::random::EpochKey;

/// These samples only, in the order of another sampler: a split into training and validation, for example.
///
/// ```
/// use tensorferry_data::{EpochKey, RandomSampler, Sampler, SequentialSampler, SubsetSampler};
///
/// let epoch = EpochKey { seed: 0, epoch: 0 };
/// let validation = SubsetSampler::new(90..100, SequentialSampler);
/// assert!(validation.draw(100, epoch).eq(90..100));
/// let training = SubsetSampler::new(0..90, RandomSampler::new());
/// assert_eq!(training.n_drawn(100), 90);
/// ```
#[derive(Clone, Debug)]
pub struct SubsetSampler<S> {
    indices: Arc<[usize]>,
    has_duplicates: bool,
    order: S,
}

impl<S: Sampler> SubsetSampler<S> {
    /// The samples with these indices, in the order that `order` draws of as many. An index that stands there
    /// several times is loaded as often.
    pub fn new(indices: impl IntoIterator<Item = usize>, order: S) -> Self {
        let indices: Arc<[usize]> = indices.into_iter().collect();
        let has_duplicates = indices.iter().collect::<HashSet<_>>().len() < indices.len();
        Self { indices, has_duplicates, order }
    }
}

impl<S: Sampler> Sampler for SubsetSampler<S> {
    fn n_drawn(&self, _: usize) -> usize {
        self.order.n_drawn(self.indices.len())
    }

    fn draw(&self, _: usize, epoch: EpochKey) -> Indices {
        let indices = Arc::clone(&self.indices);
        // A sampler of another crate may draw what is not there; the loader says so.
        Box::new(
            self.order
                .draw(self.indices.len(), epoch)
                .map(move |place| indices.get(place).copied().unwrap_or(usize::MAX)),
        )
    }

    fn repeats(&self) -> bool {
        self.has_duplicates || self.order.repeats()
    }

    fn place(&self, nth: usize) -> usize {
        self.order.place(nth)
    }
}
