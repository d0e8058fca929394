//! Waiting with a deadline.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Longer than anything here takes on a slow machine; reaching it is a failure.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// As [`DEADLINE`], unless `TENSORFERRY_TEST_DEADLINE` has another number of seconds: for runs that are meant
/// to fail.
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
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    let most = deadline();
    assert!(holds_within(most, condition), "waited for {most:?} in vain: {what}");
}

/// Looks until `condition` holds; false when it does not within this time.
pub(crate) fn holds_within(most: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() >= most {
            return false;
        }
        std::thread::yield_now();
    }
    true
}
