//! Datasets that are read from front to back, in shards.

use std::process::abort;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry::data::rand_core::Rng as _;
use tensorferry::data::{
    DataLoaderBuilder, InTurn, IterableDataset, IterableEpoch, IterableLoader, IterableState, LoadError,
    LoadErrorKind, LoaderError, ResumeError, Shard, dataset, worker_info,
};
use tensorferry::sync::{Event, RawValue};
use tensorferry::{BoxedError, Tensor};
use tensorferry_kit::until;

use crate::{Trouble, leaving_nothing};

/// Shards of so many samples, one of which makes trouble.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shards {
    pub(crate) lens: Vec<usize>,
    trouble: Option<(usize, usize, Trouble)>,
    /// How many samples were made.
    pub(crate) n_made: RawValue<u64>,
    /// How many shards are being read.
    pub(crate) n_open: RawValue<i64>,
}

impl Shards {
    pub(crate) fn new(lens: &[usize]) -> Self {
        let (n_made, n_open) = (RawValue::new(0).unwrap(), RawValue::new(0).unwrap());
        Self { lens: lens.to_vec(), trouble: None, n_made, n_open }
    }

    pub(crate) fn with(lens: &[usize], shard: usize, nth: usize, trouble: Trouble) -> Self {
        Self { trouble: Some((shard, nth, trouble)), ..Self::new(lens) }
    }

    pub(crate) fn sample(&self, shard: Shard, nth: usize) -> Result<Vec<u64>, BoxedError> {
        self.n_made.fetch_add(1);
        let number = number(shard.index, nth);
        match &self.trouble {
            Some((index, at, trouble)) if (*index, *at) == (shard.index, nth) => trouble.at(number),
            _ => Ok(vec![number]),
        }
    }
}

/// The sample at a place of a shard.
fn number(shard: usize, nth: usize) -> u64 {
    shard as u64 * 1_000 + nth as u64
}

/// Is counted as long as it is there.
struct Counted(RawValue<i64>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(-1);
    }
}

#[dataset]
impl IterableDataset for Shards {
    type Sample = Vec<u64>;

    fn n_shards(&self) -> usize {
        self.lens.len()
    }

    fn iter(&self, shard: Shard) -> Result<impl Iterator<Item = Result<Vec<u64>, BoxedError>>, BoxedError> {
        self.n_open.fetch_add(1);
        let counted = Counted(self.n_open.clone());
        Ok((0..self.lens[shard.index]).map(move |nth| {
            let _is_moved_in = &counted;
            self.sample(shard, nth)
        }))
    }
}

pub(crate) type Builder<D> = DataLoaderBuilder<D, InTurn>;

pub(crate) fn builder(dataset: &Shards) -> Builder<Shards> {
    IterableLoader::builder(dataset.clone())
}

/// The samples in each batch, all of which come.
#[track_caller]
pub(crate) fn all(epoch: IterableEpoch<Shards>) -> Vec<Vec<u64>> {
    epoch.map(|batch| batch.map(Tensor::into_vec)).collect::<Result<_, _>>().unwrap()
}

/// The samples in each batch, or why it did not come.
fn outcomes(epoch: IterableEpoch<Shards>) -> Vec<Result<Vec<u64>, LoadError>> {
    epoch.map(|batch| batch.map(Tensor::into_vec)).collect()
}

/// Samples of a shard that stand in one batch.
pub(crate) fn batch(shard: usize, places: std::ops::Range<usize>) -> Vec<u64> {
    places.map(|nth| number(shard, nth)).collect()
}

#[test]
fn shards_take_turns_whoever_reads_them() {
    leaving_nothing(|| {
        let dataset = Shards::new(&[5, 0, 2, 4]);
        let expected =
            [batch(0, 0..2), batch(2, 0..2), batch(3, 0..2), batch(0, 2..4), batch(3, 2..4), batch(0, 4..5)];
        for n_workers in 0..=4 {
            let loader = builder(&dataset).batch_size(2).workers(n_workers).start().unwrap();
            assert_eq!(loader.processes().len(), n_workers);
            for epoch in 0..2 {
                assert_eq!(all(loader.epoch(epoch)), expected, "{n_workers} workers");
            }
            assert_eq!(dataset.n_open.get(), 0, "what is over is dropped");
            loader.join().unwrap();
            let loader = builder(&dataset).batch_size(2).workers(n_workers).drop_last(true).start().unwrap();
            assert_eq!(all(loader.epoch(0)), expected[..5]);
        }
    });
}

#[test]
fn an_epoch_can_be_resumed_at_every_batch_with_other_workers_and_another_batch_size() {
    let dataset = Shards::new(&[7, 3, 5]);
    let flat = |batches: Vec<Vec<u64>>| {
        let mut samples: Vec<_> = batches.into_iter().flatten().collect();
        samples.sort_unstable();
        samples
    };
    let loaders = [(0, 2), (2, 2), (3, 3)].map(|(n_workers, batch_size)| {
        builder(&dataset).batch_size(batch_size).workers(n_workers).seed(7).start().unwrap()
    });
    let whole = all(loaders[0].epoch(3));
    for n_taken in 0..=whole.len() {
        let mut epoch = loaders[1].epoch(3);
        let taken: Vec<_> = epoch.by_ref().take(n_taken).map(|batch| batch.unwrap().into_vec()).collect();
        let state = serde_json::to_string(&epoch.state()).unwrap();
        let state: IterableState = serde_json::from_str(&state).unwrap();
        assert_eq!((state.epoch(), state.n_shards()), (3, 3));
        assert_eq!(state.n_samples_done(), taken.iter().map(Vec::len).sum::<usize>());
        assert_eq!(all(epoch), whole[n_taken..]);
        assert_eq!(all(loaders[0].resume(&state).unwrap()), whole[n_taken..]);
        let mut samples = flat(all(loaders[2].resume(&state).unwrap()));
        samples.extend(taken.into_iter().flatten());
        assert_eq!(flat(vec![samples]), flat(whole.clone()), "in batches of three");
    }
    let state = loaders[0].epoch(0).state();
    let other = builder(&dataset).seed(8).start().unwrap();
    assert_eq!(other.resume(&state).unwrap_err(), ResumeError::Seed { state: 7, loader: 8 });
    let other = builder(&Shards::new(&[7])).seed(7).start().unwrap();
    assert_eq!(other.resume(&state).unwrap_err(), ResumeError::Shards { state: 3, loader: 1 });
}

#[test]
fn a_sample_that_fails_costs_its_batch_and_its_shard_goes_on() {
    for (trouble, why) in [(Trouble::Error, "no sample 1003"), (Trouble::Longer, "the shape [2] differs")] {
        for n_workers in [0, 2] {
            let dataset = Shards::with(&[2, 9], 1, 3, trouble.clone());
            let loader = builder(&dataset).batch_size(2).workers(n_workers).start().unwrap();
            let mut outcomes = outcomes(loader.epoch(0));
            let error = outcomes.remove(2).unwrap_err();
            assert_eq!((error.batch, error.shard, error.sample), (2, Some(1), Some(3)));
            let text = error.to_string();
            assert!(text.starts_with("batch 2 of epoch 0, shard 1, sample 3: the dataset "), "{text}");
            assert!(text.contains(why) && text.contains("in worker 1") == (n_workers > 0), "{text}");
            let rest: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
            assert_eq!(
                rest,
                [batch(0, 0..2), batch(1, 0..2), batch(1, 4..6), batch(1, 6..8), batch(1, 8..9)]
            );
        }
    }
}

#[test]
fn a_shard_that_panics_is_over_and_the_others_go_on() {
    for n_workers in [0, 2] {
        let dataset = Shards::with(&[6, 6], 0, 3, Trouble::Panic);
        let loader = builder(&dataset).batch_size(2).workers(n_workers).start().unwrap();
        for epoch in 0..2 {
            let mut outcomes = outcomes(loader.epoch(epoch));
            let error = outcomes.remove(2).unwrap_err();
            assert_eq!((error.batch, error.shard, error.sample), (2, Some(0), Some(3)));
            assert!(error.to_string().contains("panicked"), "{error}");
            let rest: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
            assert_eq!(rest, [batch(0, 0..2), batch(1, 0..2), batch(1, 2..4), batch(1, 4..6)]);
        }
        assert_eq!(dataset.n_open.get(), 0);
    }
}

#[test]
fn a_killed_worker_costs_its_batch_and_another_goes_on_behind_it() {
    leaving_nothing(|| {
        let n_calls = RawValue::new(0).unwrap();
        let dataset = Shards::with(&[2, 7], 1, 3, Trouble::AbortUntil(n_calls.clone(), 2));
        let loader = builder(&dataset).batch_size(2).workers(2).start().unwrap();
        let pids: Vec<_> = loader.processes().iter().map(|process| process.pid()).collect();
        let mut outcomes = outcomes(loader.epoch(0));
        let error = outcomes.remove(2).unwrap_err();
        assert_eq!((error.batch, error.shard, error.sample), (2, Some(1), Some(3)));
        let LoadErrorKind::WorkerDied(died) = &error.kind else { panic!("{error}") };
        let process = died.process.as_ref().unwrap();
        assert_eq!((process.pid, process.signal_name().as_deref()), (pids[1], Some("SIGABRT")));
        assert!(error.to_string().contains("loader 1"), "{error}");
        let rest: Vec<_> = outcomes.into_iter().map(Result::unwrap).collect();
        assert_eq!(rest, [batch(0, 0..2), batch(1, 0..2), batch(1, 4..6), batch(1, 6..7)]);
        assert_eq!(loader.processes()[0].pid(), pids[0], "the other worker is the same");

        // Made again by the next one, nothing is lost.
        n_calls.set(0);
        let loader = builder(&dataset).batch_size(2).workers(2).max_tries(2).start().unwrap();
        assert_eq!(all(loader.epoch(0)).concat().len(), 9);
        assert_eq!(n_calls.get(), 2);
    });
}

#[test]
fn a_shard_that_kills_whoever_reads_it_is_over_after_two() {
    let dataset = Shards::with(&[6, usize::MAX], 1, 3, Trouble::Kill);
    let loader = builder(&dataset).batch_size(2).workers(2).start().unwrap();
    let outcomes = outcomes(loader.epoch(0));
    let errors: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert_eq!(
        errors.iter().map(|error| (error.shard, error.sample)).collect::<Vec<_>>(),
        [
            (Some(1), Some(3)),
            // On its way to its own batch it comes past the same sample.
            (Some(1), None),
        ]
    );
    let samples: Vec<_> = outcomes.into_iter().filter_map(Result::ok).collect();
    assert_eq!(samples, [batch(0, 0..2), batch(1, 0..2), batch(0, 2..4), batch(0, 4..6)]);
}

#[test]
fn a_batch_that_is_late_is_named_with_its_shard_and_waited_for_again() {
    let (says, go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
    let dataset = Shards::with(&[2, 2], 1, 0, Trouble::Wait(says.clone(), go.clone()));
    let builder = builder(&dataset).batch_size(2).workers(2);
    let loader = builder.timeout(Duration::from_millis(20)).start().unwrap();
    let mut epoch = loader.epoch(0);
    // The first one may be late too, because workers take time to start.
    assert_eq!(epoch.by_ref().find_map(Result::ok).unwrap().to_vec(), batch(0, 0..2));
    until("the sample is begun", || says.get() != 0);
    let error = epoch.next().unwrap().unwrap_err();
    let LoadErrorKind::TimedOut { pid, .. } = error.kind else { panic!("{error}") };
    assert_eq!((error.shard, error.sample, pid), (Some(1), Some(0), Some(says.get())));
    go.set();
    assert_eq!(epoch.find_map(Result::ok).unwrap().to_vec(), batch(1, 0..2));
}

/// Shards of random numbers, the shards of which know where they are read.
#[derive(Serialize, Deserialize)]
struct Random;

#[dataset]
impl IterableDataset for Random {
    type Sample = [u64; 4];

    fn n_shards(&self) -> usize {
        4
    }

    fn iter(&self, shard: Shard) -> Result<impl Iterator<Item = Result<[u64; 4], BoxedError>>, BoxedError> {
        let worker = worker_info().map_or(u64::MAX, |info| info.id as u64 * 10 + info.n_workers as u64);
        let order = shard.order_rng().next_u64();
        Ok((0..3)
            .map(move |nth| Ok([order, shard.sample_rng(nth).next_u64(), worker, std::process::id().into()])))
    }
}

#[test]
fn random_numbers_are_those_of_the_place_and_a_shard_stays_with_its_worker() {
    let mut numbers = Vec::new();
    for n_workers in [0, 2] {
        let loader = IterableLoader::builder(Random).seed(3).workers(n_workers).start().unwrap();
        let pids: Vec<_> = loader.processes().iter().map(|process| u64::from(process.pid())).collect();
        let samples: Vec<_> = loader.epoch(5).map(|batch| batch.unwrap().into_vec()).collect();
        for (nth, sample) in samples.iter().enumerate() {
            match pids.get(nth % 4 % 2) {
                Some(pid) => assert_eq!(sample[2..], [(nth % 4 % 2) as u64 * 10 + 2, *pid]),
                None => assert_eq!(sample[2..], [u64::MAX, std::process::id().into()]),
            }
        }
        numbers.push(samples.iter().map(|sample| sample[..2].to_vec()).collect::<Vec<_>>());
    }
    assert_eq!(numbers[0], numbers[1]);
    let mut different: Vec<_> = numbers[0].iter().map(|sample| sample[1]).collect();
    different.sort_unstable();
    different.dedup();
    assert_eq!((different.len(), numbers[0].len()), (12, 12));
}

/// One endless shard that can seek, and one that cannot be opened.
#[derive(Clone, Serialize, Deserialize)]
struct Seeking {
    n_made: RawValue<u64>,
}

#[dataset]
impl IterableDataset for Seeking {
    type Sample = u64;

    fn n_shards(&self) -> usize {
        2
    }

    fn iter(&self, shard: Shard) -> Result<impl Iterator<Item = Result<u64, BoxedError>>, BoxedError> {
        self.iter_from(shard, 0)
    }

    fn iter_from(
        &self,
        shard: Shard,
        n_done: usize,
    ) -> Result<impl Iterator<Item = Result<u64, BoxedError>>, BoxedError> {
        if shard.index > 0 {
            return Err("no such file".into());
        }
        Ok((n_done as u64..).map(|nth| {
            self.n_made.fetch_add(1);
            Ok(nth)
        }))
    }
}

#[test]
fn a_dataset_that_can_seek_makes_no_sample_twice() {
    for n_workers in 0..2 {
        let dataset = Seeking { n_made: RawValue::new(0).unwrap() };
        let builder = IterableLoader::builder(dataset.clone()).batch_size(5).workers(n_workers);
        let loader = if n_workers > 0 { builder.prefetch_factor(1) } else { builder }.start().unwrap();
        let mut epoch = loader.epoch(0);
        let mut outcomes: Vec<_> = epoch.by_ref().take(4).collect();
        let error = outcomes.remove(1).unwrap_err();
        assert_eq!((error.shard, error.sample), (Some(1), None));
        assert!(error.to_string().contains("no such file"), "{error}");
        assert_eq!(outcomes.pop().unwrap().unwrap().to_vec(), [10, 11, 12, 13, 14]);
        let state = epoch.state();
        drop(epoch);
        let resumed = loader.resume(&state).unwrap();
        let firsts: Vec<_> = resumed.take(2).map(|batch| batch.unwrap().to_vec()[0]).collect();
        assert_eq!(firsts, [15, 20]);
        // Three batches and two, and one more of each epoch that was under way.
        let n_made = dataset.n_made.get();
        assert!((25..=35).contains(&n_made), "{n_made}");
    }
}

/// A type that nobody has registered.
#[derive(Serialize, Deserialize)]
struct Unregistered;

impl IterableDataset for Unregistered {
    type Sample = u64;

    fn n_shards(&self) -> usize {
        1
    }

    fn iter(&self, _: Shard) -> Result<impl Iterator<Item = Result<u64, BoxedError>>, BoxedError> {
        Ok(std::iter::once_with(|| abort()))
    }
}

/// More shards than anybody has.
#[derive(Serialize, Deserialize)]
struct Countless;

impl IterableDataset for Countless {
    type Sample = u64;

    fn n_shards(&self) -> usize {
        usize::MAX
    }

    fn iter(&self, shard: Shard) -> Result<impl Iterator<Item = Result<u64, BoxedError>>, BoxedError> {
        Ok(std::iter::once(Ok(shard.index as u64)))
    }
}

#[test]
fn what_cannot_be_loaded_is_refused_with_what_to_do() {
    let error = IterableLoader::builder(Countless).start().unwrap_err();
    assert!(matches!(error, LoaderError::TooManyShards { n_shards: usize::MAX, .. }), "{error}");
    let error = builder(&Shards::new(&[1, 1])).workers(3).start().unwrap_err();
    assert!(matches!(error, LoaderError::TooManyWorkers { n_workers: 3, n_shards: 2 }), "{error}");
    assert!(error.to_string().contains("set fewer `workers`"), "{error}");
    let error = IterableLoader::builder(Unregistered).workers(1).start().unwrap_err();
    assert!(matches!(error, LoaderError::NotRegistered { .. }), "{error}");
    let error = builder(&Shards::new(&[1])).batch_size(0).start().unwrap_err();
    assert!(matches!(error, LoaderError::NoBatchSize), "{error}");
    assert!(all(builder(&Shards::new(&[])).start().unwrap().epoch(0)).is_empty(), "of no shards");
}
