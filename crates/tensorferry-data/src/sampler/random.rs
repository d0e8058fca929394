//! Samples in random order.

use super::{Indices, Sampler};
use crate::random::{EpochKey, below, shuffle};

/// The samples in random order, another one in each epoch.
///
/// Without replacement, each once: a permutation, for which an epoch needs 8
/// bytes for each sample. With replacement, each draw is independent of the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RandomSampler {
    n_draws: Option<usize>,
}

impl RandomSampler {
    /// Each sample once.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `n_draws` samples, each any of all.
    #[must_use]
    pub fn with_replacement(n_draws: usize) -> Self {
        Self { n_draws: Some(n_draws) }
    }
}

impl Sampler for RandomSampler {
    fn n_drawn(&self, n_samples: usize) -> usize {
        match self.n_draws {
            None => n_samples,
            Some(_) if n_samples == 0 => 0,
            Some(n_draws) => n_draws,
        }
    }

    fn draw(&self, n_samples: usize, epoch: EpochKey) -> Indices {
        let mut rng = epoch.order_rng();
        match self.n_draws {
            None => {
                let mut order: Vec<usize> = (0..n_samples).collect();
                shuffle(&mut order, &mut rng);
                Box::new(order.into_iter())
            }
            Some(_) => Box::new((0..self.n_drawn(n_samples)).map(move |_| below(&mut rng, n_samples))),
        }
    }

    fn repeats(&self) -> bool {
        self.n_draws.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_sample_comes_once_and_the_order_is_the_epochs(n in 0_usize..300, seed: u64, epoch: u64) {
            let sampler = RandomSampler::new();
            let drawn = |seed, epoch| sampler.draw(n, EpochKey { seed, epoch }).collect::<Vec<_>>();
            let order = drawn(seed, epoch);
            prop_assert_eq!(&order, &drawn(seed, epoch));
            if n > 30 {
                prop_assert_ne!(&order, &drawn(seed, epoch ^ 1));
                prop_assert_ne!(&order, &drawn(seed ^ 1, epoch));
            }
            let mut sorted = order;
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..n));
        }
    }

    #[test]
    fn the_order_is_the_one_that_was_promised() {
        let order = RandomSampler::new().draw(10, EpochKey { seed: 1, epoch: 2 });
        assert_eq!(order.collect::<Vec<_>>(), [7, 8, 6, 2, 0, 4, 3, 9, 1, 5]);
    }

    #[test]
    fn with_replacement_as_many_as_were_asked_for_come_and_some_come_again() {
        let sampler = RandomSampler::with_replacement(1_000);
        let drawn: Vec<_> = sampler.draw(10, EpochKey { seed: 0, epoch: 0 }).collect();
        assert_eq!((drawn.len(), sampler.n_drawn(10), sampler.n_drawn(0)), (1_000, 1_000, 0));
        assert!((0..10).all(|index| drawn.iter().filter(|drawn| **drawn == index).count() > 50));
        assert_eq!(sampler.draw(0, EpochKey { seed: 0, epoch: 0 }).count(), 0);
    }
}
