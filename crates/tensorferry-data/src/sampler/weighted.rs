//! Some samples more often than others.

use std::sync::Arc;

use super::{Indices, Sampler};
use crate::random::{EpochKey, unit};

/// Draws samples with replacement, each with a probability in proportion to its weight: rare classes as often
/// as common ones, for example.
///
/// ```
/// use tensorferry_data::{EpochKey, Sampler, WeightedRandomSampler};
///
/// let sampler = WeightedRandomSampler::new([1.0, 0.0, 3.0], 1_000)?;
/// let drawn: Vec<_> = sampler.draw(3, EpochKey { seed: 0, epoch: 0 }).collect();
/// let count = |index| drawn.iter().filter(|drawn| **drawn == index).count();
/// assert_eq!((drawn.len(), count(1)), (1_000, 0));
/// assert!((700..800).contains(&count(2)));
/// # Ok::<(), tensorferry_data::WeightsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct WeightedRandomSampler {
    /// The sum of the weights up to and with each sample.
    sums: Arc<[f64]>,
    n_draws: usize,
}

/// Weights from which nothing can be drawn.
#[derive(Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WeightsError {
    /// A weight is negative or no number, or their sum is infinite.
    #[error(
        "the weight of sample {index} is {weight}: weights are finite numbers from 0, and so is their sum"
    )]
    Weight {
        /// The sample.
        index: usize,
        /// Its weight.
        weight: f64,
    },
    /// No weight is above 0.
    #[error("no sample has a weight above 0")]
    AllZero,
}

tensorferry_storage::debug_as_display!(WeightsError);

impl WeightedRandomSampler {
    /// Draws `n_draws` samples. The weights are those of the samples in order; samples behind them are not
    /// drawn.
    ///
    /// # Errors
    /// [`WeightsError`].
    pub fn new(weights: impl IntoIterator<Item = f64>, n_draws: usize) -> Result<Self, WeightsError> {
        let mut sum = 0.0;
        let mut sums = Vec::new();
        for (index, weight) in weights.into_iter().enumerate() {
            sum += weight;
            if !(weight >= 0.0 && sum.is_finite()) {
                return Err(WeightsError::Weight { index, weight });
            }
            sums.push(sum);
        }
        if sum <= 0.0 {
            return Err(WeightsError::AllZero);
        }
        Ok(Self { sums: sums.into(), n_draws })
    }
}

impl Sampler for WeightedRandomSampler {
    fn n_drawn(&self, _: usize) -> usize {
        self.n_draws
    }

    fn draw(&self, _: usize, epoch: EpochKey) -> Indices {
        let (sums, mut rng) = (Arc::clone(&self.sums), epoch.order_rng());
        let sum = sums.last().copied().unwrap_or_default();
        // The last sample with a weight, for a product that was rounded up to the sum.
        let last = sums.partition_point(|up_to| *up_to < sum);
        Box::new((0..self.n_draws).map(move |_| {
            let drawn = unit(&mut rng) * sum;
            sums.partition_point(|up_to| *up_to <= drawn).min(last)
        }))
    }

    fn repeats(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_from_which_nothing_can_be_drawn_are_refused() {
        let refused = |weights: &[f64]| WeightedRandomSampler::new(weights.iter().copied(), 1).unwrap_err();
        assert_eq!(refused(&[]), WeightsError::AllZero);
        assert_eq!(refused(&[0.0, 0.0]), WeightsError::AllZero);
        assert_eq!(refused(&[1.0, -1.0]), WeightsError::Weight { index: 1, weight: -1.0 });
        assert!(matches!(refused(&[f64::NAN]), WeightsError::Weight { index: 0, .. }));
        assert!(matches!(refused(&[f64::MAX, f64::MAX]), WeightsError::Weight { index: 1, .. }));
    }

    #[test]
    fn what_has_no_weight_is_never_drawn() {
        let sampler = WeightedRandomSampler::new([0.0, 1.0, 0.0, f64::MIN_POSITIVE, 0.0], 10_000).unwrap();
        let mut drawn = sampler.draw(5, EpochKey { seed: 3, epoch: 4 });
        assert!(drawn.all(|index| index == 1 || index == 3));
    }
}
