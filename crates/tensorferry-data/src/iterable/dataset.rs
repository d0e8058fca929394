//! What is read from front to back.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_spawn::BoxedError;

use super::shuffled::Shuffled;
use crate::collate::Collate;
use crate::random::{EpochKey, SampleRng};

/// Samples that come one after the other, and have no index: PyTorch's `IterableDataset`. Files of records,
/// the lines of a text, what a server sends.
///
/// The dataset says into how many shards it is divided, and iterates over each by itself. Which worker reads
/// a shard makes no difference to what comes out, and no sample comes twice: in PyTorch each worker has all
/// samples, unless the dataset asks which worker it is in.
///
/// The value travels to each worker once, as a [`Dataset`](crate::Dataset) does, and
/// [`dataset`](crate::dataset) on the `impl` registers it.
///
/// ```
/// use serde::{Deserialize, Serialize};
/// use tensorferry_data::{BoxedError, IterableDataset, IterableLoader, Shard, dataset};
///
/// /// The words of some texts, as numbers of letters.
/// #[derive(Serialize, Deserialize)]
/// struct Words {
///     texts: Vec<String>,
/// }
///
/// #[dataset]
/// impl IterableDataset for Words {
///     type Sample = u32;
///
///     fn n_shards(&self) -> usize {
///         2
///     }
///
///     fn iter(&self, shard: Shard) -> Result<impl Iterator<Item = Result<u32, BoxedError>>, BoxedError> {
///         // Every other text.
///         let texts = self.texts.iter().skip(shard.index).step_by(shard.n_shards);
///         let words = texts.flat_map(|text| text.split(' '));
///         Ok(words.map(|word| Ok(u32::try_from(word.len())?)))
///     }
/// }
///
/// let texts = ["a bb", "ccc dddd", "eeeee ffffff"].map(String::from).to_vec();
/// let loader = IterableLoader::builder(Words { texts }).batch_size(2).workers(2).start()?;
/// let batches: Result<Vec<_>, _> = loader.epoch(0).map(|batch| batch.map(|batch| batch.to_vec())).collect();
/// assert_eq!(batches?, [[1, 2], [3, 4], [5, 6]]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(message = "`{Self}` is not an iterable dataset")]
pub trait IterableDataset: Serialize + DeserializeOwned + Send + 'static {
    /// One sample, as that of a [`Dataset`](crate::Dataset).
    type Sample: Collate<Batch: Send>;

    /// Into how many shards the samples are divided. At least as many as workers are wanted; a multiple of
    /// their number, so that each has as much to do. Asked once, when the loader is started.
    fn n_shards(&self) -> usize;

    /// The samples of one shard in one epoch, in order. All shards together have each sample once.
    ///
    /// The loader looks at samples as they are needed, at most [`prefetch_factor`] batches for each worker
    /// ahead; an iterator may be endless. All that it depends on is the dataset and `shard`, which has random
    /// numbers.
    ///
    /// [`prefetch_factor`]: crate::DataLoaderBuilder::prefetch_factor
    ///
    /// # Errors
    /// Whatever prevents it. The shard is over then, and the epoch goes on with the others. A sample by
    /// itself may be an error too: its batch is lost, whoever iterates is told, and the shard goes on behind
    /// that batch. A panic counts as an error, and ends the shard.
    fn iter(
        &self,
        shard: Shard,
    ) -> Result<impl Iterator<Item = Result<Self::Sample, BoxedError>>, BoxedError>;

    /// As [`iter`](Self::iter), without the first `n_done` samples. It is asked when an epoch is resumed, and
    /// when another worker goes on in the place of one that has died.
    ///
    /// `n_done` can be more than there are, because a batch over which a worker has died counts as a full
    /// one. Nothing is left then, which is no error.
    ///
    /// Without this function the samples are made and dropped. A dataset that can seek is faster.
    ///
    /// # Errors
    /// As [`iter`](Self::iter).
    fn iter_from(
        &self,
        shard: Shard,
        n_done: usize,
    ) -> Result<impl Iterator<Item = Result<Self::Sample, BoxedError>>, BoxedError> {
        let mut samples = self.iter(shard)?.fuse();
        // Those that are errors were told of, or are.
        let _ = (0..n_done).try_for_each(|_| samples.next().map(drop));
        Ok(samples)
    }
}

/// What the samples of an iterable dataset become together.
pub type IterableBatch<D> = <<D as IterableDataset>::Sample as Collate>::Batch;

/// One of the shards of an [`IterableDataset`], in one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Shard {
    /// Which one, from 0.
    pub index: usize,
    /// How many there are.
    pub n_shards: usize,
    /// The loader's seed and the number of the epoch.
    pub key: EpochKey,
}

impl Shard {
    pub(crate) fn new(index: usize, n_shards: usize, key: EpochKey) -> Self {
        Self { index, n_shards, key }
    }

    /// The random numbers for the order of this shard in this epoch: of its files, say.
    ///
    /// For an order that all shards have to agree on, [`EpochKey::order_rng`] of the key is the same in all.
    #[must_use]
    pub fn order_rng(&self) -> SampleRng {
        self.key.shard_rng(self.index)
    }

    /// The samples in another order in each epoch, without having all of them in memory: each that comes is
    /// drawn from a buffer of the next `buffer_len`. The samples of one file lie together in it, so a large
    /// buffer, and files in an order of their own, mix better.
    ///
    /// ```
    /// # use tensorferry_data::{BoxedError, IterableDataset, IterableLoader, Shard};
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Serialize, Deserialize)]
    /// struct Numbers;
    ///
    /// impl IterableDataset for Numbers {
    ///     type Sample = u64;
    ///
    ///     fn n_shards(&self) -> usize {
    ///         1
    ///     }
    ///
    ///     fn iter(&self, shard: Shard) -> Result<impl Iterator<Item = Result<u64, BoxedError>>, BoxedError> {
    ///         Ok(shard.shuffle((0..100).map(Ok), 16))
    ///     }
    /// }
    ///
    /// let loader = IterableLoader::builder(Numbers).batch_size(4).start()?;
    /// let batches: Result<Vec<_>, _> = [0, 1].iter().filter_map(|epoch| loader.epoch(*epoch).next()).collect();
    /// let batches = batches?;
    /// assert_ne!(batches[0].to_vec(), batches[1].to_vec());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shuffle<I: IntoIterator>(&self, samples: I, buffer_len: usize) -> Shuffled<I::IntoIter> {
        Shuffled::new(samples.into_iter(), buffer_len, self.key.shuffle_rng(self.index))
    }

    /// The random numbers of the sample at this place of the shard, from 0, for crops, noise and the like.
    #[must_use]
    pub fn sample_rng(&self, nth: usize) -> SampleRng {
        self.key.sharded_rng(self.index, nth)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// Three samples, and more for those who ask behind the end.
    #[derive(Serialize, Deserialize)]
    struct Restless;

    impl IterableDataset for Restless {
        type Sample = u64;

        fn n_shards(&self) -> usize {
            1
        }

        fn iter(&self, _: Shard) -> Result<impl Iterator<Item = Result<u64, BoxedError>>, BoxedError> {
            let mut samples = [Some(Ok(0)), Some(Ok(1)), Some(Ok(2)), None, Some(Ok(3))].into_iter();
            Ok(std::iter::from_fn(move || samples.next().flatten()))
        }
    }

    #[test]
    fn behind_the_end_there_is_nothing() {
        let shard = Shard::new(0, 1, EpochKey { seed: 0, epoch: 0 });
        for (n_done, n_left) in [(0, 3), (2, 1), (3, 0), (4, 0), (usize::MAX, 0)] {
            assert_eq!(Restless.iter_from(shard, n_done).unwrap().count(), n_left, "{n_done}");
        }
    }
}
