//! Waiting for what a lock protects to change.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_storage::{Deadline, Heap, LastOwner, StorageError};

use crate::LockGuard;
use crate::primitive::{Primitive, word};
use crate::purpose;
use crate::wait_error::WaitError;

/// Index of the word of state that counts notifications.
const NOTIFICATIONS: usize = 0;

/// Wakes those who wait for what a [`Lock`](crate::Lock) protects: Python's `Condition`, with the lock apart
/// from it.
///
/// A clone, or the value that a receiver gets, is another handle on the same condition.
///
/// ```
/// use tensorferry_sync::{Condition, Lock, RawValue};
///
/// let (lock, changed, count) = (Lock::new()?, Condition::new()?, RawValue::new(0_u32)?);
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         let _guard = lock.lock();
///         count.set(3);
///         changed.notify_all();
///     });
///     let mut guard = lock.lock()?;
///     changed.wait_while(&mut guard, || count.get() < 3)?;
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Condition {
    primitive: Primitive<{ purpose::CONDITION }>,
}

impl Condition {
    /// Makes a condition in the default domain.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for it.
    pub fn new() -> Result<Self, StorageError> {
        Self::new_in(Heap::current()?)
    }

    /// As [`Condition::new`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Condition::new`].
    pub fn new_in(heap: &Heap) -> Result<Self, StorageError> {
        Ok(Self { primitive: Primitive::create(heap)? })
    }

    /// Releases the lock, waits for a notification, and takes the lock again. It may also return without a
    /// notification, so what the caller waits for has to be looked at again; [`Condition::wait_while`] does.
    ///
    /// # Blocking
    /// Until any process notifies or one that has a handle on the condition dies; and then while another has
    /// the lock.
    ///
    /// # Errors
    /// The guard has the lock again after [`WaitError::PeerDied`] (once for each death of a process that had
    /// a handle on the condition) and [`WaitError::Poisoned`] (an owner of the lock died or panicked
    /// meanwhile, and the guard was not of a poisoned lock before; of a death at the condition the next call
    /// tells). After [`WaitError::DeclaredDead`] and
    /// [`WaitError::Storage`] it guards nothing.
    pub fn wait(&self, guard: &mut LockGuard) -> Result<(), WaitError> {
        self.wait_with(guard, Deadline::Never)
    }

    /// As [`Condition::wait`], for at most `timeout` and as long as it takes to have the lock again.
    ///
    /// # Blocking
    /// As [`Condition::wait`].
    ///
    /// # Errors
    /// As [`Condition::wait`], and [`WaitError::TimedOut`], after which the guard has the lock again.
    pub fn wait_timeout(&self, guard: &mut LockGuard, timeout: Duration) -> Result<(), WaitError> {
        self.wait_with(guard, Deadline::within(timeout))
    }

    /// Waits as [`Condition::wait`] does, again and again while `condition` is true. `condition` is called
    /// with the lock, first before any wait.
    ///
    /// # Blocking
    /// As [`Condition::wait`].
    ///
    /// # Errors
    /// As [`Condition::wait`].
    #[doc(alias = "wait_for")]
    pub fn wait_while(
        &self,
        guard: &mut LockGuard,
        condition: impl FnMut() -> bool,
    ) -> Result<(), WaitError> {
        self.wait_while_with(guard, Deadline::Never, condition)
    }

    /// As [`Condition::wait_while`], for at most `timeout` and as long as it takes to have the lock again.
    ///
    /// # Blocking
    /// As [`Condition::wait_while`].
    ///
    /// # Errors
    /// As [`Condition::wait_timeout`].
    pub fn wait_timeout_while(
        &self,
        guard: &mut LockGuard,
        timeout: Duration,
        condition: impl FnMut() -> bool,
    ) -> Result<(), WaitError> {
        self.wait_while_with(guard, Deadline::within(timeout), condition)
    }

    fn wait_while_with(
        &self,
        guard: &mut LockGuard,
        deadline: Deadline,
        mut condition: impl FnMut() -> bool,
    ) -> Result<(), WaitError> {
        while condition() {
            match self.wait_with(guard, deadline) {
                // It may have come true at the last moment.
                Err(WaitError::TimedOut) if !condition() => return Ok(()),
                waited => waited?,
            }
        }
        Ok(())
    }

    fn wait_with(&self, guard: &mut LockGuard, deadline: Deadline) -> Result<(), WaitError> {
        let monitor = self.primitive.monitor();
        // Read while the lock is held, so whoever changes something after this notifies after this too.
        let seen = word(&monitor.view()?, NOTIFICATIONS).load(Ordering::SeqCst);
        let (waited, last_owner) = guard.released(|| {
            monitor.wait(deadline, |view| {
                // Read first: whoever notified before it died is then seen to have notified.
                let deaths = view.deaths();
                if word(view, NOTIFICATIONS).load(Ordering::SeqCst) != seen {
                    Some(Ok(()))
                } else {
                    self.primitive.is_untold(deaths).then_some(Err(WaitError::PeerDied))
                }
            })
        })?;
        if last_owner != LastOwner::Released {
            return Err(WaitError::Poisoned { last_owner });
        }
        match waited? {
            // Another thread with this handle may have told of it meanwhile.
            Err(WaitError::PeerDied) if !self.primitive.tells_of(monitor.view()?.deaths()) => Ok(()),
            waited => waited,
        }
    }

    /// Wakes at least one of those who wait, if any does. Call it with the lock, after the change.
    ///
    /// All of them wake up and look: a waker cannot tell which of them are still alive.
    #[doc(alias = "notify")]
    pub fn notify_one(&self) {
        self.notify_all();
    }

    /// Wakes all who wait. Call it with the lock, after the change.
    pub fn notify_all(&self) {
        if let Ok(view) = self.primitive.monitor().view() {
            word(&view, NOTIFICATIONS).fetch_add(1, Ordering::SeqCst);
            self.primitive.monitor().notify();
        }
    }
}

crate::primitive::identity!(Condition, "condition");
