//! Waiting for several queues at once.

use std::time::Duration;

use tensorferry_storage::{Deadline, Ring, WaitAnyError};

use crate::{Queue, Receiver, SoleReceiver};

/// Something that values are got from: a [`Queue`], a [`Receiver`] or a [`SoleReceiver`], of any type.
pub trait Source: sealed::Sealed + Send + Sync {}

impl<T> Source for Queue<T> {}
impl<T> Source for Receiver<T> {}
impl<T> Source for SoleReceiver<T> {}

pub(crate) mod sealed {
    use tensorferry_storage::Ring;

    /// What [`wait`](super::wait) needs of a source.
    pub trait Sealed {
        /// The ring to wait at; `None` when the end was moved, so that nothing needs to be waited for.
        fn ring_to_wait_at(&self) -> Option<&Ring>;
    }
}

/// Waits until at least one of these has something to get, and returns the indexes of all that have. Python's
/// `multiprocessing.connection.wait`.
///
/// A source has something to get when its `get_nowait` would not say [`Empty`](crate::GetError::Empty): a
/// message, or an error, because it is closed, its senders are gone, or the end was moved. Nothing is taken,
/// so another receiver of the same queue may be faster: get with `get_nowait`. With no sources it returns an
/// empty list at once.
///
/// ```
/// use tensorferry_queue::{Source, channel, wait};
///
/// let (numbers, names) = (channel(4)?, channel(4)?);
/// names.0.put("a name".to_owned())?;
/// let sources: [&dyn Source; 2] = [&numbers.1, &names.1];
/// assert_eq!(wait(&sources)?, [1]);
/// assert_eq!(names.1.get_nowait()?, "a name");
/// # numbers.0.put(1)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Blocking
/// Until one of them has something to get. It polls for a moment before it sleeps, as
/// [`set_busy_poll`](Queue::set_busy_poll) of the first source says.
///
/// # Errors
/// [`WaitAnyError::TooMany`] for more than 128 sources, and [`WaitAnyError::Unsupported`] before Linux 5.16,
/// both only where it would have to wait.
pub fn wait(sources: &[&dyn Source]) -> Result<Vec<usize>, WaitAnyError> {
    wait_with(sources, Deadline::Never)
}

/// As [`wait`], for at most `timeout`.
///
/// # Blocking
/// As [`wait`], for at most `timeout`.
///
/// # Errors
/// As [`wait`], and [`WaitAnyError::TimedOut`] when there was nothing to get in time.
pub fn wait_timeout(sources: &[&dyn Source], timeout: Duration) -> Result<Vec<usize>, WaitAnyError> {
    wait_with(sources, Deadline::within(timeout))
}

fn wait_with(sources: &[&dyn Source], deadline: Deadline) -> Result<Vec<usize>, WaitAnyError> {
    // Looked at once: another thread may give an end away at any moment, and the indexes must stay in step.
    let rings: Vec<Option<&Ring>> = sources.iter().map(|source| source.ring_to_wait_at()).collect();
    let with_news = rings.iter().enumerate().filter(|(_, ring)| ring.is_none_or(Ring::has_news));
    let indexes: Vec<usize> = with_news.map(|(index, _)| index).collect();
    if !indexes.is_empty() {
        return Ok(indexes);
    }
    let rings: Vec<&Ring> = rings.into_iter().flatten().collect();
    Ring::wait_any(&rings, deadline)
}
