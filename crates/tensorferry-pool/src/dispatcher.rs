//! The pool's thread: it hands out answers, and replaces workers that have ended.
//!
//! All that happens arrives as a message in the ring of answers, so the thread waits for nothing else. A
//! worker says there when it begins a task and how the task ended. A thread for each process waits for its
//! end, and then wakes this one with a message too. By that time everything that the process has put comes
//! before that message. So this thread knows which task the process had begun.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::thread;

use tensorferry_reduce::decode_behind;
use tensorferry_spawn::{ProcessError, ProcessHandle, Report, SpawnError};
use tensorferry_storage::{Consumers, Deadline, IncomingMessage, RingTakeError};

use crate::error::{PoolError, TaskError, TaskRaisedError, WorkerDiedError};
use crate::head::{ANSWER_HEAD_LEN_BYTES, AnswerHead, Kind};
use crate::order::Recipe;
use crate::shared::{Shared, State};
use crate::slot::Slot;

/// How many processes in a row may be killed before one of them can take tasks. One may meet with an
/// accident; as many as this have a cause.
const MAX_LOST_STARTS: usize = 8;

/// What is known of a worker whose process runs.
#[derive(Debug)]
struct Worker {
    pid: u32,
    is_ready: bool,
    /// The task that it has begun, and how often that was delivered.
    begun: Option<(u64, u16)>,
    n_begun: usize,
}

#[derive(Debug)]
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    recipe: Recipe,
    /// By place; `None` where no process runs.
    workers: Vec<Option<Worker>>,
    /// How the last worker ended that died over a task which is tried again.
    deaths: HashMap<u64, ProcessError>,
    /// Tasks that were given up before the death of a worker was known that had begun them.
    given_up: HashSet<u64>,
    /// How many processes have been killed since one could last take tasks.
    n_lost_starts: usize,
}

impl Dispatcher {
    /// Starts all workers.
    pub(crate) fn start(shared: Arc<Shared>, recipe: Recipe) -> Result<Self, PoolError> {
        let workers = (0..recipe.n_processes).map(|_| None).collect();
        let (deaths, given_up) = (HashMap::new(), HashSet::new());
        let mut this = Self { shared, recipe, workers, deaths, given_up, n_lost_starts: 0 };
        for place in 0..this.workers.len() {
            if let Err(error) = this.start_worker(place) {
                this.shared.end(State::Terminated);
                // Until the processes that were killed are gone.
                this.answer();
                return Err(error);
            }
        }
        Ok(this)
    }

    /// Until all workers have ended, and nobody waits for an answer.
    pub(crate) fn run(mut self) {
        let _over = Over(Arc::clone(&self.shared));
        self.answer();
    }

    fn answer(&mut self) {
        while self.workers.iter().any(Option::is_some) {
            match self.shared.answers.ring().take(Consumers::Single, Deadline::Never) {
                Ok(message) => self.receive(message),
                // News of workers that are gone, once each. More is said of their processes.
                Err(RingTakeError::NoSenders | RingTakeError::PeerDied) => {}
                Err(error) => {
                    self.shared.end(State::Failed(Arc::new(PoolError::Answers(error))));
                    return;
                }
            }
        }
        // Nobody is left to do what was submitted while the last one ended.
        self.shared.resolve_all(|slot| Err(self.died(slot, 1, None)));
    }

    fn receive(&mut self, message: IncomingMessage) {
        let Some(head) = AnswerHead::read(&message.payload) else { return };
        let place = usize::try_from(head.worker).unwrap_or(usize::MAX);
        let worker = self.workers.get_mut(place).and_then(Option::as_mut);
        match head.kind {
            Kind::Ended => self.replace(place),
            Kind::Ready => worker.into_iter().for_each(|worker| {
                worker.is_ready = true;
                self.n_lost_starts = 0;
            }),
            Kind::Begun => worker.into_iter().for_each(|worker| {
                worker.begun = Some((head.id, head.deliveries));
                worker.n_begun += 1;
            }),
            Kind::Value | Kind::Raised => {
                let pid = worker.map_or(0, |worker| {
                    worker.begun = None;
                    worker.pid
                });
                self.deaths.remove(&head.id);
                let Some(slot) = self.shared.take_pending(head.id) else { return };
                slot.resolve(match head.kind {
                    Kind::Value => Ok(Box::new(message)),
                    _ => Err(raised(&slot, self.recipe.index(place), pid, message)),
                });
            }
            // Whoever had begun it has ended, and how it did is about to be known.
            Kind::GivenUp if self.is_begun(head.id) => drop(self.given_up.insert(head.id)),
            Kind::GivenUp => {
                let process = self.deaths.remove(&head.id);
                let Some(slot) = self.shared.take_pending(head.id) else { return };
                slot.resolve(Err(self.died(&slot, head.deliveries.saturating_sub(1), process)));
            }
        }
    }

    /// What becomes of a worker's place, and of its task, when its process has ended.
    fn replace(&mut self, place: usize) {
        let Some(outcome) = self.shared.take_end(place) else { return };
        let Some(worker) = self.workers.get_mut(place).and_then(Option::take) else { return };
        let state = self.shared.state();
        if matches!(state, State::Terminated | State::Failed(_)) {
            return;
        }
        let has_died = outcome.is_err();
        match outcome {
            // One that fails at the first thing it reads, say because the kernel does not let it map a task's
            // tensors, has not really started: the next one would fail at the same.
            Err(error) if !worker.is_ready || worker.n_begun == 0 && says_why(&error) => {
                self.n_lost_starts += 1;
                if says_why(&error) || self.n_lost_starts >= MAX_LOST_STARTS {
                    self.shared.end(State::Failed(Arc::new(PoolError::Ended(error))));
                    return;
                }
            }
            Err(error) => self.note_death(&worker, error),
            Ok(()) => {}
        }
        let is_wanted = match state {
            State::Open => true,
            // One that ended by itself has seen that nothing is left, or has done as many as it may.
            _ => {
                let is_used_up = self.recipe.max_tasks.is_some_and(|most| worker.n_begun >= most);
                let n_others = self.workers.iter().flatten().count();
                (has_died || is_used_up) && self.shared.n_pending() > n_others
            }
        };
        if is_wanted && let Err(error) = self.start_worker(place) {
            self.shared.end(State::Failed(Arc::new(error)));
        }
    }

    fn note_death(&mut self, worker: &Worker, error: SpawnError) {
        let Some((id, deliveries)) = worker.begun else { return };
        let process = match error {
            SpawnError::Failed(errors) => Some(errors.root_cause().clone()),
            _ => None,
        };
        if deliveries < self.recipe.max_tries && !self.given_up.remove(&id) {
            // Another worker gets it, or has done it already.
            let process = process.filter(|_| self.shared.is_pending(id));
            process.into_iter().for_each(|process| drop(self.deaths.insert(id, process)));
            return;
        }
        self.given_up.remove(&id);
        self.deaths.remove(&id);
        if let Some(slot) = self.shared.take_pending(id) {
            slot.resolve(Err(self.died(&slot, deliveries, process)));
        }
    }

    fn is_begun(&self, id: u64) -> bool {
        self.workers.iter().flatten().any(|worker| worker.begun.is_some_and(|(begun, _)| begun == id))
    }

    fn died(&self, slot: &Slot, tries: u16, process: Option<ProcessError>) -> TaskError {
        TaskError::WorkerDied(Box::new(WorkerDiedError { function: slot.function, tries, process }))
    }

    fn start_worker(&mut self, place: usize) -> Result<(), PoolError> {
        let process = self.recipe.start(&self.shared, place)?;
        let worker = Worker { pid: process.pid(), is_ready: false, begun: None, n_begun: 0 };
        self.shared.note_start(place, process.process());
        watch(Arc::clone(&self.shared), place, process)?;
        self.workers[place] = Some(worker);
        Ok(())
    }
}

/// Closes the ring of answers when it is dropped: nobody reads them any more, so nobody may wait for room.
struct Over(Arc<Shared>);

impl Drop for Over {
    fn drop(&mut self) {
        // A defect of this crate. Nobody is to wait for a thread that is gone.
        if thread::panicking() {
            self.0.end(State::Terminated);
        }
        self.0.answers.ring().close();
    }
}

/// Whether a process has reported why it failed. The next one would fail for the same reason.
fn says_why(error: &SpawnError) -> bool {
    matches!(error, SpawnError::Failed(errors) if errors.root_cause().report().is_some())
}

/// Waits for the end of a worker's process, on a thread of its own.
fn watch(shared: Arc<Shared>, worker: usize, mut process: ProcessHandle<()>) -> Result<(), PoolError> {
    let watching = thread::Builder::new().name(format!("pool-{worker}")).spawn(move || {
        let outcome = process.join();
        shared.note_end(worker, outcome);
    });
    watching.map(drop).map_err(PoolError::Thread)
}

fn raised(slot: &Slot, worker: usize, pid: u32, mut message: IncomingMessage) -> TaskError {
    match decode_behind::<Report>(ANSWER_HEAD_LEN_BYTES, &mut message) {
        Ok(report) => {
            TaskError::Raised(Box::new(TaskRaisedError { function: slot.function, worker, pid, report }))
        }
        Err(error) => TaskError::Value { function: slot.function, error: Arc::new(error) },
    }
}
