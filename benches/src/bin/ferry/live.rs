//! Many live tensors: what each costs in time and memory.

use std::time::{Duration, Instant};

use tensorferry::storage::Heap;
use tensorferry::{Queue, Tensor, TensorMut, func, start_processes};
use tensorferry_benches::{Answer, Ask, open_descriptors, private_bytes};

/// A process opens a descriptor for each process that it looks after once it has to wait, whatever it has. So
/// each side waits in vain before it counts, for longer than that takes.
fn settle() -> anyhow::Result<()> {
    let nothing = Queue::<u8>::new(1)?.get_timeout(Duration::from_secs(1));
    anyhow::ensure!(nothing.is_err(), "nobody can put anything");
    Ok(())
}

/// What receiving came to.
type Receipt = (f64, u64, u64);

/// Receives and keeps all; answers with seconds, private bytes and descriptors more than before.
#[func]
fn keep(_rank: usize, n_tensors: usize, queue: Queue<Tensor<f32>>) -> anyhow::Result<Receipt> {
    settle()?;
    let mut kept = Vec::with_capacity(n_tensors);
    kept.push(queue.get()?);
    let (private, descriptors) = (private_bytes()?, open_descriptors()?);
    let begin = Instant::now();
    while kept.len() < n_tensors {
        kept.push(queue.get()?);
    }
    let seconds = begin.elapsed().as_secs_f64();
    let more = (private_bytes()?.saturating_sub(private), open_descriptors()?.saturating_sub(descriptors));
    Ok((seconds, more.0, more.1 as u64))
}

pub(crate) fn measure(ask: &Ask) -> anyhow::Result<Answer> {
    let n_tensors = ask.count;
    let heap = Heap::current()?;
    let queue = Queue::new(ask.depth)?;
    settle()?;
    let shared = heap.stats().populated_bytes;
    let (private, descriptors) = (private_bytes()?, open_descriptors()?);
    let mut tensors = Vec::with_capacity(n_tensors);
    let begin = Instant::now();
    for _ in 0..n_tensors {
        tensors.push(TensorMut::<f32>::empty([ask.n_elements()])?.freeze());
    }
    let allocating = begin.elapsed().as_secs_f64();
    let private = private_bytes()?.saturating_sub(private);
    let shared = heap.stats().populated_bytes - shared;
    let descriptors = open_descriptors()?.saturating_sub(descriptors);

    // A step that has no divisor in common with the number meets every tensor once, far from the one before.
    let step = (n_tensors / 2 + 7..).find(|step| gcd(*step, n_tensors) == 1).unwrap_or(1);
    let receiver = start_processes(keep, (n_tensors, queue.clone()), 1)?;
    let mut at = 0;
    for _ in 0..n_tensors {
        queue.put(tensors[at].clone())?;
        at = (at + step) % n_tensors;
    }
    let mut receipts = receiver.into_values()?;
    let (receiving, their_private, their_descriptors) = receipts.remove(0);
    let each = |value: f64| value / n_tensors as f64;
    Ok(Answer::default()
        .with("allocate_ns", each(allocating * 1e9))
        .with("receive_ns", each(receiving * 1e9))
        .with("both_ns", each((allocating + receiving) * 1e9))
        .with("shared_bytes", each(shared as f64))
        .with("private_bytes", each(private as f64))
        .with("receiver_private_bytes", each(their_private as f64))
        .with("descriptors", (descriptors as u64 + their_descriptors) as f64))
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
