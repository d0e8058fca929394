//! What the pool's owner and the pool's thread share.

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use tensorferry_reduce::{EncodeError, with_encoded_behind};
use tensorferry_spawn::hidden::{Signature, TaskKey};
use tensorferry_spawn::{ChildProcess, Function, SpawnError};
use tensorferry_storage::{Deadline, OutgoingHandles, Ring, RingPutError};

use crate::end::End;
use crate::error::{PoolError, SubmitErrorKind, TaskError};
use crate::head::{AnswerHead, Kind, TaskHead};
use crate::slot::{Group, Outcome, Slot};

/// Whether tasks are taken.
#[derive(Clone, Debug)]
pub(crate) enum State {
    Open,
    /// What was submitted is still done.
    Closed,
    Terminated,
    Failed(Arc<PoolError>),
}

#[derive(Debug)]
struct Book {
    state: State,
    next_id: u64,
    pending: HashMap<u64, Arc<Slot>>,
    /// The processes that run, by the index of their worker.
    processes: HashMap<usize, ChildProcess>,
    /// How the processes have ended of which the pool's thread is about to hear.
    ended: HashMap<usize, Result<(), SpawnError>>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    /// Puts, and takes what nobody may take any more.
    pub(crate) tasks: End,
    /// Takes the answers, and puts who has ended.
    pub(crate) answers: End,
    book: Mutex<Book>,
}

/// Why a task was not put.
struct Refused(SubmitErrorKind);

impl From<EncodeError> for Refused {
    fn from(error: EncodeError) -> Self {
        Self(SubmitErrorKind::Arguments(Arc::new(error)))
    }
}

impl From<RingPutError> for Refused {
    fn from(error: RingPutError) -> Self {
        Self(match error {
            RingPutError::Full => SubmitErrorKind::Full,
            RingPutError::Closed => SubmitErrorKind::Closed,
            RingPutError::NotRepeatable => SubmitErrorKind::NotRepeatable,
            RingPutError::TooManyHandles(n) => SubmitErrorKind::TooManyHandles(n),
            RingPutError::Storage(error) => {
                SubmitErrorKind::Arguments(Arc::new(EncodeError::Storage(*error)))
            }
            error => SubmitErrorKind::Queue(Arc::new(error)),
        })
    }
}

/// Puts one task into a ring.
pub(crate) fn put<Args: Serialize>(
    ring: &Ring,
    id: u64,
    key: TaskKey,
    args: &Args,
    deadline: Deadline,
) -> Result<(), SubmitErrorKind> {
    let head = TaskHead { id, key }.to_bytes();
    let put = |payload: &[u8], handles: &mut OutgoingHandles| {
        loop {
            match ring.put_from(payload, handles, deadline) {
                // News of workers that are gone, once each; others take their places, or the queue is closed.
                Err(RingPutError::NoReceivers | RingPutError::PeerDied) => {}
                outcome => return outcome.map_err(Refused::from),
            }
        }
    };
    with_encoded_behind(ring.heap(), &head, args, put).map_err(|Refused(kind)| kind)
}

/// A task that is pending although it was not put. Dropping this takes it out.
struct Withdrawn<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Withdrawn<'_> {
    fn drop(&mut self) {
        self.shared.take_pending(self.id);
    }
}

/// The key of a function.
pub(crate) fn key_of<F: Function<Args>, Args>(function: &F) -> Result<TaskKey, SubmitErrorKind> {
    TaskKey::find(function).map_err(|error| SubmitErrorKind::NotRegistered(Arc::new(error)))
}

impl Shared {
    pub(crate) fn new(tasks: End, answers: End) -> Self {
        let book = Book {
            state: State::Open,
            next_id: 1,
            pending: HashMap::new(),
            processes: HashMap::new(),
            ended: HashMap::new(),
        };
        Self { tasks, answers, book: Mutex::new(book) }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Submits one call. Waits while the queue of tasks is full, until the deadline.
    pub(crate) fn submit<F, Args>(
        &self,
        function: &F,
        args: &Args,
        member_of: Option<(Arc<Group>, usize)>,
        deadline: Deadline,
    ) -> Result<Arc<Slot>, SubmitErrorKind>
    where
        F: Function<Args>,
        Args: Serialize,
    {
        let key = key_of(function)?;
        let slot = Arc::new(Slot::new(Signature::of::<F, Args>(function).name(), member_of));
        let id = {
            let mut book = self.book();
            book.state.accepts()?;
            let id = book.next_id;
            book.next_id += 1;
            book.pending.insert(id, Arc::clone(&slot));
            id
        };
        // Also where the arguments' `Serialize` panics.
        let withdrawn = Withdrawn { shared: self, id };
        put(self.tasks.ring(), id, key, args, deadline).map_err(|kind| {
            // A queue that was closed meanwhile does not say why.
            self.book().state.accepts().err().unwrap_or(kind)
        })?;
        let _ = ManuallyDrop::new(withdrawn);
        Ok(slot)
    }

    pub(crate) fn state(&self) -> State {
        self.book().state.clone()
    }

    pub(crate) fn n_pending(&self) -> usize {
        self.book().pending.len()
    }

    pub(crate) fn processes(&self) -> Vec<ChildProcess> {
        let book = self.book();
        let mut all: Vec<_> = book.processes.iter().collect();
        all.sort_by_key(|(worker, _)| **worker);
        all.into_iter().map(|(_, process)| process.clone()).collect()
    }

    /// Takes no more tasks.
    pub(crate) fn close(&self) {
        {
            let mut book = self.book();
            if matches!(book.state, State::Open) {
                book.state = State::Closed;
            }
        }
        self.tasks.ring().close();
    }

    /// Whether the workers are this process's. One that something else has forked from it has a copy of this,
    /// and none of the threads.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.tasks.ring().heap().domain().is_owning_process()
    }

    /// Ends all workers, and tells everybody who waits.
    pub(crate) fn end(&self, state: State) {
        if !self.is_of_this_process() {
            return;
        }
        let (pending, processes) = {
            let mut book = self.book();
            if matches!(book.state, State::Open | State::Closed) {
                book.state = state;
            }
            (std::mem::take(&mut book.pending), std::mem::take(&mut book.processes))
        };
        self.tasks.ring().close();
        // A process that has ended meanwhile needs no signal.
        processes.into_values().for_each(|process| drop(process.kill()));
        let error = self.state().error();
        pending.into_values().for_each(|slot| slot.resolve(Err(error.clone())));
    }

    /// Notes a process that was started for a worker, and kills it if the pool has ended meanwhile.
    pub(crate) fn note_start(&self, worker: usize, process: ChildProcess) {
        let mut book = self.book();
        if matches!(book.state, State::Open | State::Closed) {
            book.processes.insert(worker, process);
        } else {
            drop(book);
            drop(process.kill());
        }
    }

    /// Notes the end of a worker's process, and tells the pool's thread. Waits while that has more to read
    /// than fits into the queue.
    pub(crate) fn note_end(&self, worker: usize, outcome: Result<(), SpawnError>) {
        {
            let mut book = self.book();
            book.processes.remove(&worker);
            book.ended.insert(worker, outcome);
        }
        let head = AnswerHead::of_worker(worker, Kind::Ended).to_bytes();
        // It fails only when there is no such thread any more.
        let _ = self.answers.ring().put(&head, OutgoingHandles::new(), Deadline::Never);
    }

    pub(crate) fn take_end(&self, worker: usize) -> Option<Result<(), SpawnError>> {
        self.book().ended.remove(&worker)
    }

    /// The task with this number, unless it has an outcome.
    pub(crate) fn take_pending(&self, id: u64) -> Option<Arc<Slot>> {
        self.book().pending.remove(&id)
    }

    pub(crate) fn is_pending(&self, id: u64) -> bool {
        self.book().pending.contains_key(&id)
    }

    /// Gives every task that is pending the outcome that `outcome` makes for it.
    pub(crate) fn resolve_all(&self, outcome: impl Fn(&Slot) -> Outcome) {
        let pending = std::mem::take(&mut self.book().pending);
        pending.into_values().for_each(|slot| slot.resolve(outcome(&slot)));
    }
}

impl State {
    fn accepts(&self) -> Result<(), SubmitErrorKind> {
        match self {
            Self::Open => Ok(()),
            Self::Closed => Err(SubmitErrorKind::Closed),
            Self::Terminated => Err(SubmitErrorKind::Terminated),
            Self::Failed(error) => Err(SubmitErrorKind::Pool(Arc::clone(error))),
        }
    }

    /// What those are told who wait when the pool ends.
    fn error(&self) -> TaskError {
        match self {
            Self::Failed(error) => TaskError::Pool(Arc::clone(error)),
            _ => TaskError::Terminated,
        }
    }
}
