//! A data loader: workers make batches, and the main process gets them in their order.
//!
//! What to see: worker `r` of `n` makes the batches `r`, `r + n`, `r + 2n` and so on, into a channel of its
//! own, so the main process gets batch `k` from channel `k % n` and nothing has to be sorted. A channel has
//! room for a few batches, which is how far a worker may be ahead. A batch is the receiver's alone when it
//! arrives: it is changed in place, and dropping it gives its memory back to the worker. In a second run one
//! worker fails, and the main process is told why instead of waiting for ever.

use std::io::{self, Write as _};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tensorferry::queue::{Receiver, Sender, channel};
use tensorferry::{ProcessContext, TensorMut, bytes_copied, func, rank_seed, start_processes};

const N_WORKERS: usize = 3;
const N_BATCHES: usize = 24;
/// How many batches a worker may be ahead.
const PREFETCH: usize = 2;
const BATCH: usize = 16;
const IMAGE: [usize; 3] = [3, 32, 32];
const SEED: u64 = 7;

/// Both tensors lie in shared memory from the start; the message carries two handles and a number.
#[derive(Debug, Serialize, Deserialize)]
struct Batch {
    number: usize,
    /// `[BATCH, 3, 32, 32]`
    images: TensorMut<u8>,
    /// `[BATCH]`
    labels: TensorMut<i64>,
}

/// What a worker is told, beside its ends of the channels.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Plan {
    n_batches: usize,
    /// The batch that cannot be read.
    broken: Option<usize>,
}

#[func]
fn work(rank: usize, plan: Plan, mut ends: Vec<Sender<Batch>>) -> anyhow::Result<()> {
    let n_workers = ends.len();
    // The others' ends go at once: a channel is closed for its receiver when nobody can send any more.
    let batches = ends.swap_remove(rank);
    drop(ends);
    let mut random = rank_seed(SEED, rank);
    for number in (rank..plan.n_batches).step_by(n_workers) {
        ensure!(plan.broken != Some(number), "batch {number} cannot be read");
        batches.put(read(number, &mut random)?)?;
    }
    Ok(())
}

/// Stands for reading, decoding and augmenting: pixels are written straight into the memory that is sent.
fn read(number: usize, random: &mut u64) -> anyhow::Result<Batch> {
    let [channels, height, width] = IMAGE;
    let mut images = TensorMut::empty([BATCH, channels, height, width])?;
    for pixel in images.as_mut_slice() {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *pixel = (*random >> 56) as u8;
    }
    let mut labels = TensorMut::empty([BATCH])?;
    labels.as_mut_slice().fill(i64::try_from(number)?);
    Ok(Batch { number, images, labels })
}

/// The batches in their order, until the last one or a worker's failure.
struct Loader {
    channels: Vec<Receiver<Batch>>,
    workers: ProcessContext<()>,
    next: usize,
}

impl Loader {
    fn start(plan: Plan) -> anyhow::Result<Self> {
        let (ends, channels): (Vec<_>, Vec<_>) =
            (0..N_WORKERS).map(|_| channel(PREFETCH)).collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        // The senders move to the workers: when a worker has ended, for whatever reason, its channel says so.
        let workers = start_processes(work, (plan, ends), N_WORKERS)?;
        Ok(Self { channels, workers, next: 0 })
    }

    /// `None` after the last batch.
    fn next(&mut self) -> anyhow::Result<Option<Batch>> {
        match self.channels[self.next % N_WORKERS].get() {
            Ok(batch) => {
                ensure!(batch.number == self.next, "batch {} came instead of {}", batch.number, self.next);
                self.next += 1;
                Ok(Some(batch))
            }
            // There is nothing more from this worker: it is done, or `join` knows why it is not.
            Err(_) => {
                self.workers.join()?;
                Ok(None)
            }
        }
    }
}

/// Stands for a training step.
fn train(batch: &mut Batch) -> f64 {
    let flip = |pixel: &mut u8| *pixel = u8::MAX - *pixel;
    batch.images.as_mut_slice().iter_mut().for_each(flip);
    let sum: u64 = batch.images.as_slice().iter().map(|pixel| u64::from(*pixel)).sum();
    sum as f64 / batch.images.as_slice().len() as f64
}

fn main() -> anyhow::Result<()> {
    let mut out = io::stdout();
    let mut loader = Loader::start(Plan { n_batches: N_BATCHES, broken: None })?;
    let mut mean = 0.0;
    while let Some(mut batch) = loader.next()? {
        mean += train(&mut batch) / N_BATCHES as f64;
        ensure!(batch.labels.as_slice().iter().all(|label| usize::try_from(*label) == Ok(batch.number)));
    }
    ensure!(loader.next == N_BATCHES, "only {} batches came", loader.next);
    writeln!(
        out,
        "{N_BATCHES} batches in their order, mean pixel {mean:.1}, bytes copied: {}",
        bytes_copied()
    )?;

    let mut loader = Loader::start(Plan { n_batches: N_BATCHES, broken: Some(10) })?;
    let failure = loop {
        match loader.next() {
            Ok(batch) => drop(batch.context("the failure was not told")?),
            Err(failure) => break failure,
        }
    };
    ensure!(loader.next == 10, "the batches before the broken one come first");
    writeln!(out, "after batch {}: {failure}", loader.next - 1)?;
    Ok(())
}
