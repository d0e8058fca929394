//! The shards that are being read, in a worker or in the process of the loader.

use std::collections::HashMap;
use std::fmt;

use tensorferry_process::catch;
use tensorferry_spawn::BoxedError;
use tensorferry_storage::Heap;

use super::dataset::IterableDataset;
use super::worker::{Next, ShardRequest};
use crate::collate::Collate;
use crate::samples::{GivenUpError, Progress};
use crate::worker::Fetched;

/// The samples of a shard.
type Samples<'d, D> = dyn Iterator<Item = Result<<D as IterableDataset>::Sample, BoxedError>> + 'd;

/// A dataset, and how far its shards have been read.
pub(crate) struct Shards<'d, D: IterableDataset> {
    dataset: &'d D,
    /// By pass and shard.
    open: HashMap<(u64, usize), Open<'d, D>>,
}

/// A shard that has been read in part.
struct Open<'d, D: IterableDataset> {
    /// `None` when it is over.
    rest: Option<Rest<'d, D>>,
    /// Says when nobody wants it any more.
    progress: Option<Progress>,
}

/// What of a shard was not read yet.
struct Rest<'d, D: IterableDataset> {
    samples: Box<Samples<'d, D>>,
    n_done: usize,
}

impl<'d, D: IterableDataset> Shards<'d, D> {
    pub(crate) fn new(dataset: &'d D) -> Self {
        Self { dataset, open: HashMap::new() }
    }

    /// Makes the next batch of a shard, in this worker and process or in that of the loader.
    pub(crate) fn fetch(
        &mut self,
        request: &ShardRequest,
        heap: &Heap,
        worker: Option<(usize, u32)>,
    ) -> Fetched<Next<D>> {
        let mut place = None;
        match catch(|| self.next(request, heap, &mut place)) {
            Ok(next) => Fetched::Batch(next),
            Err(report) => Fetched::Failed { worker, place, report },
        }
    }

    /// `place` is that of the sample that is being made.
    fn next(
        &mut self,
        request: &ShardRequest,
        heap: &Heap,
        place: &mut Option<usize>,
    ) -> Result<Next<D>, BoxedError> {
        self.open.retain(|_, open| !open.progress.as_ref().is_some_and(Progress::is_given_up));
        // In the place of what was noted by a worker that has died over this batch.
        request.progress.iter().for_each(Progress::begin);
        // What panics, or cannot be opened, is over.
        let is_over = Open { rest: None, progress: request.progress.clone() };
        let key = (request.pass, request.shard);
        let mut rest = match self.open.insert(key, is_over) {
            Some(Open { rest: None, .. }) => return Ok(None),
            Some(Open { rest: Some(rest), .. }) if rest.n_done == request.n_done => rest,
            _ => {
                let samples = self.dataset.iter_from(request.shard(), request.n_done)?;
                Rest { samples: Box::new(samples), n_done: request.n_done }
            }
        };
        let batch = Filling::new(request, heap, place).fill(&mut *rest.samples)?;
        rest.n_done += batch.n_read;
        if batch.n_read == request.batch_size
            && let Some(open) = self.open.get_mut(&key)
        {
            open.rest = Some(rest);
        }
        batch.outcome
    }
}

/// A batch that is being filled with the next samples of a shard.
struct Filling<'a> {
    request: &'a ShardRequest,
    heap: &'a Heap,
    place: &'a mut Option<usize>,
}

/// What became of it.
struct Filled<B> {
    /// How many samples were read. Fewer than a batch has when there are no more.
    n_read: usize,
    outcome: Result<Option<(B, usize)>, BoxedError>,
}

impl<'a> Filling<'a> {
    fn new(request: &'a ShardRequest, heap: &'a Heap, place: &'a mut Option<usize>) -> Self {
        Self { request, heap, place }
    }

    /// Reads as many samples as the batch has. Where one of them is an error, those behind it are read too,
    /// so that the next batch begins where it would have.
    ///
    /// # Errors
    /// Nobody wants the batch any more.
    fn fill<C: Collate>(
        self,
        samples: &mut (dyn Iterator<Item = Result<C, BoxedError>> + '_),
    ) -> Result<Filled<C::Batch>, BoxedError> {
        let (mut rows, mut failed, mut n_read) = (None, None, 0);
        while n_read < self.request.batch_size {
            if failed.is_none() {
                *self.place = Some(n_read);
            }
            self.note(Some(n_read))?;
            let Some(sample) = samples.next() else { break };
            if failed.is_none()
                && let Err(error) = sample.and_then(|sample| self.push(&mut rows, sample))
            {
                failed = Some(error);
            }
            n_read += 1;
        }
        if let Some(error) = failed {
            return Ok(Filled { n_read, outcome: Err(error) });
        }
        // From here on it is no sample's fault if something fails.
        *self.place = None;
        self.note(None)?;
        let is_wanted = n_read == self.request.batch_size || !self.request.drops_last;
        let batch = rows.filter(|_| is_wanted).map(C::finish).transpose();
        let outcome = batch.map(|batch| batch.map(|batch| (batch, n_read))).map_err(BoxedError::from);
        Ok(Filled { n_read, outcome })
    }

    fn push<C: Collate>(&self, rows: &mut Option<C::Rows>, sample: C) -> Result<(), BoxedError> {
        let rows = match rows {
            Some(rows) => rows,
            None => rows.insert(C::begin(&sample, self.request.batch_size, self.heap)?),
        };
        Ok(C::push(rows, sample)?)
    }

    /// Notes where the batch is.
    fn note(&self, place: Option<usize>) -> Result<(), BoxedError> {
        let Some(progress) = &self.request.progress else { return Ok(()) };
        progress.note(place);
        if progress.is_given_up() { Err(GivenUpError.into()) } else { Ok(()) }
    }
}

impl<D: IterableDataset> fmt::Debug for Shards<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shards").field("n_open", &self.open.len()).finish_non_exhaustive()
    }
}
