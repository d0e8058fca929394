//! Samples in another order, as far as a buffer allows.

use std::fmt;
use std::iter::FusedIterator;

use crate::random::{SampleRng, below};

/// The samples of a shard in random order, as far as a buffer allows; made by
/// [`Shard::shuffle`](crate::Shard::shuffle).
pub struct Shuffled<I: Iterator> {
    samples: std::iter::Fuse<I>,
    buffer: Vec<I::Item>,
    buffer_len: usize,
    rng: SampleRng,
}

impl<I: Iterator> Shuffled<I> {
    pub(crate) fn new(samples: I, buffer_len: usize, rng: SampleRng) -> Self {
        Self { samples: samples.fuse(), buffer: Vec::new(), buffer_len, rng }
    }
}

impl<I: Iterator> Iterator for Shuffled<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let Some(sample) = self.samples.next() else {
            let nth = below(&mut self.rng, self.buffer.len());
            return (!self.buffer.is_empty()).then(|| self.buffer.swap_remove(nth));
        };
        self.buffer.push(sample);
        while self.buffer.len() < self.buffer_len {
            let Some(sample) = self.samples.next() else { break };
            self.buffer.push(sample);
        }
        let nth = below(&mut self.rng, self.buffer.len());
        Some(self.buffer.swap_remove(nth))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.samples.size_hint();
        let n_buffered = self.buffer.len();
        (least.saturating_add(n_buffered), most.and_then(|most| most.checked_add(n_buffered)))
    }
}

impl<I: Iterator> FusedIterator for Shuffled<I> {}

impl<I: Iterator> fmt::Debug for Shuffled<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shuffled").field("n_buffered", &self.buffer.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use crate::iterable::Shard;
    use crate::random::EpochKey;

    fn order(seed: u64, buffer_len: usize) -> Vec<usize> {
        Shard::new(1, 2, EpochKey { seed, epoch: 0 }).shuffle(0..100, buffer_len).collect()
    }

    #[test]
    fn each_sample_comes_once_and_none_before_it_is_in_the_buffer() {
        for buffer_len in [2, 10, 100, 1_000] {
            let shuffled = order(1, buffer_len);
            let mut sorted = shuffled.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..100).collect::<Vec<_>>());
            assert!(shuffled.iter().enumerate().all(|(place, sample)| *sample < place + buffer_len));
            assert_ne!(shuffled, sorted);
            assert_eq!(shuffled, order(1, buffer_len), "the same again");
            assert_ne!(shuffled, order(2, buffer_len), "another with another seed");
        }
        assert!(order(1, 100)[..10].iter().any(|sample| *sample > 50), "of all that are in the buffer");
        for buffer_len in [0, 1] {
            assert_eq!(order(1, buffer_len), (0..100).collect::<Vec<_>>(), "no buffer, no other order");
        }
    }
}
