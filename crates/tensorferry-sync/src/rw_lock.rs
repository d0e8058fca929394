//! A lock for many readers or one writer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_storage::{Deadline, Entered, Heap, MonitorError, StorageError};

use crate::error::LockError;
use crate::primitive::{Primitive, Taken, for_a_step, word};
use crate::purpose;

/// Index of the word of state that is 1 while a writer has the lock or waits for the readers to leave.
const WRITER: usize = 0;

/// Lets many readers pass at a time, or one writer.
///
/// A clone, or the value that a receiver gets, is another handle on the same lock. A writer who waits comes
/// before readers who come later. A thread that reads, and wants to read or write once more, may wait for
/// itself.
///
/// A reader that dies is as good as one that leaves. If a writer dies or panics, everybody who takes the lock
/// gets [`LockError::Poisoned`] with the guard in it, up to and including the next writer.
///
/// ```
/// use tensorferry_sync::RwLock;
///
/// let lock = RwLock::new()?;
/// {
///     let _readers = (lock.read()?, lock.read()?);
///     assert!(lock.try_write().is_err());
/// }
/// let _writer = lock.write()?;
/// assert!(lock.try_read().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RwLock {
    primitive: Primitive<{ purpose::RW_LOCK }>,
}

/// Reads what a [`RwLock`] protects. Dropping it lets go of the lock.
#[derive(Debug)]
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct RwLockReadGuard {
    _taken: Taken,
}

/// Writes what a [`RwLock`] protects. Dropping it releases the lock.
#[derive(Debug)]
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct RwLockWriteGuard {
    entered: Entered,
}

impl RwLock {
    /// Makes a lock that is free, in the default domain.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for it.
    pub fn new() -> Result<Self, StorageError> {
        Self::new_in(Heap::current()?)
    }

    /// As [`RwLock::new`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`RwLock::new`].
    pub fn new_in(heap: &Heap) -> Result<Self, StorageError> {
        Ok(Self { primitive: Primitive::create(heap)? })
    }

    /// Takes the lock to read.
    ///
    /// # Blocking
    /// While a writer has the lock or waits for it. Its release or its death ends the wait.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn read(&self) -> Result<RwLockReadGuard, LockError<RwLockReadGuard>> {
        self.read_with(Deadline::Never)
    }

    /// As [`RwLock::read`], waiting for at most `timeout`.
    ///
    /// # Blocking
    /// As [`RwLock::read`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`RwLock::read`], and [`LockError::Locked`].
    pub fn read_timeout(&self, timeout: Duration) -> Result<RwLockReadGuard, LockError<RwLockReadGuard>> {
        self.read_with(Deadline::within(timeout))
    }

    /// As [`RwLock::read`], without waiting for a writer.
    ///
    /// # Blocking
    /// For a moment while another reader comes; for a second if its process is stopped there.
    ///
    /// # Errors
    /// As [`RwLock::read`], and [`LockError::Locked`].
    pub fn try_read(&self) -> Result<RwLockReadGuard, LockError<RwLockReadGuard>> {
        self.read_with(Deadline::Now)
    }

    fn read_with(&self, deadline: Deadline) -> Result<RwLockReadGuard, LockError<RwLockReadGuard>> {
        let monitor = self.primitive.monitor();
        let entered = match monitor.enter(deadline) {
            Err(MonitorError::TimedOut) if self.primitive.state(WRITER) == Some(0) => {
                monitor.enter(for_a_step(deadline))?
            }
            entered => entered?,
        };
        let view = monitor.view()?;
        // A writer that died has left it so.
        word(&view, WRITER).store(0, Ordering::SeqCst);
        let last_owner = entered.last_owner();
        let taken = Taken::count(monitor, &view);
        entered.leave_as_found();
        let guard = RwLockReadGuard { _taken: taken.ok_or(LockError::DeclaredDead)? };
        LockError::unless_poisoned(guard, last_owner)
    }

    /// Takes the lock to write.
    ///
    /// # Blocking
    /// While others have the lock. When they let go of it or die, the wait ends.
    ///
    /// # Errors
    /// [`LockError`].
    pub fn write(&self) -> Result<RwLockWriteGuard, LockError<RwLockWriteGuard>> {
        self.write_with(Deadline::Never)
    }

    /// As [`RwLock::write`], waiting for at most `timeout`.
    ///
    /// # Blocking
    /// As [`RwLock::write`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`RwLock::write`], and [`LockError::Locked`].
    pub fn write_timeout(&self, timeout: Duration) -> Result<RwLockWriteGuard, LockError<RwLockWriteGuard>> {
        self.write_with(Deadline::within(timeout))
    }

    /// As [`RwLock::write`], without waiting. It also finds the lock taken while a reader is just coming.
    ///
    /// # Errors
    /// As [`RwLock::write`], and [`LockError::Locked`].
    pub fn try_write(&self) -> Result<RwLockWriteGuard, LockError<RwLockWriteGuard>> {
        self.write_with(Deadline::Now)
    }

    fn write_with(&self, deadline: Deadline) -> Result<RwLockWriteGuard, LockError<RwLockWriteGuard>> {
        let monitor = self.primitive.monitor();
        let entered = monitor.enter(deadline)?;
        let view = monitor.view()?;
        word(&view, WRITER).store(1, Ordering::SeqCst);
        // No reader can come any more.
        if let Err(error) = monitor.wait(deadline, |view| (view.shares() == 0).then_some(())) {
            word(&view, WRITER).store(0, Ordering::SeqCst);
            entered.leave_as_found();
            return Err(error.into());
        }
        let last_owner = entered.last_owner();
        LockError::unless_poisoned(RwLockWriteGuard { entered }, last_owner)
    }

    /// Whether both are handles on the same lock.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.primitive.ptr_eq(&other.primitive)
    }
}

impl Drop for RwLockWriteGuard {
    fn drop(&mut self) {
        // A hint for readers who do not wait. The lock itself is released after this.
        if let Ok(view) = self.entered.monitor().view() {
            word(&view, WRITER).store(0, Ordering::SeqCst);
        }
    }
}
