//! A part of the samples for each of several trainers.

use super::{BatchSampler, IndexBatches, Indices, Sampler};
use crate::random::EpochKey;

/// The part of one trainer in what another sampler draws, samples of a [`Sampler`] or batches of a
/// [`BatchSampler`]: PyTorch's `DistributedSampler`.
///
/// Trainer *r* of *n* has the draws *r*, *r + n*, *r + 2n* and so on, in every epoch. All have the same
/// number: where the draws do not divide evenly, the first ones come again at the end, or
/// ([`drop_last`](Self::drop_last)) the last ones are left out. All trainers have to use the same seed.
///
/// ```
/// use tensorferry_data::{DistributedSampler, EpochKey, Sampler, SequentialSampler};
///
/// let epoch = EpochKey { seed: 0, epoch: 0 };
/// let part = |rank| DistributedSampler::new(SequentialSampler, rank, 3);
/// assert_eq!(part(1).draw(7, epoch).collect::<Vec<_>>(), [1, 4, 0]);
/// assert_eq!(part(1).drop_last(true).draw(7, epoch).collect::<Vec<_>>(), [1, 4]);
/// ```
#[derive(Clone, Debug)]
pub struct DistributedSampler<S> {
    all: S,
    rank: usize,
    n_ranks: usize,
    drops_last: bool,
}

impl<S> DistributedSampler<S> {
    /// The part of trainer `rank` of `n_ranks`; both as [`rank`](tensorferry_spawn::CurrentProcess::rank) and
    /// the number of processes of a spawned function. A rank that is not below `n_ranks` has no part.
    pub fn new(all: S, rank: usize, n_ranks: usize) -> Self {
        Self { all, rank, n_ranks: n_ranks.max(1), drops_last: false }
    }

    /// Leaves out the last draws where they do not divide evenly, instead of repeating the first.
    #[must_use]
    pub fn drop_last(mut self, drops_last: bool) -> Self {
        self.drops_last = drops_last;
        self
    }

    /// How many of so many draws are this trainer's.
    fn n_of(&self, n_all: usize) -> usize {
        match self.drops_last {
            _ if self.rank >= self.n_ranks => 0,
            true => n_all / self.n_ranks,
            false => n_all.div_ceil(self.n_ranks),
        }
    }

    /// This trainer's part of so many draws. `draw` draws them.
    fn part<T: Clone + Send + 'static>(
        &self,
        n_all: usize,
        draw: impl Fn() -> Box<dyn Iterator<Item = T> + Send>,
    ) -> Box<dyn Iterator<Item = T> + Send> {
        let n_drawn = self.n_of(n_all);
        // Fewer than `n_ranks` are missing, and so many again may be more than there are.
        let n_missing = n_drawn.saturating_mul(self.n_ranks).saturating_sub(n_all);
        let again: Vec<_> = if n_missing > 0 { draw().take(n_missing).collect() } else { Vec::new() };
        let missing = again.into_iter().cycle().take(n_missing);
        Box::new(draw().chain(missing).skip(self.rank).step_by(self.n_ranks).take(n_drawn))
    }

    /// The place in the whole epoch of this trainer's draw number `nth`.
    fn nth_of_all(&self, nth: usize) -> usize {
        nth.saturating_mul(self.n_ranks).saturating_add(self.rank)
    }
}

impl<S: Sampler> Sampler for DistributedSampler<S> {
    fn n_drawn(&self, n_samples: usize) -> usize {
        self.n_of(self.all.n_drawn(n_samples))
    }

    fn draw(&self, n_samples: usize, epoch: EpochKey) -> Indices {
        self.part(self.all.n_drawn(n_samples), || self.all.draw(n_samples, epoch))
    }

    fn repeats(&self) -> bool {
        self.all.repeats()
    }

    fn place(&self, nth: usize) -> usize {
        self.all.place(self.nth_of_all(nth))
    }
}

impl<S: BatchSampler> BatchSampler for DistributedSampler<S> {
    fn n_batches(&self, n_samples: usize) -> usize {
        self.n_of(self.all.n_batches(n_samples))
    }

    fn draw_batches(&self, n_samples: usize, epoch: EpochKey) -> IndexBatches {
        self.part(self.all.n_batches(n_samples), || self.all.draw_batches(n_samples, epoch))
    }

    fn repeats(&self) -> bool {
        self.all.repeats()
    }

    fn place_of_batch(&self, nth: usize) -> usize {
        self.all.place_of_batch(self.nth_of_all(nth))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{BucketBatchSampler, RandomSampler, SequentialSampler};

    proptest! {
        #[test]
        fn the_parts_are_equally_long_and_together_all(n in 0_usize..200, n_ranks in 1_usize..9, seed: u64) {
            let epoch = EpochKey { seed, epoch: 1 };
            for drops_last in [false, true] {
                let parts: Vec<Vec<usize>> = (0..n_ranks)
                    .map(|rank| {
                        let part = DistributedSampler::new(RandomSampler::new(), rank, n_ranks);
                        let part = part.drop_last(drops_last);
                        let drawn: Vec<_> = part.draw(n, epoch).collect();
                        assert_eq!(drawn.len(), part.n_drawn(n));
                        drawn
                    })
                    .collect();
                let len = if drops_last { n / n_ranks } else { n.div_ceil(n_ranks) };
                prop_assert!(parts.iter().all(|part| part.len() == len));
                let mut seen = vec![0_usize; n];
                parts.concat().into_iter().for_each(|index| seen[index] += 1);
                let n_seen = seen.iter().filter(|seen| **seen > 0).count();
                prop_assert_eq!(n_seen, if drops_last { len * n_ranks } else { n });
            }
        }
    }

    #[test]
    fn batches_are_dealt_out_as_samples_are() {
        let epoch = EpochKey { seed: 0, epoch: 0 };
        let all = BucketBatchSampler::new([4; 10], 8).unwrap();
        let expected: Vec<_> = all.draw_batches(10, epoch).collect();
        let part = |rank| DistributedSampler::new(all.clone(), rank, 3);
        let parts: Vec<Vec<_>> = (0..3).map(|rank| part(rank).draw_batches(10, epoch).collect()).collect();
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [part(0).n_batches(10); 3]);
        for (place, batch) in expected.iter().enumerate() {
            assert_eq!(parts[place % 3][place / 3], *batch);
            assert_eq!(part(place % 3).place_of_batch(place / 3), place);
        }
        assert_eq!(parts[2][1], expected[0], "the first one again");
    }

    #[test]
    fn there_may_be_more_trainers_than_samples() {
        let epoch = EpochKey { seed: 0, epoch: 0 };
        let part = |rank| DistributedSampler::new(SequentialSampler, rank, 5).draw(2, epoch);
        assert_eq!((0..5).flat_map(part).collect::<Vec<_>>(), [0, 1, 0, 1, 0]);
        assert_eq!(part(5).count(), 0);
    }
}
