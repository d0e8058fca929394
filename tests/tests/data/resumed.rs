//! Epochs that are resumed after something has happened in them.

use serde::{Deserialize, Serialize};
use tensorferry::data::{IterableDataset, IterableEpoch, IterableLoader, LoadErrorKind, Shard, dataset};
use tensorferry::pool::TaskError;
use tensorferry::sync::RawValue;
use tensorferry::{BoxedError, Tensor, func};

use crate::Trouble;
use crate::iterable::{Shards, all, batch, builder};

/// As the others, but without making the samples that are done.
#[derive(Serialize, Deserialize)]
struct Sought(Shards);

#[dataset]
impl IterableDataset for Sought {
    type Sample = Vec<u64>;

    fn n_shards(&self) -> usize {
        self.0.n_shards()
    }

    fn iter(&self, shard: Shard) -> Result<impl Iterator<Item = Result<Vec<u64>, BoxedError>>, BoxedError> {
        self.iter_from(shard, 0)
    }

    fn iter_from(
        &self,
        shard: Shard,
        n_done: usize,
    ) -> Result<impl Iterator<Item = Result<Vec<u64>, BoxedError>>, BoxedError> {
        Ok((n_done..self.0.lens[shard.index]).map(move |nth| self.0.sample(shard, nth)))
    }
}

#[test]
fn a_shard_that_is_over_after_an_error_is_over_in_a_resumed_epoch_too() {
    for (trouble, at) in [(Trouble::Panic, 3), (Trouble::Error, 6)] {
        for n_workers in [0, 2] {
            let dataset = Sought(Shards::with(&[7, 5], 0, at, trouble.clone()));
            let loader = IterableLoader::builder(dataset).batch_size(2).workers(n_workers).start().unwrap();
            let mut epoch = loader.epoch(0);
            let error = epoch.find_map(Result::err).unwrap();
            assert_eq!((error.shard, error.sample), (Some(0), Some(at)));
            let n_done = epoch.state().n_samples_done();
            let samples = |epoch: IterableEpoch<Sought>| {
                epoch.map(|batch| batch.unwrap().into_vec()).collect::<Vec<_>>()
            };
            let (resumed, rest) = (loader.resume(&epoch.state()).unwrap(), samples(epoch));
            assert_eq!(samples(resumed), rest, "{error}");
            // All of the other shard, and what was read of this one.
            assert_eq!(n_done + rest.concat().len(), 5 + at + 1);
        }
    }
}

#[test]
fn batches_of_a_resumed_epoch_are_counted_from_its_beginning() {
    for n_workers in [0, 2] {
        let dataset = Shards::with(&[5, 9], 1, 7, Trouble::Error);
        let loader = builder(&dataset).batch_size(2).workers(n_workers).start().unwrap();
        let mut epoch = loader.epoch(0);
        assert!(epoch.by_ref().take(4).all(|batch| batch.is_ok()));
        let resumed = loader.resume(&epoch.state()).unwrap();
        let numbers = [epoch, resumed].map(|mut epoch| epoch.find_map(Result::err).unwrap().batch);
        assert_eq!(numbers, [6, 6]);
    }
}

#[func]
fn fail_as_third(_worker: usize, n_calls: RawValue<u64>) -> Result<(), String> {
    if n_calls.fetch_add(1) == 2 { Err("no more licences".to_owned()) } else { Ok(()) }
}

#[test]
fn what_comes_after_the_workers_failed_as_a_whole_comes_again_when_it_is_resumed() {
    let dataset = Shards::with(&[5, 4], 1, 0, Trouble::Kill);
    let builder_of = builder(&dataset).batch_size(2).workers(2).prefetch_factor(3);
    let loader = builder_of.worker_init(fail_as_third, (RawValue::new(0).unwrap(),)).start().unwrap();
    let mut epoch = loader.epoch(0);
    let outcomes: Vec<_> = epoch.by_ref().map(|batch| batch.map(Tensor::into_vec)).collect();
    let [Ok(first), Err(died), Ok(second), Err(failed), Ok(last)] = &outcomes[..] else {
        panic!("{outcomes:?}")
    };
    assert_eq!([first, second, last], [&batch(0, 0..2), &batch(0, 2..4), &batch(0, 4..5)]);
    assert!(matches!(died.kind, LoadErrorKind::WorkerDied(_)), "{died}");
    assert!(matches!(failed.kind, LoadErrorKind::Task(TaskError::Pool(_))), "{failed}");
    let loader = builder(&Shards::new(&[5, 4])).batch_size(2).start().unwrap();
    assert_eq!(all(loader.resume(&epoch.state()).unwrap()), [batch(1, 2..4), batch(0, 4..5)]);
}
