//! The data loader.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_pool::{Pool, PoolError};
use tensorferry_spawn::ChildProcess;

use crate::builder::DataLoaderBuilder;
use crate::dataset::Dataset;
use crate::epoch::{Epoch, LoaderState};
use crate::error::ResumeError;
use crate::places::Places;
use crate::sampler::{BatchSampler, Sampler};

/// Loads batches of a [`Dataset`]: PyTorch's `DataLoader`.
///
/// The workers make batches in shared memory, straight from the samples, a few batches ahead. Which batches
/// come, in which order and with which random numbers, depends on dataset, sampler, batch size and seed, and
/// not on the workers: not on their number, their speed or their deaths.
///
/// The batches hold memory until they are dropped; then the workers use it again for others. They can be sent
/// on, to several trainers for example, as all tensors in shared memory.
///
/// A loader is a handle: an epoch has another one, so it can be kept beside the loader, or move to another
/// thread. The workers end when the last one is dropped.
///
/// # Resuming
/// ```
/// # use tensorferry_data::{DataLoader, TensorDataset, dataset};
/// # use tensorferry_tensor::Tensor;
/// # #[dataset]
/// # type Numbers = TensorDataset<Tensor<i64>>;
/// # let numbers = || Numbers::new(Tensor::from_vec((0..100).collect(), [100]).unwrap()).unwrap();
/// let loader = DataLoader::builder(numbers()).batch_size(8).shuffle().start()?;
/// let mut epoch = loader.epoch(3);
/// let before: Vec<_> = epoch.by_ref().take(5).collect::<Result<_, _>>()?;
/// let state = epoch.state(); // serde can write it into a checkpoint
/// let rest: Vec<_> = epoch.collect::<Result<_, _>>()?;
///
/// // Later, in another process, with another number of workers.
/// let loader = DataLoader::builder(numbers()).batch_size(8).shuffle().workers(2).start()?;
/// let resumed: Vec<_> = loader.resume(&state)?.collect::<Result<_, _>>()?;
/// assert_eq!(resumed, rest);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DataLoader<D: Dataset> {
    shared: Arc<Shared<D>>,
}

pub(crate) struct Shared<D> {
    pub(crate) source: Source<D>,
    pub(crate) steps: Arc<Steps>,
}

/// Who makes the batches.
pub(crate) enum Source<D> {
    /// Whoever iterates, one at a time.
    Here(Mutex<D>),
    Workers {
        pool: Pool,
        /// How many batches are under way.
        n_ahead: usize,
        timeout: Option<Duration>,
        /// Whether the batches come in the order in which they were drawn, and not as they are made.
        in_order: bool,
    },
}

/// Which batches an epoch has.
#[derive(Debug)]
pub(crate) struct Steps {
    pub(crate) draws: Draws,
    pub(crate) n_samples: usize,
    pub(crate) seed: u64,
}

/// Who draws the batches of an epoch.
#[derive(Debug)]
pub(crate) enum Draws {
    /// Batches are so many samples of an order.
    Samples { sampler: Box<dyn Sampler>, batch_size: usize, drops_last: bool },
    /// They are drawn as they are.
    Batches(Box<dyn BatchSampler>),
}

/// How long an epoch is, in what is known of all its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Length {
    Samples(usize),
    Batches(usize),
}

impl Steps {
    /// How long an epoch is.
    pub(crate) fn length(&self) -> Length {
        match &self.draws {
            Draws::Samples { sampler, .. } => Length::Samples(sampler.n_drawn(self.n_samples)),
            Draws::Batches(sampler) => Length::Batches(sampler.n_batches(self.n_samples)),
        }
    }

    /// How many batches an epoch has.
    pub(crate) fn n_batches(&self) -> usize {
        match self.length() {
            Length::Samples(n_drawn) => self.n_batches_of(n_drawn),
            Length::Batches(n_batches) => n_batches,
        }
    }

    /// How many batches come of this many samples of an order.
    pub(crate) fn n_batches_of(&self, n_samples: usize) -> usize {
        match &self.draws {
            Draws::Samples { batch_size, drops_last: true, .. } => n_samples / batch_size,
            Draws::Samples { batch_size, .. } => n_samples.div_ceil(*batch_size),
            Draws::Batches(_) => n_samples,
        }
    }
}

impl<D: Dataset> DataLoader<D> {
    /// The settings of a loader to be started.
    pub fn builder(dataset: D) -> DataLoaderBuilder<D> {
        DataLoaderBuilder::new(dataset)
    }

    pub(crate) fn new(source: Source<D>, steps: Steps) -> Self {
        Self { shared: Arc::new(Shared { source, steps: Arc::new(steps) }) }
    }

    fn steps(&self) -> &Steps {
        &self.shared.steps
    }

    /// How many batches an epoch has.
    #[must_use]
    pub fn n_batches(&self) -> usize {
        self.steps().n_batches()
    }

    /// How many samples the dataset has.
    #[must_use]
    pub fn n_samples(&self) -> usize {
        self.steps().n_samples
    }

    /// The workers that run now. Fewer than were asked for while one takes another's place.
    #[must_use]
    pub fn processes(&self) -> Vec<ChildProcess> {
        match &self.shared.source {
            Source::Here(_) => Vec::new(),
            Source::Workers { pool, .. } => pool.processes(),
        }
    }

    /// The batches of the epoch with this number. With a random order, each epoch has another one.
    ///
    /// With workers, the first batches are made from here on, before the first step.
    pub fn epoch(&self, epoch: u64) -> Epoch<D> {
        Epoch::new(Arc::clone(&self.shared), epoch, Places::default())
    }

    /// The batches of an epoch without those that had been handed out when `state` was taken.
    ///
    /// Number of workers and batch size may differ from then.
    ///
    /// # Errors
    /// [`ResumeError`] when the seed, the number of samples or their order differs.
    pub fn resume(&self, state: &LoaderState) -> Result<Epoch<D>, ResumeError> {
        let steps = self.steps();
        if state.seed != steps.seed {
            return Err(ResumeError::Seed { state: state.seed, loader: steps.seed });
        }
        if state.n_samples != steps.n_samples {
            return Err(ResumeError::Dataset { state: state.n_samples, loader: steps.n_samples });
        }
        let done = match (state.length, steps.length()) {
            (Length::Samples(state), Length::Samples(loader)) if state != loader => {
                return Err(ResumeError::Length { state, loader });
            }
            (Length::Batches(state), Length::Batches(loader)) if state != loader => {
                return Err(ResumeError::Batches { state, loader });
            }
            (Length::Samples(_), Length::Samples(n_drawn)) => state.done.below(n_drawn),
            (Length::Batches(_), Length::Batches(_)) => state.done.clone(),
            _ => return Err(ResumeError::Order),
        };
        let epoch = Epoch::new(Arc::clone(&self.shared), state.epoch, done);
        if epoch.state().order != state.order { Err(ResumeError::Order) } else { Ok(epoch) }
    }

    /// Lets the workers end in order and waits for them. Batches that nobody has taken are lost. Where an
    /// epoch is still held, nobody is waited for: what it has asked for still comes, and then one error.
    ///
    /// # Errors
    /// [`PoolError`] when the workers have failed as a whole.
    pub fn join(self) -> Result<(), Arc<PoolError>> {
        match Arc::try_unwrap(self.shared).map(|shared| shared.source) {
            Ok(Source::Here(_)) => Ok(()),
            Ok(Source::Workers { pool, .. }) => pool.join(),
            Err(shared) => {
                if let Source::Workers { pool, .. } = &shared.source {
                    pool.close();
                }
                Ok(())
            }
        }
    }
}

impl<D: Dataset> fmt::Debug for DataLoader<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let processes = self.processes().len();
        f.debug_struct("DataLoader").field("steps", self.steps()).field("n_processes", &processes).finish()
    }
}
