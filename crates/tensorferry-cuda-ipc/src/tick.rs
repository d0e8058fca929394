//! How often the service thread looks.

use std::time::Duration;

/// How often something is looked at that a device or another process is about to finish.
pub(crate) const TICK: Duration = Duration::from_millis(10);
/// The same, at most, for what takes longer than that.
const LONG_TICK: Duration = Duration::from_millis(100);
/// How often something is looked at that may stay as it is for long: what is cached.
pub(crate) const SLOW_TICK: Duration = Duration::from_millis(200);

/// When to look again. What is not finished soon is looked at less and less often, until something stirs.
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
