//! When a figure is good enough.

use crate::number;

/// What a figure may be.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// This or less.
    AtMost(f64),
    /// This or more.
    AtLeast(f64),
}

/// What a bound came to in one try, or at best in several.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried {
    /// The figure.
    pub value: f64,
    /// What the limit of this machine came to in the same rounds, where that is asked for.
    pub machine: Option<f64>,
}

/// What follows from the tries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is good enough.
    Holds,
    /// Not even the limit of this machine was in any try, and the figure has the share of it that is asked for.
    OutOfReach,
    /// It is not.
    Fails,
}

impl Limit {
    /// Whether this figure is good enough.
    #[must_use]
    pub fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(limit) => value <= limit,
            Self::AtLeast(limit) => value >= limit,
        }
    }

    /// The same with another number.
    #[must_use]
    pub const fn with(self, limit: f64) -> Self {
        match self {
            Self::AtMost(_) => Self::AtMost(limit),
            Self::AtLeast(_) => Self::AtLeast(limit),
        }
    }

    /// What follows from a try. Where the limit of the machine does not reach the bound itself, `share` times what it has is
    /// asked for instead, if there is a share.
    #[must_use]
    pub fn verdict(self, share: Option<f64>, tried: Tried) -> Verdict {
        if self.holds(tried.value) {
            return Verdict::Holds;
        }
        match share.zip(tried.machine) {
            Some((share, machine))
                if !self.holds(machine) && self.with(share * machine).holds(tried.value) =>
            {
                Verdict::OutOfReach
            }
            _ => Verdict::Fails,
        }
    }

    /// The best of several tries, for the figure and for the limit of the machine, each by itself: an excuse has to last.
    #[must_use]
    pub fn best(self, one: Tried, other: Tried) -> Tried {
        let better = |one: f64, other: f64| match self {
            Self::AtMost(_) => one.min(other),
            Self::AtLeast(_) => one.max(other),
        };
        let machine = match (one.machine, other.machine) {
            (Some(one), Some(other)) => Some(better(one, other)),
            (machine, None) | (None, machine) => machine,
        };
        Tried { value: better(one.value, other.value), machine }
    }

    /// For people.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Self::AtMost(limit) => format!("at most {}", number(limit)),
            Self::AtLeast(limit) => format!("at least {}", number(limit)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tried(value: f64, machine: impl Into<Option<f64>>) -> Tried {
        Tried { value, machine: machine.into() }
    }

    #[test]
    fn what_the_machine_does_not_reach_is_no_failure_with_the_share_of_it_that_is_asked_for() {
        let bound = Limit::AtLeast(25.0);
        let verdict = |value, machine| bound.verdict(Some(0.9), tried(value, machine));
        assert_eq!(verdict(25.0, 10.0), Verdict::Holds);
        assert_eq!(verdict(18.0, 20.0), Verdict::OutOfReach);
        assert_eq!(verdict(17.9, 20.0), Verdict::Fails, "less than the share");
        assert_eq!(verdict(24.9, 25.0), Verdict::Fails, "the machine reaches it");
        assert_eq!(bound.verdict(Some(0.9), tried(24.9, None)), Verdict::Fails);
        assert_eq!(bound.verdict(None, tried(18.0, 20.0)), Verdict::Fails);
        let bound = Limit::AtMost(1.05);
        assert_eq!(bound.verdict(Some(1.5), tried(1.5, 1.1)), Verdict::OutOfReach);
        assert_eq!(bound.verdict(Some(1.5), tried(1.5, 1.0)), Verdict::Fails);
    }

    #[test]
    fn of_several_tries_the_best_counts_for_the_figure_and_for_its_excuse() {
        let bound = Limit::AtLeast(25.0);
        let once_excused = bound.best(tried(20.0, 26.0), tried(18.0, 20.0));
        assert_eq!(once_excused, tried(20.0, 26.0));
        assert_eq!(bound.verdict(Some(0.9), once_excused), Verdict::Fails);
        assert_eq!(bound.best(tried(18.0, 20.0), tried(19.0, None)), tried(19.0, 20.0));
        assert_eq!(Limit::AtMost(1.0).best(tried(3.0, 4.0), tried(2.0, 5.0)), tried(2.0, 4.0));
    }
}
