//! The value of a task, once there is one.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

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
