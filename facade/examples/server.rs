//! A model server: workers answer requests by parameters that lie in shared memory once, and a worker that is
//! killed costs no request.
//!
//! What to see: each request carries its input and the parameters to use, as two handles. So new parameters
//! are in use from the next request on, in every worker, and the old ones go when the last answer by them is
//! there. A worker leases a request until it has answered it. One worker is killed over a request: another
//! one answers, and a new worker is started. Nothing is copied, and every request is answered.

use std::collections::HashMap;
use std::io::{self, Write as _};

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use tensorferry::queue::{Receiver, Sender, channel, channel_with_leases, wait};
use tensorferry::spawn::ProcessHandle;
use tensorferry::{Bundle, Process, Tensor, TensorMut, bytes_copied, func};

const N_WORKERS: usize = 3;
const N_REQUESTS: u64 = 300;
/// How many requests are under way at once.
const N_AHEAD: usize = 16;
const N_INPUTS: usize = 256;
const N_OUTPUTS: usize = 10;
/// Every so many requests the parameters are replaced.
const NEW_PARAMETERS_EVERY: u64 = 100;
/// Over this request its worker is killed.
const FATAL: u64 = 150;

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    id: u64,
    /// `[N_INPUTS]`
    input: Tensor<f32>,
    /// `weight` of `[N_OUTPUTS, N_INPUTS]`
    parameters: Bundle,
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    id: u64,
    worker: usize,
    /// `[N_OUTPUTS]`
    scores: TensorMut<f32>,
    bytes_copied: u64,
}

#[func]
fn answer(rank: usize, requests: Receiver<Request>, answers: Sender<Answer>) -> anyhow::Result<()> {
    // Until the server lets go of its end.
    let mut todo = requests.iter_leased();
    for request in &mut todo {
        if request.id == FATAL && request.deliveries() == 1 {
            std::process::abort(); // as if somebody had run out of memory
        }
        let input = request.input.as_slice()?;
        let weight = request.parameters.entry("weight")?;
        let mut scores = TensorMut::zeros([N_OUTPUTS])?;
        for (score, row) in scores.as_mut_slice().iter_mut().zip(weight.as_slice::<f32>()?.chunks(N_INPUTS)) {
            *score = row.iter().zip(input).map(|(weight, input)| weight * input).sum();
        }
        let answer = Answer { id: request.id, worker: rank, scores, bytes_copied: bytes_copied() };
        answers.put(answer)?;
        request.ack()?;
    }
    Ok(todo.finish()?)
}

/// Parameters with which an input of ones has this score everywhere.
fn parameters(score: f32) -> anyhow::Result<Bundle> {
    let weight = TensorMut::full([N_OUTPUTS, N_INPUTS], score / N_INPUTS as f32)?;
    Ok(Bundle::new([("weight", weight.freeze())])?)
}

fn main() -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let (to_workers, requests) = channel_with_leases(N_AHEAD, N_WORKERS)?;
    let (answers, from_workers) = channel(N_AHEAD)?;
    let start = |rank| Process::new(answer, (requests.clone(), answers.clone())).rank(rank).start();
    let mut workers = (0..N_WORKERS).map(start).collect::<Result<Vec<ProcessHandle<()>>, _>>()?;

    let input = TensorMut::full([N_INPUTS], 1.0)?.freeze();
    let mut current = parameters(0.0)?;
    let (mut next_id, mut n_restarts) = (0, 0);
    // What each request is to be answered with.
    let mut expected = HashMap::new();
    let mut n_answers = [0; N_WORKERS];
    while next_id < N_REQUESTS || !expected.is_empty() {
        while next_id < N_REQUESTS && expected.len() < N_AHEAD {
            let score = (next_id / NEW_PARAMETERS_EVERY) as f32;
            if next_id % NEW_PARAMETERS_EVERY == 0 {
                current = parameters(score)?;
            }
            let request = Request { id: next_id, input: input.clone(), parameters: current.clone() };
            to_workers.put(request)?;
            expected.insert(next_id, score);
            next_id += 1;
        }
        for at in wait(&[&from_workers, &workers[0], &workers[1], &workers[2]])? {
            let Some(rank) = at.checked_sub(1) else {
                let mut answer = from_workers.get()?;
                // A worker that dies between its answer and the `ack` lets another one answer again.
                let Some(score) = expected.remove(&answer.id) else { continue };
                ensure!(
                    answer.scores.as_slice().iter().all(|found| (found - score).abs() < 1e-3),
                    "wrong scores"
                );
                ensure!(answer.bytes_copied == 0, "a worker copied");
                n_answers[answer.worker] += 1;
                continue;
            };
            if let Err(failure) = workers[rank].join() {
                writeln!(out, "worker {rank}: {failure}")?;
            }
            workers[rank] = start(rank)?;
            n_restarts += 1;
        }
    }
    writeln!(out, "{N_REQUESTS} answers, by worker {n_answers:?}, {n_restarts} worker(s) started again")?;
    ensure!(n_restarts == 1, "one was to die");
    ensure!(bytes_copied() == 0, "the server copied");
    drop(to_workers);
    workers.iter_mut().try_for_each(ProcessHandle::join)?;
    writeln!(out, "0 bytes copied")?;
    Ok(())
}
