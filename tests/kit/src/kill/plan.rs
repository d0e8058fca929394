//! Which positions are tried.

use std::collections::BTreeSet;

use crate::Random;

/// Which of an operation's positions a child is killed at.
#[derive(Clone, Debug)]
pub enum Plan {
    /// At every one.
    Exhaustive,
    /// At the last one and at others that are drawn.
    Sampled {
        /// How many are drawn.
        n_drawn: usize,
        /// From where.
        random: Random,
    },
    /// At one that is drawn, without counting first.
    One {
        /// Out of about how many. When there are fewer, the last one is tried.
        n_positions: u64,
        /// From where.
        random: Random,
    },
}

impl Plan {
    /// Runs `strike` for the positions that are wanted. It gets a position and returns where the child was
    /// killed: at that position, or at the last one when the call was over before. Returns how many positions
    /// were covered, and how many there are; so many at least, where nobody has counted.
    pub(super) fn carry_out(&mut self, mut strike: impl FnMut(u64) -> Struck) -> (u64, u64) {
        let mut covered = BTreeSet::new();
        let mut last = 0;
        match self {
            Self::Exhaustive => {
                for position in 0.. {
                    let struck = strike(position);
                    covered.insert(struck.position);
                    last = last.max(struck.position);
                    if struck.done {
                        break;
                    }
                }
            }
            Self::One { n_positions, random } => {
                let struck = strike(random.below(*n_positions));
                covered.insert(struck.position);
                last = struck.position;
            }
            Self::Sampled { n_drawn, random } => {
                // The first run is for counting.
                last = strike(u64::MAX).position;
                covered.insert(last);
                let n_wanted = (*n_drawn).min(usize::try_from(last).unwrap());
                let mut drawn = BTreeSet::new();
                while drawn.len() < n_wanted {
                    drawn.insert(random.below(last));
                }
                for position in drawn {
                    let struck = strike(position);
                    covered.insert(struck.position);
                    last = last.max(struck.position);
                }
            }
        }
        (covered.len() as u64, last + 1)
    }
}

/// Where a child was killed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Struck {
    /// How many events came before.
    pub(super) position: u64,
    /// Whether the call was over.
    pub(super) done: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A call with six events, and so seven positions.
    fn strike(position: u64) -> Struck {
        Struck { position: position.min(6), done: position >= 6 }
    }

    #[test]
    fn every_position_is_covered_and_the_end_ends_it() {
        assert_eq!(Plan::Exhaustive.carry_out(strike), (7, 7));
    }

    #[test]
    fn one_is_one_and_never_beyond_the_end() {
        for seed in 0..20 {
            let mut plan = Plan::One { n_positions: 12, random: Random::from_seed(seed) };
            let (covered, at_least) = plan.carry_out(strike);
            assert!(covered == 1 && at_least <= 7);
        }
    }

    #[test]
    fn a_sample_has_no_position_twice_and_always_the_last() {
        for (n_drawn, n_covered) in [(0, 1), (3, 4), (100, 7)] {
            let mut plan = Plan::Sampled { n_drawn, random: Random::from_seed(1) };
            assert_eq!(plan.carry_out(strike), (n_covered, 7));
        }
    }
}
