//! Waiting with a deadline.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a slow machine; reaching it is a failure.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// As [`DEADLINE`], unless `TENSORFERRY_TEST_DEADLINE` has another number of seconds: for runs that are meant to fail.
pub(crate) fn deadline() -> Duration {
    static FROM_ENVIRONMENT: OnceLock<Option<u64>> = OnceLock::new();
    let given = || std::env::var("TENSORFERRY_TEST_DEADLINE").ok().and_then(|text| text.parse().ok());
    FROM_ENVIRONMENT.get_or_init(given).map_or(DEADLINE, Duration::from_secs)
}

/// Looks until `condition` holds.
///
/// # Panics
/// When it does not hold within [`DEADLINE`].
#[track_caller]
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    let most = deadline();
    while !condition() {
        assert!(start.elapsed() < most, "waited for {most:?} in vain: {what}");
        std::thread::yield_now();
    }
}
