//! What a worker does: it opens the dataset once, then makes one batch after another.

use std::any::Any;
use std::cell::RefCell;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};
use tensorferry_process::{Report, catch};
use tensorferry_spawn::{BoxedError, func};
use tensorferry_storage::Heap;

use crate::dataset::{Batch, Dataset};
use crate::places::Places;
use crate::random::EpochKey;
use crate::samples::{Progress, Samples};

/// What a worker of a data loader knows of itself: PyTorch's `get_worker_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// Its index, from 0.
    pub id: usize,
    /// How many workers the loader has.
    pub n_workers: usize,
    /// The loader's seed. It is the same in all workers: a sample has random numbers of its own.
    pub seed: u64,
}

static INFO: OnceLock<WorkerInfo> = OnceLock::new();

thread_local! {
    /// The dataset of this process, which has one thread for the pool's tasks.
    static DATASET: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// This process, if it is a worker of a data loader.
#[must_use]
pub fn worker_info() -> Option<WorkerInfo> {
    INFO.get().copied()
}

/// The first thing that a worker does.
#[func(crate = tensorferry_spawn)]
pub(crate) fn enter(id: usize, n_workers: usize, seed: u64) {
    // A process enters once.
    let _ = INFO.set(WorkerInfo { id, n_workers, seed });
}

/// The last thing that it does before it takes requests.
pub(crate) fn open<D: Dataset>(_: usize, dataset: D) {
    DATASET.set(Some(Box::new(dataset)));
}

/// The request for a batch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) indices: Vec<usize>,
    pub(crate) epoch: u64,
    pub(crate) seed: u64,
    /// The places of the samples in the epoch, if an epoch can have a sample several times.
    pub(crate) draws: Option<Vec<usize>>,
    pub(crate) progress: Option<Progress>,
    /// Which batch of the epoch it is, from 0. The loader's own.
    #[serde(skip)]
    pub(crate) number: usize,
    /// Which samples of the epoch it has. The loader's own.
    #[serde(skip)]
    pub(crate) places: Places,
}

/// What becomes of a request.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Fetched<B> {
    /// The batch.
    Batch(B),
    /// Who failed, at which place of the batch, and why.
    Failed {
        /// The worker and its process, unless it is the process of the loader.
        worker: Option<(usize, u32)>,
        /// The place of the sample in the batch, if it is one sample's fault.
        place: Option<usize>,
        /// Why.
        report: Box<Report>,
    },
}

/// Makes a batch of the dataset that this worker has opened.
///
/// # Errors
/// When it has opened none of this type.
pub(crate) fn fetch<D: Dataset>(worker: usize, request: Request) -> Result<Fetched<Batch<D>>, BoxedError> {
    let heap = Heap::current()?;
    DATASET.with_borrow(|dataset| {
        let dataset = dataset.as_ref().and_then(|dataset| dataset.downcast_ref::<D>());
        let dataset = dataset.ok_or("this worker has opened no such dataset")?;
        Ok(make(dataset, &request, heap, Some((worker, std::process::id()))))
    })
}

/// Makes a batch, in this worker and process or in that of the loader.
pub(crate) fn make<D: Dataset>(
    dataset: &D,
    request: &Request,
    heap: &Heap,
    worker: Option<(usize, u32)>,
) -> Fetched<Batch<D>> {
    let key = EpochKey { seed: request.seed, epoch: request.epoch };
    let samples =
        Samples::new(&request.indices, key, request.draws.as_deref(), heap, request.progress.as_ref());
    // The epoch is over, so nobody is told why there is no batch.
    if request.progress.as_ref().is_some_and(Progress::is_given_up) {
        let report = Box::new(Report::refused("the epoch was given up"));
        return Fetched::Failed { worker, place: None, report };
    }
    // Overwrites what a worker has noted that died while it made this batch.
    request.progress.iter().for_each(Progress::begin);
    match catch(|| dataset.get_batch(&samples)) {
        Ok(batch) => {
            samples.end();
            Fetched::Batch(batch)
        }
        Err(report) => Fetched::Failed { worker, place: samples.place(), report },
    }
}
