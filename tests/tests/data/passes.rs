//! Several epochs of one loader: one that was given up before another, some at once, one that outlives it.

use serde::{Deserialize, Serialize};
use tensorferry::BoxedError;
use tensorferry::data::{IterableDataset, IterableLoader, Shard, dataset};
use tensorferry::sync::{Event, RawValue};
use tensorferry_kit::until;

use crate::Trouble;
use crate::iterable::{Shards, all, batch, builder};

#[test]
fn two_epochs_at_once_do_not_disturb_each_other_and_one_that_is_given_up_keeps_nothing() {
    for n_workers in [0, 2] {
        let dataset = Shards::new(&[usize::MAX, 6]);
        let builder = builder(&dataset).batch_size(2).workers(n_workers);
        let loader = if n_workers > 0 { builder.prefetch_factor(1) } else { builder }.start().unwrap();
        let mut epochs = [loader.epoch(0), loader.epoch(0)];
        for (shard, nth) in [(0, 0), (1, 0), (0, 2)] {
            for epoch in &mut epochs {
                assert_eq!(epoch.next().unwrap().unwrap().to_vec(), batch(shard, nth..nth + 2));
            }
        }
        drop(epochs);
        // What they had read of their shards is let go of at the next opportunity.
        let mut epoch = loader.epoch(1);
        for (shard, nth) in [(0, 0), (1, 0), (0, 2), (1, 2)] {
            assert_eq!(epoch.next().unwrap().unwrap().to_vec(), batch(shard, nth..nth + 2));
        }
        until("only this one is read", || dataset.n_open.get() == 2);
    }
}

#[test]
fn an_epoch_that_was_given_up_is_not_read_again_for_what_it_had_asked_for() {
    let (says, go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
    let dataset = Shards::with(&[usize::MAX], 0, 100, Trouble::Wait(says.clone(), go.clone()));
    let loader = builder(&dataset).batch_size(2).workers(1).prefetch_factor(4).start().unwrap();
    let mut epoch = loader.epoch(0);
    assert!(epoch.by_ref().take(50).all(|batch| batch.is_ok()));
    until("a sample of the next batch is begun", || says.get() != 0);
    assert_eq!(dataset.n_made.get(), 101);
    drop(epoch);
    go.set();
    assert_eq!(loader.epoch(1).next().unwrap().unwrap().to_vec(), batch(0, 0..2));
    let n_made = dataset.n_made.get();
    assert!(n_made <= 101 + 5 * 2, "{n_made}: what was under way is not read from the front");
}

/// Panics when it is dropped.
struct Clumsy;

impl Drop for Clumsy {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "dropped");
    }
}

/// Shards that cannot be given up in epoch 0.
#[derive(Serialize, Deserialize)]
struct Sticky;

#[dataset]
impl IterableDataset for Sticky {
    type Sample = u64;

    fn n_shards(&self) -> usize {
        3
    }

    fn iter(&self, shard: Shard) -> Result<impl Iterator<Item = Result<u64, BoxedError>>, BoxedError> {
        let clumsy = (shard.key.epoch == 0).then(|| Clumsy);
        Ok((0..9).map(move |nth| {
            let _is_moved_in = &clumsy;
            Ok(nth)
        }))
    }
}

#[test]
fn a_panic_in_what_an_epoch_has_left_behind_is_not_the_next_ones() {
    for n_workers in [0, 1] {
        let loader = IterableLoader::builder(Sticky).batch_size(2).workers(n_workers).start().unwrap();
        assert!(loader.epoch(0).take(3).all(|batch| batch.is_ok()));
        let n_samples = loader.epoch(1).map(|batch| batch.unwrap().n_elements()).sum::<usize>();
        assert_eq!(n_samples, 27);
    }
}

#[test]
fn threads_can_have_epochs_of_one_loader() {
    for n_workers in [0, 2] {
        let loader = builder(&Shards::new(&[50, 31, 40])).batch_size(4).workers(n_workers).start().unwrap();
        let expected = all(loader.epoch(0));
        std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(|| all(loader.epoch(0))));
            threads.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), expected));
        });
    }
}

#[test]
fn after_join_an_epoch_has_what_it_has_asked_for_and_one_error() {
    let loader = builder(&Shards::new(&[50, 50])).workers(2).prefetch_factor(2).start().unwrap();
    let mut epoch = loader.epoch(0);
    loader.join().unwrap();
    for (shard, nth) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        assert_eq!(epoch.next().unwrap().unwrap().to_vec(), batch(shard, nth..nth + 1));
    }
    let error = epoch.next().unwrap().unwrap_err();
    assert!(error.to_string().ends_with("the pool is closed"), "{error}");
    assert!(epoch.next().is_none());
    assert_eq!(epoch.state().n_samples_done(), 4);
}
