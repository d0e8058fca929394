//! What the files of the library use and what makes no difference here.

use std::time::{Duration, Instant};

/// A spin of length zero: the look after it is the one that counts.
#[derive(Debug, Default)]
pub struct Spin(());

impl Spin {
    /// Changes nothing.
    pub fn set_fixed(&self, _budget: Option<Duration>) {}

    /// Does not look.
    pub fn until<R>(
        &self,
        _start: Instant,
        _deadline: Option<Instant>,
        _look: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        None
    }

    /// It is not.
    pub fn is_worthwhile(&self) -> bool {
        false
    }

    /// Learns nothing.
    pub fn note_found(&self) {}

    /// Learns nothing.
    pub fn note_sleep(&self, _waited: Duration) {}

    /// Learns nothing.
    pub fn note_time_out(&self, _waited: Duration) {}
}

/// Starts nothing.
pub fn ensure_services_started() {}
