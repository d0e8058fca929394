//! One pass over the shards.

use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tensorferry_pool::{AsyncResult, Pool, TaskError};

use super::dataset::{IterableBatch, IterableDataset};
use super::loader::{Shared, Source};
use super::state::IterableState;
use super::turns::{Position, ShardRequests, Turns};
use super::worker::{Next, ShardRequest, fetch};
use crate::ahead::{Ahead, Failure, Refusal, Request as _, Requester, Step, batch_of};
use crate::error::{LoadError, LoadErrorKind};
use crate::random::EpochKey;

/// The batches of one epoch of an [`IterableDataset`], in order.
///
/// # Blocking
/// A step waits until the batch is made, the worker that makes it dies, or the loader's
/// [`timeout`](crate::DataLoaderBuilder::timeout) has passed.
///
/// # Errors
/// Each batch by itself may be a [`LoadError`]. The next step goes on with the batch behind it, and with the
/// other shards where one is over; after a failure of all workers, with what had been made before. A shard of
/// which no batch could be asked for twice in a row is left out from there on, but not where the epoch is
/// resumed.
#[must_use = "batches are loaded when it is iterated"]
pub struct IterableEpoch<D: IterableDataset> {
    loader: Arc<Shared<D>>,
    requests: ShardRequests,
    ahead: Ahead<ShardRequest, Next<IterableBatch<D>>>,
    /// How far what was handed out is.
    done: Turns,
    /// Of each shard, whether the last thing that came of it is that nobody has read a batch to its end: a
    /// worker has died, or none could be asked.
    unread: Vec<bool>,
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
    type Value = Next<IterableBatch<D>>;

    fn next(&mut self) -> Option<ShardRequest> {
        self.requests.next()
    }

    fn submit(
        &self,
        request: ShardRequest,
        timeout: Option<Duration>,
    ) -> Result<AsyncResult<Self::Value>, Refusal<ShardRequest>> {
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
        let unread = vec![false; turns.positions.len()];
        let n_batches = turns.positions.iter().map(|position| position.n_done.div_ceil(batch_size));
        let n_batches_done = n_batches.fold(0, usize::saturating_add);
        let requests = ShardRequests { turns, key, pass, batch_size, drops_last };
        let ahead = Ahead::new(n_ahead, true);
        let mut this = Self { loader, requests, ahead, done, unread, n_batches_done };
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
    fn step(&mut self) -> Option<Step<ShardRequest, Next<IterableBatch<D>>>> {
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
                Some(Step::Done(request, outcome.map_err(|kind| (kind, None))))
            }
        }
    }

    /// Notes what came of a request. Returns what is handed out, if it is anything.
    fn note(
        &mut self,
        request: &ShardRequest,
        outcome: Result<Next<IterableBatch<D>>, Failure>,
    ) -> Option<Result<IterableBatch<D>, LoadError>> {
        let shard = request.shard;
        // What had been asked of it before that was known. A failure of all workers is said once, here too.
        let is_of_all = self.ahead.has_failed() && matches!(&outcome, Err((LoadErrorKind::Task(_), _)));
        if self.done.positions[shard].is_over && !is_of_all {
            return None;
        }
        let has_died = matches!(&outcome, Err((LoadErrorKind::WorkerDied(_), _)));
        let is_unasked = matches!(
            &outcome,
            Err((LoadErrorKind::Memory(_) | LoadErrorKind::Task(TaskError::Submit(_)), _))
        );
        let is_unread = has_died || is_unasked;
        let is_second = std::mem::replace(&mut self.unread[shard], is_unread) && is_unread;
        let (n_read, is_over) = match &outcome {
            Ok(next) => (next.n_read, next.is_over),
            // The samples of a batch that was lost are done too.
            Err(_) => (request.batch_size, has_died && is_second),
        };
        // Where nobody can be asked, an epoch of an endless shard would be one error after the other.
        if is_over || is_second {
            self.requests.turns.end(shard);
        }
        if !self.ahead.has_failed() {
            let n_done = request.n_done.saturating_add(n_read);
            self.done.positions[shard] = Position { n_done, is_over };
            self.done.next = (shard + 1) % self.done.positions.len();
            if is_over {
                // Whoever goes on with it may have to read it from the front, or die over it too.
                self.ahead.give_up(|request| request.shard == shard);
            }
        }
        let batch = match outcome {
            Ok(next) => batch_of(next.batch?, request),
            Err(failure) => Err(failure),
        };
        let result = batch.map_err(|failure| self.error(Some(shard), failure));
        self.n_batches_done = self.n_batches_done.saturating_add(1);
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
                Step::Lost => self.n_batches_done = self.n_batches_done.saturating_add(1),
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

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use tensorferry_pool::SubmitErrorKind;
    use tensorferry_spawn::BoxedError;

    use super::*;
    use crate::{IterableLoader, Padded, Shard};

    /// Two shards without end.
    #[derive(Serialize, Deserialize)]
    struct Endless;

    impl IterableDataset for Endless {
        type Sample = u64;

        fn n_shards(&self) -> usize {
            2
        }

        fn iter(&self, shard: Shard) -> Result<impl Iterator<Item = Result<u64, BoxedError>>, BoxedError> {
            self.iter_from(shard, 0)
        }

        fn iter_from(
            &self,
            _: Shard,
            n_done: usize,
        ) -> Result<impl Iterator<Item = Result<u64, BoxedError>>, BoxedError> {
            Ok(std::iter::successors(Some(n_done as u64), |nth| Some(nth.wrapping_add(1))).map(Ok))
        }
    }

    #[test]
    fn a_shard_of_which_nobody_can_be_asked_twice_in_a_row_is_asked_for_no_more() {
        let loader = IterableLoader::builder(Endless).batch_size(4).start().unwrap();
        let mut epoch = loader.epoch(0);
        let refuse = |epoch: &mut IterableEpoch<Endless>| {
            let request = epoch.requests.next().unwrap();
            let refused = TaskError::Submit(SubmitErrorKind::TooManyHandles(1));
            let error = epoch.note(&request, Err((LoadErrorKind::Task(refused), None)));
            assert_eq!(error.unwrap().unwrap_err().shard, Some(request.shard));
        };
        refuse(&mut epoch);
        // Once, and then something comes.
        assert_eq!(epoch.next().unwrap().unwrap().to_vec(), [0, 1, 2, 3]);
        assert_eq!(epoch.next().unwrap().unwrap().to_vec(), [4, 5, 6, 7]);
        (0..4).for_each(|_| refuse(&mut epoch));
        assert!(epoch.next().is_none(), "twice of both");
        // What was not said to be lost still comes.
        let mut resumed = loader.resume(&epoch.state()).unwrap();
        assert_eq!(resumed.n_batches_done, 4 + 3);
        assert_eq!(resumed.next().unwrap().unwrap().to_vec(), [12, 13, 14, 15]);
    }

    /// Two samples, which lie in vectors until the batch is made.
    #[derive(Serialize, Deserialize)]
    struct Words;

    impl IterableDataset for Words {
        type Sample = (String, Padded<u8>);

        fn n_shards(&self) -> usize {
            1
        }

        fn iter(
            &self,
            _: Shard,
        ) -> Result<impl Iterator<Item = Result<Self::Sample, BoxedError>>, BoxedError> {
            Ok(["one", "three"]
                .into_iter()
                .map(|word| Ok((word.to_owned(), word.as_bytes().to_vec().into()))))
        }
    }

    #[test]
    fn a_batch_of_more_samples_than_fit_into_memory_has_those_that_there_are() {
        for batch_size in [1 << 50, usize::MAX] {
            let loader = IterableLoader::builder(Words).batch_size(batch_size).start().unwrap();
            let (words, letters) = loader.epoch(0).next().unwrap().unwrap();
            assert_eq!(
                (words, letters.lens.to_vec()),
                (vec!["one".to_owned(), "three".to_owned()], vec![3, 5])
            );
        }
    }

    #[test]
    fn a_state_without_sense_is_no_panic() {
        let positions = vec![Position { n_done: usize::MAX, is_over: false }; 2];
        let state = IterableState::new(u64::MAX, 0, &Turns { positions, next: usize::MAX });
        let loader = IterableLoader::builder(Endless).batch_size(1).start().unwrap();
        let mut epoch = loader.resume(&state).unwrap();
        let batches: Vec<_> = epoch.by_ref().take(4).map(|batch| batch.unwrap().into_vec()).collect();
        assert_eq!(batches, [[u64::MAX], [u64::MAX], [0], [0]]);
        assert_eq!(epoch.state().n_samples_done(), usize::MAX);
    }
}
