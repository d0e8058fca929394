//! Where the outcome of a task arrives, and those who wait for it are.

use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use tensorferry_storage::IncomingMessage;

use crate::error::TaskError;

/// A message with the value behind its head, or why there is none.
pub(crate) type Outcome = Result<Box<IncomingMessage>, TaskError>;

/// One task that was submitted.
pub(crate) struct Slot {
    pub(crate) function: &'static str,
    state: Mutex<State>,
    changed: Condvar,
    member_of: Option<(Arc<Group>, usize)>,
}

enum State {
    Pending {
        /// Of the task that polls the result as a future.
        waker: Option<Waker>,
        /// Those who wait for this task or others.
        bells: Vec<Arc<Bell>>,
    },
    Done(Outcome),
    Taken,
}

impl State {
    fn is_pending(&self) -> bool {
        matches!(self, Self::Pending { .. })
    }
}

impl Slot {
    pub(crate) fn new(function: &'static str, member_of: Option<(Arc<Group>, usize)>) -> Self {
        let state = Mutex::new(State::Pending { waker: None, bells: Vec::new() });
        Self { function, state, changed: Condvar::new(), member_of }
    }

    pub(crate) fn resolve(&self, outcome: Outcome) {
        let before = std::mem::replace(&mut *self.state(), State::Done(outcome));
        self.changed.notify_all();
        if let Some((group, index)) = &self.member_of {
            group.add(*index);
        }
        let State::Pending { waker, bells } = before else { return };
        bells.iter().for_each(|bell| bell.ring());
        if let Some(waker) = waker {
            // Somebody else's code. It must not end the pool's thread, and neither must what it panics with.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake())).map_err(ManuallyDrop::new);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        !self.state().is_pending()
    }

    /// Waits until there is an outcome, for at most `timeout`. Returns whether there is one.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.state();
        while state.is_pending() {
            state = match until {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    /// The outcome, if there is one and nobody took it. Otherwise `waker` is woken when there is one.
    pub(crate) fn poll(&self, waker: Option<&Waker>) -> Option<Outcome> {
        // What a waker does when it is cloned or dropped is somebody else's code, so not under the lock.
        let mut new = waker.cloned();
        let mut state = self.state();
        let (outcome, old) = match &mut *state {
            State::Pending { waker, .. } => (None, std::mem::replace(waker, new.take())),
            _ => match std::mem::replace(&mut *state, State::Taken) {
                State::Done(outcome) => (Some(outcome), None),
                _ => (None, None),
            },
        };
        drop(state);
        drop((old, new));
        outcome
    }

    /// Has the bell rung when there is an outcome. Returns false if there is one already.
    pub(crate) fn watch(&self, bell: &Arc<Bell>) -> bool {
        let mut state = self.state();
        let State::Pending { bells, .. } = &mut *state else { return false };
        bells.push(Arc::clone(bell));
        true
    }

    /// Ends a [`watch`](Self::watch).
    pub(crate) fn forget(&self, bell: &Arc<Bell>) {
        if let State::Pending { bells, .. } = &mut *self.state() {
            bells.retain(|other| !Arc::ptr_eq(other, bell));
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("function", &self.function).field("is_done", &self.is_done()).finish()
    }
}

/// Rings once.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    has_rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.has_rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits until it has rung, or until then.
    pub(crate) fn wait(&self, until: Option<Instant>) {
        let mut has_rung = self.has_rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*has_rung {
            has_rung = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                None => self.changed.wait(has_rung).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return,
                Some(left) => {
                    self.changed.wait_timeout(has_rung, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// Tasks of which the next one that is done is wanted, whichever it is.
#[derive(Debug, Default)]
pub(crate) struct Group {
    done: Mutex<VecDeque<usize>>,
    changed: Condvar,
}

impl Group {
    fn add(&self, index: usize) {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push_back(index);
        self.changed.notify_all();
    }

    /// Waits for the next one. The caller knows that one is on its way.
    pub(crate) fn next(&self) -> usize {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(index) = done.pop_front() {
                return index;
            }
            done = self.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}
