//! How often the service thread looks.

use std::time::Duration;

/// How often something is looked at that a device or another process is about to finish.
pub(crate) const BEAT: Duration = Duration::from_millis(10);
/// The same, at most, for what takes longer than that.
const LONG_BEAT: Duration = Duration::from_millis(100);
/// How often something is looked at that may stay as it is for long: what is cached.
pub(crate) const SLOW_BEAT: Duration = Duration::from_millis(200);

/// When to look again. What is not finished soon is looked at less and less often, until something stirs.
pub(crate) fn next_beat(wanted: Duration, last: Option<Duration>, is_stirred: bool) -> Duration {
    match last {
        Some(last) if !is_stirred => wanted.max((last * 2).min(LONG_BEAT)),
        _ => wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_is_looked_at_less_and_less_often_until_something_stirs() {
        let mut beat = next_beat(BEAT, None, false);
        let mut beats = Vec::new();
        for is_stirred in [false, false, false, false, true, false] {
            beat = next_beat(BEAT, Some(beat), is_stirred);
            beats.push(beat.as_millis());
        }
        assert_eq!(beats, [20, 40, 80, 100, 10, 20]);
        assert_eq!(next_beat(SLOW_BEAT, Some(BEAT), false), SLOW_BEAT);
        assert_eq!(next_beat(BEAT, Some(SLOW_BEAT), false), LONG_BEAT);
    }
}
