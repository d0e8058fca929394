//! The settings of a data loader.

use std::ffi::OsStr;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_pool::{Pool, PoolBuilder};
use tensorferry_spawn::{Function, StartMethod};

use crate::dataset::Dataset;
use crate::error::LoaderError;
use crate::hidden::{is_iterable_registered, is_registered};
use crate::iterable::{self, Here, IterableDataset, IterableLoader};
use crate::loader::{DataLoader, Draws, Source, Steps};
use crate::sampler::{BatchSampler, RandomSampler, Sampler, SequentialSampler};
use crate::worker::{enter, open};

/// How many batches each worker makes ahead.
const PREFETCH_FACTOR: usize = 2;

/// The most shards. An epoch has a place of 16 bytes in each.
const MAX_SHARDS: usize = 1 << 24;

/// The order of a [`DataLoader`]: what its sampler draws.
#[derive(Debug)]
pub struct Sampled {
    sampler: AnySampler,
    /// Whether batches come in the order in which they were drawn, and not as soon as each is made.
    in_order: Option<bool>,
}

#[derive(Debug)]
enum AnySampler {
    Samples(Box<dyn Sampler>),
    Batches(Box<dyn BatchSampler>),
}

/// The order of an [`IterableLoader`]: its shards take turns.
#[derive(Debug)]
pub struct InTurn(());

/// Adds a function to those that a worker calls first.
type WorkerInit = Box<dyn FnOnce(PoolBuilder) -> PoolBuilder>;

/// The settings of a [`DataLoader`] or an [`IterableLoader`]; made by [`DataLoader::builder`] and
/// [`IterableLoader::builder`].
#[must_use = "nothing is loaded before `start`"]
pub struct DataLoaderBuilder<D, Order = Sampled> {
    dataset: D,
    order: Order,
    seed: u64,
    batch_size: Option<usize>,
    drops_last: bool,
    n_workers: usize,
    prefetch_factor: Option<usize>,
    timeout: Option<Duration>,
    worker_inits: Vec<WorkerInit>,
    /// The settings that are the pool's own.
    pool: PoolBuilder,
    max_tries: Option<u16>,
}

impl<D, Order> DataLoaderBuilder<D, Order> {
    fn with_order(dataset: D, order: Order) -> Self {
        Self {
            dataset,
            order,
            seed: 0,
            batch_size: None,
            drops_last: false,
            n_workers: 0,
            prefetch_factor: None,
            timeout: None,
            worker_inits: Vec::new(),
            pool: Pool::builder().name("loader"),
            max_tries: None,
        }
    }

    /// Sets how many samples a batch has. One without this call.
    pub fn batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = Some(batch_size);
        self
    }

    /// Leaves out the last batch of an epoch, or of each shard, if it is not full.
    pub fn drop_last(mut self, drops_last: bool) -> Self {
        self.drops_last = drops_last;
        self
    }

    /// Sets the seed of all random numbers: those of the order, and those that each sample gets. 0 without
    /// this call, so that two runs load the same.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets how many processes make batches. Without this call, or with 0, the process that iterates makes
    /// them itself, when they are asked for, and what is set for workers means nothing. The batches are the
    /// same with any number.
    #[doc(alias = "num_workers")]
    pub fn workers(mut self, n_workers: usize) -> Self {
        self.n_workers = n_workers;
        self
    }

    /// Sets how many batches for each worker are made ahead, at least one. Two without this call. All workers
    /// together are at most 256 ahead.
    pub fn prefetch_factor(mut self, n_batches: usize) -> Self {
        self.prefetch_factor = Some(n_batches);
        self
    }

    /// Sets how long a step of the iterator waits for a batch of the workers. Without this call it waits as
    /// long as it takes; a worker that dies is noticed in any case. The time in which workers start counts
    /// too.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Adds a function that each worker calls once, before it gets the dataset, also those that are started
    /// later in the place of others. [`worker_info`](crate::worker_info) is known to it. As the initializer
    /// of a pool: [`PoolBuilder::initializer`].
    #[doc(alias = "worker_init_fn")]
    pub fn worker_init<F, Args>(mut self, function: F, args: Args) -> Self
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned + Send + 'static,
    {
        self.worker_inits.push(Box::new(move |pool| pool.initializer(function, args)));
        self
    }

    /// Sets how many workers may die over one batch, at least one. Without this call it is one, and whoever
    /// iterates is told of it. With more, another worker makes the same batch, with the same random numbers.
    pub fn max_tries(mut self, max_tries: u16) -> Self {
        self.max_tries = Some(max_tries);
        self
    }

    /// Sets the name of the workers, for reports and `ps`: the name and the worker's index. `loader` without
    /// this call.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.pool = self.pool.name(name);
        self
    }

    /// Sets how the workers are created, as [`PoolBuilder::start_method`].
    #[doc(alias = "multiprocessing_context")]
    pub fn start_method(mut self, method: StartMethod) -> Self {
        self.pool = self.pool.start_method(method);
        self
    }

    /// Sets a variable in the environment of the workers.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.pool = self.pool.env(name, value);
        self
    }

    /// Whether the settings fit together.
    fn check(&self) -> Result<(), LoaderError> {
        if self.batch_size == Some(0) {
            return Err(LoaderError::NoBatchSize);
        }
        if self.prefetch_factor == Some(0) {
            return Err(LoaderError::NoPrefetch);
        }
        Ok(())
    }

    /// How many batches are made ahead by all workers together.
    fn n_ahead(&self) -> usize {
        self.n_workers.saturating_mul(self.prefetch_factor.unwrap_or(PREFETCH_FACTOR))
    }
}

impl<D: Dataset> DataLoaderBuilder<D> {
    pub(crate) fn new(dataset: D) -> Self {
        let sampler = AnySampler::Samples(Box::new(SequentialSampler));
        Self::with_order(dataset, Sampled { sampler, in_order: None })
    }

    /// Loads the samples in random order, another one in each epoch: [`RandomSampler`].
    pub fn shuffle(self) -> Self {
        self.sampler(RandomSampler::new())
    }

    /// Sets which samples are loaded, and in which order. Without this call all, by their index.
    pub fn sampler(mut self, sampler: impl Sampler) -> Self {
        self.order.sampler = AnySampler::Samples(Box::new(sampler));
        self
    }

    /// Sets which samples come in which batch, for what is more than so many samples of an order:
    /// [`BucketBatchSampler`](crate::BucketBatchSampler), or one of your own. It takes the place of
    /// [`sampler`](Self::sampler), [`batch_size`](Self::batch_size) and [`drop_last`](Self::drop_last).
    pub fn batch_sampler(mut self, sampler: impl BatchSampler) -> Self {
        self.order.sampler = AnySampler::Batches(Box::new(sampler));
        self
    }

    /// Sets whether the batches come in the order in which they were drawn, as they do without this call.
    /// With `false` they come as they are made, so that one that takes long holds up no other. Which batches
    /// an epoch has, and with which random numbers, does not depend on it, and an epoch can be resumed too.
    pub fn in_order(mut self, in_order: bool) -> Self {
        self.order.in_order = Some(in_order);
        self
    }

    /// Starts the workers. They stay until the loader is dropped. Does not wait until they can make batches:
    /// a worker that fails before shows in the first step of an epoch.
    ///
    /// # Errors
    /// [`LoaderError`]. No process is left then.
    pub fn start(self) -> Result<DataLoader<D>, LoaderError> {
        self.check()?;
        let n_ahead = self.n_ahead();
        let Sampled { sampler, in_order } = self.order;
        let draws = match sampler {
            AnySampler::Samples(sampler) => {
                let batch_size = self.batch_size.unwrap_or(1);
                Draws::Samples { sampler, batch_size, drops_last: self.drops_last }
            }
            AnySampler::Batches(_) if self.batch_size.is_some() => {
                return Err(LoaderError::OwnBatches { setting: "`batch_size`" });
            }
            AnySampler::Batches(_) if self.drops_last => {
                return Err(LoaderError::OwnBatches { setting: "`drop_last`" });
            }
            AnySampler::Batches(sampler) => Draws::Batches(sampler),
        };
        let steps = Steps { draws, n_samples: self.dataset.len(), seed: self.seed };
        if self.n_workers == 0 {
            return Ok(DataLoader::new(Source::Here(Mutex::new(self.dataset)), steps));
        }
        if !is_registered::<D>() {
            return Err(LoaderError::NotRegistered { dataset: std::any::type_name::<D>() });
        }
        let pool = self.pool.processes(self.n_workers).max_tries(self.max_tries.unwrap_or(1));
        let pool = pool.initializer(enter, (self.n_workers, self.seed));
        let pool = self.worker_inits.into_iter().fold(pool, |pool, add| add(pool));
        let pool = pool.initializer(open::<D>, (self.dataset,)).start()?;
        let in_order = in_order.unwrap_or(true);
        Ok(DataLoader::new(Source::Workers { pool, n_ahead, timeout: self.timeout, in_order }, steps))
    }
}

impl<D: IterableDataset> DataLoaderBuilder<D, InTurn> {
    pub(crate) fn of_shards(dataset: D) -> Self {
        Self::with_order(dataset, InTurn(()))
    }

    /// Starts the workers, each as a pool of its own, or the thread that reads the shards where there are
    /// none. They stay until the loader is dropped. Does not wait until they can make batches: a worker that
    /// fails before shows in the first step of an epoch.
    ///
    /// # Errors
    /// [`LoaderError`]. No process is left then.
    pub fn start(self) -> Result<IterableLoader<D>, LoaderError> {
        self.check()?;
        let (n_workers, n_ahead, n_shards) = (self.n_workers, self.n_ahead(), self.dataset.n_shards());
        if n_shards > MAX_SHARDS {
            return Err(LoaderError::TooManyShards { n_shards, limit: MAX_SHARDS });
        }
        let (seed, batch_size, drops_last) = (self.seed, self.batch_size.unwrap_or(1), self.drops_last);
        let loader = |source| IterableLoader::new(source, n_shards, seed, batch_size, drops_last);
        if n_workers == 0 {
            return Ok(loader(iterable::Source::Here(
                Here::start(self.dataset).map_err(LoaderError::Thread)?,
            )));
        }
        if n_workers > n_shards {
            return Err(LoaderError::TooManyWorkers { n_workers, n_shards });
        }
        if !is_iterable_registered::<D>() {
            return Err(LoaderError::NotRegistered { dataset: std::any::type_name::<D>() });
        }
        let pool = self.pool.processes(1).max_tries(self.max_tries.unwrap_or(1));
        let pool = pool.initializer(enter, (n_workers, seed));
        let pool = self.worker_inits.into_iter().fold(pool, |pool, add| add(pool));
        let pool = pool.initializer(iterable::open::<D>, (self.dataset,));
        let pools: Result<_, _> =
            (0..n_workers).map(|worker| pool.clone().first_index(worker).start()).collect();
        Ok(loader(iterable::Source::Workers { pools: pools?, n_ahead, timeout: self.timeout }))
    }
}

impl<D, Order: fmt::Debug> fmt::Debug for DataLoaderBuilder<D, Order> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataLoaderBuilder")
            .field("order", &self.order)
            .field("batch_size", &self.batch_size)
            .field("n_workers", &self.n_workers)
            .finish_non_exhaustive()
    }
}
