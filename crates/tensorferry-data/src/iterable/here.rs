//! An iterable dataset that is read in the process of its loader.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use tensorferry_process::Report;
use tensorferry_storage::Heap;

use super::dataset::{IterableBatch, IterableDataset};
use super::shards::Shards;
use super::worker::{Next, ShardRequest};
use crate::error::LoadErrorKind;
use crate::worker::Fetched;

type Answer<D> = Result<Next<IterableBatch<D>>, LoadErrorKind>;

/// A request, and where the answer goes.
struct Asked<D: IterableDataset> {
    request: ShardRequest,
    answer: SyncSender<Answer<D>>,
}

/// A thread that has the dataset and what is read of it, because the latter borrows the former.
pub(crate) struct Here<D: IterableDataset> {
    asks: SyncSender<Asked<D>>,
    thread: JoinHandle<()>,
}

impl<D: IterableDataset> Here<D> {
    /// Starts the thread. It ends with the handle, once it has made the batch that it is at.
    pub(crate) fn start(dataset: D) -> io::Result<Self> {
        let (asks, asked) = sync_channel(0);
        let thread =
            thread::Builder::new().name("loader".to_owned()).spawn(move || serve(&dataset, &asked))?;
        Ok(Self { asks, thread })
    }

    /// Makes the next batch of a shard.
    pub(crate) fn fetch(&self, request: ShardRequest) -> Answer<D> {
        let (answer, answered) = sync_channel(1);
        let is_asked = self.asks.send(Asked { request, answer }).is_ok();
        let fetched = is_asked.then(|| answered.recv().ok()).flatten();
        fetched.unwrap_or_else(|| {
            let report = Box::new(Report::refused("the thread that reads the shards has panicked"));
            let batch = Some(Fetched::Failed { worker: None, place: None, report });
            Ok(Next { batch, n_read: 0, is_over: true })
        })
    }

    /// Waits until the thread has ended.
    pub(crate) fn join(self) {
        drop(self.asks);
        // It catches what panics in the dataset, and says so in the batch.
        let _ = self.thread.join();
    }
}

fn serve<D: IterableDataset>(dataset: &D, asked: &Receiver<Asked<D>>) {
    let mut shards = Shards::new(dataset);
    for Asked { request, answer } in asked {
        let fetched = Heap::current().map_err(LoadErrorKind::Memory);
        // Who asked has gone only if its thread was killed.
        let _ = answer.send(fetched.map(|heap| shards.fetch(&request, heap, None)));
    }
}

impl<D: IterableDataset> fmt::Debug for Here<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Here").field("thread", &self.thread.thread().id()).finish_non_exhaustive()
    }
}
