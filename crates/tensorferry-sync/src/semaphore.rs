//! A number of permits, of which a killed process keeps none.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_storage::{Deadline, Heap, MonitorView, StorageError};

use crate::primitive::{Primitive, Taken, for_a_step, word};
use crate::purpose;
use crate::wait_error::WaitError;

/// Index of the word of state with the number of all permits, taken ones included.
const PERMITS: usize = 0;

/// Lets a limited number of holders pass at a time: Python's `Semaphore`.
///
/// A clone, or the value that a receiver gets, is another handle on the same semaphore. A permit comes back
/// when it is dropped, and when its process dies; nobody is told of that.
///
/// It is bounded, as Python's `BoundedSemaphore` is: a permit is given back once. For a semaphore that counts
/// what others have made, there are [`Semaphore::add_permits`] and [`Permit::forget`].
///
/// ```
/// use tensorferry_sync::{Semaphore, WaitError};
///
/// let readers = Semaphore::new(2)?;
/// let (first, second) = (readers.acquire()?, readers.acquire()?);
/// assert!(matches!(readers.try_acquire(), Err(WaitError::NoPermit)));
/// drop(first);
/// assert_eq!(readers.available_permits(), 1);
/// # drop(second);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "BoundedSemaphore")]
#[derive(Clone, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Semaphore {
    primitive: Primitive<{ purpose::SEMAPHORE }>,
}

/// A permit of a [`Semaphore`]. Dropping it gives it back.
#[derive(Debug)]
#[must_use = "the permit is given back at once if it is not kept"]
pub struct Permit {
    taken: Taken,
}

impl Semaphore {
    /// Makes a semaphore with `n_permits` permits, in the default domain.
    ///
    /// # Errors
    /// [`StorageError`] when there is no memory for it.
    pub fn new(n_permits: u32) -> Result<Self, StorageError> {
        Self::new_in(Heap::current()?, n_permits)
    }

    /// As [`Semaphore::new`], in the domain of `heap`.
    ///
    /// # Errors
    /// As [`Semaphore::new`].
    pub fn new_in(heap: &Heap, n_permits: u32) -> Result<Self, StorageError> {
        Ok(Self { primitive: Primitive::create_with(heap, PERMITS, n_permits.into())? })
    }

    /// Takes a permit.
    ///
    /// # Blocking
    /// While there is none. A permit that is given back, [`Semaphore::add_permits`] and the death of a holder
    /// end the wait.
    ///
    /// # Errors
    /// [`WaitError::DeclaredDead`] and [`WaitError::Storage`].
    pub fn acquire(&self) -> Result<Permit, WaitError> {
        self.acquire_with(Deadline::Never)
    }

    /// As [`Semaphore::acquire`], waiting for at most `timeout`.
    ///
    /// # Blocking
    /// As [`Semaphore::acquire`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`], and [`WaitError::TimedOut`] when there was no permit.
    pub fn acquire_timeout(&self, timeout: Duration) -> Result<Permit, WaitError> {
        self.acquire_with(Deadline::within(timeout))
    }

    /// As [`Semaphore::acquire`], without waiting for a permit.
    ///
    /// # Blocking
    /// For a moment while another process takes a permit; for a second if that process is stopped there.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`], and [`WaitError::NoPermit`] when there is no permit, when a process is
    /// stopped while it takes one, or perhaps when one gives one up for good at this moment.
    pub fn try_acquire(&self) -> Result<Permit, WaitError> {
        self.acquire_with(Deadline::Now).map_err(|error| match error {
            WaitError::TimedOut => WaitError::NoPermit,
            error => error,
        })
    }

    fn acquire_with(&self, deadline: Deadline) -> Result<Permit, WaitError> {
        let monitor = self.primitive.monitor();
        let step = for_a_step(deadline);
        monitor.wait(deadline, |view| {
            if n_available(view) == 0 {
                return None;
            }
            // One process at a time, so that two do not take the last permit. To give one back needs no lock.
            let _entered = match monitor.enter(step) {
                Ok(entered) => entered,
                Err(error) => return Some(Err(error.into())),
            };
            if n_available(view) == 0 {
                return None;
            }
            let taken = Taken::count(monitor, view).ok_or(WaitError::DeclaredDead);
            Some(taken.map(|taken| Permit { taken }))
        })?
    }

    /// Adds permits, as Python's `release` of a permit that nobody took does.
    ///
    /// # Errors
    /// [`WaitError::TooManyPermits`] when there would be more than `u32::MAX`, [`WaitError::Storage`].
    #[doc(alias = "release")]
    pub fn add_permits(&self, n_permits: u32) -> Result<(), WaitError> {
        let view = self.primitive.monitor().view()?;
        let add = |permits: u64| {
            let sum = permits.checked_add(u64::from(n_permits))?;
            (sum <= u64::from(u32::MAX)).then_some(sum)
        };
        let added = word(&view, PERMITS).fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        added.map_err(|n_before| WaitError::TooManyPermits { n_before, n_added: n_permits })?;
        self.primitive.monitor().notify();
        Ok(())
    }

    /// How many permits there are to take. Other processes may take or give back some at the same time.
    #[must_use]
    pub fn available_permits(&self) -> u32 {
        let n_permits = self.primitive.monitor().view().map_or(0, |view| n_available(&view));
        u32::try_from(n_permits).unwrap_or(u32::MAX)
    }
}

crate::primitive::identity!(Semaphore, "semaphore");

fn n_available(view: &MonitorView<'_>) -> u64 {
    available(|| view.shares(), || word(view, PERMITS).load(Ordering::SeqCst))
}

/// First what is taken: [`Permit::forget`] takes from all permits first. So there may seem to be one too few
/// in between, after which others are notified, but never one too many.
fn available(n_taken: impl FnOnce() -> u64, n_permits: impl FnOnce() -> u64) -> u64 {
    let n_taken = n_taken();
    n_permits().saturating_sub(n_taken)
}

impl Permit {
    /// Gives the permit up for good: the semaphore has one less.
    pub fn forget(self) {
        // First one less, and then the permit comes back as it is dropped. So there is never one too many,
        // and a death in between leaves one less, as it is to be.
        if let Some(view) = self.taken.view().filter(|view| view.share() > 0) {
            let less = |permits: u64| permits.checked_sub(1);
            let _ = word(&view, PERMITS).fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        }
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("available_permits", &self.available_permits())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_permit_that_is_given_up_between_two_looks_is_not_there() {
        let (permits, taken, n_looks) = (Cell::new(1), Cell::new(1), Cell::new(0));
        let look = |word: &Cell<u64>| {
            if n_looks.replace(n_looks.get() + 1) == 1 {
                // Another process does all of `Permit::forget`.
                permits.set(0);
                taken.set(0);
            }
            word.get()
        };
        assert_eq!(available(|| look(&taken), || look(&permits)), 0);
    }
}
