//! The value of a task, once there is one.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use tensorferry_reduce::decode_behind;

use crate::error::TaskError;
use crate::head::ANSWER_HEAD_LEN_BYTES;
use crate::slot::{Outcome, Slot};

/// The value of a task that was submitted by [`Pool::apply_async`](crate::Pool::apply_async).
///
/// It is a [`Future`] too, for any executor. Dropping it does not cancel the task.
#[must_use = "it is how the value, or why there is none, is learnt"]
pub struct AsyncResult<T> {
    slot: Arc<Slot>,
    returns: PhantomData<fn() -> T>,
}

impl<T> AsyncResult<T> {
    pub(crate) fn new(slot: Arc<Slot>) -> Self {
        Self { slot, returns: PhantomData }
    }

    /// Whether there is a value, or a reason why there is none.
    #[must_use]
    #[doc(alias = "ready")]
    pub fn is_ready(&self) -> bool {
        self.slot.is_done()
    }

    /// Waits until [`AsyncResult::is_ready`].
    ///
    /// # Blocking
    /// Until the task is done, its worker has died once too often, or the pool is terminated or fails.
    pub fn wait(&self) {
        self.slot.wait(None);
    }

    /// As [`AsyncResult::wait`], for at most `timeout`. Returns whether it is ready.
    ///
    /// # Blocking
    /// As [`AsyncResult::wait`], for at most `timeout`.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.slot.wait(Some(timeout))
    }

    /// Waits until any of these results is ready, for at most `timeout`. Returns the place of the first one
    /// that is, from 0; `None` when none is in time, and of no results at all.
    ///
    /// ```no_run
    /// # use tensorferry_pool::{AsyncResult, Pool, TaskError};
    /// # fn all(mut results: Vec<AsyncResult<u64>>) -> Result<(), TaskError> {
    /// while let Some(nth) = AsyncResult::wait_any(&results, None) {
    ///     println!("the next one that is done: {}", results.swap_remove(nth).get()?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Blocking
    /// As [`AsyncResult::wait`], until one of the tasks is done.
    pub fn wait_any<'a>(
        results: impl IntoIterator<Item = &'a Self>,
        timeout: Option<Duration>,
    ) -> Option<usize>
    where
        T: 'a,
    {
        let slots: Vec<_> = results.into_iter().map(|result| &*result.slot).collect();
        let until = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let bell = Arc::default();
        let is_any_done = slots.is_empty() || !slots.iter().all(|slot| slot.watch(&bell));
        if !is_any_done {
            bell.wait(until);
        }
        slots.iter().for_each(|slot| slot.forget(&bell));
        slots.iter().position(|slot| slot.is_done())
    }
}

impl<T: DeserializeOwned> AsyncResult<T> {
    /// Waits for the value.
    ///
    /// # Blocking
    /// As [`AsyncResult::wait`].
    ///
    /// # Errors
    /// [`TaskError`].
    pub fn get(self) -> Result<T, TaskError> {
        self.slot.wait(None);
        // Nobody else takes it: this is the only handle, and it is used up.
        self.slot.poll(None).map_or(Err(TaskError::Terminated), |outcome| read(&self.slot, outcome))
    }
}

/// The value in the message of an outcome.
pub(crate) fn read<T: DeserializeOwned>(slot: &Slot, outcome: Outcome) -> Result<T, TaskError> {
    decode_behind(ANSWER_HEAD_LEN_BYTES, &mut *outcome?)
        .map_err(|error| TaskError::Value { function: slot.function, error: Arc::new(error) })
}

impl<T: DeserializeOwned> Future for AsyncResult<T> {
    type Output = Result<T, TaskError>;

    /// After it was ready once, it is never ready again.
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.slot.poll(Some(context.waker())) {
            Some(outcome) => Poll::Ready(read(&self.slot, outcome)),
            None => Poll::Pending,
        }
    }
}

impl<T> fmt::Debug for AsyncResult<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (function, is_ready) = (self.slot.function, self.is_ready());
        f.debug_struct("AsyncResult").field("function", &function).field("is_ready", &is_ready).finish()
    }
}
