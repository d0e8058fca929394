//! The shards that are being read, in a worker or in the process of the loader.

use std::collections::HashMap;
use std::fmt;

use tensorferry_process::catch;
use tensorferry_spawn::BoxedError;
use tensorferry_storage::Heap;

use super::dataset::{IterableBatch, IterableDataset};
use super::worker::{Next, ShardRequest};
use crate::collate::Collate;
use crate::samples::{GivenUpError, Progress};
use crate::worker::Fetched;

/// The samples of a shard.
type Samples<'d, D> = dyn Iterator<Item = Result<<D as IterableDataset>::Sample, BoxedError>> + 'd;

/// A dataset, and how far its shards have been read.
pub(crate) struct Shards<'d, D: IterableDataset> {
    dataset: &'d D,
    passes: HashMap<u64, Pass<'d, D>>,
}

/// What one iteration over an epoch has read.
struct Pass<'d, D: IterableDataset> {
    open: HashMap<usize, Open<'d, D>>,
    /// Says when nobody wants it any more.
    progress: Option<Progress>,
}

/// A shard that has been read in part.
struct Open<'d, D: IterableDataset> {
    /// Those that were not read yet. `None` when it is over.
    rest: Option<Box<Samples<'d, D>>>,
    /// How many samples are in front of the rest, or of the batch at which it was over.
    n_done: usize,
}

impl<'d, D: IterableDataset> Shards<'d, D> {
    pub(crate) fn new(dataset: &'d D) -> Self {
        Self { dataset, passes: HashMap::new() }
    }

    /// Makes the next batch of a shard, in this worker and process or in that of the loader.
    pub(crate) fn fetch(
        &mut self,
        request: &ShardRequest,
        heap: &Heap,
        worker: Option<(usize, u32)>,
    ) -> Next<IterableBatch<D>> {
        self.let_go();
        let failed = |place, report| Some(Fetched::Failed { worker, place, report });
        let mut place = None;
        match catch(|| self.next(request, heap, &mut place)) {
            Ok(None) => Next::nothing(),
            Ok(Some(Filled { n_read, outcome })) => {
                let is_over = n_read < request.batch_size;
                let batch = match outcome {
                    Ok(None) => return Next::nothing(),
                    Ok(Some(batch)) => Some(Fetched::Batch(batch)),
                    Err((place, error)) => {
                        catch(|| Err(error)).map_or_else(|report| failed(place, report), |()| None)
                    }
                };
                Next { batch, n_read, is_over }
            }
            // A panic, or it cannot be opened.
            Err(report) => {
                let n_read = place.map_or(0, |place| place + 1);
                Next { batch: failed(place, report), n_read, is_over: true }
            }
        }
    }

    /// Drops what was read of passes that were given up.
    fn let_go(&mut self) {
        let given_up =
            |_: &u64, pass: &mut Pass<'d, D>| pass.progress.as_ref().is_some_and(Progress::is_epoch_given_up);
        for open in self.passes.extract_if(given_up).flat_map(|(_, pass)| pass.open.into_values()) {
            // One that panics is gone too, and none of the epoch that asks for a batch now.
            let _ = catch(|| {
                drop(open);
                Ok(())
            });
        }
    }

    /// `place` is that of the sample that is being made. Returns nothing if the shard was over before.
    ///
    /// # Errors
    /// It cannot be opened, or nobody wants the batch any more.
    fn next(
        &mut self,
        request: &ShardRequest,
        heap: &Heap,
        place: &mut Option<usize>,
    ) -> Result<Option<Filled<IterableBatch<D>>>, BoxedError> {
        // To read as far as the batch would take a while.
        if request.progress.as_ref().is_some_and(Progress::is_given_up) {
            return Err(GivenUpError.into());
        }
        // Overwrites what a worker has noted that died while it made this batch.
        request.progress.iter().for_each(Progress::begin);
        let new = || Pass { open: HashMap::new(), progress: request.progress.clone() };
        let Pass { open, .. } = self.passes.entry(request.pass).or_insert_with(new);
        // A batch in front of that may be asked for again, if a worker has died over it.
        let is_behind = |open: &Open<'d, D>| open.rest.is_none() && open.n_done < request.n_done;
        if open.get(&request.shard).is_some_and(is_behind) {
            return Ok(None);
        }
        // What panics, or cannot be opened, is over.
        let is_over = Open { rest: None, n_done: request.n_done };
        let mut rest: Box<Samples<'d, D>> = match open.insert(request.shard, is_over) {
            Some(Open { rest: Some(rest), n_done }) if n_done == request.n_done => rest,
            _ => Box::new(self.dataset.iter_from(request.shard(), request.n_done)?),
        };
        let filled = Filling::new(request, heap, place).fill(&mut *rest)?;
        if filled.n_read == request.batch_size {
            // More samples than can be counted are not made in a lifetime.
            let n_done = request.n_done.saturating_add(filled.n_read);
            open.insert(request.shard, Open { rest: Some(rest), n_done });
        }
        Ok(Some(filled))
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
    /// A failure has the place of the sample whose fault it is.
    outcome: Result<Option<B>, (Option<usize>, BoxedError)>,
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
            *self.place = Some(n_read);
            self.note(Some(n_read))?;
            let Some(sample) = samples.next() else { break };
            if failed.is_none()
                && let Err(error) = sample.and_then(|sample| self.push(&mut rows, sample))
            {
                failed = Some((Some(n_read), error));
            }
            n_read += 1;
        }
        // From here on it is no sample's fault if something fails.
        *self.place = None;
        self.note(None)?;
        if let Some(failure) = failed {
            return Ok(Filled { n_read, outcome: Err(failure) });
        }
        let is_wanted = n_read == self.request.batch_size || !self.request.drops_last;
        let batch = rows.filter(|_| is_wanted).map(C::finish).transpose();
        Ok(Filled { n_read, outcome: batch.map_err(|error| (None, error.into())) })
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
        f.debug_struct("Shards").field("n_passes", &self.passes.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde::{Deserialize, Serialize};
    use tensorferry_tensor::Tensor;

    use super::super::dataset::Shard;
    use super::*;

    /// A shard of samples of their place, unless they are something else. It can seek.
    #[derive(Default, Serialize, Deserialize)]
    struct Script {
        samples: String,
        /// How often it was opened.
        #[serde(skip)]
        n_opened: AtomicUsize,
    }

    impl Script {
        fn new(samples: &str) -> Self {
            Self { samples: samples.to_owned(), ..Self::default() }
        }
    }

    impl IterableDataset for Script {
        type Sample = u64;

        fn n_shards(&self) -> usize {
            1
        }

        fn iter(&self, shard: Shard) -> Result<impl Iterator<Item = Result<u64, BoxedError>>, BoxedError> {
            self.iter_from(shard, 0)
        }

        fn iter_from(
            &self,
            _: Shard,
            n_done: usize,
        ) -> Result<impl Iterator<Item = Result<u64, BoxedError>>, BoxedError> {
            self.n_opened.fetch_add(1, Ordering::Relaxed);
            if self.samples.is_empty() {
                return Err("no such file".into());
            }
            Ok(self.samples.chars().enumerate().skip(n_done).map(|(nth, sample)| match sample {
                'e' => Err("an error".into()),
                'p' => panic!("a panic"),
                _ => Ok(nth as u64),
            }))
        }
    }

    fn request(n_done: usize) -> ShardRequest {
        ShardRequest {
            shard: 0,
            n_shards: 1,
            seed: 0,
            epoch: 0,
            pass: 0,
            n_done,
            batch_size: 3,
            drops_last: false,
            progress: None,
        }
    }

    type Outcome = Option<Result<Vec<u64>, (Option<usize>, String)>>;

    /// What comes next: the batch, how many samples were read, and whether the shard is over.
    fn fetch(shards: &mut Shards<'_, Script>, request: &ShardRequest) -> (Outcome, usize, bool) {
        let next = shards.fetch(request, Heap::current().unwrap(), None);
        let batch = next.batch.map(|fetched| match fetched {
            Fetched::Batch(batch) => Ok(Tensor::into_vec(batch)),
            Fetched::Failed { place, report, .. } => Err((place, report.message)),
        });
        (batch, next.n_read, next.is_over)
    }

    #[test]
    fn what_is_read_is_counted_and_the_end_is_said_as_soon_as_it_is_known() {
        let failed = |place, text: &str| Some(Err((place, text.to_owned())));
        for (samples, expected) in [
            ("..", [(Some(Ok(vec![0, 1])), 2, true), (None, 0, true)]),
            ("...", [(Some(Ok(vec![0, 1, 2])), 3, false), (None, 0, true)]),
            ("e.e..", [(failed(Some(0), "an error"), 3, false), (Some(Ok(vec![3, 4])), 2, true)]),
            (".e", [(failed(Some(1), "an error"), 2, true), (None, 0, true)]),
            (".p..", [(failed(Some(1), "a panic"), 2, true), (None, 0, true)]),
            // The panic, not the error before it.
            ("e.p.", [(failed(Some(2), "a panic"), 3, true), (None, 0, true)]),
            ("", [(failed(None, "no such file"), 0, true), (None, 0, true)]),
        ] {
            let dataset = Script::new(samples);
            let mut shards = Shards::new(&dataset);
            assert_eq!([0, 3].map(|n_done| fetch(&mut shards, &request(n_done))), expected, "{samples}");
            assert_eq!(dataset.n_opened.load(Ordering::Relaxed), 1, "{samples}");
        }
    }

    #[test]
    fn a_batch_that_comes_back_behind_the_end_is_made() {
        for (samples, first) in [("....", Ok(vec![0, 1, 2])), ("..e.p", Err("an error"))] {
            let dataset = Script::new(samples);
            let mut shards = Shards::new(&dataset);
            assert!(fetch(&mut shards, &request(3)).2, "{samples}: over");
            let (batch, n_read, is_over) = fetch(&mut shards, &request(0));
            let batch = batch.unwrap().map_err(|(_, text)| text);
            assert_eq!((batch, n_read, is_over), (first.map_err(str::to_owned), 3, false), "{samples}");
        }
    }

    #[test]
    fn a_last_batch_that_is_dropped_is_not_read_for_anybody() {
        let dataset = Script::new("..");
        let request = ShardRequest { drops_last: true, ..request(0) };
        assert_eq!(fetch(&mut Shards::new(&dataset), &request), (None, 0, true));
    }

    #[test]
    fn of_an_epoch_that_was_given_up_nothing_is_opened() {
        let dataset = Script::new("......");
        let cells = Progress::cells(1).unwrap();
        let request = |n_done, nth| ShardRequest {
            progress: Some(Progress::new(cells.clone(), 1, nth)),
            ..request(n_done)
        };
        let mut shards = Shards::new(&dataset);
        assert!(fetch(&mut shards, &request(0, 0)).0.unwrap().is_ok());
        cells.set(0, 1).unwrap();
        let (batch, _, _) = fetch(&mut shards, &request(3, 1));
        assert_eq!(batch.unwrap().unwrap_err().1, GivenUpError.to_string());
        assert_eq!((dataset.n_opened.load(Ordering::Relaxed), shards.passes.len()), (1, 0));
    }

    #[test]
    fn numbers_without_sense_are_no_panic() {
        let dataset = Script::new("...");
        let request = ShardRequest { batch_size: usize::MAX, ..request(usize::MAX) };
        assert_eq!(fetch(&mut Shards::new(&dataset), &request), (None, 0, true));
    }
}
