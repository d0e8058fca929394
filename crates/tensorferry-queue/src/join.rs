//! Waiting until what was put is done.

use tensorferry_storage::{RingJoinError, StorageError};

/// Why not everything that was put is known to be done.
///
/// `Debug` prints the same text as `Display`, because a `main` that returns the error prints `Debug`.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Something was left when the time of the call was over.
    #[error("of the values that were put, {n_left} are not done yet")]
    TimedOut {
        /// About how many: those that nobody has got, and those that are leased.
        n_left: usize,
    },
    /// Every other process that could receive has let go of its end, and left or lost something.
    ///
    /// A [`Sender`](crate::Sender) gets this from every join, unless its process has a receiving end. A
    /// process that can itself receive, as with a [`Queue`](crate::Queue), gets it once after each that left,
    /// and may then get what is left. Once something may have been lost, every join says so, whoever has come
    /// since.
    #[error(
        "of the values that were put, some are left, and every process that could receive has let go of the queue"
    )]
    Disconnected,
    /// As [`Disconnected`](Self::Disconnected), and at least one of the receivers died or was killed.
    #[error(
        "of the values that were put, some are left, and every process that could receive is gone; at least one of \
         them died or was killed"
    )]
    PeerDied,
    /// This process is no member of the domain, because it was forked by something other than this library.
    #[error(transparent)]
    Storage(StorageError),
    /// The ring failed in a way that this version of the crate does not know.
    #[error("the queue could not be joined: {0}")]
    Other(RingJoinError),
}

tensorferry_storage::debug_as_display!(JoinError);

impl From<RingJoinError> for JoinError {
    fn from(error: RingJoinError) -> Self {
        match error {
            RingJoinError::TimedOut { n_left } => Self::TimedOut { n_left },
            RingJoinError::NoReceivers => Self::Disconnected,
            RingJoinError::PeerDied => Self::PeerDied,
            RingJoinError::Storage(error) => Self::Storage(error),
            other => Self::Other(other),
        }
    }
}

/// Joining, for a handle with the field `typed`.
macro_rules! joining {
    ($handle:ident) => {
        impl<T> $handle<T> {
            /// Waits until everything that was put before this call is done: got, and, where it was leased,
            /// acknowledged. Python's `JoinableQueue.join`, in which
            /// [`Lease::ack`](crate::Lease::ack) stands for `task_done`.
            ///
            /// A value whose worker dies comes back and is done by another one, so a join over leases says
            /// that the work was done. What a plain `get` took counts as done, whatever becomes of the
            /// process, and so does a value that could not be decoded. What is put after the call has begun
            /// is not waited for: where workers put further work, count it.
            ///
            /// A process that can itself receive waits for ever for what nobody gets. So join by a
            /// [`Sender`](crate::Sender), from a process without a receiving end, to be told when nobody is
            /// left to do the work.
            ///
            /// ```
            /// use std::time::Duration;
            /// use tensorferry_queue::{JoinError, channel_with_leases};
            ///
            /// let (jobs, worker) = channel_with_leases(16, 4)?;
            /// jobs.put("job".to_owned())?;
            /// let job = worker.get_leased()?; // in another process
            /// let waited = jobs.join_timeout(Duration::ZERO);
            /// assert!(matches!(waited, Err(JoinError::TimedOut { n_left: 1 })));
            /// job.ack()?;
            /// jobs.join()?;
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// # Blocking
            /// Until it is done, asleep from the beginning. While many values are left and are done quickly,
            /// and while others use the queue, the call cannot be woken for at most 10 ms at a time; so it
            /// hardly slows down those who get and put. A thread that itself has a lease on one of the values
            /// waits for itself.
            ///
            /// # Errors
            /// [`Disconnected`](crate::JoinError::Disconnected) and [`PeerDied`](crate::JoinError::PeerDied)
            /// when something is left, or was discarded, and no process is left that could receive it;
            /// [`Storage`](crate::JoinError::Storage) in a process that was forked by something other than
            /// this library.
            #[doc(alias = "JoinableQueue")]
            #[doc(alias = "task_done")]
            pub fn join(&self) -> Result<(), crate::JoinError> {
                Ok(self.typed.ring().join(tensorferry_storage::Deadline::Never)?)
            }

            /// As [`join`](Self::join), waiting for at most `timeout`.
            ///
            /// # Blocking
            /// As [`join`](Self::join), for at most `timeout`.
            ///
            /// # Errors
            /// As [`join`](Self::join), and [`JoinError::TimedOut`](crate::JoinError::TimedOut) when
            /// something was left.
            pub fn join_timeout(&self, timeout: std::time::Duration) -> Result<(), crate::JoinError> {
                Ok(self.typed.ring().join(tensorferry_storage::Deadline::within(timeout))?)
            }

            /// As [`join`](Self::join), asking `goes_on` after each `pause` in which not everything was done.
            /// For a caller that has something else to look at while it waits: signals, say. What is put
            /// meanwhile is not waited for, as it would be by one [`join_timeout`](Self::join_timeout) after
            /// the other.
            ///
            /// ```
            /// use std::time::Duration;
            /// use tensorferry_queue::channel_with_leases;
            ///
            /// let (jobs, worker) = channel_with_leases(16, 4)?;
            /// jobs.put(1)?;
            /// let job = worker.get_leased()?;
            /// let mut tries = 0;
            /// let waited = jobs.join_while(Duration::from_millis(1), || {
            ///     tries += 1;
            ///     tries < 3
            /// });
            /// assert!(waited.is_err() && tries == 3);
            /// job.ack()?;
            /// # Ok::<(), Box<dyn std::error::Error>>(())
            /// ```
            ///
            /// # Blocking
            /// As [`join`](Self::join), until `goes_on` is false.
            ///
            /// # Errors
            /// As [`join_timeout`](Self::join_timeout).
            pub fn join_while(
                &self,
                pause: std::time::Duration,
                goes_on: impl FnMut() -> bool,
            ) -> Result<(), crate::JoinError> {
                Ok(self.typed.ring().join_while(pause, goes_on)?)
            }
        }
    };
}

pub(crate) use joining;
