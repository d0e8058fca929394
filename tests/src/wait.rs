//! Waiting with a deadline.

use std::time::{Duration, Instant};

/// Longer than anything here takes on a slow machine; reaching it is a failure.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Looks until `condition` holds.
///
/// # Panics
/// When it does not hold within [`DEADLINE`].
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "waited for {DEADLINE:?} in vain: {what}");
        std::thread::yield_now();
    }
}
