//! One pass over the samples.

use std::fmt;
use std::iter::FusedIterator;
use std::sync::{Arc, PoisonError};

use serde::{Deserialize, Serialize};
use tensorferry_pool::{SubmitErrorKind, TaskError};
use tensorferry_storage::Heap;

use crate::ahead::{Ahead, Answer, Asked};
use crate::dataset::{Batch, Dataset};
use crate::error::{LoadError, LoadErrorKind, RaisedError};
use crate::loader::{Shared, Source};
use crate::requests::Requests;
use crate::worker::{Fetched, make};

/// How far an epoch is: what a checkpoint needs to go on with the next batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderState {
    pub(crate) epoch: u64,
    pub(crate) n_done: usize,
    pub(crate) n_drawn: usize,
    pub(crate) n_samples: usize,
    pub(crate) seed: u64,
    pub(crate) order: u64,
}

impl LoaderState {
    /// The number of the epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many samples of it were in batches that had been handed out, those that failed included.
    #[must_use]
    pub fn n_samples_done(&self) -> usize {
        self.n_done
    }
}

/// The batches of one epoch, in order.
///
/// # Blocking
/// A step waits until the batch is made, the worker that makes it dies, or the loader's
/// [`timeout`](crate::DataLoaderBuilder::timeout) has passed.
///
/// # Errors
/// Each batch by itself may be a [`LoadError`]. The next step goes on with the batch behind it; after a
/// failure of all workers, with those that had been made before.
#[must_use = "batches are loaded when it is iterated"]
pub struct Epoch<D: Dataset> {
    loader: Arc<Shared<D>>,
    epoch: u64,
    requests: Requests,
    ahead: Ahead<D>,
    /// How many samples were in batches that have been handed out.
    n_done: usize,
    /// How many batches have been handed out.
    n_batches_done: usize,
    /// The workers have failed as a whole.
    has_failed: bool,
}

/// What happened to a batch, and which sample it was about.
type Failure = (LoadErrorKind, Option<usize>);

impl<D: Dataset> Epoch<D> {
    pub(crate) fn new(loader: Arc<Shared<D>>, epoch: u64, n_done: usize) -> Self {
        let requests = Requests::new(Arc::clone(&loader.steps), epoch, n_done);
        let n_ahead = match &loader.source {
            Source::Here(_) => 0,
            Source::Workers { n_ahead, .. } => *n_ahead,
        };
        let ahead = Ahead::new(n_ahead.min(requests.n_left()));
        let n_batches_done = n_done.div_ceil(loader.steps.batch_size);
        let mut this = Self { loader, epoch, requests, ahead, n_done, n_batches_done, has_failed: false };
        this.ask_ahead();
        this
    }

    /// How far it is. The batches that were handed out are done, whatever became of them; but nothing is done
    /// any more after the workers have failed as a whole.
    #[must_use]
    pub fn state(&self) -> LoaderState {
        let steps = &self.loader.steps;
        let (n_drawn, n_samples, seed) = (steps.n_drawn(), steps.n_samples, steps.seed);
        let order = self.requests.fingerprint();
        LoaderState { epoch: self.epoch, n_done: self.n_done, n_drawn, n_samples, seed, order }
    }

    fn ask_ahead(&mut self) {
        if let Source::Workers { pool, .. } = &self.loader.source {
            self.ahead.fill(pool, &mut self.requests, self.loader.steps.n_samples);
        }
    }

    /// The next batch of the workers.
    fn take(&mut self) -> Option<Result<Batch<D>, LoadError>> {
        let loader = Arc::clone(&self.loader);
        let Source::Workers { pool, timeout, .. } = &loader.source else { return None };
        loop {
            self.ask_ahead();
            let Some(Asked { indices, answer }) = self.ahead.take() else {
                if self.ahead.len() == 0 {
                    return None;
                }
                // Requests of other epochs fill the queue.
                if self.ahead.ask(pool, &mut self.requests, self.loader.steps.n_samples, *timeout) {
                    continue;
                }
                let timeout = timeout.unwrap_or_default();
                return Some(Err(self.error((LoadErrorKind::TimedOut { timeout, pid: None }, None))));
            };
            let result = match answer {
                Answer::Refused(kind) => {
                    let is_out_of_range = |index: &usize| *index >= self.loader.steps.n_samples;
                    let sample = indices.iter().copied().find(is_out_of_range);
                    Err((kind, sample))
                }
                Answer::Awaited(result, progress) => {
                    let sample = || progress.place().and_then(|place| indices.get(place).copied());
                    if let Some(timeout) = timeout
                        && !result.wait_timeout(*timeout)
                    {
                        let failure =
                            (LoadErrorKind::TimedOut { timeout: *timeout, pid: progress.pid() }, sample());
                        self.ahead.put_back(Asked { indices, answer: Answer::Awaited(result, progress) });
                        return Some(Err(self.error(failure)));
                    }
                    match result.get() {
                        Ok(fetched) => batch_of(fetched, &indices),
                        Err(TaskError::WorkerDied(error)) => {
                            Err((LoadErrorKind::WorkerDied(error), sample()))
                        }
                        Err(error) => Err((LoadErrorKind::Task(error), None)),
                    }
                }
            };
            if matches!(&result, Err((LoadErrorKind::Task(error), _)) if is_of_all(error)) {
                // Said once. Others may have been made before.
                if std::mem::replace(&mut self.has_failed, true) {
                    self.n_batches_done += 1;
                    continue;
                }
                self.requests.stop();
                self.ahead.stop();
            }
            let result = self.hand_out(indices.len(), result);
            // So that the workers have work while this batch is used.
            self.ask_ahead();
            return Some(result);
        }
    }

    /// The next batch, made here.
    fn make(&mut self) -> Option<Result<Batch<D>, LoadError>> {
        let loader = Arc::clone(&self.loader);
        let Source::Here(dataset) = &loader.source else { return None };
        let dataset = dataset.lock().unwrap_or_else(PoisonError::into_inner);
        let request = self.requests.next()?;
        let n_samples = self.loader.steps.n_samples;
        let result = match (Heap::current(), request.indices.iter().find(|index| **index >= n_samples)) {
            (Err(error), _) => Err((LoadErrorKind::Memory(error), None)),
            (Ok(_), Some(&index)) => Err((LoadErrorKind::OutOfRange { n_samples }, Some(index))),
            (Ok(heap), None) => batch_of(make(&*dataset, &request, heap, None), &request.indices),
        };
        Some(self.hand_out(request.indices.len(), result))
    }

    fn hand_out<B>(&mut self, n_samples: usize, result: Result<B, Failure>) -> Result<B, LoadError> {
        let result = result.map_err(|failure| self.error(failure));
        if !self.has_failed {
            self.n_done += n_samples;
        }
        self.n_batches_done += 1;
        result
    }

    fn error(&self, (kind, sample): Failure) -> LoadError {
        LoadError { epoch: self.epoch, batch: self.n_batches_done, sample, kind }
    }
}

/// Whether the workers make no batch any more.
fn is_of_all(error: &TaskError) -> bool {
    matches!(error, TaskError::Pool(_) | TaskError::Terminated | TaskError::Submit(SubmitErrorKind::Closed))
}

fn batch_of<B>(fetched: Fetched<B>, indices: &[usize]) -> Result<B, Failure> {
    match fetched {
        Fetched::Batch(batch) => Ok(batch),
        Fetched::Failed { worker, place, report } => {
            let sample = place.and_then(|place| indices.get(place).copied());
            let raised = RaisedError { worker, report: *report };
            Err((LoadErrorKind::Raised(Box::new(raised)), sample))
        }
    }
}

impl<D: Dataset> Iterator for Epoch<D> {
    type Item = Result<Batch<D>, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &self.loader.source {
            Source::Here(_) => self.make(),
            Source::Workers { .. } => self.take(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n_left = self.requests.n_left().saturating_add(self.ahead.len());
        // A sampler may draw fewer than it says, and a batch that is late is an item more.
        let has_timeout = matches!(self.loader.source, Source::Workers { timeout: Some(_), .. });
        (0, (!has_timeout).then_some(n_left))
    }
}

impl<D: Dataset> FusedIterator for Epoch<D> {}

impl<D: Dataset> fmt::Debug for Epoch<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch").field("state", &self.state()).field("ahead", &self.ahead).finish()
    }
}
