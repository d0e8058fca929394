//! The batches of an epoch.

use std::fmt;

use crate::random::EpochKey;

/// The batches of an epoch in the order in which they are to be loaded: the indices of each.
pub type IndexBatches = Box<dyn Iterator<Item = Vec<usize>> + Send>;

/// Draws the batches of an epoch, where they are more than so many samples of an order: PyTorch's
/// `batch_sampler`.
///
/// What it draws depends on its arguments and on nothing else, as with a [`Sampler`](crate::Sampler).
///
/// ```
/// use tensorferry_data::{BatchSampler, EpochKey, IndexBatches};
///
/// /// In each batch a sample of every class. The samples of a class stand one behind the other.
/// #[derive(Debug)]
/// struct OneOfEach {
///     n_classes: usize,
/// }
///
/// impl BatchSampler for OneOfEach {
///     fn n_batches(&self, n_samples: usize) -> usize {
///         n_samples / self.n_classes
///     }
///
///     fn draw_batches(&self, n_samples: usize, _epoch: EpochKey) -> IndexBatches {
///         let (n_classes, n_of_each) = (self.n_classes, self.n_batches(n_samples));
///         let batch = move |nth| (0..n_classes).map(|class| class * n_of_each + nth).collect();
///         Box::new((0..n_of_each).map(batch))
///     }
/// }
/// ```
pub trait BatchSampler: fmt::Debug + Send + Sync + 'static {
    /// How many batches it draws from a dataset of `n_samples`.
    fn n_batches(&self, n_samples: usize) -> usize;

    /// Draws that many, each of at least one index below `n_samples`.
    fn draw_batches(&self, n_samples: usize, epoch: EpochKey) -> IndexBatches;

    /// Whether an epoch can have a sample several times. Each time it gets random numbers of its own then,
    /// which depend on its place in the epoch too.
    fn repeats(&self) -> bool {
        false
    }

    /// The place in the whole epoch of what this sampler draws as batch number `nth`, from 0: another one
    /// where it draws a part of the epoch only.
    fn place_of_batch(&self, nth: usize) -> usize {
        nth
    }
}
