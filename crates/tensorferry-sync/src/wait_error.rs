//! The errors of waits for anything but a lock.

use tensorferry_storage::{LastOwner, MonitorError, StorageError};

/// Why a wait ended without what was waited for.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The time of the call was over.
    #[error("what was waited for did not happen before the time-out")]
    TimedOut,
    /// [`Semaphore::try_acquire`](crate::Semaphore::try_acquire) found no permit.
    #[error("no permit of the semaphore is free")]
    NoPermit,
    /// A process that had a handle died. Each handle tells of a death once; the next call waits on.
    #[error("a process died that had a handle on what was waited for; wait again to go on without it")]
    PeerDied,
    /// A [`Condition`](crate::Condition) has taken its lock again, and an owner of the lock has failed
    /// meanwhile. What the lock protects may be half changed.
    #[error("an owner of the lock {last_owner} while it had it: what it protects may be half changed")]
    Poisoned {
        /// What happened to that owner.
        last_owner: LastOwner,
    },
    /// A [`Semaphore`](crate::Semaphore) cannot have this many permits.
    #[error("{n_added} permits cannot be added to {n_before}: at most {} are possible", u32::MAX)]
    TooManyPermits {
        /// How many there are.
        n_before: u64,
        /// How many were to be added.
        n_added: u32,
    },
    /// Another member of the domain declared this process dead.
    #[error("this process was declared dead by another member of its domain")]
    DeclaredDead,
    /// This process is no member of the domain, because it was forked by something other than this library.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl WaitError {
    /// Whether the time of the call was over.
    #[must_use]
    pub const fn is_timed_out(&self) -> bool {
        matches!(self, Self::TimedOut)
    }
}

impl From<MonitorError> for WaitError {
    fn from(error: MonitorError) -> Self {
        match error {
            MonitorError::TimedOut => Self::TimedOut,
            MonitorError::Storage(error) => Self::Storage(error),
            MonitorError::DeclaredDead => Self::DeclaredDead,
        }
    }
}

tensorferry_storage::debug_as_display!(WaitError);

/// Why nobody passes a [`Barrier`](crate::Barrier).
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// The barrier broke, before or while this call waited.
    #[error("the barrier is broken: {by}")]
    Broken {
        /// What broke it.
        by: BrokenBy,
    },
    /// Another process is in the middle of a step of the barrier and was stopped there.
    #[error("the barrier is held by a process that does not go on")]
    Stopped,
    /// Another member of the domain declared this process dead.
    #[error("this process was declared dead by another member of its domain")]
    DeclaredDead,
    /// This process is no member of the domain, because it was forked by something other than this library.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// What broke a barrier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokenBy {
    /// A process that had a handle on it died.
    #[error("a process died that had a handle on it")]
    Death,
    /// The time of somebody who waited was over.
    #[error("the time-out of one who waited passed")]
    TimeOut,
    /// Somebody called [`Barrier::abort`](crate::Barrier::abort).
    #[error("it was aborted")]
    Abort,
    /// Somebody called [`Barrier::reset`](crate::Barrier::reset) while others waited. The barrier is whole
    /// again.
    #[error("it was reset while this one waited")]
    Reset,
}

impl BrokenBy {
    /// The number in shared memory.
    pub(crate) const fn number(self) -> u64 {
        match self {
            Self::Death => 1,
            Self::TimeOut => 2,
            Self::Abort => 3,
            Self::Reset => 4,
        }
    }

    /// `None` for 0. A number that is not known reads as an abort.
    pub(crate) const fn from_number(number: u64) -> Option<Self> {
        match number {
            0 => None,
            1 => Some(Self::Death),
            2 => Some(Self::TimeOut),
            4 => Some(Self::Reset),
            _ => Some(Self::Abort),
        }
    }
}

impl From<MonitorError> for BarrierError {
    fn from(error: MonitorError) -> Self {
        match error {
            MonitorError::TimedOut => Self::Stopped,
            MonitorError::Storage(error) => Self::Storage(error),
            MonitorError::DeclaredDead => Self::DeclaredDead,
        }
    }
}

tensorferry_storage::debug_as_display!(BarrierError);
