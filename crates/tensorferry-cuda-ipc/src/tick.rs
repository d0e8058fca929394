//! How often the service thread checks for finished work.

use std::time::Duration;

/// The interval while a device or another process is about to finish something.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// The longest interval for work that takes longer than [`TICK`].
const LONG_TICK: Duration = Duration::from_millis(100);
/// The interval for what may stay unchanged for long, such as caches.
pub(crate) const SLOW_TICK: Duration = Duration::from_millis(200);

/// The time until the next check. The interval doubles up to [`LONG_TICK`] while nothing finishes, and starts
/// again when the thread is woken.
pub(crate) fn next_tick(wanted: Duration, last: Option<Duration>, is_stirred: bool) -> Duration {
    match last {
        Some(last) if !is_stirred => wanted.max((last * 2).min(LONG_TICK)),
        _ => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_looked_at_less_and_less_often_until_something_stirs() {
        let mut tick = next_tick(TICK, None, false);
        let mut ticks = Vec::new();
        for is_stirred in [false, false, false, false, true, false] {
            tick = next_tick(TICK, Some(tick), is_stirred);
            ticks.push(tick.as_millis());
        }
        assert_eq!(ticks, [20, 40, 80, 100, 10, 20]);
        assert_eq!(next_tick(SLOW_TICK, Some(TICK), false), SLOW_TICK);
        assert_eq!(next_tick(TICK, Some(SLOW_TICK), false), LONG_TICK);
    }
}
