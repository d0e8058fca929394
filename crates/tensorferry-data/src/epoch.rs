//! One pass over the samples.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_pool::{AsyncResult, Pool};
use tensorferry_storage::Heap;

use crate::ahead::{self, Ahead, Failure, Refusal, Requester, Step, batch_of};
use crate::dataset::{Batch, Dataset};
use crate::error::{LoadError, LoadErrorKind};
use crate::loader::{Length, Shared, Source};
use crate::places::Places;
use crate::requests::Requests;
use crate::samples::Progress;
use crate::worker::{Fetched, Request, fetch, make};

/// How far an epoch is: what a checkpoint needs to go on with the next batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderState {
    pub(crate) epoch: u64,
    pub(crate) done: Places,
    pub(crate) length: Length,
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
        self.done.n()
    }
}

/// The batches of one epoch, in order unless the loader says otherwise
/// ([`in_order`](crate::DataLoaderBuilder::in_order)).
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
    ahead: Ahead<Request, Fetched<Batch<D>>>,
    /// Which samples were in batches that have been handed out.
    done: Places,
}

impl ahead::Request for Request {
    fn note_in(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    fn sample(&self, place: usize) -> Option<usize> {
        self.indices.get(place).copied()
    }
}

/// Asks the workers for the batches of an epoch.
struct Asking<'a, D> {
    pool: &'a Pool,
    requests: &'a mut Requests,
    n_samples: usize,
    of: PhantomData<D>,
}

impl<D: Dataset> Requester for Asking<'_, D> {
    type Request = Request;
    type Value = Fetched<Batch<D>>;

    fn next(&mut self) -> Option<Request> {
        self.requests.next()
    }

    fn submit(
        &self,
        request: Request,
        timeout: Option<Duration>,
    ) -> Result<AsyncResult<Fetched<Batch<D>>>, Refusal<Request>> {
        check(&request, self.n_samples).map_err(Refusal::Never)?;
        Ok(match timeout {
            Some(timeout) => self.pool.apply_async_timeout(fetch::<D>, (request,), timeout),
            None => self.pool.apply_async(fetch::<D>, (request,)),
        }?)
    }
}

/// Whether the dataset has all samples of a request.
fn check(request: &Request, n_samples: usize) -> Result<(), Failure> {
    match request.indices.iter().copied().find(|index| *index >= n_samples) {
        None => Ok(()),
        sample => Err((LoadErrorKind::OutOfRange { n_samples }, sample)),
    }
}

impl<D: Dataset> Epoch<D> {
    pub(crate) fn new(loader: Arc<Shared<D>>, epoch: u64, done: Places) -> Self {
        let requests = Requests::new(Arc::clone(&loader.steps), epoch, &done);
        let (n_ahead, in_order) = match &loader.source {
            Source::Here(_) => (0, true),
            Source::Workers { n_ahead, in_order, .. } => (*n_ahead, *in_order),
        };
        let ahead = Ahead::new(n_ahead.min(requests.n_left()), in_order);
        let mut this = Self { loader, epoch, requests, ahead, done };
        this.ask_ahead();
        this
    }

    /// How far it is. The batches that were handed out are done, whatever became of them; but nothing is done
    /// any more after the workers have failed as a whole.
    #[must_use]
    pub fn state(&self) -> LoaderState {
        let steps = &self.loader.steps;
        let (length, n_samples, seed) = (steps.length(), steps.n_samples, steps.seed);
        let (done, order) = (self.done.clone(), self.requests.fingerprint());
        LoaderState { epoch: self.epoch, done, length, n_samples, seed, order }
    }

    fn ask_ahead(&mut self) {
        let (requests, n_samples) = (&mut self.requests, self.loader.steps.n_samples);
        if let Source::Workers { pool, .. } = &self.loader.source {
            self.ahead.fill(&mut Asking::<D> { pool, requests, n_samples, of: PhantomData });
        }
    }

    /// The next batch of the workers.
    fn take(&mut self) -> Option<Result<Batch<D>, LoadError>> {
        loop {
            let Source::Workers { pool, timeout, .. } = &self.loader.source else { return None };
            let (requests, n_samples) = (&mut self.requests, self.loader.steps.n_samples);
            let mut asking = Asking::<D> { pool, requests, n_samples, of: PhantomData };
            match self.ahead.next(&mut asking, *timeout)? {
                Step::Late(request, failure) => {
                    let number = request.map_or(0, |request| request.number);
                    return Some(Err(self.error(number, failure)));
                }
                Step::Lost => {}
                Step::Done(request, outcome) => {
                    let outcome = outcome.and_then(|fetched| batch_of(fetched, &request));
                    let result = self.hand_out(&request, outcome);
                    // So that the workers have work while this batch is used.
                    self.ask_ahead();
                    return Some(result);
                }
            }
        }
    }

    /// The next batch, made here.
    fn make(&mut self) -> Option<Result<Batch<D>, LoadError>> {
        let loader = Arc::clone(&self.loader);
        let Source::Here(dataset) = &loader.source else { return None };
        let dataset = dataset.lock().unwrap_or_else(PoisonError::into_inner);
        let request = self.requests.next()?;
        let n_samples = self.loader.steps.n_samples;
        let result = match (Heap::current(), check(&request, n_samples)) {
            (Err(error), _) => Err((LoadErrorKind::Memory(error), None)),
            (Ok(_), Err(failure)) => Err(failure),
            (Ok(heap), Ok(())) => batch_of(make(&*dataset, &request, heap, None), &request),
        };
        Some(self.hand_out(&request, result))
    }

    fn hand_out<B>(&mut self, request: &Request, result: Result<B, Failure>) -> Result<B, LoadError> {
        if !self.ahead.has_failed() {
            self.done.add_all(&request.places);
        }
        result.map_err(|failure| self.error(request.number, failure))
    }

    fn error(&self, batch: usize, (kind, sample): Failure) -> LoadError {
        LoadError { epoch: self.epoch, batch, shard: None, sample, kind }
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
