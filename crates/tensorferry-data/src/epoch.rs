//! One pass over the samples.

use std::collections::VecDeque;
use std::fmt;
use std::iter::FusedIterator;

use serde::{Deserialize, Serialize};
use tensorferry_pool::{AsyncResult, Pool, TaskError};
use tensorferry_storage::{Heap, StorageError};
use tensorferry_sync::RawArray;

use crate::dataset::{Batch, Dataset};
use crate::error::{LoadError, LoadErrorKind, RaisedError};
use crate::loader::{DataLoader, Source};
use crate::sampler::Indices;
use crate::samples::Progress;
use crate::worker::{Fetched, Request, fetch, make};

/// How far an epoch is: what a checkpoint needs to go on with the next batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderState {
    pub(crate) epoch: u64,
    pub(crate) n_done: usize,
    pub(crate) n_drawn: usize,
    pub(crate) seed: u64,
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
/// Each batch by itself may be a [`LoadError`]. After all but a failure of all workers the next step goes on
/// with the batch behind it.
#[must_use = "batches are loaded when it is iterated"]
pub struct Epoch<'a, D: Dataset> {
    loader: &'a DataLoader<D>,
    epoch: u64,
    order: Indices,
    /// How many samples were drawn so far.
    n_drawn: usize,
    /// How many samples were in batches that have been handed out.
    n_done: usize,
    /// How many batches have been handed out.
    n_batches_done: usize,
    /// How many batches there are still to be asked for.
    n_to_ask: usize,
    /// The batches that were asked for, the next one first.
    ahead: VecDeque<Asked<D>>,
    cells: Option<RawArray<u64>>,
    n_asked: usize,
}

/// A batch that was asked for.
struct Asked<D: Dataset> {
    indices: Vec<usize>,
    progress: Option<Progress>,
    answer: Answer<D>,
}

enum Answer<D: Dataset> {
    /// A worker makes it.
    Awaited(AsyncResult<Fetched<Batch<D>>>),
    /// It will not be made.
    Refused(LoadErrorKind),
}

impl<'a, D: Dataset> Epoch<'a, D> {
    pub(crate) fn new(loader: &'a DataLoader<D>, epoch: u64, n_done: usize) -> Self {
        let steps = loader.steps();
        let mut order = steps.draw(epoch);
        if let Some(last) = n_done.checked_sub(1) {
            let _ = order.nth(last);
        }
        let n_to_ask = steps.n_batches(steps.n_drawn().saturating_sub(n_done));
        let mut this = Self {
            loader,
            epoch,
            order,
            n_drawn: n_done,
            n_done,
            n_batches_done: n_done.div_ceil(steps.batch_size),
            n_to_ask,
            ahead: VecDeque::new(),
            cells: None,
            n_asked: 0,
        };
        this.ask_ahead();
        this
    }

    /// How far it is. The batches that were handed out are done, whatever became of them.
    #[must_use]
    pub fn state(&self) -> LoaderState {
        let steps = self.loader.steps();
        let n_drawn = steps.n_drawn();
        LoaderState { epoch: self.epoch, n_done: self.n_done, n_drawn, seed: steps.seed }
    }

    /// Asks the workers for batches until enough are under way.
    fn ask_ahead(&mut self) {
        let Source::Workers { pool, n_ahead, .. } = self.loader.source() else { return };
        while self.ahead.len() < *n_ahead && self.n_to_ask > 0 {
            let Some((request, out_of_range)) = self.draw() else { break };
            let asked = self.ask(pool, *n_ahead, request, out_of_range);
            self.ahead.push_back(asked);
        }
    }

    fn ask(&mut self, pool: &Pool, n_ahead: usize, mut request: Request, out_of_range: bool) -> Asked<D> {
        let indices = request.indices.clone();
        if out_of_range {
            let kind = LoadErrorKind::OutOfRange { n_samples: self.loader.steps().n_samples };
            return Asked { indices, progress: None, answer: Answer::Refused(kind) };
        }
        let progress = match self.progress(n_ahead) {
            Ok(progress) => progress,
            Err(error) => {
                return Asked {
                    indices,
                    progress: None,
                    answer: Answer::Refused(LoadErrorKind::Memory(error)),
                };
            }
        };
        request.progress = Some(progress.clone());
        let answer = match pool.apply_async(fetch::<D>, (request,)) {
            Ok(result) => Answer::Awaited(result),
            Err(error) => {
                // Whatever it is, it is the same for the batches behind it.
                self.n_to_ask = 0;
                Answer::Refused(LoadErrorKind::Task(error.into()))
            }
        };
        Asked { indices, progress: Some(progress), answer }
    }

    /// The cell of the next request. It was used before by a request that has been answered.
    fn progress(&mut self, n_ahead: usize) -> Result<Progress, StorageError> {
        let cells = match &self.cells {
            Some(cells) => cells.clone(),
            None => self.cells.insert(RawArray::full(n_ahead + 1, 0)?).clone(),
        };
        let cell = 1 + self.n_asked % n_ahead;
        self.n_asked += 1;
        Ok(Progress { cells, cell })
    }

    /// The next request, and whether it has an index that the dataset does not have.
    fn draw(&mut self) -> Option<(Request, bool)> {
        let steps = self.loader.steps();
        let indices: Vec<_> = self.order.by_ref().take(steps.batch_size).collect();
        self.n_to_ask = self.n_to_ask.saturating_sub(1);
        if indices.is_empty() || steps.drops_last && indices.len() < steps.batch_size {
            // The sampler has drawn fewer than it said.
            self.n_to_ask = 0;
            return None;
        }
        let out_of_range = indices.iter().any(|index| *index >= steps.n_samples);
        let first_draw = steps.sampler.repeats().then_some(self.n_drawn);
        self.n_drawn += indices.len();
        let (epoch, seed) = (self.epoch, steps.seed);
        Some((Request { indices, epoch, seed, first_draw, progress: None }, out_of_range))
    }

    /// The next batch of the workers.
    fn take(&mut self) -> Option<Result<Batch<D>, LoadError>> {
        self.ask_ahead();
        let asked = self.ahead.pop_front()?;
        let Asked { indices, progress, answer } = asked;
        let result = match answer {
            Answer::Refused(kind) => {
                let first_bad = |index: &usize| *index >= self.loader.steps().n_samples;
                let sample = indices.iter().copied().find(first_bad);
                Err((kind, sample))
            }
            Answer::Awaited(result) => {
                if let Source::Workers { timeout: Some(timeout), .. } = self.loader.source()
                    && !result.wait_timeout(*timeout)
                {
                    let place = progress.as_ref().and_then(Progress::place);
                    let sample = place.and_then(|place| indices.get(place).copied());
                    self.ahead.push_front(Asked { indices, progress, answer: Answer::Awaited(result) });
                    return Some(Err(self.error(LoadErrorKind::TimedOut(*timeout), sample)));
                }
                match result.get() {
                    Ok(fetched) => batch_of(fetched, &indices),
                    Err(TaskError::WorkerDied(error)) => {
                        let place = progress.as_ref().and_then(Progress::place);
                        let sample = place.and_then(|place| indices.get(place).copied());
                        Err((LoadErrorKind::WorkerDied(error), sample))
                    }
                    Err(error) => {
                        if matches!(error, TaskError::Pool(_) | TaskError::Terminated) {
                            // Those behind it have the same to say.
                            self.n_to_ask = 0;
                            self.ahead.clear();
                        }
                        Err((LoadErrorKind::Task(error), None))
                    }
                }
            }
        };
        let result = result.map_err(|(kind, sample)| self.error(kind, sample));
        self.n_done += indices.len();
        self.n_batches_done += 1;
        // So that the workers have work while this batch is used.
        self.ask_ahead();
        Some(result)
    }

    /// The next batch, made here.
    fn make(&mut self, dataset: &D) -> Option<Result<Batch<D>, LoadError>> {
        if self.n_to_ask == 0 {
            return None;
        }
        let (request, out_of_range) = self.draw()?;
        let result = match Heap::current() {
            Err(error) => Err((LoadErrorKind::Memory(error), None)),
            Ok(_) if out_of_range => {
                let n_samples = dataset.len();
                let sample = request.indices.iter().copied().find(|index| *index >= n_samples);
                Err((LoadErrorKind::OutOfRange { n_samples }, sample))
            }
            Ok(heap) => batch_of(make(dataset, &request, heap), &request.indices),
        };
        let result = result.map_err(|(kind, sample)| self.error(kind, sample));
        self.n_done += request.indices.len();
        self.n_batches_done += 1;
        Some(result)
    }

    fn error(&self, kind: LoadErrorKind, sample: Option<usize>) -> LoadError {
        LoadError { epoch: self.epoch, batch: self.n_batches_done, sample, kind }
    }
}

fn batch_of<B>(fetched: Fetched<B>, indices: &[usize]) -> Result<B, (LoadErrorKind, Option<usize>)> {
    match fetched {
        Fetched::Batch(batch) => Ok(batch),
        Fetched::Failed { worker, place, report } => {
            let sample = place.and_then(|place| indices.get(place).copied());
            let raised = RaisedError { worker, report: *report };
            Err((LoadErrorKind::Raised(Box::new(raised)), sample))
        }
    }
}

impl<D: Dataset> Iterator for Epoch<'_, D> {
    type Item = Result<Batch<D>, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.loader.source() {
            Source::Here(dataset) => self.make(dataset),
            Source::Workers { .. } => self.take(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n_left = self.n_to_ask + self.ahead.len();
        match self.loader.source() {
            Source::Here(_) => (n_left, Some(n_left)),
            // The failure of all workers ends it early, and a batch that is late is an item more.
            Source::Workers { timeout, .. } => (0, timeout.is_none().then_some(n_left)),
        }
    }
}

impl<D: Dataset> FusedIterator for Epoch<'_, D> {}

impl<D: Dataset> Drop for Epoch<'_, D> {
    /// Tells the workers that nobody wants what they still make.
    fn drop(&mut self) {
        if !self.ahead.is_empty()
            && let Some(cells) = &self.cells
        {
            // The array has that cell.
            let _ = cells.set(0, 1);
        }
    }
}

impl<D: Dataset> fmt::Debug for Epoch<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch").field("state", &self.state()).field("n_ahead", &self.ahead.len()).finish()
    }
}
