//! The batches that workers were asked for.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tensorferry_pool::{AsyncResult, SubmitError, SubmitErrorKind, TaskError};
use tensorferry_storage::StorageError;
use tensorferry_sync::RawArray;

use crate::error::{LoadErrorKind, RaisedError};
use crate::samples::Progress;
use crate::worker::Fetched;

/// The most batches of one epoch that are under way: as many as fit into the queue of a pool.
const MOST: usize = 256;

/// A request for a batch.
pub(crate) trait Request: Clone {
    /// Sets where it is noted how far the batch is.
    fn note_in(&mut self, progress: Progress);

    /// The number of the sample at this place of the batch, for those who are told what happened to it.
    fn sample(&self, place: usize) -> Option<usize>;
}

/// Who knows what is to be asked for, and whom to ask.
pub(crate) trait Requester {
    type Request: Request;
    /// What a worker makes of it.
    type Value: DeserializeOwned;

    /// The next request.
    fn next(&mut self) -> Option<Self::Request>;

    /// Hands a request to a worker. Waits for room in the queue of its pool, for at most `timeout`.
    fn submit(
        &self,
        request: Self::Request,
        timeout: Option<Duration>,
    ) -> Result<AsyncResult<Self::Value>, Refusal<Self::Request>>;
}

/// Why a request was not handed to a worker.
pub(crate) enum Refusal<R> {
    /// There is no room for now.
    Full(R),
    /// Nobody will make the batch.
    Never(Failure),
}

impl<R> From<SubmitError<(R,)>> for Refusal<R> {
    fn from(error: SubmitError<(R,)>) -> Self {
        match error.kind {
            SubmitErrorKind::Full => Self::Full(error.into_args().0),
            _ => Self::Never((LoadErrorKind::Task(TaskError::from(error)), None)),
        }
    }
}

/// What happened to a batch, and to which sample of it.
pub(crate) type Failure = (LoadErrorKind, Option<usize>);

/// What comes next.
pub(crate) enum Step<R, V> {
    /// What a worker made of the next request, or why there is nothing.
    Done(R, Result<V, Failure>),
    /// The next batch does not come in time. The next step waits for it again.
    Late(Option<R>, Failure),
    /// The next batch is lost with all workers, of which another step has told.
    Lost,
}

/// The batches that were asked for, in that order.
pub(crate) struct Ahead<R, V> {
    asked: VecDeque<Asked<R, V>>,
    most: usize,
    /// Whether they come in the order in which they were asked for, and not as soon as each is made.
    in_order: bool,
    /// See [`Progress`].
    cells: Option<RawArray<u64>>,
    /// The cells that no request under way has, first those that have been free for longest.
    free: VecDeque<usize>,
    n_asked: usize,
    /// A request for which there was no room in the queue of the pool.
    waiting: Option<R>,
    /// The workers have failed as a whole.
    has_failed: bool,
}

/// A batch that was asked for.
struct Asked<R, V> {
    request: R,
    answer: Answer<V>,
}

enum Answer<V> {
    /// A worker makes it.
    Awaited(AsyncResult<V>, Progress),
    /// It will not be made.
    Refused(Failure),
}

impl<R: Request, V: DeserializeOwned> Ahead<R, V> {
    /// Of at most `n_ahead` batches, which come in the order in which they are asked for, or as they are
    /// made.
    pub(crate) fn new(n_ahead: usize, in_order: bool) -> Self {
        let most = n_ahead.clamp(1, MOST);
        Self {
            asked: VecDeque::new(),
            most,
            in_order,
            cells: None,
            free: Progress::places(most).collect(),
            n_asked: 0,
            waiting: None,
            has_failed: false,
        }
    }

    /// How many were asked for and not taken.
    pub(crate) fn len(&self) -> usize {
        self.asked.len() + usize::from(self.waiting.is_some())
    }

    /// Whether the workers have failed as a whole.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// Asks for batches until enough are under way, or the pool takes no more for now.
    pub(crate) fn fill(&mut self, requester: &mut impl Requester<Request = R, Value = V>) {
        while self.asked.len() < self.most && self.ask(requester, Some(Duration::ZERO)) {}
    }

    /// Asks for one batch. Waits for room in the queue of the pool, for at most `timeout`. Returns false if
    /// there is none, or no batch to be asked for.
    fn ask(
        &mut self,
        requester: &mut impl Requester<Request = R, Value = V>,
        timeout: Option<Duration>,
    ) -> bool {
        if self.has_failed {
            self.waiting = None;
            return false;
        }
        let Some(mut request) = self.waiting.take().or_else(|| requester.next()) else { return false };
        let answer = match self.progress() {
            Err(error) => Answer::Refused((LoadErrorKind::Memory(error), None)),
            Ok(progress) => {
                request.note_in(progress.clone());
                match requester.submit(request.clone(), timeout) {
                    Ok(result) => {
                        self.n_asked += 1;
                        let _ = self.free.pop_front();
                        Answer::Awaited(result, progress)
                    }
                    Err(Refusal::Full(request)) => {
                        self.waiting = Some(request);
                        return false;
                    }
                    Err(Refusal::Never(failure)) => Answer::Refused(failure),
                }
            }
        };
        self.asked.push_back(Asked { request, answer });
        true
    }

    /// Tells the workers that nobody wants what was asked for with some of the requests. These are answered
    /// all the same.
    pub(crate) fn give_up(&mut self, is_unwanted: impl Fn(&R) -> bool) {
        self.waiting.take_if(|request| is_unwanted(request));
        for asked in self.asked.iter().filter(|asked| is_unwanted(&asked.request)) {
            if let Answer::Awaited(_, progress) = &asked.answer {
                progress.give_up();
            }
        }
    }

    /// Where the next request is noted.
    pub(crate) fn progress(&mut self) -> Result<Progress, StorageError> {
        let cells = match &self.cells {
            Some(cells) => cells.clone(),
            None => self.cells.insert(Progress::cells(self.most)?).clone(),
        };
        // Fewer than `most` are under way.
        let cell = self.free.front().copied().unwrap_or(1);
        Ok(Progress::new(cells, cell, self.n_asked))
    }

    /// The place of the batch that is next, and whether it is there in time.
    fn turn(&self, timeout: Option<Duration>) -> (usize, bool) {
        let refused = self.asked.iter().position(|asked| matches!(asked.answer, Answer::Refused(_)));
        let awaited = self.asked.iter().filter_map(|asked| match &asked.answer {
            Answer::Awaited(result, _) => Some(result),
            Answer::Refused(_) => None,
        });
        match refused {
            Some(place) if place == 0 || !self.in_order => (place, true),
            _ => {
                let n_waited_for = if self.in_order { 1 } else { usize::MAX };
                match AsyncResult::wait_any(awaited.take(n_waited_for), timeout) {
                    Some(place) => (place, true),
                    None => (0, false),
                }
            }
        }
    }

    /// Waits for the next batch, for at most `timeout`; `None` when there is no more to be asked for.
    pub(crate) fn next(
        &mut self,
        requester: &mut impl Requester<Request = R, Value = V>,
        timeout: Option<Duration>,
    ) -> Option<Step<R, V>> {
        self.fill(requester);
        while self.asked.is_empty() {
            self.waiting.as_ref()?;
            // Requests of other epochs fill the queue.
            if !self.ask(requester, timeout) {
                let timeout = timeout.unwrap_or_default();
                let late = (LoadErrorKind::TimedOut { timeout, pid: None }, None);
                return Some(Step::Late(self.waiting.clone(), late));
            }
        }
        let (place, is_in_time) = self.turn(timeout);
        if !is_in_time && let Asked { request, answer: Answer::Awaited(_, progress) } = self.asked.front()? {
            let timeout = timeout.unwrap_or_default();
            let sample = progress.place().and_then(|place| request.sample(place));
            let late = (LoadErrorKind::TimedOut { timeout, pid: progress.pid() }, sample);
            return Some(Step::Late(Some(request.clone()), late));
        }
        let Asked { request, answer } = self.asked.remove(place)?;
        let outcome = match answer {
            Answer::Refused(failure) => Err(failure),
            Answer::Awaited(result, progress) => {
                let outcome = match result.get() {
                    Ok(value) => Ok(value),
                    Err(TaskError::WorkerDied(error)) => {
                        let sample = progress.place().and_then(|place| request.sample(place));
                        Err((LoadErrorKind::WorkerDied(error), sample))
                    }
                    Err(error) => Err((LoadErrorKind::Task(error), None)),
                };
                self.free.push_back(progress.cell);
                outcome
            }
        };
        // The failure of all workers is told once. Batches that were made before still come.
        if matches!(&outcome, Err((LoadErrorKind::Task(error), _)) if is_of_all(error))
            && std::mem::replace(&mut self.has_failed, true)
        {
            return Some(Step::Lost);
        }
        Some(Step::Done(request, outcome))
    }
}

/// Whether the workers make no batch any more.
fn is_of_all(error: &TaskError) -> bool {
    matches!(error, TaskError::Pool(_) | TaskError::Terminated | TaskError::Submit(SubmitErrorKind::Closed))
}

/// The batch that was fetched.
pub(crate) fn batch_of<B>(fetched: Fetched<B>, request: &impl Request) -> Result<B, Failure> {
    match fetched {
        Fetched::Batch(batch) => Ok(batch),
        Fetched::Failed { worker, place, report } => {
            let sample = place.and_then(|place| request.sample(place));
            let raised = RaisedError { worker, report: *report };
            Err((LoadErrorKind::Raised(Box::new(raised)), sample))
        }
    }
}

impl<R, V> Drop for Ahead<R, V> {
    /// Tells the workers that nobody wants what they still make, or keep for later.
    fn drop(&mut self) {
        if let Some(cells) = &self.cells {
            // The array has that cell.
            let _ = cells.set(0, 1);
        }
    }
}

impl<R, V> fmt::Debug for Ahead<R, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ahead").field("n_asked", &self.asked.len()).finish_non_exhaustive()
    }
}
