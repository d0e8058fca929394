//! A lock for many readers or one writer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_storage::{Deadline, Entered, Heap, LastOwner, MonitorError, MonitorView, StorageError};

use crate::error::LockError;
use crate::primitive::{Primitive, Taken, for_a_step, word};
use crate::purpose;

/// Indexes of the words of state, which change under the lock of the monitor.
mod state {
    /// A value of [`writer`](super::writer). Whoever has the lock and is no writer sets it back, so while the
    /// lock is free it says how the last owner has ended. A hint for those who do not have the lock.
    pub(super) const WRITER: usize = 0;
    /// How a writer has ended, until one has made that good: 0 well, or a number of [`number_of`].
    pub(super) const POISON: usize = 1;
}

/// What a writer does.
mod writer {
    /// There is none.
    pub(super) const NONE: u64 = 0;
    /// It waits for the readers to leave, and has written nothing.
    pub(super) const WAITS: u64 = 1;
    /// It may have written something.
    pub(super) const WRITES: u64 = 2;
}

/// [`state::POISON`] for a writer that died or panicked.
fn number_of(last_owner: LastOwner) -> u64 {
    match last_owner {
        LastOwner::Released => 0,
        LastOwner::Died => 1,
        LastOwner::Panicked => 2,
    }
}

/// Lets many readers pass at a time, or one writer.
///
/// A clone, or the value that a receiver gets, is another handle on the same lock. A writer who waits comes
/// before readers who come later. A thread that reads, and wants to read or write once more, may wait for
/// itself.
///
/// A reader that dies is as good as one that leaves. If a writer dies or panics, everybody who takes the lock
/// gets [`LockError::Poisoned`] with the guard in it, until a writer calls
/// [`RwLockWriteGuard::clear_poison`].
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
    taken: Taken,
}

/// Writes what a [`RwLock`] protects. Dropping it releases the lock.
#[derive(Debug)]
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct RwLockWriteGuard {
    entered: Entered,
}

impl RwLockWriteGuard {
    /// What the lock protects is whole again: nobody is told any more of an earlier writer that died or
    /// panicked. It changes nothing where there was none.
    pub fn clear_poison(&mut self) {
        if let Some(view) = self.entered.view() {
            word(&view, state::POISON).store(0, Ordering::SeqCst);
        }
    }

    /// Whether whoever takes the lock next will be told of a writer before this one that died or panicked.
    /// False for a guard that has lost its lock.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.entered.view().is_some_and(|view| is_poisoned(&view))
    }
}

impl RwLockReadGuard {
    /// As [`RwLockWriteGuard::is_poisoned`]. A reader cannot make good what a writer has left.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.taken.view().is_some_and(|view| is_poisoned(&view))
    }
}

/// Whether a writer has died or panicked, and nobody has made good what it left.
fn is_poisoned(view: &MonitorView<'_>) -> bool {
    word(view, state::POISON).load(Ordering::SeqCst) != 0
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
        let mut entered = match monitor.enter(deadline) {
            Err(MonitorError::TimedOut) if self.primitive.state(state::WRITER) == Some(writer::NONE) => {
                monitor.enter(for_a_step(deadline))?
            }
            entered => entered?,
        };
        let Some(view) = entered.view() else {
            // What it tells of is for the next one to remember.
            entered.leave_as_found();
            return Err(LockError::DeclaredDead);
        };
        let last_writer = begin(&entered, &view, writer::NONE);
        let taken = Taken::count(monitor, &view).ok_or(LockError::DeclaredDead)?;
        LockError::unless_poisoned(RwLockReadGuard { taken }, last_writer)
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
        let mut entered = monitor.enter(deadline)?;
        let Some(view) = entered.view() else {
            // What it tells of is for the next one to remember.
            entered.leave_as_found();
            return Err(LockError::DeclaredDead);
        };
        let last_writer = begin(&entered, &view, writer::WAITS);
        // No reader can come any more.
        if let Err(error) = monitor.wait(deadline, |view| (view.shares() == 0).then_some(())) {
            word(&view, state::WRITER).store(writer::NONE, Ordering::SeqCst);
            return Err(error.into());
        }
        word(&view, state::WRITER).store(writer::WRITES, Ordering::SeqCst);
        LockError::unless_poisoned(RwLockWriteGuard { entered }, last_writer)
    }
}

crate::primitive::identity!(RwLock, "lock");

/// What everybody does first who has taken the lock. Returns how the last writer ended.
///
/// The lock tells how its last owner ended, who may have been a reader on its way in, or a writer that had
/// not begun. Only one that wrote is of interest, and that is remembered in a word of its own before the
/// trace of it is lost. Whoever dies in between leaves the trace, or the word.
fn begin(entered: &Entered, view: &MonitorView<'_>, as_writer: u64) -> LastOwner {
    let (writer, poison) = (word(view, state::WRITER), word(view, state::POISON));
    let last_owner = entered.last_owner();
    if last_owner != LastOwner::Released && writer.load(Ordering::SeqCst) == writer::WRITES {
        poison.store(number_of(last_owner), Ordering::SeqCst);
    }
    writer.store(as_writer, Ordering::SeqCst);
    match poison.load(Ordering::SeqCst) {
        0 => LastOwner::Released,
        2 => LastOwner::Panicked,
        _ => LastOwner::Died,
    }
}

impl Drop for RwLockWriteGuard {
    fn drop(&mut self) {
        // The lock itself is released after this. One that has panicked leaves its trace.
        if let Some(view) = self.entered.view().filter(|_| !self.entered.has_panicked()) {
            word(&view, state::WRITER).store(writer::NONE, Ordering::SeqCst);
        }
    }
}
