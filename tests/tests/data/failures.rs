//! Datasets that fail, settings that contradict, and workers that fail as a whole.

use serde::{Deserialize, Serialize};
use tensorferry::data::{
    DataLoaderBuilder, Dataset, EpochKey, Indices, LoadErrorKind, LoaderError, RaisedError, SampleRng,
    Sampler,
};
use tensorferry::pool::{PoolError, TaskError};
use tensorferry::spawn::ReportKind;
use tensorferry::{BoxedError, DataLoader, func};

use crate::{Noisy, Trouble, Troubled, all, leaving_nothing, outcomes, start};

/// The failure of the batch with sample 5 of a dataset, and what is left: the other batches all come.
#[track_caller]
fn raised(trouble: &Trouble, n_workers: usize) -> RaisedError {
    let dataset = Troubled::new(12, 5, trouble.clone());
    let loader = start(DataLoader::builder(dataset).batch_size(4).workers(n_workers));
    let mut outcomes = outcomes(&loader, 0);
    let error = outcomes.remove(1).unwrap_err();
    let others: Vec<_> = outcomes.into_iter().flat_map(Result::unwrap).collect();
    assert_eq!(others, [0, 1, 2, 3, 8, 9, 10, 11]);
    assert_eq!((error.batch, error.sample), (1, Some(5)));
    let text = error.to_string();
    let LoadErrorKind::Raised(raised) = error.kind else { panic!("{error}") };
    let whose =
        raised.worker.map_or(String::new(), |(worker, pid)| format!(" in worker {worker} (pid {pid})"));
    let how = match raised.report.kind {
        ReportKind::Panic => ": thread '",
        _ => " returned an error: ",
    };
    let begin = format!("batch 1 of epoch 0, sample 5: the dataset{whose}{how}");
    assert!(text.starts_with(&begin), "{text}");
    let pids: Vec<_> = loader.processes().iter().map(|process| process.pid()).collect();
    assert_eq!(raised.worker.is_some(), n_workers > 0);
    assert!(raised.worker.is_none_or(|(worker, pid)| pids[worker] == pid), "the worker lives on");
    *raised
}

#[test]
fn a_sample_that_fails_costs_its_batch_and_is_named_with_the_reason() {
    leaving_nothing(|| {
        for n_workers in [0, 2] {
            let error = raised(&Trouble::Error, n_workers);
            assert_eq!((error.report.kind, &*error.report.message), (ReportKind::Error, "no sample 5"));
            let panic = raised(&Trouble::Panic, n_workers);
            assert_eq!((panic.report.kind, &*panic.report.message), (ReportKind::Panic, "at sample 5"));
            // Another process of ours has a hook that knows more.
            assert_eq!(panic.report.location.is_some(), n_workers > 0);
        }
    });
}

#[test]
fn a_sample_that_does_not_fit_to_the_others_is_named() {
    for n_workers in [0, 1] {
        let error = raised(&Trouble::Longer, n_workers);
        assert!(error.report.message.contains("the shape [2] differs from"), "{error}");
    }
}

/// Draws what is not there.
#[derive(Debug)]
struct TooFar;

impl Sampler for TooFar {
    fn n_drawn(&self, _: usize) -> usize {
        6
    }

    fn draw(&self, n_samples: usize, _: EpochKey) -> Indices {
        Box::new([0, 1, 2, n_samples, 3, 4].into_iter())
    }
}

#[test]
fn an_index_that_the_dataset_does_not_have_costs_its_batch() {
    for n_workers in [0, 2] {
        let loader = DataLoader::builder(Noisy { n_samples: 5 }).batch_size(2).sampler(TooFar);
        let loader = start(loader.workers(n_workers));
        let mut outcomes: Vec<_> = loader.epoch(0).collect();
        let error = outcomes.remove(1).unwrap_err();
        assert!(matches!(error.kind, LoadErrorKind::OutOfRange { n_samples: 5 }), "{error}");
        assert_eq!(error.sample, Some(5));
        let others = outcomes.into_iter().flat_map(|batch| batch.unwrap().0.to_vec());
        assert_eq!(others.collect::<Vec<_>>(), [0, 1, 3, 4]);
    }
}

/// A dataset without the attribute.
#[derive(Debug, Serialize, Deserialize)]
struct Unknown;

impl Dataset for Unknown {
    type Sample = u8;

    fn len(&self) -> usize {
        3
    }

    fn get(&self, _: usize, _: &mut SampleRng) -> Result<u8, BoxedError> {
        Ok(7)
    }
}

#[test]
fn a_dataset_that_is_not_registered_can_be_loaded_here_only() {
    assert_eq!(all(&start(DataLoader::builder(Unknown)), 0).len(), 3);
    let error = DataLoader::builder(Unknown).workers(1).start().unwrap_err();
    assert!(matches!(error, LoaderError::NotRegistered { .. }), "{error}");
    assert!(error.to_string().contains("failures::Unknown") && error.to_string().contains("#[dataset]"));
}

#[test]
fn settings_that_contradict_each_other_are_refused() {
    type Builder = DataLoaderBuilder<Noisy>;
    let refused = |change: fn(Builder) -> Builder| {
        change(DataLoader::builder(Noisy { n_samples: 1 })).start().unwrap_err().to_string()
    };
    assert!(refused(|builder| builder.batch_size(0)).contains("at least one sample"));
    assert!(refused(|builder| builder.workers(1).prefetch_factor(0)).contains("at least one batch ahead"));
}

#[test]
fn what_is_set_for_workers_means_nothing_without_any() {
    let builder = DataLoader::builder(Noisy { n_samples: 10 }).batch_size(4).worker_init(fail, ());
    let builder = builder.prefetch_factor(9).timeout(tensorferry_kit::DEADLINE).max_tries(2).in_order(false);
    assert_eq!(
        all(&start(builder), 0),
        all(&start(DataLoader::builder(Noisy { n_samples: 10 }).batch_size(4)), 0)
    );
}

#[func]
fn fail(_worker: usize) -> Result<(), String> {
    Err("no licence".to_owned())
}

#[test]
fn workers_that_cannot_begin_end_the_epoch_with_the_reason() {
    leaving_nothing(|| {
        let builder = DataLoader::builder(Noisy { n_samples: 100 }).workers(2).worker_init(fail, ());
        // The failure may come before the first batch is asked for.
        let loader = start(builder);
        for epoch in 0..2 {
            let outcomes: Vec<_> = loader.epoch(epoch).collect();
            let [Err(error)] = &outcomes[..] else { panic!("{outcomes:?}") };
            assert!(matches!(error.kind, LoadErrorKind::Task(TaskError::Pool(_))), "{error:?}");
            assert!(error.to_string().contains("no licence"), "{error}");
        }
        let error = loader.join().unwrap_err();
        assert!(matches!(*error, PoolError::Ended(_)), "{error}");
    });
}
