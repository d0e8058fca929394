//! Waiting for several queues at once, and for the ends of processes.

use std::fmt;
use std::time::{Duration, Instant};

use tensorferry_domain::deaths_seen;
use tensorferry_storage::{Awaited, Deadline, Ring, WaitAnyError};

use crate::{Queue, Receiver, SoleReceiver};
use sealed::WaitsFor;

/// Something that [`wait`] waits for: a [`Queue`], a [`Receiver`], a [`SoleReceiver`] or a
/// [`Connection`](crate::Connection), of any type, its [`leases`](Receiver::leases), [`room`](Queue::room) to
/// put, and a process that was started (`ProcessHandle` of `tensorferry-spawn`).
pub trait Source: sealed::Sealed + Send + Sync {}

impl<T> Source for Queue<T> {}
impl<T> Source for Receiver<T> {}
impl<T> Source for SoleReceiver<T> {}

/// A queue of which values are leased, as a [`Source`]: what [`Queue::leases`] and [`Receiver::leases`]
/// return.
#[derive(Clone, Copy)]
pub struct Leases<'a>(pub(crate) &'a Ring);

impl Source for Leases<'_> {}

impl fmt::Debug for Leases<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leases").field("max_leases", &self.0.max_leases()).finish_non_exhaustive()
    }
}

impl sealed::Sealed for Leases<'_> {
    fn waits_for(&self) -> WaitsFor<'_> {
        WaitsFor::Ring(self.0, Awaited::Lease)
    }
}

/// Room in a queue, as a [`Source`]: what [`Queue::room`], [`Sender::room`](crate::Sender::room) and
/// [`SoleSender::room`](crate::SoleSender::room) return.
#[derive(Clone, Copy)]
pub struct Room<'a>(pub(crate) &'a Ring);

impl Source for Room<'_> {}

impl fmt::Debug for Room<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Room").field("capacity_items", &self.0.capacity_items()).finish_non_exhaustive()
    }
}

impl sealed::Sealed for Room<'_> {
    fn waits_for(&self) -> WaitsFor<'_> {
        WaitsFor::Ring(self.0, Awaited::Room)
    }
}

#[doc(hidden)]
pub mod sealed {
    use std::fmt;

    use tensorferry_storage::{Awaited, Ring};

    /// What [`wait`](super::wait) needs of a source.
    pub trait Sealed {
        /// What there is to wait for.
        fn waits_for(&self) -> WaitsFor<'_>;
    }

    /// What a source waits for.
    pub enum WaitsFor<'a> {
        /// For nothing: the end was moved, so a get fails at once.
        Nothing,
        /// For something at a ring.
        Ring(&'a Ring, Awaited),
        /// For the end of a process, of which [`tensorferry_domain::deaths_seen`] tells.
        End(&'a dyn Ends),
    }

    /// A process that was started.
    pub trait Ends {
        /// Whether it has ended.
        fn has_ended(&self) -> bool;
    }

    impl fmt::Debug for WaitsFor<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self {
                Self::Nothing => f.write_str("Nothing"),
                Self::Ring(_, awaited) => awaited.fmt(f),
                Self::End(_) => f.write_str("End"),
            }
        }
    }

    impl WaitsFor<'_> {
        pub(super) fn has_news(&self) -> bool {
            match self {
                Self::Nothing => true,
                Self::Ring(ring, awaited) => ring.has(*awaited),
                Self::End(process) => process.has_ended(),
            }
        }
    }
}

/// How long a wait for processes sleeps until it looks by itself. The service thread tells it of every end,
/// but the kernel may have no such thread for this process.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// Waits until at least one of these has something to get, and returns the indexes of all that have. Python's
/// `multiprocessing.connection.wait`.
///
/// A queue has something to get when its `get_nowait` would not say [`Empty`](crate::GetError::Empty): a
/// message, or an error, because it is closed, its senders are gone, or the end was moved. Nothing is taken,
/// so another receiver of the same queue may be faster: get with `get_nowait`. Where values are leased, wait
/// for the queue's `leases()`, which may have nothing although the queue has: other processes may have all
/// leases. To put, wait for its `room()`: there is some when `put_nowait` would not say
/// [`Full`](crate::PutErrorKind::Full). A process has ended, however it did, and is found again by each later
/// call. With no sources it returns an empty list at once.
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
/// Until one of them has something to get, or has ended. It polls for a moment before it sleeps, as
/// [`set_busy_poll`](Queue::set_busy_poll) of the first queue says.
///
/// # Errors
/// [`WaitAnyError::TooMany`] for more than 128 queues (127 where there are processes too), and
/// [`WaitAnyError::Unsupported`] before Linux 5.16 for more than one source, both only where it would have to
/// wait.
pub fn wait(sources: &[&dyn Source]) -> Result<Vec<usize>, WaitAnyError> {
    wait_with(sources, Deadline::Never)
}

/// As [`wait`], for at most `timeout`.
///
/// # Blocking
/// As [`wait`], for at most `timeout`.
///
/// # Errors
/// As [`wait`], and [`WaitAnyError::TimedOut`] when nothing happened in time.
pub fn wait_timeout(sources: &[&dyn Source], timeout: Duration) -> Result<Vec<usize>, WaitAnyError> {
    wait_with(sources, Deadline::within(timeout))
}

fn wait_with(sources: &[&dyn Source], deadline: Deadline) -> Result<Vec<usize>, WaitAnyError> {
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    // Asked once: another thread may give an end away at any moment, and the indexes must stay in step.
    let all: Vec<WaitsFor<'_>> = sources.iter().map(|source| source.waits_for()).collect();
    let with_news = || {
        let with_news = all.iter().enumerate().filter(|(_, one)| one.has_news());
        let indexes: Vec<usize> = with_news.map(|(index, _)| index).collect();
        (!indexes.is_empty()).then_some(indexes)
    };
    if let Some(found) = with_news() {
        return Ok(found);
    }
    let rings: Vec<(&Ring, Awaited)> = all
        .iter()
        .filter_map(|one| match one {
            WaitsFor::Ring(ring, awaited) => Some((*ring, *awaited)),
            WaitsFor::Nothing | WaitsFor::End(_) => None,
        })
        .collect();
    if rings.len() == all.len() {
        return Ring::wait_any(&rings, &[], None, deadline, with_news);
    }
    loop {
        let now = Instant::now();
        let (until, is_last) = match deadline {
            Deadline::At(end) if end <= now + LOOK_AFTER => (deadline, true),
            Deadline::Now => (deadline, true),
            Deadline::At(_) | Deadline::Never => (Deadline::At(now + LOOK_AFTER), false),
        };
        match Ring::wait_any(&rings, &[deaths_seen()], None, until, with_news) {
            Err(WaitAnyError::TimedOut) if !is_last => {}
            outcome => return outcome,
        }
    }
}
