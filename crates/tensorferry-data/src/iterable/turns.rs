//! Which shard is asked next.

use crate::random::EpochKey;

use super::worker::ShardRequest;

/// How far a shard is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) n_done: usize,
    pub(crate) is_over: bool,
}

/// Whose turn it is: the shards one after the other, without those that are over.
#[derive(Debug)]
pub(crate) struct Turns {
    pub(crate) positions: Vec<Position>,
    /// The shard whose turn it is, if it is not over.
    pub(crate) next: usize,
}

impl Turns {
    /// The next shard that is not over, and how many samples of it are done.
    fn take(&mut self, batch_size: usize) -> Option<(usize, usize)> {
        let n_shards = self.positions.len();
        let shard = (self.next..n_shards).chain(0..self.next.min(n_shards));
        let shard = shard.into_iter().find(|shard| !self.positions[*shard].is_over)?;
        self.next = (shard + 1) % n_shards;
        let position = &mut self.positions[shard];
        let n_done = position.n_done;
        // More samples than can be counted are not made in a lifetime.
        position.n_done = n_done.saturating_add(batch_size);
        Some((shard, n_done))
    }

    pub(crate) fn end(&mut self, shard: usize) {
        self.positions.iter_mut().skip(shard).take(1).for_each(|position| position.is_over = true);
    }
}

/// The requests of an epoch that were not made yet, in order.
#[derive(Debug)]
pub(crate) struct ShardRequests {
    pub(crate) turns: Turns,
    pub(crate) key: EpochKey,
    pub(crate) pass: u64,
    pub(crate) batch_size: usize,
    pub(crate) drops_last: bool,
}

impl Iterator for ShardRequests {
    type Item = ShardRequest;

    fn next(&mut self) -> Option<ShardRequest> {
        let (shard, n_done) = self.turns.take(self.batch_size)?;
        Some(ShardRequest {
            shard,
            n_shards: self.turns.positions.len(),
            seed: self.key.seed,
            epoch: self.key.epoch,
            pass: self.pass,
            n_done,
            batch_size: self.batch_size,
            drops_last: self.drops_last,
            progress: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(over: &[bool], next: usize) -> Turns {
        let positions = over.iter().map(|&is_over| Position { n_done: 0, is_over }).collect();
        Turns { positions, next }
    }

    #[test]
    fn shards_come_in_turn_without_those_that_are_over() {
        let mut turns = turns(&[false, true, false], 1);
        let order: Vec<_> = (0..4).filter_map(|_| turns.take(8)).collect();
        assert_eq!(order, [(2, 0), (0, 0), (2, 8), (0, 8)]);
        turns.end(2);
        assert_eq!([turns.take(8), turns.take(8)], [Some((0, 16)), Some((0, 24))]);
        turns.end(0);
        assert_eq!(turns.take(8), None);
    }

    #[test]
    fn no_shards_and_a_turn_that_is_none_are_no_panic() {
        assert_eq!(turns(&[], 0).take(1), None);
        assert_eq!(turns(&[], 7).take(1), None);
        assert_eq!(turns(&[false], 7).take(1), Some((0, 0)));
    }
}
