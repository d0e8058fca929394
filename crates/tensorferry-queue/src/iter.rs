//! Getting until there is nothing more to come.

use std::fmt;
use std::iter::FusedIterator;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_storage::{Consumers, Deadline};

use crate::typed::Typed;
use crate::{GetError, SoleReceiver};

/// Blocks for each value and ends with the first error, which it keeps.
///
/// ```
/// use tensorferry_queue::{GetError, Queue};
///
/// let jobs = Queue::new(4)?;
/// jobs.put(1)?;
/// jobs.put(2)?;
/// jobs.close();
/// let mut todo = jobs.iter();
/// assert_eq!(todo.by_ref().sum::<i32>(), 3);
/// assert!(matches!(todo.end(), Some(GetError::Closed)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Iter<'a, T> {
    from: Source<'a, T>,
    end: Option<GetError>,
}

/// Whose values they are.
enum Source<'a, T> {
    Many(&'a Typed<T>),
    Sole(&'a mut SoleReceiver<T>),
}

impl<'a, T> Iter<'a, T> {
    pub(crate) fn many(typed: &'a Typed<T>) -> Self {
        Self { from: Source::Many(typed), end: None }
    }

    pub(crate) fn sole(receiver: &'a mut SoleReceiver<T>) -> Self {
        Self { from: Source::Sole(receiver), end: None }
    }

    /// Why the iteration ended: closed, disconnected, a peer's death, or a message that could not be decoded. `None`
    /// while it has not.
    #[must_use]
    pub fn end(&self) -> Option<&GetError> {
        self.end.as_ref()
    }
}

impl<T: Serialize + DeserializeOwned> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.end.is_some() {
            return None;
        }
        let got = match &mut self.from {
            Source::Many(typed) => typed.get(Consumers::Multi, Deadline::Never),
            Source::Sole(receiver) => receiver.get(),
        };
        match got {
            Ok(value) => Some(value),
            Err(error) => {
                self.end = Some(error);
                None
            }
        }
    }
}

impl<T: Serialize + DeserializeOwned> FusedIterator for Iter<'_, T> {}

impl<T> fmt::Debug for Iter<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").field("end", &self.end).finish_non_exhaustive()
    }
}
