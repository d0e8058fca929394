//! One pass over the shards.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tensorferry_pool::{AsyncResult, Pool};

use super::dataset::{IterableBatch, IterableDataset};
use super::loader::{Shared, Source};
use super::state::IterableState;
use super::turns::{ShardRequests, Turns};
use super::worker::{Next, ShardRequest, fetch};
use crate::ahead::{Ahead, Failure, Refusal, Request as _, Requester, Step, batch_of};
use crate::error::{LoadError, LoadErrorKind};
use crate::random::EpochKey;
use crate::worker::Fetched;

/// The batches of one epoch of an [`IterableDataset`], in order.
///
/// # Blocking
/// A step waits until the batch is made, the worker that makes it dies, or the loader's
/// [`timeout`](crate::DataLoaderBuilder::timeout) has passed.
///
/// # Errors
/// Each batch by itself may be a [`LoadError`]. The next step goes on with the batch behind it, and with the
/// other shards where one is over; after a failure of all workers, with what had been made before.
#[must_use = "batches are loaded when it is iterated"]
pub struct IterableEpoch<D: IterableDataset> {
    loader: Arc<Shared<D>>,
    requests: ShardRequests,
    ahead: Ahead<ShardRequest, Next<D>>,
    /// How far what was handed out is.
    done: Turns,
    /// Of each shard, whether the last thing that came of it is that a worker has died.
    died: Vec<bool>,
    /// How many batches have been handed out.
    n_batches_done: usize,
}

/// Asks the workers for the batches of an epoch.
struct Asking<'a, D> {
    pools: &'a [Pool],
    requests: &'a mut ShardRequests,
    of: PhantomData<D>,
}

impl<D: IterableDataset> Requester for Asking<'_, D> {
    type Request = ShardRequest;
    type Batch = Next<D>;

    fn next(&mut self) -> Option<ShardRequest> {
        self.requests.next()
    }

    fn submit(
        &self,
        request: ShardRequest,
        timeout: Option<Duration>,
    ) -> Result<AsyncResult<Fetched<Next<D>>>, Refusal<ShardRequest>> {
        // There is one: who has no workers asks nobody.
        let pool = &self.pools[request.shard % self.pools.len()];
        Ok(match timeout {
            Some(timeout) => pool.apply_async_timeout(fetch::<D>, (request,), timeout),
            None => pool.apply_async(fetch::<D>, (request,)),
        }?)
    }
}

impl<D: IterableDataset> IterableEpoch<D> {
    pub(crate) fn new(loader: Arc<Shared<D>>, epoch: u64, pass: u64, turns: Turns) -> Self {
        let n_ahead = match &loader.source {
            Source::Here(_) => 0,
            Source::Workers { n_ahead, .. } => *n_ahead,
        };
        let key = EpochKey { seed: loader.seed, epoch };
        let (batch_size, drops_last) = (loader.batch_size, loader.drops_last);
        let done = Turns { positions: turns.positions.clone(), next: turns.next };
        let died = vec![false; turns.positions.len()];
        let requests = ShardRequests { turns, key, pass, batch_size, drops_last };
        let ahead = Ahead::new(n_ahead, true);
        let mut this = Self { loader, requests, ahead, done, died, n_batches_done: 0 };
        this.ask_ahead();
        this
    }

    /// How far it is. The batches that were handed out are done, whatever became of them; but nothing is done
    /// any more after the workers have failed as a whole.
    #[must_use]
    pub fn state(&self) -> IterableState {
        IterableState::new(self.requests.key.epoch, self.requests.key.seed, &self.done)
    }

    fn ask_ahead(&mut self) {
        if let Source::Workers { pools, .. } = &self.loader.source {
            self.ahead.fill(&mut Asking::<D> { pools, requests: &mut self.requests, of: PhantomData });
        }
    }

    /// What comes next of the next shard, from the workers or made here.
    fn step(&mut self) -> Option<Step<ShardRequest, Next<D>>> {
        let requests = &mut self.requests;
        match &self.loader.source {
            Source::Workers { pools, timeout, .. } => {
                self.ahead.next(&mut Asking::<D> { pools, requests, of: PhantomData }, *timeout)
            }
            Source::Here(here) => {
                let mut request = requests.next()?;
                let outcome = self.ahead.progress().map_err(LoadErrorKind::Memory).and_then(|progress| {
                    request.note_in(progress);
                    here.fetch(request.clone())
                });
                let outcome = outcome.map_err(|kind| (kind, None));
                Some(Step::Done(request.clone(), outcome.and_then(|fetched| batch_of(fetched, &request))))
            }
        }
    }

    /// A shard has no more samples.
    fn end(&mut self, shard: usize) {
        self.requests.turns.end(shard);
        self.done.end(shard);
    }

    /// Notes what came of a request. Returns what is handed out, if it is anything.
    fn note(
        &mut self,
        request: &ShardRequest,
        outcome: Result<Next<D>, Failure>,
    ) -> Option<Result<IterableBatch<D>, LoadError>> {
        let shard = request.shard;
        // What had been asked of it before that was known.
        if self.done.positions[shard].is_over && !matches!(&outcome, Err((LoadErrorKind::Task(_), _))) {
            return None;
        }
        let has_died = matches!(&outcome, Err((LoadErrorKind::WorkerDied(_), _)));
        let had_died = std::mem::replace(&mut self.died[shard], has_died);
        let n_read = match &outcome {
            // Those of a batch that was lost are done too.
            Err(_) => request.batch_size,
            Ok(next) => next.as_ref().map_or(0, |(_, n_read)| *n_read),
        };
        if n_read < request.batch_size || has_died && had_died {
            self.end(shard);
        }
        if !self.ahead.has_failed() {
            let position = &mut self.done.positions[shard];
            position.n_done = request.n_done.saturating_add(n_read);
            self.done.next = (shard + 1) % self.done.positions.len();
        }
        let result = match outcome {
            Ok(None) => return None,
            Ok(Some((batch, _))) => Ok(batch),
            Err(failure) => Err(self.error(Some(shard), failure)),
        };
        self.n_batches_done += 1;
        Some(result)
    }

    fn error(&self, shard: Option<usize>, (kind, sample): Failure) -> LoadError {
        let (epoch, batch) = (self.requests.key.epoch, self.n_batches_done);
        LoadError { epoch, batch, shard, sample, kind }
    }
}

impl<D: IterableDataset> Iterator for IterableEpoch<D> {
    type Item = Result<IterableBatch<D>, LoadError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.step()? {
                Step::Late(request, failure) => {
                    return Some(Err(self.error(request.map(|request| request.shard), failure)));
                }
                Step::Lost => self.n_batches_done += 1,
                Step::Done(request, outcome) => {
                    if let Some(result) = self.note(&request, outcome) {
                        // So that the workers have work while this batch is used.
                        self.ask_ahead();
                        return Some(result);
                    }
                }
            }
        }
    }
}

impl<D: IterableDataset> FusedIterator for IterableEpoch<D> {}

impl<D: IterableDataset> fmt::Debug for IterableEpoch<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IterableEpoch").field("state", &self.state()).field("ahead", &self.ahead).finish()
    }
}
