//! A value that comes back to its queue when the process that works on it dies.

use std::fmt;
use std::ops::Deref;

use tensorferry_storage::{Lease as RawLease, LeaseLostError};

/// A value that this process works on. If the process dies before [`Lease::ack`], another one gets the value.
///
/// Dropping a lease without acknowledging it gives the value back too, so a worker that panics, or that
/// returns early with `?`, loses nothing. The next receiver gets the value before everything that is in the
/// queue.
///
/// Exactly one process holds a lease on a message at a time. Work that was done before a death is done again.
/// Therefore the work must be repeatable, or the message must hold something that tells repeated results
/// apart.
///
/// A value over which every worker panics comes back again and again, first in line. Look at
/// [`Lease::deliveries`] before the work, and answer with an error from the second or third delivery on.
///
/// A value whose `Deserialize` panics is delivered three times, and then it is lost.
///
/// A lease dereferences to the value.
#[must_use = "dropping it gives the value back"]
pub struct Lease<T> {
    value: T,
    raw: RawLease,
}

impl<T> Lease<T> {
    pub(crate) fn new(value: T, raw: RawLease) -> Self {
        Self { value, raw }
    }

    /// How often the value has been delivered, this time included. More than 1 means that an earlier holder
    /// died or gave the value back. The count stops at 65,535.
    #[must_use]
    pub fn deliveries(&self) -> u16 {
        self.raw.deliveries()
    }

    /// Acknowledges the value: the work is done, and no process gets it again. Returns the value, which now
    /// belongs to this process.
    ///
    /// # Errors
    /// [`LeaseLostError`] when this process inherited the lease by fork(2), or was declared dead by another
    /// member. A member needs proof of a death for that, so a living process does not see the latter.
    pub fn ack(self) -> Result<T, LeaseLostError> {
        self.raw.ack()?;
        Ok(self.value)
    }

    /// Gives the value back, as dropping the lease does. The next receiver gets it, which may be in this
    /// process.
    pub fn give_back(self) {}
}

impl<T> Deref for Lease<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Lease<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("value", &self.value).field("deliveries", &self.deliveries()).finish()
    }
}
