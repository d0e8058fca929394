//! What an epoch asks for, batch by batch.

use std::fmt;
use std::sync::Arc;

use crate::loader::{Draws, Steps};
use crate::places::Places;
use crate::random::EpochKey;
use crate::sampler::{BatchSampler, IndexBatches, Sampler};
use crate::worker::Request;

/// How many indices of an epoch tell its order from others.
const HEAD_LEN: usize = 64;

/// FNV-1a (Fowler, Noll and Vo), the same in every version: it stands in checkpoints.
fn fingerprint(indices: &[usize]) -> u64 {
    let bytes = indices.iter().flat_map(|index| (*index as u64).to_le_bytes());
    bytes.fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// The requests of an epoch that were not made yet, in order.
pub(crate) struct Requests {
    steps: Arc<Steps>,
    epoch: u64,
    order: Order,
    /// Tells the order from others: a number made of the first indices of the epoch.
    fingerprint: u64,
    /// The number of the next batch.
    number: usize,
    /// How many batches there are still to be asked for, unless the sampler draws fewer than it says.
    n_left: usize,
}

/// What was not asked for yet.
enum Order {
    /// Samples with their places in the epoch.
    Samples(Box<dyn Iterator<Item = (usize, usize)> + Send>),
    Batches {
        batches: IndexBatches,
        /// The number of the next batch, and the place of its first sample.
        next: (usize, usize),
        /// What is left out.
        done: Places,
    },
}

impl Requests {
    /// Those of an epoch without what is done.
    pub(crate) fn new(steps: Arc<Steps>, epoch: u64, done: &Places) -> Self {
        let key = EpochKey { seed: steps.seed, epoch };
        let mut head = Vec::new();
        let (order, number, n_left) = match &steps.draws {
            Draws::Samples { sampler, batch_size, .. } => {
                let mut all = sampler.draw(steps.n_samples, key);
                head.extend(all.by_ref().take(HEAD_LEN));
                let all = head.clone().into_iter().chain(all).enumerate();
                let n_left = steps.n_batches_of(sampler.n_drawn(steps.n_samples).saturating_sub(done.n()));
                let number = done.n().div_ceil(*batch_size);
                let done = done.clone();
                let left = Box::new(all.filter(move |(place, _)| !done.contains(*place)));
                (Order::Samples(left), number, n_left)
            }
            Draws::Batches(sampler) => {
                let mut all = sampler.draw_batches(steps.n_samples, key);
                let mut first = Vec::new();
                while head.len() < HEAD_LEN
                    && let Some(batch) = all.next()
                {
                    head.extend(&batch);
                    first.push(batch);
                }
                let batches = Box::new(first.into_iter().chain(all));
                let order = Order::Batches { batches, next: (0, 0), done: done.clone() };
                (order, 0, sampler.n_batches(steps.n_samples))
            }
        };
        head.truncate(HEAD_LEN);
        Self { epoch, order, fingerprint: fingerprint(&head), number, n_left, steps }
    }

    pub(crate) fn n_left(&self) -> usize {
        self.n_left
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

/// A batch of samples: their places in the epoch and their indices, and the places for their random numbers.
struct Drawn {
    samples: Vec<(usize, usize)>,
    draws: Option<Vec<usize>>,
}

fn next_samples(
    all: &mut dyn Iterator<Item = (usize, usize)>,
    sampler: &dyn Sampler,
    batch_size: usize,
    drops_last: bool,
) -> Option<Drawn> {
    let samples: Vec<_> = all.take(batch_size).collect();
    if samples.is_empty() || drops_last && samples.len() < batch_size {
        return None;
    }
    let places = || samples.iter().map(|(place, _)| sampler.place(*place)).collect();
    let draws = sampler.repeats().then(places);
    Some(Drawn { samples, draws })
}

/// What is not done of a batch, which may be nothing.
fn rest_of(
    batch: Vec<usize>,
    (number, first): (usize, usize),
    done: &Places,
    sampler: &dyn BatchSampler,
) -> Drawn {
    let left = || batch.iter().enumerate().filter(|(nth, _)| !done.contains(first.saturating_add(*nth)));
    // A number for each sample of all batches that have less than 2³² samples.
    let place = |nth: usize| sampler.place_of_batch(number).wrapping_shl(32).wrapping_add(nth);
    let draws = sampler.repeats().then(|| left().map(|(nth, _)| place(nth)).collect());
    Drawn { samples: left().map(|(nth, index)| (first.saturating_add(nth), *index)).collect(), draws }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let steps = Arc::clone(&self.steps);
        loop {
            self.n_left = self.n_left.checked_sub(1)?;
            let drawn = match (&mut self.order, &steps.draws) {
                (Order::Samples(all), Draws::Samples { sampler, batch_size, drops_last }) => {
                    next_samples(all, &**sampler, *batch_size, *drops_last)
                }
                (Order::Batches { batches, next, done }, Draws::Batches(sampler)) => {
                    batches.next().map(|batch| {
                        let this = *next;
                        *next = (this.0.saturating_add(1), this.1.saturating_add(batch.len()));
                        rest_of(batch, this, done, &**sampler)
                    })
                }
                _ => None,
            };
            let Some(Drawn { samples, draws }) = drawn else {
                self.n_left = 0;
                return None;
            };
            let number = self.number;
            self.number += 1;
            if samples.is_empty() {
                continue;
            }
            let places = samples.iter().map(|(place, _)| *place).collect();
            let indices = samples.into_iter().map(|(_, index)| index).collect();
            let seed = steps.seed;
            return Some(Request { indices, epoch: self.epoch, seed, draws, number, places, progress: None });
        }
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("n_left", &self.n_left).finish_non_exhaustive()
    }
}
