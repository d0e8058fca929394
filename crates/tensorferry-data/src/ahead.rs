//! The batches that workers were asked for.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use tensorferry_pool::{AsyncResult, Pool, SubmitErrorKind, TaskError};
use tensorferry_storage::StorageError;
use tensorferry_sync::RawArray;

use crate::dataset::{Batch, Dataset};
use crate::error::LoadErrorKind;
use crate::requests::Requests;
use crate::samples::Progress;
use crate::worker::{Fetched, Request, fetch};

/// The most batches of one epoch that are under way: as many as fit into the queue of a pool.
const MOST: usize = 256;

/// The batches that were asked for, the next one first.
pub(crate) struct Ahead<D: Dataset> {
    asked: VecDeque<Asked<D>>,
    most: usize,
    /// See [`Progress`].
    cells: Option<RawArray<u64>>,
    n_asked: usize,
    /// A request for which there was no room in the queue of the pool.
    waiting: Option<Request>,
}

/// A batch that was asked for.
pub(crate) struct Asked<D: Dataset> {
    pub(crate) indices: Vec<usize>,
    pub(crate) answer: Answer<D>,
}

pub(crate) enum Answer<D: Dataset> {
    /// A worker makes it.
    Awaited(AsyncResult<Fetched<Batch<D>>>, Progress),
    /// It will not be made.
    Refused(LoadErrorKind),
}

impl<D: Dataset> Ahead<D> {
    /// Of at most `n_ahead` batches.
    pub(crate) fn new(n_ahead: usize) -> Self {
        let most = n_ahead.clamp(1, MOST);
        Self { asked: VecDeque::new(), most, cells: None, n_asked: 0, waiting: None }
    }

    /// How many were asked for and not taken.
    pub(crate) fn len(&self) -> usize {
        self.asked.len() + usize::from(self.waiting.is_some())
    }

    /// Asks for batches until enough are under way, or the pool takes no more for now.
    pub(crate) fn fill(&mut self, pool: &Pool, requests: &mut Requests, n_samples: usize) {
        while self.asked.len() < self.most && self.ask(pool, requests, n_samples, Some(Duration::ZERO)) {}
    }

    /// Asks for one batch. Waits for room in the queue of the pool, for at most `timeout`. Returns false if
    /// there is none, or no batch to be asked for.
    pub(crate) fn ask(
        &mut self,
        pool: &Pool,
        requests: &mut Requests,
        n_samples: usize,
        timeout: Option<Duration>,
    ) -> bool {
        let Some(mut request) = self.waiting.take().or_else(|| requests.next()) else { return false };
        let indices = request.indices.clone();
        let refused = |indices, kind| Asked { indices, answer: Answer::Refused(kind) };
        if indices.iter().any(|index| *index >= n_samples) {
            self.asked.push_back(refused(indices, LoadErrorKind::OutOfRange { n_samples }));
            return true;
        }
        let progress = match self.progress() {
            Ok(progress) => progress,
            Err(error) => {
                self.asked.push_back(refused(indices, LoadErrorKind::Memory(error)));
                return true;
            }
        };
        request.progress = Some(progress.clone());
        let submitted = match timeout {
            Some(timeout) => pool.apply_async_timeout(fetch::<D>, (request,), timeout),
            None => pool.apply_async(fetch::<D>, (request,)),
        };
        match submitted {
            Ok(result) => {
                self.n_asked += 1;
                self.asked.push_back(Asked { indices, answer: Answer::Awaited(result, progress) });
            }
            Err(error) if matches!(error.kind, SubmitErrorKind::Full) => {
                self.waiting = Some(error.into_args().0);
                return false;
            }
            Err(error) => {
                self.asked.push_back(refused(indices, LoadErrorKind::Task(TaskError::from(error))));
            }
        }
        true
    }

    /// The cell of the next request. It was used before by a request that has been answered.
    fn progress(&mut self) -> Result<Progress, StorageError> {
        let cells = match &self.cells {
            Some(cells) => cells.clone(),
            None => self.cells.insert(Progress::cells(self.most)?).clone(),
        };
        Ok(Progress::new(cells, self.most, self.n_asked))
    }

    pub(crate) fn take(&mut self) -> Option<Asked<D>> {
        self.asked.pop_front()
    }

    /// For one that was taken too early.
    pub(crate) fn put_back(&mut self, asked: Asked<D>) {
        self.asked.push_front(asked);
    }

    /// Forgets what was not asked for.
    pub(crate) fn stop(&mut self) {
        self.waiting = None;
    }
}

impl<D: Dataset> Drop for Ahead<D> {
    /// Tells the workers that nobody wants what they still make.
    fn drop(&mut self) {
        if !self.asked.is_empty()
            && let Some(cells) = &self.cells
        {
            // The array has that cell.
            let _ = cells.set(0, 1);
        }
    }
}

impl<D: Dataset> fmt::Debug for Ahead<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("n_asked", &self.asked.len()).finish_non_exhaustive()
    }
}
