//! Which samples come, in which order, and with which random numbers.

use std::collections::{BTreeMap, BTreeSet};

use tensorferry::DataLoader;
use tensorferry::data::{
    DataLoaderBuilder, DistributedSampler, Epoch, EpochKey, Indices, RandomSampler, ResumeError, Sampler,
    SequentialSampler, SubsetSampler, WeightedRandomSampler,
};

use crate::{Noisy, all, start};

fn noisy(n_samples: usize) -> DataLoaderBuilder<Noisy> {
    DataLoader::builder(Noisy { n_samples })
}

/// Indices and random numbers of an epoch, in order.
#[track_caller]
fn drawn(loader: &DataLoader<Noisy>, epoch: u64) -> Vec<(u64, [u64; 2])> {
    let mut drawn = Vec::new();
    for (indices, numbers) in all(loader, epoch) {
        let numbers = numbers.into_vec();
        let pairs = numbers.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
        drawn.extend(indices.into_vec().into_iter().zip(pairs));
    }
    drawn
}

/// Every kind of order.
fn orders() -> [fn(DataLoaderBuilder<Noisy>) -> DataLoaderBuilder<Noisy>; 6] {
    [
        |builder| builder,
        |builder| builder.shuffle(),
        |builder| builder.sampler(RandomSampler::with_replacement(150)),
        |builder| {
            let weights = (0..101).map(|index| f64::from(index % 5));
            builder.sampler(WeightedRandomSampler::new(weights, 130).unwrap())
        },
        |builder| builder.sampler(DistributedSampler::new(RandomSampler::new(), 1, 3)),
        |builder| builder.sampler(SubsetSampler::new((0..101).step_by(2), RandomSampler::new())),
    ]
}

#[test]
fn the_batches_are_the_same_with_any_number_of_workers() {
    for order in orders() {
        let [first, second] = {
            let loader = start(order(noisy(101).batch_size(8).seed(5)));
            [0, 1].map(|epoch| drawn(&loader, epoch))
        };
        assert_ne!(first, second, "each epoch has random numbers of its own");
        for n_workers in [1, 3] {
            let builder = order(noisy(101).batch_size(8).seed(5)).workers(n_workers);
            let loader = start(builder.prefetch_factor(n_workers));
            assert_eq!([0, 1].map(|epoch| drawn(&loader, epoch)), [first.clone(), second.clone()]);
        }
        let other_seed = drawn(&start(order(noisy(101).batch_size(8).seed(6))), 0);
        assert!(first.iter().zip(&other_seed).all(|(one, other)| one.1 != other.1));
    }
}

#[test]
fn a_sample_has_its_own_random_numbers_whoever_makes_it_and_whenever() {
    let by_index = |samples: Vec<(u64, [u64; 2])>| samples.into_iter().collect::<BTreeMap<_, _>>();
    let in_order = by_index(drawn(&start(noisy(40).batch_size(7)), 3));
    let shuffled = by_index(drawn(&start(noisy(40).batch_size(3).shuffle().workers(2)), 3));
    assert_eq!(in_order, shuffled);
    let all_numbers: BTreeSet<_> = in_order.values().flatten().collect();
    assert_eq!(all_numbers.len(), 80, "and no two have the same");
    for rank in 0..2 {
        let part = start(noisy(40).sampler(DistributedSampler::new(RandomSampler::new(), rank, 2)));
        assert!(drawn(&part, 3).into_iter().all(|(index, numbers)| in_order[&index] == numbers));
    }
}

#[test]
fn a_sample_that_is_drawn_again_has_other_random_numbers() {
    let loader = start(noisy(3).batch_size(8).sampler(RandomSampler::with_replacement(300)).workers(2));
    let all_numbers: BTreeSet<_> = drawn(&loader, 0).into_iter().map(|(_, numbers)| numbers).collect();
    assert_eq!(all_numbers.len(), 300);

    let again = SubsetSampler::new([0, 1, 0, 0], SequentialSampler);
    let numbers: BTreeSet<_> = drawn(&start(noisy(2).sampler(again)), 0).into_iter().collect();
    assert_eq!(numbers.len(), 4);

    // Two parts of one epoch.
    let part = |rank| {
        let all = RandomSampler::with_replacement(100);
        drawn(&start(noisy(3).sampler(DistributedSampler::new(all, rank, 2))), 0)
    };
    let numbers: BTreeSet<_> = [part(0), part(1)].concat().into_iter().map(|(_, numbers)| numbers).collect();
    assert_eq!(numbers.len(), 100);
}

#[test]
fn the_last_batch_has_what_is_left_unless_it_is_dropped() {
    for (n_samples, batch_size, drops_last, lens) in [
        (10, 4, false, vec![4, 4, 2]),
        (10, 4, true, vec![4, 4]),
        (8, 4, true, vec![4, 4]),
        (3, 4, false, vec![3]),
        (3, 4, true, vec![]),
        (0, 4, false, vec![]),
        (2, 1, false, vec![1, 1]),
    ] {
        for n_workers in [0, 2] {
            let builder = noisy(n_samples).batch_size(batch_size).drop_last(drops_last);
            let loader = start(builder.workers(n_workers));
            let found: Vec<_> = all(&loader, 0).iter().map(|(indices, _)| indices.n_elements()).collect();
            assert_eq!(found, lens, "{n_samples} samples, {n_workers} workers");
            assert_eq!((loader.n_batches(), loader.n_samples()), (lens.len(), n_samples));
            assert_eq!(loader.epoch(0).size_hint().1, Some(lens.len()));
        }
    }
}

#[test]
fn an_epoch_can_be_resumed_at_every_batch_with_other_workers_and_another_batch_size() {
    for order in orders() {
        let loader = start(order(noisy(101).batch_size(8)).workers(2));
        let whole = drawn(&loader, 4);
        let mut states = Vec::new();
        let mut epoch = loader.epoch(4);
        loop {
            states.push(epoch.state());
            if epoch.next().is_none() {
                break;
            }
        }
        let other = start(order(noisy(101).batch_size(5)).workers(1));
        for state in states {
            // As it stands in a checkpoint.
            let state = serde_json::from_str(&serde_json::to_string(&state).unwrap()).unwrap();
            let mut rest = Vec::new();
            for batch in other.resume(&state).unwrap() {
                let (indices, numbers) = batch.unwrap();
                let numbers = numbers.into_vec();
                let pairs = numbers.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
                rest.extend(indices.into_vec().into_iter().zip(pairs));
            }
            assert_eq!(rest, whole[state.n_samples_done()..]);
        }
    }
}

#[test]
fn a_state_of_another_loader_is_refused() {
    let state = start(noisy(10).seed(1)).epoch(2).state();
    assert_eq!((state.epoch(), state.n_samples_done()), (2, 0));
    let refused = start(noisy(10).seed(2)).resume(&state).map(drop).unwrap_err();
    assert_eq!(refused, ResumeError::Seed { state: 1, loader: 2 });
    let refused = start(noisy(11).seed(1)).resume(&state).map(drop).unwrap_err();
    assert_eq!(refused, ResumeError::Dataset { state: 10, loader: 11 });
    let refused = start(noisy(10).seed(1).shuffle()).resume(&state).map(drop).unwrap_err();
    assert_eq!(refused, ResumeError::Order);
    let few = noisy(10).seed(1).sampler(RandomSampler::with_replacement(9));
    let refused = start(few).resume(&state).map(drop).unwrap_err();
    assert_eq!(refused, ResumeError::Length { state: 10, loader: 9 });
}

/// What a program has that trains a step at a time.
struct Trainer {
    loader: DataLoader<Noisy>,
    epoch: Option<Epoch<Noisy>>,
    n_epochs: u64,
}

impl Trainer {
    /// The first index of the next batch.
    fn step(&mut self) -> u64 {
        loop {
            let next = || self.loader.epoch(self.n_epochs);
            match self.epoch.get_or_insert_with(next).next() {
                Some(batch) => return batch.unwrap().0.to_vec()[0],
                None => (self.epoch, self.n_epochs) = (None, self.n_epochs + 1),
            }
        }
    }
}

#[test]
fn an_epoch_can_be_kept_beside_its_loader_and_outlive_it() {
    for n_workers in [0, 2] {
        let loader = start(noisy(6).batch_size(2).workers(n_workers));
        let mut trainer = Trainer { loader, epoch: None, n_epochs: 0 };
        assert_eq!([(); 7].map(|()| trainer.step()), [0, 2, 4, 0, 2, 4, 0]);
        let Trainer { loader, epoch, .. } = trainer;
        drop(loader);
        let epoch = epoch.unwrap();
        let rest = std::thread::spawn(move || epoch.map(|batch| batch.unwrap().0.to_vec()[0]).collect());
        let rest: Vec<_> = rest.join().unwrap();
        assert_eq!(rest, [2, 4]);
    }
}

#[test]
fn two_epochs_at_once_do_not_disturb_each_other() {
    let loader = start(noisy(60).batch_size(4).shuffle().workers(2));
    let expected = [0, 1].map(|epoch| drawn(&loader, epoch));
    let mut epochs = [0, 1].map(|epoch| (loader.epoch(epoch), Vec::new()));
    for _ in 0..15 {
        for (epoch, indices) in &mut epochs {
            indices.extend(epoch.next().unwrap().unwrap().0.into_vec());
        }
    }
    for ((_, indices), expected) in epochs.into_iter().zip(expected) {
        assert!(indices.into_iter().eq(expected.into_iter().map(|(index, _)| index)));
    }
}

#[test]
fn a_sampler_of_another_crate_may_draw_fewer_than_it_says() {
    #[derive(Debug)]
    struct Few;

    impl Sampler for Few {
        fn n_drawn(&self, n_samples: usize) -> usize {
            n_samples
        }

        fn draw(&self, _: usize, epoch: EpochKey) -> Indices {
            SequentialSampler.draw(5, epoch)
        }
    }

    for n_workers in [0, 2] {
        let loader = start(noisy(100).batch_size(4).sampler(Few).workers(n_workers));
        let mut epoch = loader.epoch(0);
        let lens: Vec<_> = epoch.by_ref().map(|batch| batch.unwrap().0.n_elements()).collect();
        assert_eq!(lens, [4, 1]);
        assert!(epoch.next().is_none());
    }
}
