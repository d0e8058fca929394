//! Datasets that make batches as a whole, and what is said of those batches.

use std::process::abort;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry::data::{Batch, Dataset, LoadErrorKind, SampleRng, Samples, dataset};
use tensorferry::pool::TaskError;
use tensorferry::sync::{Event, RawValue};
use tensorferry::{BoxedError, DataLoader, func};
use tensorferry_kit::{DEADLINE, until};

use crate::{all, start};

/// What happens to a batch, by its first index.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Act {
    /// At its third sample.
    Fail,
    /// Without a word about a sample.
    Die,
    /// Until it is let go.
    Wait(Event),
}

/// Batches of indices.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Script {
    n_samples: usize,
    acts: Vec<(usize, Act)>,
    /// How many batches were begun.
    n_begun: RawValue<u64>,
}

impl Script {
    fn new(n_samples: usize, acts: &[(usize, Act)]) -> Self {
        Self { n_samples, acts: acts.to_vec(), n_begun: RawValue::new(0).unwrap() }
    }
}

#[dataset]
impl Dataset for Script {
    type Sample = u64;

    fn len(&self) -> usize {
        self.n_samples
    }

    fn get(&self, index: usize, _: &mut SampleRng) -> Result<u64, BoxedError> {
        Ok(index as u64)
    }

    fn get_batch(&self, samples: &Samples<'_>) -> Result<Batch<Self>, BoxedError> {
        self.n_begun.fetch_add(1);
        let first = samples.indices()[0];
        match self.acts.iter().find(|(at, _)| *at == first) {
            Some((_, Act::Fail)) => {
                samples.begin(2)?;
                Err("at the third sample".into())
            }
            Some((_, Act::Die)) => abort(),
            Some((_, Act::Wait(go))) => {
                // Who waits is told of the death of others once.
                while go.wait().is_err() {}
                samples.collate(|index, rng| self.get(index, rng))
            }
            None => samples.collate(|index, rng| self.get(index, rng)),
        }
    }
}

#[test]
fn a_sample_of_an_earlier_batch_is_not_blamed() {
    let script = Script::new(12, &[(0, Act::Fail), (4, Act::Die)]);
    let builder = DataLoader::builder(script).batch_size(4).workers(1).prefetch_factor(1);
    let outcomes: Vec<_> = start(builder).epoch(0).collect();
    let [Err(failed), Err(died), Ok(_)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert_eq!((failed.sample, died.sample), (Some(2), None), "{failed} {died}");
    assert!(matches!(died.kind, LoadErrorKind::WorkerDied(_)));
}

#[func]
fn fail_as_third(_worker: usize, n_calls: RawValue<u64>) -> Result<(), String> {
    if n_calls.fetch_add(1) == 2 { Err("no more licences".to_owned()) } else { Ok(()) }
}

#[test]
fn what_was_made_before_the_workers_failed_as_a_whole_still_comes() {
    let go = Event::new().unwrap();
    let script = Script::new(10, &[(0, Act::Wait(go)), (4, Act::Die)]);
    let n_calls = RawValue::new(0).unwrap();
    let builder = DataLoader::builder(script).workers(2).prefetch_factor(5);
    let loader = start(builder.worker_init(fail_as_third, (n_calls.clone(),)));
    let mut epoch = loader.epoch(0);
    until("a third worker was started", || n_calls.get() == 3);
    // The first worker stands still in the first batch, and is killed with the pool.
    let outcomes: Vec<_> = epoch.by_ref().collect();
    let [Err(first), Ok(_), Ok(_), Ok(_), Err(fourth)] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert!(matches!(first.kind, LoadErrorKind::Task(TaskError::Pool(_))), "{first}");
    assert!(first.to_string().contains("no more licences"), "{first}");
    assert!(matches!(fourth.kind, LoadErrorKind::WorkerDied(_)), "{fourth}");
    assert_eq!(fourth.batch, 4);
    assert_eq!(epoch.state().n_samples_done(), 0, "a resumed epoch begins with what was not made");
}

#[test]
fn after_join_an_epoch_has_what_it_has_asked_for_and_one_error() {
    let loader = start(DataLoader::builder(Script::new(100, &[])).workers(1).prefetch_factor(3));
    let mut epoch = loader.epoch(0);
    loader.join().unwrap();
    for index in 0..3 {
        assert_eq!(epoch.next().unwrap().unwrap().to_vec(), [index]);
    }
    let error = epoch.next().unwrap().unwrap_err();
    assert!(error.to_string().ends_with("the pool is closed"), "{error}");
    assert!(epoch.next().is_none());
    assert_eq!(epoch.state().n_samples_done(), 3);
}

#[test]
fn a_batch_that_nobody_wants_is_not_begun() {
    let go = Event::new().unwrap();
    let script = Script::new(10, &[(0, Act::Wait(go.clone()))]);
    let n_begun = script.n_begun.clone();
    let loader = start(DataLoader::builder(script).workers(1).prefetch_factor(4));
    let epoch = loader.epoch(0);
    until("the first batch is begun", || n_begun.get() == 1);
    drop(epoch);
    go.set();
    assert_eq!(all(&loader, 1).len(), 10);
    assert_eq!(n_begun.get(), 11);
}

#[test]
fn a_full_queue_of_requests_holds_nobody_up_beyond_the_time_out() {
    let go = Event::new().unwrap();
    let script = Script::new(1_000, &[(0, Act::Wait(go.clone()))]);
    let n_begun = script.n_begun.clone();
    let builder = DataLoader::builder(script).workers(1).prefetch_factor(usize::MAX);
    let loader = start(builder.timeout(Duration::from_millis(10)));
    // One batch is under way, and as many as fit wait behind it.
    let mut epochs = [loader.epoch(0), loader.epoch(1), loader.epoch(2)];
    until("the first batch is begun", || n_begun.get() == 1);
    for epoch in &mut epochs {
        let error = epoch.next().unwrap().unwrap_err();
        assert!(matches!(error.kind, LoadErrorKind::TimedOut { .. }), "{error}");
    }
    go.set();
    for epoch in epochs {
        let mut n_batches = 0;
        let begin = std::time::Instant::now();
        for batch in epoch {
            match batch {
                Ok(_) => n_batches += 1,
                Err(error) => assert!(matches!(error.kind, LoadErrorKind::TimedOut { .. }), "{error}"),
            }
            assert!(begin.elapsed() < DEADLINE);
        }
        assert_eq!(n_batches, 1_000);
    }
}
