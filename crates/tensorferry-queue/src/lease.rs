//! A value that comes back when its worker dies.

use std::fmt;
use std::ops::Deref;

use tensorferry_storage::{Lease as RawLease, LeaseLostError};

/// A value that this process works on, and that somebody else gets if it dies before [`Lease::ack`].
///
/// Dropping a lease without acknowledging it gives the value back too: a worker that panics, or that returns early with
/// `?`, loses nothing. Whoever comes next gets it before everything that is in the queue. Exactly one process has a
/// lease on a message at a time; work that was done before a death is done again, so it is to be repeatable, or its
/// results told apart by what is in the message.
///
/// Reads as the value.
#[must_use = "dropping it gives the value back"]
pub struct Lease<T> {
    value: T,
    raw: RawLease,
}

impl<T> Lease<T> {
    pub(crate) fn new(value: T, raw: RawLease) -> Self {
        Self { value, raw }
    }

    /// How often the value has been delivered, this time included: more than 1 means that somebody died over it, or gave
    /// it back. Stops at 65,535.
    #[must_use]
    pub fn deliveries(&self) -> u16 {
        self.raw.deliveries()
    }

    /// Says that the work is done: nobody gets the value again. It is this process's own from here on.
    ///
    /// # Errors
    /// [`LeaseLostError`] when another member has declared this process dead, which needs proof of its death: it is the answer
    /// to what cannot happen.
    pub fn ack(self) -> Result<T, LeaseLostError> {
        self.raw.ack()?;
        Ok(self.value)
    }

    /// Gives the value back, to be the first in line for anybody, this process included. The same as dropping the lease.
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
