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
    Pending(Option<Waker>),
    Done(Outcome),
    Taken,
}

impl Slot {
    pub(crate) fn new(function: &'static str, member_of: Option<(Arc<Group>, usize)>) -> Self {
        Self { function, state: Mutex::new(State::Pending(None)), changed: Condvar::new(), member_of }
    }

    pub(crate) fn resolve(&self, outcome: Outcome) {
        let before = std::mem::replace(&mut *self.state(), State::Done(outcome));
        self.changed.notify_all();
        if let Some((group, index)) = &self.member_of {
            group.add(*index);
        }
        if let State::Pending(Some(waker)) = before {
            // Somebody else's code. It must not end the pool's thread, and neither must what it panics with.
            let _ = catch_unwind(AssertUnwindSafe(|| waker.wake())).map_err(ManuallyDrop::new);
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        !matches!(*self.state(), State::Pending(_))
    }

    /// Waits until there is an outcome, for at most `timeout`. Returns whether there is one.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut state = self.state();
        while matches!(*state, State::Pending(_)) {
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
        let mut state = self.state();
        match &mut *state {
            State::Pending(registered) => {
                *registered = waker.cloned();
                None
            }
            _ => match std::mem::replace(&mut *state, State::Taken) {
                State::Done(outcome) => Some(outcome),
                _ => None,
            },
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
