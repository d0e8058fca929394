//! What an epoch asks for, batch by batch.

use std::fmt;

use crate::loader::Steps;
use crate::sampler::Indices;
use crate::worker::Request;

/// The requests of an epoch that were not made yet, in order.
pub(crate) struct Requests<'a> {
    steps: &'a Steps,
    epoch: u64,
    order: Indices,
    /// How many samples were drawn so far.
    n_drawn: usize,
    /// How many batches there are still to be asked for, unless the sampler draws fewer than it says.
    n_left: usize,
}

impl<'a> Requests<'a> {
    /// Those of an epoch behind its first `n_done` samples.
    pub(crate) fn new(steps: &'a Steps, epoch: u64, n_done: usize) -> Self {
        let mut order = steps.draw(epoch);
        if let Some(last) = n_done.checked_sub(1) {
            let _ = order.nth(last);
        }
        let n_left = steps.n_batches(steps.n_drawn().saturating_sub(n_done));
        Self { steps, epoch, order, n_drawn: n_done, n_left }
    }

    pub(crate) fn n_left(&self) -> usize {
        self.n_left
    }

    /// There are no more.
    pub(crate) fn stop(&mut self) {
        self.n_left = 0;
    }
}

impl Iterator for Requests<'_> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let steps = self.steps;
        self.n_left = self.n_left.checked_sub(1)?;
        let indices: Vec<_> = self.order.by_ref().take(steps.batch_size).collect();
        if indices.is_empty() || steps.drops_last && indices.len() < steps.batch_size {
            self.stop();
            return None;
        }
        let first = self.n_drawn;
        self.n_drawn += indices.len();
        let places = || (first..self.n_drawn).map(|nth| steps.sampler.place(nth)).collect();
        let draws = steps.sampler.repeats().then(places);
        Some(Request { indices, epoch: self.epoch, seed: steps.seed, draws, progress: None })
    }
}

impl fmt::Debug for Requests<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Requests").field("n_left", &self.n_left).finish_non_exhaustive()
    }
}
