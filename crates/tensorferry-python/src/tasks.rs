//! Tasks that wait for something which another thread may end.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Those that wait, by a number.
#[derive(Default)]
pub(crate) struct Tasks {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    wakers: HashMap<u64, Waker>,
    last: u64,
}

impl Tasks {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `work`; `None` when `is_over` is true first. [`wake`](Self::wake) has it looked at.
    pub(crate) async fn until<R>(
        &self,
        is_over: impl Fn() -> bool,
        work: impl Future<Output = R>,
    ) -> Option<R> {
        let place = Place::new(self);
        let mut work = pin!(work);
        poll_fn(|context| {
            // Before the look, so that whoever ends it afterwards wakes this task.
            place.set(context.waker());
            if is_over() { Poll::Ready(None) } else { work.as_mut().poll(context).map(Some) }
        })
        .await
    }

    /// Has all of them look.
    pub(crate) fn wake(&self) {
        let wakers: Vec<Waker> = self.lock().wakers.values().cloned().collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The place of one task, while it waits.
struct Place<'a> {
    tasks: &'a Tasks,
    number: u64,
}

impl<'a> Place<'a> {
    fn new(tasks: &'a Tasks) -> Self {
        let mut waiting = tasks.lock();
        waiting.last += 1;
        Self { tasks, number: waiting.last }
    }

    fn set(&self, waker: &Waker) {
        let old = self.tasks.lock().wakers.insert(self.number, waker.clone());
        // What it wakes may run other code when it is dropped.
        drop(old);
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let old = self.tasks.lock().wakers.remove(&self.number);
        drop(old);
    }
}
