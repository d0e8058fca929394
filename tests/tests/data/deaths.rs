//! Workers that are killed, exit or stand still while they make a batch.

use std::iter;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tensorferry::data::{IterableDataset, IterableLoader, LoadError, LoadErrorKind, Shard, dataset};
use tensorferry::pool::WorkerDiedError;
use tensorferry::sync::{Event, RawValue};
use tensorferry::{BoxedError, DataLoader, Tensor};
use tensorferry_kit::until;

use crate::{Trouble, Troubled, all, leaving_nothing, outcomes, start};

fn send(signal: Signal, pid: u32) {
    kill(Pid::from_raw(pid.cast_signed()), signal).unwrap();
}

#[track_caller]
fn died(error: &LoadError) -> &WorkerDiedError {
    match &error.kind {
        LoadErrorKind::WorkerDied(died) => died,
        _ => panic!("{error}"),
    }
}

#[test]
fn a_killed_worker_costs_its_batch_and_the_sample_is_named() {
    leaving_nothing(|| {
        let dataset = Troubled::new(40, 17, Trouble::Kill);
        let loader = start(DataLoader::builder(dataset).batch_size(4).workers(2));
        let pids: Vec<_> = loader.processes().iter().map(|process| process.pid()).collect();
        for epoch in 0..2 {
            let outcomes = outcomes(&loader, epoch);
            assert_eq!(outcomes.len(), 10);
            for (batch, outcome) in outcomes.into_iter().enumerate() {
                let first = batch as u64 * 4;
                if batch != 4 {
                    assert_eq!(outcome.unwrap(), (first..first + 4).collect::<Vec<_>>());
                    continue;
                }
                let error = outcome.unwrap_err();
                assert_eq!((error.epoch, error.batch, error.sample), (epoch, 4, Some(17)));
                let process = died(&error).process.as_ref().unwrap();
                assert_eq!(process.signal_name().as_deref(), Some("SIGKILL"));
                assert!(epoch > 0 || pids.contains(&process.pid));
                let text = error.to_string();
                assert!(text.starts_with(&format!("batch 4 of epoch {epoch}, sample 17: ")), "{text}");
                assert!(text.contains("SIGKILL") && text.contains(&process.pid.to_string()), "{text}");
            }
        }
    });
}

#[test]
fn a_worker_that_exits_in_the_middle_has_died() {
    let dataset = Troubled::new(3, 1, Trouble::Exit(0));
    let loader = start(DataLoader::builder(dataset).workers(1));
    let mut outcomes = outcomes(&loader, 0);
    let error = outcomes.remove(1).unwrap_err();
    assert_eq!((error.sample, died(&error).process.as_ref().unwrap().exit_code()), (Some(1), Some(0)));
    assert!(outcomes.iter().all(Result::is_ok));
}

#[test]
fn a_batch_that_is_tried_again_is_the_same() {
    let n_calls = RawValue::new(0).unwrap();
    let dataset = Troubled::new(12, 5, Trouble::AbortUntil(n_calls.clone(), 3));
    let builder = || DataLoader::builder(dataset.clone()).batch_size(4).shuffle().workers(2);
    let loader = start(builder().max_tries(3));
    let batches = all(&loader, 0).into_iter().map(Tensor::into_vec).collect::<Vec<_>>();
    assert_eq!(n_calls.get(), 3);
    assert_eq!(batches, all(&loader, 0).into_iter().map(Tensor::into_vec).collect::<Vec<_>>());
    n_calls.set(0);
    let error = outcomes(&start(builder().max_tries(2)), 0).into_iter().find_map(Result::err).unwrap();
    assert_eq!((error.sample, died(&error).tries), (Some(5), 2));
}

#[test]
fn a_batch_that_is_late_is_waited_for_again() {
    let (says, go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
    let dataset = Troubled::new(6, 3, Trouble::Wait(says.clone(), go.clone()));
    let builder = DataLoader::builder(dataset).batch_size(2).workers(2);
    let loader = start(builder.timeout(Duration::from_millis(20)));
    let mut epoch = loader.epoch(0);
    // The first one may be late too, because workers take time to start.
    let first = epoch.by_ref().find_map(Result::ok).unwrap();
    assert_eq!(first.to_vec(), [0, 1]);
    until("sample 3 is begun", || says.get() != 0);
    for _ in 0..3 {
        let error = epoch.next().unwrap().unwrap_err();
        let LoadErrorKind::TimedOut { pid, .. } = error.kind else { panic!("{error}") };
        assert_eq!((error.batch, error.sample, pid), (1, Some(3), Some(says.get())));
        assert!(error.to_string().contains("not loaded within 20ms by the worker"), "{error}");
    }
    assert_eq!(epoch.state().n_samples_done(), 2);
    go.set();
    let second = epoch.by_ref().find_map(Result::ok).unwrap();
    assert_eq!(second.to_vec(), [2, 3]);
    assert_eq!(epoch.find_map(Result::ok).unwrap().to_vec(), [4, 5]);
}

#[test]
fn a_worker_that_is_killed_while_it_stands_still_is_noticed() {
    let (says, go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
    let dataset = Troubled::new(2, 1, Trouble::Wait(says.clone(), go.clone()));
    let loader = start(DataLoader::builder(dataset).batch_size(2).workers(1));
    let mut epoch = loader.epoch(0);
    until("sample 1 is begun", || says.get() != 0);
    send(Signal::SIGSTOP, says.get());
    send(Signal::SIGKILL, says.get());
    let error = epoch.next().unwrap().unwrap_err();
    assert_eq!(error.sample, Some(1));
    assert_eq!(died(&error).process.as_ref().unwrap().pid, says.get());
    assert!(epoch.next().is_none());
    go.set();
    assert_eq!(all(&loader, 1).len(), 1, "another worker has taken its place");
}

#[test]
fn what_is_still_made_for_an_epoch_that_was_given_up_is_given_up_too() {
    leaving_nothing(|| {
        let (says, go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
        let dataset = Troubled::new(1_000, 0, Trouble::Wait(says.clone(), go.clone()));
        let n_begun = dataset.n_begun.clone();
        let loader = start(DataLoader::builder(dataset).batch_size(100).workers(1).prefetch_factor(4));
        let epoch = loader.epoch(0);
        until("the first sample is begun", || says.get() != 0);
        drop(epoch);
        go.set();
        // Four batches were asked for: of the first one a sample was made, of the others none is.
        let state = loader.epoch(1).next().unwrap().unwrap();
        assert_eq!(state.n_elements(), 100);
        let n_begun_for_the_first = n_begun.get();
        // The second epoch has made its first batch, and perhaps the four that were asked for behind it.
        assert!((101..=501).contains(&n_begun_for_the_first), "{n_begun_for_the_first}");
    });
}

/// Kills whoever reads it, but from the third one on not before it may.
#[derive(Clone, Serialize, Deserialize)]
struct Deadly {
    n_opened: RawValue<u64>,
    go: Event,
}

#[dataset]
impl IterableDataset for Deadly {
    type Sample = Vec<u64>;

    fn n_shards(&self) -> usize {
        1
    }

    fn iter(&self, _: Shard) -> Result<impl Iterator<Item = Result<Vec<u64>, BoxedError>>, BoxedError> {
        if self.n_opened.fetch_add(1) >= 2 {
            self.go.wait()?;
        }
        Ok(iter::once_with(|| Trouble::Kill.at(0)))
    }
}

#[test]
fn nobody_else_dies_over_a_shard_that_is_over_after_two() {
    let dataset = Deadly { n_opened: RawValue::new(0).unwrap(), go: Event::new().unwrap() };
    let loader = IterableLoader::builder(dataset.clone()).workers(1).prefetch_factor(100).start().unwrap();
    let mut epoch = loader.epoch(0);
    for _ in 0..2 {
        let error = epoch.next().unwrap().unwrap_err();
        assert!(matches!(error.kind, LoadErrorKind::WorkerDied(_)), "{error}");
    }
    dataset.go.set();
    assert!(epoch.next().is_none());
    let n_opened = dataset.n_opened.get();
    assert!(n_opened <= 3, "{n_opened}: at most one was at it already");
}
