//! How long the others take to clean up after a kill.

use std::time::{Duration, Instant};

use serde::Serialize;
use tensorferry::domain::{Domain, Member};

use crate::Child;

/// Somebody who was killed and still has its slot.
#[derive(Debug)]
pub(super) struct Dying {
    pub(super) child: Child,
    member: Member,
    killed_at: Instant,
    /// Whether a process was stopped meanwhile that may have begun the sweep.
    pub(super) others_stopped: bool,
}

impl Dying {
    /// Kills `child`.
    pub(super) fn kill(child: Child, others_stopped: bool) -> Self {
        let (member, killed_at) = (child.member(), Instant::now());
        child.signal(nix::sys::signal::Signal::SIGKILL);
        Self { child, member, killed_at, others_stopped }
    }

    /// How long it took, once the slot is free.
    pub(super) fn recovered(&self, domain: &Domain) -> Option<Duration> {
        let has_slot = domain.members().iter().any(|info| info.member == self.member);
        (!has_slot).then(|| self.killed_at.elapsed())
    }

    pub(super) fn age(&self) -> Duration {
        self.killed_at.elapsed()
    }
}

/// Times from SIGKILL to the slot being free again.
#[derive(Clone, Debug, Default)]
pub(super) struct Times(Vec<Duration>);

/// [`Times`] in numbers, in microseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Histogram {
    /// How many kills.
    pub count: usize,
    /// Half of them took no longer.
    pub p50_us: u64,
    /// 99 of 100 took no longer.
    pub p99_us: u64,
    /// None took longer.
    pub max_us: u64,
    /// How many took less than this many microseconds and not less than half of it.
    pub buckets: Vec<(u64, usize)>,
}

impl Times {
    pub(super) fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub(super) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    pub(super) fn histogram(&self) -> Histogram {
        let mut all: Vec<u64> = self.0.iter().map(|t| u64::try_from(t.as_micros()).unwrap()).collect();
        all.sort_unstable();
        let at = |percent: usize| {
            let rank = (all.len() * percent).div_ceil(100).max(1) - 1;
            all.get(rank).copied().unwrap_or(0)
        };
        let mut buckets: Vec<(u64, usize)> = Vec::new();
        for &us in &all {
            let below = (us + 1).next_power_of_two();
            match buckets.last_mut() {
                Some((last, n)) if *last == below => *n += 1,
                _ => buckets.push((below, 1)),
            }
        }
        Histogram { count: all.len(), p50_us: at(50), p99_us: at(99), max_us: at(100), buckets }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_histogram_has_every_time_once() {
        let mut times = Times::default();
        assert_eq!(times.histogram().max_us, 0);
        for us in 1..=100 {
            times.add(Duration::from_micros(us));
        }
        let Histogram { count, p50_us, p99_us, max_us, buckets } = times.histogram();
        assert_eq!((count, p50_us, p99_us, max_us), (100, 50, 99, 100));
        assert_eq!(buckets, [(2, 1), (4, 2), (8, 4), (16, 8), (32, 16), (64, 32), (128, 37)]);
    }
}
