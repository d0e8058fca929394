//! What each of the processes does.

use serde::{Deserialize, Serialize};
use tensorferry::reduce::bytes_copied;
use tensorferry::{Queue, SharedTensor, func};

use crate::digits::Examples;
use crate::exchange::{Exchange, Message};
use crate::network::{Network, Score, Workspace};
use crate::random::Random;

/// How training goes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recipe {
    pub(crate) network: Network,
    pub(crate) epochs: usize,
    pub(crate) batch: usize,
    pub(crate) seed: u64,
}

/// Everything that a worker needs. The tensors and queues in it arrive as handles.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) recipe: Recipe,
    pub(crate) examples: Examples,
    pub(crate) exchange: Exchange,
    /// `[1]`: the next step that nobody has taken yet. Whoever is slower takes fewer.
    pub(crate) next_step: SharedTensor<u64>,
    /// `[epochs, 3]`: the sum of the losses, right answers, images. Workers add to it.
    pub(crate) history: SharedTensor<f64>,
    pub(crate) messages: Queue<Message>,
    pub(crate) start: Queue<()>,
}

/// What a worker did.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Account {
    /// Tensor data that this process's transport copied.
    pub(crate) bytes_copied: u64,
    /// What it copied from shared parameters into its own memory, to compute with.
    pub(crate) bytes_snapshot: u64,
}

/// The learning rate, when `done` of the training (from 0 to 1) is done and `n_since` steps were begun since
/// this one took its snapshot, itself included.
///
/// It falls in a straight line, so that the last steps settle instead of jumping about. And it is less for a
/// change that comes late: many changes computed from the same parameters, each of full length, would
/// together go much too far. So the training is stable with any number of workers, and with one that was held
/// up.
fn rate(done: f32, n_since: usize) -> f32 {
    const RATE: f32 = 0.3;
    const N_SINCE_FULL: f32 = 4.0;
    RATE * (1.0 - done) * (N_SINCE_FULL / n_since as f32).min(1.0)
}

/// Trains until there are no batches left.
#[func]
pub(crate) fn train(rank: usize, job: Job) -> anyhow::Result<Account> {
    let Recipe { network, epochs, batch, seed } = job.recipe;
    let mut workspace = Workspace::new(network, batch);
    let mut order: Vec<usize> = (0..job.examples.len()).collect();
    let mut access = job.exchange.open(rank)?;

    // One pass on parameters of its own brings code and data into the caches; then all begin at once.
    let private = network.initial(seed);
    for chosen in order.chunks(batch) {
        workspace.descent(&private, &job.examples, chosen)?;
    }
    job.messages.put(Message::Ready)?;
    job.start.get()?;
    access.begin()?;

    let steps_per_epoch = order.len().div_ceil(batch);
    let n_steps = epochs * steps_per_epoch;
    let (mut epoch, mut score) = (None, Score::default());
    loop {
        let step = usize::try_from(job.next_step.fetch_add([0], 1)?)?;
        if epoch != Some(step / steps_per_epoch) {
            if let Some(epoch) = epoch {
                report(&job.history, epoch, std::mem::take(&mut score))?;
            }
            if step >= n_steps {
                break;
            }
            epoch = Some(step / steps_per_epoch);
            // Every worker comes to the same order, so that an epoch is each image once.
            order.iter_mut().enumerate().for_each(|(i, place)| *place = i);
            Random::new(seed, (1 + step / steps_per_epoch) as u64).shuffle(&mut order);
        }
        let first = step % steps_per_epoch * batch;
        let chosen = &order[first..order.len().min(first + batch)];
        let (change, of_step) = workspace.descent(access.snapshot()?, &job.examples, chosen)?;
        let n_since = usize::try_from(job.next_step.load([0])?)? - step;
        access.exchange(change, rate(step as f32 / n_steps as f32, n_since))?;
        score += of_step;
    }
    job.messages.put(Message::Done)?;
    Ok(Account { bytes_copied: bytes_copied(), bytes_snapshot: access.bytes_snapshot() })
}

/// Adds to what is known about an epoch.
fn report(history: &SharedTensor<f64>, epoch: usize, score: Score) -> anyhow::Result<()> {
    let row = [score.loss, score.n_right, score.n_images];
    Ok(history.select(0, epoch)?.add_from(&row)?)
}
