//! A lock that its owner can take again.

use std::cell::RefCell;
use std::fmt;
use std::mem::ManuallyDrop;
use std::rc::{Rc, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_storage::{Deadline, Entered, Heap, LastOwner, Monitor, StorageError};

use crate::error::LockError;
use crate::primitive::Primitive;
use crate::purpose;

/// Lets one thread of all processes pass at a time, as [`Lock`](crate::Lock) does, and lets the thread that
/// has it take it again: Python's `RLock`.
///
/// A clone, or the value that a receiver gets, is another handle on the same lock. Whichever handle a thread
/// takes it by, it is the thread's until the last of the guards is dropped, in whatever order.
/// Deaths and panics are told as by [`Lock`](crate::Lock), to whoever takes the lock from another owner; to
/// take it again reports nothing new.
///
/// ```
/// use tensorferry_sync::{RLock, RawValue};
///
/// /// May be called with the lock or without it.
/// fn deposit(lock: &RLock, balance: &RawValue<i64>, amount: i64) -> Result<(), Box<dyn std::error::Error>> {
///     let _guard = lock.lock()?;
///     balance.set(balance.get() + amount);
///     Ok(())
/// }
///
/// let (lock, balance) = (RLock::new()?, RawValue::new(0_i64)?);
/// let guard = lock.lock()?;
/// deposit(&lock, &balance, 70)?;
/// deposit(&lock, &balance, 30)?;
/// drop(guard);
/// assert_eq!(balance.get(), 100);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "ReentrantLock")]
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RLock {
    primitive: Primitive<{ purpose::RLOCK }>,
}

/// Has an [`RLock`]. Dropping the last guard of a thread releases the lock. It stays with its thread.
///
/// So does a [`LockError`] that has a guard, which `?` therefore does not make an error that can be sent:
/// `lock.lock().map_err(LockError::without_guard)?` does.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct RLockGuard {
    had: Rc<RefCell<Entered>>,
    was_panicking: bool,
}

thread_local! {
    /// What this thread has. It stays while the thread ends, for guards that other thread-locals have; an
    /// empty one has no memory.
    static HAD: ManuallyDrop<RefCell<Vec<Weak<RefCell<Entered>>>>> =
        const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

impl RLock {
    /// Makes a lock that is free, in the default domain.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for it.
    pub fn new() -> Result<Self, StorageError> {
        Self::new_in(Heap::current()?)
    }

    /// As [`RLock::new`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`RLock::new`].
    pub fn new_in(heap: &Heap) -> Result<Self, StorageError> {
        Ok(Self { primitive: Primitive::create(heap)? })
    }

    /// Takes the lock, or takes it again. Python's `acquire`.
    ///
    /// # Blocking
    /// While another thread or process has the lock. Its release or its death ends the wait.
    ///
    /// # Errors
    /// [`LockError`].
    #[doc(alias = "acquire")]
    pub fn lock(&self) -> Result<RLockGuard, LockError<RLockGuard>> {
        self.lock_with(Deadline::Never)
    }

    /// As [`RLock::lock`], waiting for at most `timeout`.
    ///
    /// # Blocking
    /// As [`RLock::lock`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`RLock::lock`], and [`LockError::Locked`] when the lock did not become free.
    pub fn lock_timeout(&self, timeout: Duration) -> Result<RLockGuard, LockError<RLockGuard>> {
        self.lock_with(Deadline::within(timeout))
    }

    /// As [`RLock::lock`], without waiting.
    ///
    /// # Errors
    /// As [`RLock::lock`], and [`LockError::Locked`] when another thread or process has the lock.
    pub fn try_lock(&self) -> Result<RLockGuard, LockError<RLockGuard>> {
        self.lock_with(Deadline::Now)
    }

    fn lock_with(&self, deadline: Deadline) -> Result<RLockGuard, LockError<RLockGuard>> {
        let monitor = self.primitive.monitor();
        if let Some(had) = had_by_this_thread(monitor) {
            return Ok(RLockGuard::over(had));
        }
        let mut entered = monitor.enter(deadline)?;
        entered.leave_as_found();
        let last_owner = entered.last_owner();
        let had = Rc::new(RefCell::new(entered));
        HAD.with(|all| all.borrow_mut().push(Rc::downgrade(&had)));
        LockError::unless_poisoned(RLockGuard::over(had), last_owner)
    }
}

crate::primitive::identity!(RLock, "lock");

/// What this thread has of this monitor. A thread that was forked has a copy of what its parent has, which is
/// nothing.
fn had_by_this_thread(monitor: &Monitor) -> Option<Rc<RefCell<Entered>>> {
    let is_ours = |had: &Rc<RefCell<Entered>>| {
        had.try_borrow().is_ok_and(|had| had.monitor().ptr_eq(monitor) && had.view().is_some())
    };
    HAD.with(|all| all.borrow().iter().filter_map(Weak::upgrade).find(is_ours))
}

impl RLockGuard {
    fn over(had: Rc<RefCell<Entered>>) -> Self {
        Self { had, was_panicking: std::thread::panicking() }
    }

    /// What the lock protects is whole again: whoever takes the lock next is not told of an earlier owner
    /// that died or panicked. It changes nothing where there was none.
    pub fn clear_poison(&mut self) {
        if let Ok(mut had) = self.had.try_borrow_mut() {
            had.leave_released();
        }
    }

    /// Whether whoever takes the lock next will be told of an owner that died or panicked.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.had.try_borrow().is_ok_and(|had| had.leaves() != LastOwner::Released)
    }
}

impl Drop for RLockGuard {
    fn drop(&mut self) {
        // Also where the thread catches the panic and goes on with another guard.
        if std::thread::panicking()
            && !self.was_panicking
            && let Ok(mut had) = self.had.try_borrow_mut()
        {
            had.leave_panicked();
        }
        if Rc::strong_count(&self.had) == 1 {
            HAD.with(|all| {
                let mut all = all.borrow_mut();
                all.retain(|one| !std::ptr::eq(one.as_ptr(), Rc::as_ptr(&self.had)));
                if all.is_empty() {
                    *all = Vec::new();
                }
            });
        }
    }
}

impl fmt::Debug for RLockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RLockGuard").field("guards", &Rc::strong_count(&self.had)).finish_non_exhaustive()
    }
}
