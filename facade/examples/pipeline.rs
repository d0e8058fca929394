//! A pipeline: one producer, four workers with a model each, and a queue of results.
//!
//! What to see: every batch is answered once, by whichever worker was free; each worker has a seed of its
//! own; and no tensor data is copied, because the tensors move through the queues as handles. The pipeline
//! ends in two ways: first with a sentinel for every worker, as Python's programs do it, then with `close`,
//! which needs no counting.

use std::io::{self, Write as _};

use serde::{Deserialize, Serialize};
use tensorferry::reduce::bytes_copied;
use tensorferry::{GetError, Queue, Tensor, TensorMut, func, spawn};

/// The index of the process that produces; the others work.
const PRODUCER: usize = 0;
const N_WORKERS: usize = 4;
/// How many batches the producer may be ahead of the workers.
const ROOM: usize = 8;
const N_BATCHES: usize = 64;
const BATCH: usize = 32;
const N_FEATURES: usize = 256;
const N_CLASSES: usize = 10;
/// Each worker's seed is made of this and its index.
const SEED: u64 = 1234;

/// What the producer sends. The tensor is moved: the producer cannot touch it any more.
#[derive(Debug, Serialize, Deserialize)]
struct Batch {
    number: usize,
    features: TensorMut<f32>,
}

/// What a worker sends.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    batch: usize,
    rank: usize,
    /// `[BATCH, N_CLASSES]`
    scores: Tensor<f32>,
}

/// What a process says about itself when it has finished.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Account {
    /// Of the workers only.
    seed: Option<u64>,
    bytes_copied: u64,
}

impl Account {
    fn of_producer() -> Self {
        Self { seed: None, bytes_copied: bytes_copied() }
    }
}

/// One layer, `[N_CLASSES, N_FEATURES]`. Every worker loads its own, as it would from a file.
struct Model {
    weights: Vec<f32>,
}

impl Model {
    fn load() -> Self {
        let wave = |i: usize| (i as f32 * 0.37).sin();
        Self { weights: (0..N_CLASSES * N_FEATURES).map(wave).collect() }
    }

    fn scores(&self, features: &[f32], scores: &mut [f32]) {
        let rows = features.chunks_exact(N_FEATURES).zip(scores.chunks_exact_mut(N_CLASSES));
        for (row, scores) in rows {
            for (score, weights) in scores.iter_mut().zip(self.weights.chunks_exact(N_FEATURES)) {
                *score = row.iter().zip(weights).map(|(feature, weight)| feature * weight).sum();
            }
        }
    }
}

/// A worker's state: its model, and random numbers that no other worker has.
struct Worker {
    rank: usize,
    seed: u64,
    state: u64,
    model: Model,
}

impl Worker {
    fn new(rank: usize) -> Self {
        let seed = spawn::rank_seed(SEED, rank);
        Self { rank, seed, state: seed, model: Model::load() }
    }

    /// A little noise, of which the seed decides (Marsaglia's xorshift).
    fn noise(&mut self) -> f32 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 40) as f32 / (1_u32 << 24) as f32 * 1e-3
    }

    fn answer(&mut self, mut batch: Batch) -> anyhow::Result<Answer> {
        // The features are ours now, so they can be changed where they lie.
        for feature in batch.features.as_mut_slice() {
            *feature += self.noise();
        }
        // The scores are written straight into shared memory.
        let mut scores = TensorMut::empty([BATCH, N_CLASSES])?;
        self.model.scores(batch.features.as_slice(), scores.as_mut_slice());
        Ok(Answer { batch: batch.number, rank: self.rank, scores: scores.freeze() })
    }

    fn account(&self) -> Account {
        Account { seed: Some(self.seed), bytes_copied: bytes_copied() }
    }
}

fn batch(number: usize) -> anyhow::Result<Batch> {
    let mut features = TensorMut::empty([BATCH, N_FEATURES])?;
    features.as_mut_slice().fill(number as f32);
    Ok(Batch { number, features })
}

/// The end as a message.
///
/// One `None` is not enough: a message goes to one worker. That worker would stop, and the other three would
/// wait for ever. So the producer has to know how many workers there are, and none may take more than its own
/// `None`.
#[func]
fn with_sentinels(
    rank: usize,
    batches: Queue<Option<Batch>>,
    answers: Queue<Answer>,
) -> anyhow::Result<Account> {
    if rank == PRODUCER {
        for number in 0..N_BATCHES {
            batches.put(Some(batch(number)?))?;
        }
        for _ in 0..N_WORKERS {
            batches.put(None)?;
        }
        return Ok(Account::of_producer());
    }
    let mut worker = Worker::new(rank);
    while let Some(batch) = batches.get()? {
        answers.put(worker.answer(batch)?)?;
    }
    Ok(worker.account())
}

/// The end as a state of the queue: nobody counts workers, and what was put before is still got.
#[func]
fn with_close(rank: usize, batches: Queue<Batch>, answers: Queue<Answer>) -> anyhow::Result<Account> {
    if rank == PRODUCER {
        for number in 0..N_BATCHES {
            batches.put(batch(number)?)?;
        }
        batches.close();
        return Ok(Account::of_producer());
    }
    let mut worker = Worker::new(rank);
    loop {
        match batches.get() {
            Ok(batch) => answers.put(worker.answer(batch)?)?,
            Err(GetError::Closed) => return Ok(worker.account()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// All processes are started together, the producer as one of them: when one fails, `spawn` stops the others,
/// so that none waits for what will not come.
fn main() -> anyhow::Result<()> {
    // There is room for all answers, so that no worker waits for this process, which waits for the workers.
    let answers = Queue::new(N_BATCHES)?;
    let accounts = spawn(with_sentinels, (Queue::new(ROOM)?, answers.clone()), 1 + N_WORKERS)?;
    show("with a sentinel for every worker", &answers, &accounts)?;

    let answers = Queue::new(N_BATCHES)?;
    let accounts = spawn(with_close, (Queue::new(ROOM)?, answers.clone()), 1 + N_WORKERS)?;
    show("with close", &answers, &accounts)
}

/// All processes have ended by now; what they put stays.
fn show(how: &str, answers: &Queue<Answer>, accounts: &[Account]) -> anyhow::Result<()> {
    answers.close();
    let mut answered = [false; N_BATCHES];
    let mut n_by_rank = [0; 1 + N_WORKERS];
    let mut total = 0.0;
    for answer in answers {
        anyhow::ensure!(!std::mem::replace(&mut answered[answer.batch], true), "a batch was answered twice");
        n_by_rank[answer.rank] += 1;
        total += answer.scores.iter().map(|score| f64::from(*score)).sum::<f64>();
    }
    anyhow::ensure!(answered.iter().all(|answered| *answered), "a batch was not answered");

    let mut out = io::stdout();
    writeln!(out, "{how}: {N_BATCHES} batches answered, sum of the scores {total:.0}")?;
    for (rank, (n, account)) in n_by_rank.iter().zip(accounts).enumerate() {
        if let Some(seed) = account.seed {
            writeln!(out, "  process {rank} with seed {seed} answered {n}")?;
        }
    }
    let copied = bytes_copied() + accounts.iter().map(|account| account.bytes_copied).sum::<u64>();
    writeln!(out, "  bytes copied: {copied}")?;
    anyhow::ensure!(copied == 0, "the tensors did not travel as handles");
    Ok(())
}
