//! The errors of values, arrays and locks.

use std::fmt;

use tensorferry_reduce::TransitError;
use tensorferry_storage::{LastOwner, MonitorError, StorageError};

use crate::ScalarKind;

/// Why a value or an array could not be sent or received. The caller of `put` or `get` sees its text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// A block could not be put into the message, or taken from it.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The handle was serialised outside a message, or the message has no such handle.
    #[error(transparent)]
    Transit(#[from] TransitError),
    /// The value or array that arrived holds another type.
    #[error("a shared value of {expected} was expected, but what arrived holds {found}")]
    WrongType {
        /// The type that the receiver asked for.
        expected: ScalarKind,
        /// The type in the payload.
        found: ScalarKind,
    },
    /// The length in the payload is not that of the memory.
    #[error(
        "a shared array of {claimed} elements arrived with memory of {found_bytes} bytes, 8 for each are needed"
    )]
    WrongLength {
        /// The number of elements in the payload.
        claimed: u64,
        /// The length of the memory in bytes.
        found_bytes: usize,
    },
}

/// The array has no such element.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("index {index} is outside of a shared array of {len} elements")]
pub struct OutOfRangeError {
    /// The index that the caller asked for, from 0.
    pub index: usize,
    /// The number of elements.
    pub len: usize,
}

tensorferry_storage::debug_as_display!(OutOfRangeError);

/// A lock was not taken, or it was and its last owner has failed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum LockError<G> {
    /// This call has taken the lock. An owner before it died or panicked while it had it, so what the lock
    /// protects may be half changed. If the guard is dropped, the next owner is told the same; if what it
    /// protects is made good, `guard.clear_poison()` says so.
    #[error("an owner of the lock {last_owner} while it had it: what it protects may be half changed")]
    Poisoned {
        /// The lock. Drop it to release it.
        guard: G,
        /// What happened to that owner.
        last_owner: LastOwner,
    },
    /// Another thread or process had the lock until the time of the call was over.
    #[error("another thread or process has the lock")]
    Locked,
    /// Another member of the domain declared this process dead.
    #[error("this process was declared dead by another member of its domain")]
    DeclaredDead,
    /// This process is no member of the domain, because it was forked by something other than this library.
    #[error(transparent)]
    Storage(StorageError),
}

impl<G> LockError<G> {
    pub(crate) fn unless_poisoned(guard: G, last_owner: LastOwner) -> Result<G, Self> {
        if last_owner == LastOwner::Released { Ok(guard) } else { Err(Self::Poisoned { guard, last_owner }) }
    }

    /// The guard, if the lock was taken.
    ///
    /// ```
    /// # use tensorferry_sync::{Lock, LockError};
    /// # let lock = Lock::new()?;
    /// let guard = lock.lock().or_else(LockError::into_guard)?; // whatever happened to the last owner
    /// # drop(guard);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The error itself, if the lock was not taken.
    pub fn into_guard(self) -> Result<G, Self> {
        match self {
            Self::Poisoned { guard, .. } => Ok(guard),
            error => Err(error),
        }
    }

    /// The error without the guard, which is dropped. For a guard that cannot leave its thread, as that of an
    /// [`RLock`](crate::RLock).
    #[must_use]
    pub fn without_guard(self) -> LockError<()> {
        match self {
            Self::Poisoned { last_owner, .. } => LockError::Poisoned { guard: (), last_owner },
            Self::Locked => LockError::Locked,
            Self::DeclaredDead => LockError::DeclaredDead,
            Self::Storage(error) => LockError::Storage(error),
        }
    }

    /// Whether another thread or process had the lock.
    #[must_use]
    pub const fn is_locked(&self) -> bool {
        matches!(self, Self::Locked)
    }
}

impl<G> fmt::Debug for LockError<G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<G> From<MonitorError> for LockError<G> {
    fn from(error: MonitorError) -> Self {
        match error {
            MonitorError::TimedOut => Self::Locked,
            MonitorError::Storage(error) => Self::Storage(error),
            MonitorError::DeclaredDead => Self::DeclaredDead,
        }
    }
}

impl<G> From<StorageError> for LockError<G> {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}
