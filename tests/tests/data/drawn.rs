//! Batches that a batch sampler draws, and batches in the order in which they are made.

use serde::{Deserialize, Serialize};
use tensorferry::data::{
    BatchSampler, BucketBatchSampler, DistributedSampler, EpochKey, IndexBatches, LoadErrorKind, LoaderError,
    LoaderState, Padded, RandomSampler, ResumeError, SampleRng, dataset,
};
use tensorferry::sync::{Event, RawValue};
use tensorferry::{BoxedError, DataLoader};
use tensorferry_kit::until;

use crate::{Noisy, Trouble, Troubled, all, leaving_nothing, outcomes, start};

/// Texts of different lengths, of their index.
#[derive(Debug, Serialize, Deserialize)]
struct Texts {
    lens: Vec<usize>,
}

#[dataset]
impl tensorferry::data::Dataset for Texts {
    type Sample = (u64, Padded<u8>);

    fn len(&self) -> usize {
        self.lens.len()
    }

    fn get(&self, index: usize, _: &mut SampleRng) -> Result<Self::Sample, BoxedError> {
        Ok((index as u64, vec![b'x'; self.lens[index]].into()))
    }
}

/// These batches, in each epoch.
#[derive(Debug)]
struct Fixed {
    batches: Vec<Vec<usize>>,
    repeats: bool,
}

impl Fixed {
    fn new(batches: &[&[usize]]) -> Self {
        Self { batches: batches.iter().map(|batch| batch.to_vec()).collect(), repeats: false }
    }
}

impl BatchSampler for Fixed {
    fn n_batches(&self, _: usize) -> usize {
        self.batches.len()
    }

    fn draw_batches(&self, _: usize, _: EpochKey) -> IndexBatches {
        Box::new(self.batches.clone().into_iter())
    }

    fn repeats(&self) -> bool {
        self.repeats
    }
}

fn lens() -> Vec<usize> {
    (0..100).map(|index| index * 7 % 90 + 1).collect()
}

#[test]
fn texts_of_similar_lengths_come_together_and_all_come() {
    leaving_nothing(|| {
        for n_workers in [0, 2] {
            let sampler = BucketBatchSampler::new(lens(), 200).unwrap();
            let n_batches = sampler.n_batches(100);
            let builder = DataLoader::builder(Texts { lens: lens() }).batch_sampler(sampler);
            let loader = start(builder.workers(n_workers));
            assert_eq!(loader.n_batches(), n_batches);
            let batches = all(&loader, 0);
            assert_eq!(batches.len(), n_batches);
            let mut seen = Vec::new();
            for (indices, texts) in batches {
                assert!(texts.values.n_elements() <= 200);
                let of_all = lens();
                let len = |index: &u64| of_all[usize::try_from(*index).unwrap()] as i64;
                let expected: Vec<_> = indices.iter().map(len).collect();
                assert_eq!(texts.lens.to_vec(), expected);
                seen.extend(indices.to_vec());
            }
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..100));
        }
    });
}

#[test]
fn batches_come_as_they_are_drawn_with_any_number_of_workers() {
    let batches: [&[usize]; 5] = [&[3], &[], &[5, 1, 5], &[0, 9, 8, 7], &[2]];
    let drawn = |n_workers, repeats| {
        let sampler = Fixed { repeats, ..Fixed::new(&batches) };
        let builder = DataLoader::builder(Noisy { n_samples: 10 }).batch_sampler(sampler);
        all(&start(builder.workers(n_workers)), 0)
    };
    for repeats in [false, true] {
        let expected = drawn(0, repeats);
        let indices: Vec<_> = expected.iter().map(|(indices, _)| indices.to_vec()).collect();
        assert_eq!(indices, [vec![3], vec![5, 1, 5], vec![0, 9, 8, 7], vec![2]]);
        let noise = expected[1].1.to_vec();
        // Each time it has random numbers of its own, if the sampler says that it comes again.
        assert_eq!(noise[..2] != noise[4..], repeats);
        assert_eq!(drawn(2, repeats), expected);
    }
}

fn loader(n_workers: usize, sampler: impl BatchSampler) -> DataLoader<Noisy> {
    start(DataLoader::builder(Noisy { n_samples: 100 }).batch_sampler(sampler).workers(n_workers))
}

#[test]
fn an_epoch_of_drawn_batches_is_resumed_behind_those_that_were_handed_out() {
    let sampler = || BucketBatchSampler::new(lens(), 150).unwrap();
    let first = loader(0, sampler());
    for n_done in [0, 1, 7, first.n_batches()] {
        let mut epoch = first.epoch(3);
        assert!(epoch.by_ref().take(n_done).all(|batch| batch.is_ok()));
        let text = serde_json::to_string(&epoch.state()).unwrap();
        let state: LoaderState = serde_json::from_str(&text).unwrap();
        let rest: Vec<_> = epoch.collect::<Result<_, _>>().unwrap();
        let second = loader(1, sampler());
        assert_eq!(second.resume(&state).unwrap().collect::<Result<Vec<_>, _>>().unwrap(), rest);
        // As an order of samples it is another epoch.
        let other = start(DataLoader::builder(Noisy { n_samples: 100 }).batch_size(10));
        assert_eq!(other.resume(&state).unwrap_err(), ResumeError::Order);
        let shorter = loader(0, sampler().max_batch_size(1));
        assert!(matches!(shorter.resume(&state).unwrap_err(), ResumeError::Batches { loader: 100, .. }));
    }
    // The same samples in batches that end elsewhere: what was not handed out comes.
    let mut epoch = loader(0, Fixed::new(&[&[0, 1, 2], &[3, 4], &[5]])).epoch(0);
    assert!(epoch.next().unwrap().is_ok());
    let resumed = loader(0, Fixed::new(&[&[0, 1], &[2, 3, 4], &[5]]));
    let rest = resumed.resume(&epoch.state()).unwrap().map(|batch| batch.unwrap().0.to_vec());
    assert_eq!(rest.collect::<Vec<_>>(), [vec![3, 4], vec![5]]);
}

#[test]
fn trainers_share_batches_of_similar_lengths() {
    let mut seen = Vec::new();
    for rank in 0..3 {
        let sampler = DistributedSampler::new(BucketBatchSampler::new(lens(), 200).unwrap(), rank, 3);
        let builder = DataLoader::builder(Noisy { n_samples: 100 }).batch_sampler(sampler.drop_last(true));
        let loader = start(builder);
        let batches = all(&loader, 0);
        assert_eq!(batches.len(), loader.n_batches());
        seen.extend(batches.iter().flat_map(|(indices, _)| indices.to_vec()));
    }
    let n_seen = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() == n_seen && n_seen > 80, "{n_seen}");
}

#[test]
fn what_a_batch_sampler_decides_is_not_set_besides() {
    let builder = || DataLoader::builder(Noisy { n_samples: 3 }).batch_sampler(Fixed::new(&[&[0, 7]]));
    let refused = |builder: tensorferry::data::DataLoaderBuilder<_>| builder.start().unwrap_err();
    let error = refused(builder().batch_size(2));
    assert!(matches!(error, LoaderError::OwnBatches { setting: "`batch_size`" }), "{error}");
    let error = refused(builder().drop_last(true));
    assert!(matches!(error, LoaderError::OwnBatches { setting: "`drop_last`" }), "{error}");
    assert_eq!(start(builder().shuffle().batch_size(2)).n_batches(), 2, "the last sampler is the one");
    let error = start(builder()).epoch(0).next().unwrap().unwrap_err();
    assert!(matches!(error.kind, LoadErrorKind::OutOfRange { n_samples: 3 }), "{error}");
}

/// A loader of batches of two, whose third sample waits.
fn waiting(n_workers: usize) -> (DataLoader<Troubled>, RawValue<u32>, Event) {
    let (says, go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
    let dataset = Troubled::new(12, 2, Trouble::Wait(says.clone(), go.clone()));
    let builder = DataLoader::builder(dataset).batch_size(2).workers(n_workers).prefetch_factor(2);
    (start(builder.in_order(false)), says, go)
}

#[test]
fn a_batch_that_takes_long_holds_up_no_other() {
    leaving_nothing(|| {
        let (loader, _, go) = waiting(2);
        let mut epoch = loader.epoch(0);
        let mut batches: Vec<_> = epoch.by_ref().take(5).map(|batch| batch.unwrap().to_vec()).collect();
        // One worker makes all the others.
        batches.sort_unstable();
        assert_eq!(batches, [[0, 1], [4, 5], [6, 7], [8, 9], [10, 11]]);
        let state = epoch.state();
        assert_eq!(state.n_samples_done(), 10);
        let text = serde_json::to_string(&state).unwrap();
        go.set();
        assert_eq!(epoch.next().unwrap().unwrap().to_vec(), [2, 3]);
        assert!(epoch.next().is_none());
        assert_eq!(epoch.state().n_samples_done(), 12);
        // What was held up then is what is left, in batches of any size.
        let builder = DataLoader::builder(Troubled::new(12, 12, Trouble::Error)).batch_size(1);
        let resumed = start(builder).resume(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(resumed.map(|batch| batch.unwrap().to_vec()).collect::<Vec<_>>(), [[2], [3]]);
        loader.join().unwrap();
    });
}

#[test]
fn every_batch_comes_once_whatever_the_order() {
    let builder =
        || DataLoader::builder(Noisy { n_samples: 1_003 }).batch_size(4).sampler(RandomSampler::new());
    let expected = all(&start(builder()), 5);
    let loader = start(builder().workers(3).prefetch_factor(7).in_order(false));
    let mut batches = all(&loader, 5);
    // With the random numbers that they have in order.
    batches.sort_by_key(|(indices, _)| indices.to_vec());
    let mut sorted = expected;
    sorted.sort_by_key(|(indices, _)| indices.to_vec());
    assert_eq!(batches, sorted);
}

#[test]
fn a_batch_that_is_late_or_lost_is_named_by_its_number_in_the_epoch() {
    leaving_nothing(|| {
        let (says, go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
        let dataset = Troubled::new(12, 2, Trouble::Wait(says.clone(), go.clone()));
        let timeout = std::time::Duration::from_millis(50);
        let builder = DataLoader::builder(dataset).batch_size(2).workers(2).timeout(timeout);
        let loader = start(builder.in_order(false));
        let mut epoch = loader.epoch(0);
        // Others that are late, too, come at the next try.
        let mut n_batches = 0;
        until("the others have come", || {
            n_batches += usize::from(epoch.next().unwrap().is_ok());
            n_batches == 5
        });
        let error = epoch.next().unwrap().unwrap_err();
        let LoadErrorKind::TimedOut { pid, .. } = error.kind else { panic!("{error}") };
        assert_eq!((error.batch, error.sample, pid), (1, Some(2), Some(says.get())));
        let worker = loader.processes().into_iter().find(|process| Some(process.pid()) == pid).unwrap();
        worker.kill().unwrap();
        let died = std::iter::from_fn(|| epoch.next()).find_map(|batch| match batch.unwrap_err() {
            error if matches!(error.kind, LoadErrorKind::TimedOut { .. }) => None,
            error => Some(error),
        });
        let died = died.unwrap();
        assert!(matches!(died.kind, LoadErrorKind::WorkerDied(_)), "{died}");
        assert_eq!((died.batch, died.sample), (1, Some(2)));
        assert!(epoch.next().is_none());
    });
}

#[test]
fn errors_come_as_batches_do() {
    let builder = DataLoader::builder(Troubled::new(20, 7, Trouble::Panic)).batch_size(2).workers(2);
    let outcomes = outcomes(&start(builder.in_order(false)), 0);
    let (batches, errors): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
    let [Err(error)] = &errors[..] else { panic!("{errors:?}") };
    assert_eq!((error.batch, error.sample), (3, Some(7)));
    let mut samples: Vec<_> = batches.into_iter().flat_map(Result::unwrap).collect();
    samples.sort_unstable();
    assert!(samples.into_iter().eq((0..20).filter(|sample| sample / 2 != 3)));
}

#[test]
fn texts_of_a_padded_batch_are_as_they_were() {
    let loader = start(DataLoader::builder(Texts { lens: vec![2, 0, 3] }).batch_size(3).workers(1));
    let [(indices, texts)] = &all(&loader, 0)[..] else { panic!() };
    assert_eq!((indices.to_vec(), texts.lens.to_vec()), (vec![0, 1, 2], vec![2, 0, 3]));
    assert_eq!(texts.values.to_vec(), b"xx\0\0\0\0xxx");
}
