//! What an epoch asks for, batch by batch.

use std::fmt;
use std::sync::Arc;

use crate::loader::Steps;
use crate::sampler::Indices;
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
    order: Indices,
    /// Tells the order from others: a number made of the first indices of the epoch.
    fingerprint: u64,
    /// How many samples were drawn so far.
    n_drawn: usize,
    /// How many batches there are still to be asked for, unless the sampler draws fewer than it says.
    n_left: usize,
}

impl Requests {
    /// Those of an epoch behind its first `n_done` samples.
    pub(crate) fn new(steps: Arc<Steps>, epoch: u64, n_done: usize) -> Self {
        let mut all = steps.draw(epoch);
        let head: Vec<_> = all.by_ref().take(HEAD_LEN).collect();
        let fingerprint = fingerprint(&head);
        let mut order: Indices = Box::new(head.into_iter().chain(all));
        if let Some(last) = n_done.checked_sub(1) {
            let _ = order.nth(last);
        }
        let n_left = steps.n_batches(steps.n_drawn().saturating_sub(n_done));
        Self { steps, epoch, order, fingerprint, n_drawn: n_done, n_left }
    }

    pub(crate) fn n_left(&self) -> usize {
        self.n_left
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let steps = Arc::clone(&self.steps);
        self.n_left = self.n_left.checked_sub(1)?;
        let indices: Vec<_> = self.order.by_ref().take(steps.batch_size).collect();
        if indices.is_empty() || steps.drops_last && indices.len() < steps.batch_size {
            self.n_left = 0;
            return None;
        }
        let first = self.n_drawn;
        self.n_drawn += indices.len();
        let places = || (first..self.n_drawn).map(|nth| steps.sampler.place(nth)).collect();
        let draws = steps.sampler.repeats().then(places);
        Some(Request { indices, epoch: self.epoch, seed: steps.seed, draws, progress: None })
    }
}

impl fmt::Debug for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("n_left", &self.n_left).finish_non_exhaustive()
    }
}
