//! A flag to wait for.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_storage::{Deadline, Heap, StorageError};

use crate::primitive::{Primitive, word};
use crate::purpose;
use crate::wait_error::WaitError;

/// Index of the word of state that is 1 when the event is set.
const SET: usize = 0;

/// A flag that any process sets and clears, and that others wait for: Python's `Event`.
///
/// A clone, or the value that a receiver gets, is another handle on the same event.
///
/// ```
/// use tensorferry_sync::Event;
///
/// let ready = Event::new()?;
/// std::thread::scope(|scope| {
///     scope.spawn(|| ready.set()); // or a process that has got a handle with its arguments
///     ready.wait()
/// })?;
/// assert!(ready.is_set());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Event {
    primitive: Primitive<{ purpose::EVENT }>,
}

impl Event {
    /// Makes an event that is not set, in the default domain.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for it.
    pub fn new() -> Result<Self, StorageError> {
        Self::new_in(Heap::current()?)
    }

    /// As [`Event::new`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Event::new`].
    pub fn new_in(heap: &Heap) -> Result<Self, StorageError> {
        Ok(Self { primitive: Primitive::create(heap)? })
    }

    /// Sets the event and wakes all who wait for it. Does nothing in a process that was forked by something
    /// else than this library.
    pub fn set(&self) {
        self.store(1);
        self.primitive.monitor().notify();
    }

    /// Clears the event.
    pub fn clear(&self) {
        self.store(0);
    }

    fn store(&self, value: u64) {
        if let Ok(view) = self.primitive.monitor().view() {
            word(&view, SET).swap(value, Ordering::SeqCst);
        }
    }

    /// Whether the event is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.primitive.state(SET).is_some_and(|set| set != 0)
    }

    /// Waits until the event is set. An event that is cleared right after it was set may be missed.
    ///
    /// # Blocking
    /// Until any process sets the event, or one that has a handle on it dies.
    ///
    /// # Errors
    /// [`WaitError::PeerDied`] once for each death of a process that had a handle on the event, unless the
    /// event is set. The next call waits on. A process that drops its handle in order is not missed.
    /// [`WaitError::Storage`] in a process that was forked by something other than this library.
    pub fn wait(&self) -> Result<(), WaitError> {
        self.wait_with(Deadline::Never)
    }

    /// As [`Event::wait`], for at most `timeout`.
    ///
    /// # Blocking
    /// As [`Event::wait`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`Event::wait`], and [`WaitError::TimedOut`].
    pub fn wait_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.wait_with(Deadline::within(timeout))
    }

    fn wait_with(&self, deadline: Deadline) -> Result<(), WaitError> {
        self.primitive.monitor().wait(deadline, |view| {
            // Read first: an event that somebody had set before it died is then seen to be set.
            let deaths = view.deaths();
            if word(view, SET).load(Ordering::SeqCst) != 0 {
                Some(Ok(()))
            } else {
                self.primitive.tells_of(deaths).then_some(Err(WaitError::PeerDied))
            }
        })?
    }
}

crate::primitive::identity!(Event, "event");

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event").field("is_set", &self.is_set()).finish_non_exhaustive()
    }
}
