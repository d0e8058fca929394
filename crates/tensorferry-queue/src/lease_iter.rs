//! Iterating over leases until the first error.

use std::fmt;
use std::iter::FusedIterator;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_storage::Deadline;

use crate::iter::End;
use crate::typed::Typed;
use crate::{GetError, Lease};

/// An iterator that leases the values that a queue delivers. Each step blocks until a value can be leased.
///
/// Who keeps leases from step to step has all of them at some time, which ends the iteration with
/// [`GetError::AllLeased`]. A lease that is dropped without [`Lease::ack`] gives its value back, first in
/// line: the next step of this iterator may lease it again. The first error ends the iteration;
/// [`LeaseIter::finish`] tells which kind of end it was.
///
/// ```
/// use tensorferry_queue::Queue;
///
/// let jobs = Queue::with_leases(4, 1)?;
/// jobs.put(1)?;
/// jobs.put(2)?;
/// jobs.close();
/// let mut todo = jobs.iter_leased();
/// let mut sum = 0;
/// for job in &mut todo {
///     sum += *job; // the work
///     job.ack()?;
/// }
/// todo.finish()?; // an error if a sender died or a message could not be decoded
/// assert_eq!(sum, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LeaseIter<'a, T> {
    from: &'a Typed<T>,
    end: End,
}

impl<'a, T> LeaseIter<'a, T> {
    pub(crate) fn new(from: &'a Typed<T>) -> Self {
        Self { from, end: End::default() }
    }

    /// The error that ended the iteration. `None` while it has not ended.
    #[must_use]
    pub fn end(&self) -> Option<&GetError> {
        self.end.error()
    }

    /// Tells an end in order from a failure of the queue, as [`Iter::finish`](crate::Iter::finish) does.
    ///
    /// # Errors
    /// Every [`GetError`] that ended the iteration but [`GetError::Closed`] and [`GetError::Disconnected`].
    pub fn finish(self) -> Result<(), GetError> {
        self.end.finish()
    }
}

impl<T: Serialize + DeserializeOwned> Iterator for LeaseIter<'_, T> {
    type Item = Lease<T>;

    fn next(&mut self) -> Option<Lease<T>> {
        self.end.next(|| self.from.get_leased(Deadline::Never))
    }
}

impl<T: Serialize + DeserializeOwned> FusedIterator for LeaseIter<'_, T> {}

impl<T> fmt::Debug for LeaseIter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseIter").field("end", &self.end()).finish_non_exhaustive()
    }
}
