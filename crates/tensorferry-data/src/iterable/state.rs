//! How far an epoch of an iterable dataset is.

use serde::{Deserialize, Serialize};

use super::turns::{Position, Turns};

/// How far an epoch of an [`IterableDataset`](crate::IterableDataset) is: what a checkpoint needs to go on
/// with the next batch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IterableState {
    pub(crate) epoch: u64,
    pub(crate) seed: u64,
    /// The shard whose turn it is.
    next: usize,
    /// Of each shard, how many samples are done, and whether it is over.
    shards: Vec<(usize, bool)>,
}

impl IterableState {
    pub(crate) fn new(epoch: u64, seed: u64, turns: &Turns) -> Self {
        let shards = turns.positions.iter().map(|position| (position.n_done, position.is_over));
        Self { epoch, seed, next: turns.next, shards: shards.collect() }
    }

    pub(crate) fn turns(&self) -> Turns {
        let positions = self.shards.iter().map(|&(n_done, is_over)| Position { n_done, is_over });
        Turns { positions: positions.collect(), next: self.next }
    }

    /// The number of the epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// How many shards there are.
    #[must_use]
    pub fn n_shards(&self) -> usize {
        self.shards.len()
    }

    /// How many samples were in batches that had been handed out, those that failed included.
    #[must_use]
    pub fn n_samples_done(&self) -> usize {
        self.shards.iter().map(|(n_done, _)| *n_done).fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_without_sense_are_no_panic() {
        let shards = vec![(usize::MAX, false), (usize::MAX, true)];
        let state = IterableState { epoch: u64::MAX, seed: 0, next: usize::MAX, shards };
        assert_eq!(state.n_samples_done(), usize::MAX);
        assert_eq!(state.turns().positions.len(), 2);
    }
}
