//! Why there is no loader, and why there is no batch.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use tensorferry_pool::{PoolError, TaskError, WorkerDiedError};
use tensorferry_spawn::{Report, ReportKind};
use tensorferry_storage::StorageError;

/// Why a data loader could not be started, or did not end well.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LoaderError {
    /// The dataset is not registered, so that no worker could be told to load it.
    #[error(
        "`{dataset}` is not registered: put `#[dataset]` on its `impl Dataset` or `impl IterableDataset`, or on a type alias for it; if it has it, \
         see that the crate it stands in is linked: use anything else of it"
    )]
    NotRegistered {
        /// The type of the dataset.
        dataset: &'static str,
    },
    /// A batch has at least one sample.
    #[error("a batch has at least one sample")]
    NoBatchSize,
    /// Each worker makes at least one batch ahead.
    #[error("each worker makes at least one batch ahead")]
    NoPrefetch,
    /// What a batch sampler decides was set too.
    #[error(
        "{setting} is for samples of an order, and this loader has a `batch_sampler`, which draws whole batches"
    )]
    OwnBatches {
        /// The setting.
        setting: &'static str,
    },
    /// A shard is read by one worker, so there is nothing to do for more workers than shards.
    #[error(
        "{n_workers} workers for {n_shards} shards: a shard is read by one worker, so divide the dataset into more, or set \
         fewer `workers`"
    )]
    TooManyWorkers {
        /// How many workers were asked for.
        n_workers: usize,
        /// How many shards the dataset has.
        n_shards: usize,
    },
    /// The dataset says that it is divided into more shards than a loader keeps places of.
    #[error("{n_shards} shards are more than {limit}: divide the dataset into fewer")]
    TooManyShards {
        /// How many shards the dataset has.
        n_shards: usize,
        /// The most that a loader takes.
        limit: usize,
    },
    /// The thread that reads an iterable dataset where there are no workers could not be started.
    #[error("the thread that reads the shards cannot be started: {0}")]
    Thread(std::io::Error),
    /// The workers could not be started, or have failed as a whole.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

tensorferry_storage::debug_as_display!(LoaderError);

/// A batch that could not be loaded. The iterator goes on with the next one.
#[non_exhaustive]
pub struct LoadError {
    /// The epoch.
    pub epoch: u64,
    /// Which batch of the epoch it is, from 0.
    pub batch: usize,
    /// The shard that it comes of, if the dataset is an [`IterableDataset`](crate::IterableDataset).
    pub shard: Option<usize>,
    /// The sample that was being made, if it is one sample's fault: its index in the dataset, or its place in
    /// the shard, from 0; of a shard that is shuffled, in the shuffled one.
    pub sample: Option<usize>,
    /// What happened.
    pub kind: LoadErrorKind,
}

tensorferry_storage::debug_as_display!(LoadError);

/// What happened to a batch.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadErrorKind {
    /// The dataset returned an error or panicked, or the samples cannot become a batch.
    Raised(Box<RaisedError>),
    /// The worker was killed or exited while it made the batch. Another one has taken its place.
    WorkerDied(Box<WorkerDiedError>),
    /// The sampler drew an index that the dataset does not have.
    OutOfRange {
        /// How many samples the dataset has.
        n_samples: usize,
    },
    /// It took longer than [`timeout`](crate::DataLoaderBuilder::timeout). The next step waits for the same
    /// batch again, so whoever does not want to wait for ever ends the iteration after some of these, or
    /// kills the worker ([`processes`](crate::DataLoader::processes)), which makes it a death.
    TimedOut {
        /// How long that was.
        timeout: Duration,
        /// The process ID of the worker that makes it, if one has begun.
        pid: Option<u32>,
    },
    /// There is no shared memory in this process.
    Memory(StorageError),
    /// The batch cannot travel, or the workers have failed as a whole. After the latter no batch comes.
    Task(TaskError),
}

/// A dataset that failed. Its worker lives on.
///
/// `Display` writes one line, and a line for each cause; `{:#}` adds the backtrace of a panic.
#[non_exhaustive]
pub struct RaisedError {
    /// The index of the worker and its process ID, unless the loader has no workers.
    pub worker: Option<(usize, u32)>,
    /// Message, place and stack of a panic; message and causes of an error.
    pub report: Report,
}

tensorferry_storage::debug_as_display!(RaisedError);

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "batch {} of epoch {}", self.batch, self.epoch)?;
        if let Some(shard) = self.shard {
            write!(f, ", shard {shard}")?;
        }
        if let Some(sample) = self.sample {
            write!(f, ", sample {sample}")?;
        }
        f.write_str(": ")?;
        match &self.kind {
            LoadErrorKind::Raised(error) => fmt::Display::fmt(error, f),
            LoadErrorKind::WorkerDied(error) => {
                f.write_str("its worker died")?;
                if error.tries > 1 {
                    write!(f, ", in {} tries", error.tries)?;
                }
                error.process.as_ref().map_or(Ok(()), |process| write!(f, ": {process}"))
            }
            LoadErrorKind::OutOfRange { n_samples } => {
                write!(f, "the sampler drew it, and the dataset has {n_samples} samples")
            }
            LoadErrorKind::TimedOut { timeout, pid: None } => {
                write!(f, "no worker has begun it within {timeout:?}")
            }
            LoadErrorKind::TimedOut { timeout, pid: Some(pid) } => {
                write!(f, "not loaded within {timeout:?} by the worker with process ID {pid}")
            }
            LoadErrorKind::Memory(error) => write!(f, "no shared memory: {error}"),
            LoadErrorKind::Task(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl Error for LoadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            LoadErrorKind::WorkerDied(error) => error.source(),
            LoadErrorKind::Memory(error) => error.source(),
            LoadErrorKind::Task(error) => error.source(),
            _ => None,
        }
    }
}

impl fmt::Display for RaisedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.worker {
            Some((worker, pid)) => write!(f, "the dataset in worker {worker} (pid {pid})")?,
            None => f.write_str("the dataset")?,
        }
        // A panic is told of its thread, everything else of whoever it happened to.
        f.write_str(if self.report.kind == ReportKind::Panic { ": " } else { " " })?;
        fmt::Display::fmt(&self.report, f)
    }
}

impl Error for RaisedError {}

/// A state that is not one of this loader.
#[derive(thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResumeError {
    /// It was made with another seed: the samples would come in another order.
    #[error("the state was made with the seed {state}, the loader has {loader}")]
    Seed {
        /// The seed of the state.
        state: u64,
        /// The seed of the loader.
        loader: u64,
    },
    /// The dataset is divided into another number of shards.
    #[error("the state was made with {state} shards, the loader has {loader}")]
    Shards {
        /// How many shards the state has.
        state: usize,
        /// How many the loader has.
        loader: usize,
    },
    /// The dataset is another one.
    #[error("the state was made with a dataset of {state} samples, the loader's has {loader}")]
    Dataset {
        /// How many samples the dataset of the state has.
        state: usize,
        /// How many that of the loader has.
        loader: usize,
    },
    /// The sampler draws the samples in another order.
    #[error(
        "the state is of an epoch in another order: give the loader the sampler that it had, or `shuffle`"
    )]
    Order,
    /// The batch sampler draws another number.
    #[error("the state is of an epoch of {state} batches, the loader's have {loader}")]
    Batches {
        /// How many batches the epoch of the state has.
        state: usize,
        /// How many an epoch of the loader has.
        loader: usize,
    },
    /// The sampler draws another number.
    #[error("the state is of an epoch of {state} samples, the loader's have {loader}")]
    Length {
        /// How many samples the epoch of the state has.
        state: usize,
        /// How many an epoch of the loader has.
        loader: usize,
    },
}

tensorferry_storage::debug_as_display!(ResumeError);
