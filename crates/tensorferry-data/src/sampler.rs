//! The order of the samples.

mod batch;
mod bucket;
mod distributed;
mod random;
mod subset;
mod weighted;

use std::fmt;

pub use batch::{BatchSampler, IndexBatches};
pub use bucket::{BucketBatchSampler, BucketsError};
pub use distributed::DistributedSampler;
pub use random::RandomSampler;
pub use subset::SubsetSampler;
pub use weighted::{WeightedRandomSampler, WeightsError};

use crate::random::EpochKey;

/// The indices of an epoch, in the order in which the samples are to be loaded.
pub type Indices = Box<dyn Iterator<Item = usize> + Send>;

/// Draws the samples of an epoch: PyTorch's `Sampler`.
///
/// What it draws depends on its arguments and on nothing else, so that an epoch can be resumed in the middle,
/// and be the same on every machine.
///
/// ```
/// use tensorferry_data::{EpochKey, Indices, Sampler};
///
/// /// The last sample first.
/// #[derive(Debug)]
/// struct Backwards;
///
/// impl Sampler for Backwards {
///     fn n_drawn(&self, n_samples: usize) -> usize {
///         n_samples
///     }
///
///     fn draw(&self, n_samples: usize, _epoch: EpochKey) -> Indices {
///         Box::new((0..n_samples).rev())
///     }
/// }
/// ```
pub trait Sampler: fmt::Debug + Send + Sync + 'static {
    /// How many it draws from a dataset of `n_samples`.
    fn n_drawn(&self, n_samples: usize) -> usize;

    /// Draws that many, each below `n_samples`.
    fn draw(&self, n_samples: usize, epoch: EpochKey) -> Indices;

    /// Whether an epoch can have a sample several times. Each time it gets random numbers of its own then,
    /// which depend on its place in the epoch too.
    fn repeats(&self) -> bool {
        false
    }

    /// The place in the whole epoch of what this sampler draws as number `nth`, from 0: another one where it
    /// draws a part of the epoch only.
    fn place(&self, nth: usize) -> usize {
        nth
    }
}

/// Every sample once, in order of the index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequentialSampler;

impl Sampler for SequentialSampler {
    fn n_drawn(&self, n_samples: usize) -> usize {
        n_samples
    }

    fn draw(&self, n_samples: usize, _: EpochKey) -> Indices {
        Box::new(0..n_samples)
    }
}
