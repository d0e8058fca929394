//! A lock that tells the next owners when one has died.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_storage::{Deadline, Entered, Heap, LastOwner, MonitorError, StorageError};

use crate::error::LockError;
use crate::primitive::Primitive;
use crate::purpose;

/// Lets one thread of all processes pass at a time: Python's `Lock`.
///
/// A clone, or the value that a receiver gets, is another handle on the same lock. The lock belongs to a
/// process and not to a thread; a thread that locks it twice waits for itself.
///
/// If the owner's process dies, the lock is free again, and whoever takes it next gets
/// [`LockError::Poisoned`] with the guard in it: what the lock protects may be half changed. The same holds
/// for an owner that panics. Everybody who takes the lock is told, until one of them has made good what it
/// protects and calls [`LockGuard::clear_poison`], as with pthread_mutex_consistent(3).
///
/// ```
/// use tensorferry_sync::{Lock, LockError, RawArray};
///
/// let lock = Lock::new()?;
/// let balances = RawArray::new(&[100_i64, 0])?;
/// let guard = match lock.lock() {
///     Err(LockError::Poisoned { mut guard, .. }) => {
///         // Someone died between the two lines below.
///         balances.set(1, 100 - balances.get(0).unwrap_or(0))?;
///         guard.clear_poison();
///         guard
///     }
///     locked => locked?,
/// };
/// balances.set(0, 70)?;
/// balances.set(1, 30)?;
/// drop(guard);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lock {
    primitive: Primitive<{ purpose::LOCK }>,
}

/// Has a [`Lock`]. Dropping it releases the lock.
#[derive(Debug)]
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct LockGuard {
    /// Empty only after a condition has failed to take the lock again.
    entered: Option<Entered>,
}

impl Lock {
    /// Makes a lock that is free, in the default domain.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for it.
    pub fn new() -> Result<Self, StorageError> {
        Self::new_in(Heap::current()?)
    }

    /// As [`Lock::new`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Lock::new`].
    pub fn new_in(heap: &Heap) -> Result<Self, StorageError> {
        Ok(Self { primitive: Primitive::create(heap)? })
    }

    /// Takes the lock. Python's `acquire`.
    ///
    /// # Blocking
    /// While another thread or process has the lock. Its release or its death ends the wait.
    ///
    /// # Errors
    /// [`LockError`].
    #[doc(alias = "acquire")]
    pub fn lock(&self) -> Result<LockGuard, LockError<LockGuard>> {
        self.lock_with(Deadline::Never)
    }

    /// As [`Lock::lock`], waiting for at most `timeout`.
    ///
    /// # Blocking
    /// As [`Lock::lock`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`Lock::lock`], and [`LockError::Locked`] when the lock did not become free.
    pub fn lock_timeout(&self, timeout: Duration) -> Result<LockGuard, LockError<LockGuard>> {
        self.lock_with(Deadline::within(timeout))
    }

    /// As [`Lock::lock`], without waiting.
    ///
    /// # Errors
    /// As [`Lock::lock`], and [`LockError::Locked`] when another thread or process has the lock.
    pub fn try_lock(&self) -> Result<LockGuard, LockError<LockGuard>> {
        self.lock_with(Deadline::Now)
    }

    fn lock_with(&self, deadline: Deadline) -> Result<LockGuard, LockError<LockGuard>> {
        let mut entered = self.primitive.monitor().enter(deadline)?;
        entered.leave_as_found();
        let last_owner = entered.last_owner();
        LockError::unless_poisoned(LockGuard { entered: Some(entered) }, last_owner)
    }
}

crate::primitive::identity!(Lock, "lock");

impl LockGuard {
    /// What the lock protects is whole again: whoever takes the lock next is not told of an earlier owner
    /// that died or panicked. It changes nothing where there was none.
    pub fn clear_poison(&mut self) {
        if let Some(entered) = &mut self.entered {
            entered.leave_released();
        }
    }

    /// Whether whoever takes the lock next will be told of an owner that died or panicked. False for a guard
    /// that has lost its lock.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.entered.as_ref().is_some_and(|entered| entered.leaves() != LastOwner::Released)
    }

    /// Releases the lock while `work` runs, and takes it again. Returns how the last owner left it, unless
    /// the caller was told before that one had failed. `work` is not called if the guard has no lock.
    pub(crate) fn released<R>(&mut self, work: impl FnOnce() -> R) -> Result<(R, LastOwner), MonitorError> {
        let entered = self.entered.take().ok_or(MonitorError::DeclaredDead)?;
        let monitor = entered.monitor().clone();
        let was_told = entered.leaves() != LastOwner::Released;
        drop(entered);
        let done = work();
        let entered = self.entered.insert(monitor.enter(Deadline::Never)?);
        entered.leave_as_found();
        Ok((done, if was_told { LastOwner::Released } else { entered.last_owner() }))
    }
}
