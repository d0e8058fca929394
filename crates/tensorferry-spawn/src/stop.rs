//! Stopping the other processes once one has failed: grace period, SIGTERM, a second wait, SIGKILL.

use std::time::{Duration, Instant};

/// The time between SIGTERM and SIGKILL without a grace period.
pub(crate) const DEFAULT_KILL_AFTER: Duration = Duration::from_secs(30);

/// What to do to the processes that still run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send SIGTERM.
    Terminate,
    /// Send SIGKILL.
    Kill,
}

/// The schedule of the steps. It knows only times, not processes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    next: Option<(Step, Instant)>,
    kill_after: Duration,
}

impl Stop {
    /// Begins at the first failure. With a grace period the others have that long to end by themselves, and
    /// the same time again after SIGTERM. Without one, SIGTERM comes at once and SIGKILL after 30 seconds.
    pub(crate) fn begin(now: Instant, grace_period: Option<Duration>) -> Self {
        let next = later(now, grace_period.unwrap_or(Duration::ZERO)).map(|at| (Step::Terminate, at));
        Self { next, kill_after: grace_period.unwrap_or(DEFAULT_KILL_AFTER) }
    }

    /// The step that is due. Returns each step once.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Step> {
        let (step, _) = self.next.filter(|&(_, at)| at <= now)?;
        self.next = match step {
            Step::Terminate => later(now, self.kill_after).map(|at| (Step::Kill, at)),
            Step::Kill => None,
        };
        Some(step)
    }

    /// When the next step is due; `None` if there is none.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.next.map(|(_, at)| at)
    }
}

/// `None` if the clock cannot express the time. Then the step never comes.
fn later(now: Instant, by: Duration) -> Option<Instant> {
    now.checked_add(by)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_grace_period_counts_before_and_after_the_first_signal() {
        let start = Instant::now();
        let mut stop = Stop::begin(start, Some(20 * SECOND));
        assert_eq!(stop.due(start + 19 * SECOND), None);
        assert_eq!(stop.deadline(), Some(start + 20 * SECOND));
        assert_eq!(stop.due(start + 21 * SECOND), Some(Step::Terminate));
        assert_eq!(stop.due(start + 21 * SECOND), None, "each step once");
        assert_eq!(stop.due(start + 40 * SECOND), None);
        assert_eq!(stop.due(start + 41 * SECOND), Some(Step::Kill));
        assert_eq!((stop.due(start + 999 * SECOND), stop.deadline()), (None, None));
    }

    #[test]
    fn without_a_grace_period_the_first_signal_comes_at_once() {
        let start = Instant::now();
        let mut stop = Stop::begin(start, None);
        assert_eq!(stop.due(start), Some(Step::Terminate));
        assert_eq!(stop.deadline(), Some(start + DEFAULT_KILL_AFTER));
    }

    #[test]
    fn an_endless_grace_period_never_ends() {
        let mut stop = Stop::begin(Instant::now(), Some(Duration::MAX));
        assert_eq!((stop.due(Instant::now() + SECOND), stop.deadline()), (None, None));
    }
}
