//! The loader of an iterable dataset.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tensorferry_pool::{Pool, PoolError};
use tensorferry_spawn::ChildProcess;

use super::dataset::IterableDataset;
use super::epoch::IterableEpoch;
use super::here::Here;
use super::state::IterableState;
use super::turns::{Position, Turns};
use crate::builder::{DataLoaderBuilder, InTurn};
use crate::error::ResumeError;

/// Loads batches of an [`IterableDataset`]: PyTorch's `DataLoader` with an `IterableDataset`.
///
/// Each batch comes of one shard, and the shards take turns until all are over. The last batch of a shard may
/// be smaller than the others. Which batches come, and in which order, depends on the dataset, the batch size
/// and the seed, and not on the workers; the same worker always reads the same shards. Without workers a
/// thread of this process reads them, a batch when it is asked for one.
///
/// What is said of batches and handles at [`DataLoader`](crate::DataLoader) holds here too.
///
/// # When a worker dies
/// Another one takes its place, and goes on in its shards behind the batch that it was at
/// ([`IterableDataset::iter_from`]), or makes it again ([`max_tries`](DataLoaderBuilder::max_tries)). A shard
/// over which two in a row die, without a batch between them, is over.
///
/// # Resuming
/// ```
/// use serde::{Deserialize, Serialize};
/// use tensorferry_data::{BoxedError, IterableDataset, IterableLoader, Shard, dataset};
///
/// #[derive(Serialize, Deserialize)]
/// struct Counters;
///
/// #[dataset]
/// impl IterableDataset for Counters {
///     type Sample = u64;
///
///     fn n_shards(&self) -> usize {
///         4
///     }
///
///     fn iter(&self, shard: Shard) -> Result<impl Iterator<Item = Result<u64, BoxedError>>, BoxedError> {
///         Ok((shard.index as u64..100).step_by(shard.n_shards).map(Ok))
///     }
/// }
///
/// let loader = IterableLoader::builder(Counters).batch_size(8).start()?;
/// let mut epoch = loader.epoch(0);
/// let before: Vec<_> = epoch.by_ref().take(5).collect::<Result<_, _>>()?;
/// assert_eq!(before[1].to_vec(), [1, 5, 9, 13, 17, 21, 25, 29]);
/// let state = epoch.state(); // serde can write it into a checkpoint
/// let rest: Vec<_> = epoch.collect::<Result<_, _>>()?;
///
/// // Later, in another process, with another number of workers.
/// let loader = IterableLoader::builder(Counters).batch_size(8).workers(2).start()?;
/// let resumed: Vec<_> = loader.resume(&state)?.collect::<Result<_, _>>()?;
/// assert_eq!(resumed, rest);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct IterableLoader<D: IterableDataset> {
    shared: Arc<Shared<D>>,
}

pub(crate) struct Shared<D: IterableDataset> {
    pub(crate) source: Source<D>,
    pub(crate) n_shards: usize,
    pub(crate) seed: u64,
    pub(crate) batch_size: usize,
    pub(crate) drops_last: bool,
    /// How many epochs were begun.
    pub(crate) n_passes: AtomicU64,
}

/// Who makes the batches.
pub(crate) enum Source<D: IterableDataset> {
    Here(Here<D>),
    Workers {
        /// One for each worker, because what was read of a shard is in one process.
        pools: Vec<Pool>,
        /// How many batches are under way.
        n_ahead: usize,
        timeout: Option<Duration>,
    },
}

impl<D: IterableDataset> IterableLoader<D> {
    /// The settings of a loader to be started.
    pub fn builder(dataset: D) -> DataLoaderBuilder<D, InTurn> {
        DataLoaderBuilder::of_shards(dataset)
    }

    pub(crate) fn new(
        source: Source<D>,
        n_shards: usize,
        seed: u64,
        batch_size: usize,
        drops_last: bool,
    ) -> Self {
        let n_passes = AtomicU64::new(0);
        Self { shared: Arc::new(Shared { source, n_shards, seed, batch_size, drops_last, n_passes }) }
    }

    /// How many shards the dataset has.
    #[must_use]
    pub fn n_shards(&self) -> usize {
        self.shared.n_shards
    }

    /// The workers that run now. Fewer than were asked for while one takes another's place.
    #[must_use]
    pub fn processes(&self) -> Vec<ChildProcess> {
        match &self.shared.source {
            Source::Here(_) => Vec::new(),
            Source::Workers { pools, .. } => pools.iter().flat_map(Pool::processes).collect(),
        }
    }

    /// The batches of the epoch with this number.
    ///
    /// With workers, the first batches are made from here on, before the first step.
    pub fn epoch(&self, epoch: u64) -> IterableEpoch<D> {
        let start = Position { n_done: 0, is_over: false };
        self.pass(epoch, Turns { positions: vec![start; self.shared.n_shards], next: 0 })
    }

    /// The batches of an epoch behind those that had been handed out when `state` was taken.
    ///
    /// Number of workers and batch size may differ from then.
    ///
    /// # Errors
    /// [`ResumeError`] when the seed or the number of shards differs.
    pub fn resume(&self, state: &IterableState) -> Result<IterableEpoch<D>, ResumeError> {
        let (seed, n_shards) = (self.shared.seed, self.shared.n_shards);
        if state.seed != seed {
            return Err(ResumeError::Seed { state: state.seed, loader: seed });
        }
        if state.n_shards() != n_shards {
            return Err(ResumeError::Shards { state: state.n_shards(), loader: n_shards });
        }
        Ok(self.pass(state.epoch, state.turns()))
    }

    fn pass(&self, epoch: u64, turns: Turns) -> IterableEpoch<D> {
        let pass = self.shared.n_passes.fetch_add(1, Ordering::Relaxed);
        IterableEpoch::new(Arc::clone(&self.shared), epoch, pass, turns)
    }

    /// Lets the workers end in order and waits for them, as [`DataLoader::join`](crate::DataLoader::join).
    ///
    /// # Errors
    /// [`PoolError`] when a worker has failed for good.
    pub fn join(self) -> Result<(), Arc<PoolError>> {
        match Arc::try_unwrap(self.shared).map(|shared| shared.source) {
            Ok(Source::Here(here)) => here.join(),
            Ok(Source::Workers { pools, .. }) => {
                // All end at the same time.
                pools.iter().for_each(Pool::close);
                let ends: Vec<_> = pools.into_iter().map(Pool::join).collect();
                return ends.into_iter().collect();
            }
            Err(shared) => {
                if let Source::Workers { pools, .. } = &shared.source {
                    pools.iter().for_each(Pool::close);
                }
            }
        }
        Ok(())
    }
}

impl<D: IterableDataset> fmt::Debug for IterableLoader<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterableLoader")
            .field("n_shards", &self.n_shards())
            .field("batch_size", &self.shared.batch_size)
            .field("n_processes", &self.processes().len())
            .finish_non_exhaustive()
    }
}
