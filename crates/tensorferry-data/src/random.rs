//! Random numbers that depend on what they are for, and on nothing else.

/// The random numbers of one sample, or of the order of one epoch.
///
/// The numbers of a sample depend on the loader's seed, the epoch and the sample's index, not on which worker
/// makes it, when, or after what. They are the same on every machine. It implements the traits of
/// [`rand_core`] 0.10, so that the crate `rand` 0.10 draws from it whatever it can draw.
///
/// ChaCha with 8 rounds (Bernstein 2008): the seed and the epoch are the key, the index is the stream.
pub type SampleRng = rand_chacha::ChaCha8Rng;

pub use rand_chacha::rand_core;

use rand_core::{Rng as _, SeedableRng as _};

/// What random numbers are for: it is part of their key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Order,
    /// A sample that is drawn once in an epoch.
    Sample,
    /// A sample that may be drawn several times.
    Draw(u64),
    /// The order of a shard.
    ShardOrder,
    /// What a shuffled shard draws from its buffer.
    Shuffle,
    /// A sample of the shard with this index.
    Sharded(u64),
}

/// Identifies an epoch to those who draw random numbers for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EpochKey {
    /// The loader's seed.
    pub seed: u64,
    /// The number of the epoch.
    pub epoch: u64,
}

impl EpochKey {
    /// The random numbers for the order of the samples.
    #[must_use]
    pub fn order_rng(self) -> SampleRng {
        self.rng(Purpose::Order, 0)
    }

    /// The random numbers of the sample with this index.
    #[must_use]
    pub fn sample_rng(self, index: usize) -> SampleRng {
        self.rng(Purpose::Sample, index)
    }

    /// The random numbers of the sample with this index, where one epoch can have it several times: `place`
    /// is its place in the epoch.
    #[must_use]
    pub fn draw_rng(self, index: usize, place: usize) -> SampleRng {
        self.rng(Purpose::Draw(place as u64), index)
    }

    /// The random numbers for the order of a shard.
    pub(crate) fn shard_rng(self, shard: usize) -> SampleRng {
        self.rng(Purpose::ShardOrder, shard)
    }

    /// The random numbers that decide in which order a shard is shuffled.
    pub(crate) fn shuffle_rng(self, shard: usize) -> SampleRng {
        self.rng(Purpose::Shuffle, shard)
    }

    /// The random numbers of the sample at a place of a shard.
    pub(crate) fn sharded_rng(self, shard: usize, nth: usize) -> SampleRng {
        self.rng(Purpose::Sharded(shard as u64), nth)
    }

    fn rng(self, purpose: Purpose, index: usize) -> SampleRng {
        let (purpose, place) = match purpose {
            Purpose::Order => (0, 0),
            Purpose::Sample => (1, 0),
            Purpose::Draw(place) => (2, place),
            Purpose::ShardOrder => (3, 0),
            Purpose::Sharded(shard) => (4, shard),
            Purpose::Shuffle => (5, 0),
        };
        let mut key = [0; 32];
        for (part, number) in key.chunks_exact_mut(8).zip([self.seed, self.epoch, purpose, place]) {
            part.copy_from_slice(&number.to_le_bytes());
        }
        let mut rng = SampleRng::from_seed(key);
        rng.set_stream(index as u64);
        rng
    }
}

/// A number below `limit`, each with the same probability: as many bits as the limit needs, drawn until they
/// are below it, which takes two draws at most on average. 0 for a limit of 0.
pub(crate) fn below(rng: &mut SampleRng, limit: usize) -> usize {
    let Some(last) = limit.checked_sub(1) else { return 0 };
    let mask = u64::MAX.checked_shr((last as u64).leading_zeros()).unwrap_or(0);
    loop {
        if let Ok(number) = usize::try_from(rng.next_u64() & mask)
            && number < limit
        {
            return number;
        }
    }
}

/// Puts them in random order, as Fisher and Yates did.
pub(crate) fn shuffle<T>(items: &mut [T], rng: &mut SampleRng) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(rng, last + 1));
    }
}

/// A number from 0 to 1, without 1, in steps of 2⁻⁵³.
pub(crate) fn unit(rng: &mut SampleRng) -> f64 {
    (rng.next_u64() >> 11) as f64 * (0.5_f64).powi(53)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_that_were_promised() {
        let key = EpochKey { seed: 7, epoch: 3 };
        assert_eq!(
            [key.order_rng(), key.sample_rng(0), key.sample_rng(1), key.draw_rng(1, 0)]
                .map(|mut rng| rng.next_u64()),
            // As another implementation of ChaCha has them.
            [
                4_140_881_248_777_258_056,
                15_766_793_361_395_993_109,
                11_906_673_974_248_903_856,
                4_891_058_776_314_520_708
            ]
        );
    }

    #[test]
    fn whatever_differs_in_the_key_differs_in_the_numbers() {
        let mut seen = std::collections::HashSet::new();
        for seed in 0..4 {
            for epoch in 0..4 {
                let key = EpochKey { seed, epoch };
                assert!(seen.insert(key.order_rng().next_u64()));
                for index in 0..8 {
                    assert!(seen.insert(key.sample_rng(index).next_u64()));
                    assert!((0..4).all(|place| seen.insert(key.draw_rng(index, place).next_u64())));
                    assert!(seen.insert(key.shard_rng(index).next_u64()));
                    assert!(seen.insert(key.shuffle_rng(index).next_u64()));
                    assert!((0..4).all(|nth| seen.insert(key.sharded_rng(index, nth).next_u64())));
                }
            }
        }
    }

    #[test]
    fn numbers_below_a_limit_are_spread_evenly() {
        let mut rng = EpochKey { seed: 0, epoch: 0 }.order_rng();
        let mut counts = [0_u32; 6];
        for _ in 0..60_000 {
            counts[below(&mut rng, 6)] += 1;
        }
        // Five standard deviations.
        assert!(counts.iter().all(|count| (9_543..=10_457).contains(count)), "{counts:?}");
        assert_eq!([0, 1].map(|limit| below(&mut rng, limit)), [0, 0]);
        let most = (0..1_000).map(|_| below(&mut rng, usize::MAX)).max();
        assert!(most > Some(usize::MAX / 4 * 3));
        assert!((0..1_000).map(|_| unit(&mut rng)).all(|number| (0.0..1.0).contains(&number)));
    }
}
