//! What a worker does for an iterable dataset: it opens the dataset once, reads its shards as it is asked to.

use std::any::Any;
use std::cell::RefCell;

use serde::{Deserialize, Serialize};
use tensorferry_spawn::BoxedError;
use tensorferry_storage::Heap;

use super::dataset::{IterableBatch, IterableDataset, Shard};
use super::shards::Shards;
use crate::ahead::Request;
use crate::random::EpochKey;
use crate::samples::Progress;
use crate::worker::Fetched;

thread_local! {
    /// The shards of this process, which has one thread for the pool's tasks.
    static SHARDS: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// The last thing that a worker does before it takes requests.
pub(crate) fn open<D: IterableDataset>(_: usize, dataset: D) {
    // The shards borrow it, and both live as long as the process, which opens one dataset.
    let dataset: &'static D = Box::leak(Box::new(dataset));
    SHARDS.set(Some(Box::new(Shards::new(dataset))));
}

/// The request for the next batch of a shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ShardRequest {
    pub(crate) shard: usize,
    pub(crate) n_shards: usize,
    pub(crate) seed: u64,
    pub(crate) epoch: u64,
    /// Tells one iteration from others over the same epoch.
    pub(crate) pass: u64,
    /// How many samples of the shard are in other batches.
    pub(crate) n_done: usize,
    pub(crate) batch_size: usize,
    pub(crate) drops_last: bool,
    pub(crate) progress: Option<Progress>,
}

impl ShardRequest {
    pub(crate) fn shard(&self) -> Shard {
        Shard::new(self.shard, self.n_shards, EpochKey { seed: self.seed, epoch: self.epoch })
    }
}

impl Request for ShardRequest {
    fn note_in(&mut self, progress: Progress) {
        self.progress = Some(progress);
    }

    fn sample(&self, place: usize) -> Option<usize> {
        self.n_done.checked_add(place)
    }
}

/// What comes next of a shard.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Next<B> {
    /// A batch, or why there is none in this place. Nothing where there are no more samples, or too few.
    pub(crate) batch: Option<Fetched<B>>,
    /// How many samples were read for it.
    pub(crate) n_read: usize,
    /// Whether the shard is over.
    pub(crate) is_over: bool,
}

impl<B> Next<B> {
    /// There are no more batches.
    pub(crate) fn nothing() -> Self {
        Self { batch: None, n_read: 0, is_over: true }
    }
}

/// Makes the next batch of a shard of the dataset that this worker has opened.
///
/// # Errors
/// When it has opened none of this type.
pub(crate) fn fetch<D: IterableDataset>(
    worker: usize,
    request: ShardRequest,
) -> Result<Next<IterableBatch<D>>, BoxedError> {
    let heap = Heap::current()?;
    SHARDS.with_borrow_mut(|shards| {
        let shards = shards.as_mut().and_then(|shards| shards.downcast_mut::<Shards<'static, D>>());
        let shards = shards.ok_or("this worker has opened no such dataset")?;
        Ok(shards.fetch(&request, heap, Some((worker, std::process::id()))))
    })
}
