//! A data loader that feeds several trainers: workers make batches of images, the main process hands them on,
//! and each trainer takes the next one when it is free.
//!
//! What to see: a dataset is a type with a length and a function that makes one sample; the attribute on its
//! `impl` lets workers load it. Batches lie in shared memory, so handing them on copies nothing. The order
//! and the random numbers depend on the seed alone: in the second epoch a worker is killed, another one makes
//! its batch again, and the sums are those of a loader without workers. In the third a sample cannot be read:
//! its batch is missing, and the error names the sample and the worker.

use std::io::{self, Write as _};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tensorferry::data::rand_core::Rng as _;
use tensorferry::data::{DataLoaderBuilder, Dataset, SampleRng, dataset};
use tensorferry::{BoxedError, DataLoader, Queue, Tensor, TensorMut, bytes_copied, func, start_processes};

const N_TRAINERS: usize = 2;
const N_IMAGES: usize = 400;
const BATCH: usize = 16;
const IMAGE: [usize; 3] = [3, 32, 32];

/// What each worker gets: here a few numbers, elsewhere paths or tensors.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Images {
    /// The image that cannot be read.
    broken: Option<usize>,
}

#[dataset]
impl Dataset for Images {
    /// Pixels and label; their batch is two tensors, `[n, 3, 32, 32]` and `[n]`.
    type Sample = (TensorMut<u8>, i64);

    fn len(&self) -> usize {
        N_IMAGES
    }

    /// Stands for reading, decoding and augmenting.
    fn get(&self, index: usize, rng: &mut SampleRng) -> Result<Self::Sample, BoxedError> {
        if self.broken == Some(index) {
            return Err(format!("image {index} cannot be read").into());
        }
        let mut pixels = TensorMut::empty(IMAGE)?;
        rng.fill_bytes(pixels.as_mut_slice());
        Ok((pixels, i64::try_from(index)?))
    }
}

/// Pixels and labels, as they travel.
type Batch = (Tensor<u8>, Tensor<i64>);

/// The number of batches, and a sum over all pixels, each times its image's label.
type Sum = (u64, u64);

fn add(sum: Sum, (pixels, labels): &Batch) -> anyhow::Result<Sum> {
    let (pixels, row) = (pixels.as_slice()?, IMAGE.iter().product());
    let weighted = |(pixels, label): (&[u8], &i64)| {
        let label = u64::try_from(*label).unwrap_or_default();
        label * pixels.iter().map(|pixel| u64::from(*pixel)).sum::<u64>()
    };
    Ok((sum.0 + 1, sum.1 + pixels.chunks_exact(row).zip(labels.as_slice()?).map(weighted).sum::<u64>()))
}

/// Stands for training.
#[func]
fn train(_rank: usize, batches: Queue<Batch>) -> anyhow::Result<Sum> {
    batches.iter().try_fold((0, 0), |sum, batch| add(sum, &batch))
}

/// Feeds trainers with one epoch. Returns their sums together.
fn feed(loader: &DataLoader<Images>, epoch: u64, at_step: impl Fn(usize)) -> anyhow::Result<Sum> {
    let batches = Queue::new(4)?;
    let trainers = start_processes(train, (batches.clone(),), N_TRAINERS)?;
    for (step, batch) in loader.epoch(epoch).enumerate() {
        batches.put(batch?)?;
        at_step(step);
    }
    batches.close();
    let sums = trainers.into_values()?;
    Ok(sums.iter().fold((0, 0), |sum, more| (sum.0 + more.0, sum.1 + more.1)))
}

fn builder(broken: Option<usize>) -> DataLoaderBuilder<Images> {
    DataLoader::builder(Images { broken }).batch_size(BATCH).shuffle().seed(7)
}

fn main() -> anyhow::Result<()> {
    let mut out = io::stdout();
    let loader = builder(None).workers(3).max_tries(2).start()?;
    let (n_batches, first) = feed(&loader, 0, |_| {})?;
    writeln!(
        out,
        "epoch 0: {n_batches} batches for {N_TRAINERS} trainers, bytes copied: {}",
        bytes_copied()
    )?;

    let victim = loader.processes().first().context("no worker")?.clone();
    // It may have ended by itself: then there is nobody to kill.
    let kill = |step| {
        if step == 5 {
            drop(victim.kill())
        }
    };
    let (_, second) = feed(&loader, 1, kill)?;
    let alone = builder(None).start()?;
    for (epoch, sum) in [first, second].into_iter().enumerate() {
        let expected = alone.epoch(epoch as u64).try_fold((0, 0), |sum, batch| add(sum, &batch?))?;
        ensure!(expected == (n_batches, sum), "epoch {epoch} differs from that of a loader without workers");
    }
    writeln!(out, "epoch 1: worker {} was killed, and the batches are the same", victim.pid())?;
    loader.join()?;

    let loader = builder(Some(77)).workers(3).start()?;
    let failures: Vec<_> = loader.epoch(2).filter_map(Result::err).collect();
    ensure!(failures.len() == 1 && failures[0].sample == Some(77), "{failures:?}");
    writeln!(out, "{}", failures[0])?;
    Ok(())
}
