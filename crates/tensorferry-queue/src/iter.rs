//! Iterating over the values of a queue until the first error.

use std::fmt;
use std::iter::FusedIterator;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_storage::{Consumers, Deadline};

use crate::typed::Typed;
use crate::{GetError, SoleReceiver};

/// An iterator over the values that a queue delivers. Each step blocks until there is a value.
///
/// The first error ends the iteration. A `for` loop ends in the same way whether the queue was closed or a
/// sender died, so call [`Iter::finish`] after it:
///
/// ```
/// use tensorferry_queue::Queue;
///
/// let jobs = Queue::new(4)?;
/// jobs.put(1)?;
/// jobs.put(2)?;
/// jobs.close();
/// let mut todo = jobs.iter();
/// let mut sum = 0;
/// for job in &mut todo {
///     sum += job;
/// }
/// todo.finish()?; // an error if a sender died or a message could not be decoded
/// assert_eq!(sum, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Iter<'a, T> {
    from: Handle<'a, T>,
    end: End,
}

/// The error that has ended an iteration, if it has ended.
#[derive(Default)]
pub(crate) struct End(Option<GetError>);

impl End {
    pub(crate) fn error(&self) -> Option<&GetError> {
        self.0.as_ref()
    }

    /// The next of what is got. The first error is the end, and nothing is got after it.
    pub(crate) fn next<R>(&mut self, get: impl FnOnce() -> Result<R, GetError>) -> Option<R> {
        if self.0.is_some() {
            return None;
        }
        get().map_err(|error| self.0 = Some(error)).ok()
    }

    pub(crate) fn finish(self) -> Result<(), GetError> {
        match self.0 {
            None | Some(GetError::Closed | GetError::Disconnected) => Ok(()),
            Some(error) => Err(error),
        }
    }
}

/// The handle that the values come from.
enum Handle<'a, T> {
    Many(&'a Typed<T>),
    Sole(&'a mut SoleReceiver<T>),
}

impl<'a, T> Iter<'a, T> {
    pub(crate) fn many(typed: &'a Typed<T>) -> Self {
        Self { from: Handle::Many(typed), end: End::default() }
    }

    pub(crate) fn sole(receiver: &'a mut SoleReceiver<T>) -> Self {
        Self { from: Handle::Sole(receiver), end: End::default() }
    }

    /// The error that ended the iteration. `None` while it has not ended.
    ///
    /// ```
    /// use tensorferry_queue::{GetError, Queue};
    ///
    /// let jobs = Queue::<u32>::new(4)?;
    /// jobs.close();
    /// let mut todo = jobs.iter();
    /// assert!(todo.end().is_none());
    /// assert_eq!(todo.next(), None);
    /// assert!(matches!(todo.end(), Some(GetError::Closed)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn end(&self) -> Option<&GetError> {
        self.end.error()
    }

    /// Tells an end in order from a failure of the queue. Returns `Ok` if the queue was closed, if every
    /// sender let go of its end, or if the iteration has not ended. A process that returns an error or panics
    /// lets go of its end in order too: whether the senders have done well is for those to say who started
    /// them, as `join` of a `ProcessContext` does.
    ///
    /// # Errors
    /// Every other [`GetError`] that ended the iteration, such as [`GetError::PeerDied`] and
    /// [`GetError::Decode`].
    pub fn finish(self) -> Result<(), GetError> {
        self.end.finish()
    }
}

impl<T: Serialize + DeserializeOwned> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let from = &mut self.from;
        self.end.next(|| match from {
            Handle::Many(typed) => typed.get(Consumers::Multi, Deadline::Never),
            Handle::Sole(receiver) => receiver.get(),
        })
    }
}

impl<T: Serialize + DeserializeOwned> FusedIterator for Iter<'_, T> {}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("end", &self.end()).finish_non_exhaustive()
    }
}
