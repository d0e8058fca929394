//! Several senders and receivers on one channel.

use std::time::{Duration, Instant};

use tensorferry::queue::{Receiver, Sender, channel};
use tensorferry::{Queue, Tensor, TensorMut, func, start_processes};
use tensorferry_benches::{Answer, Ask, now_ns};

/// How many messages between two looks at the clock.
const BETWEEN_LOOKS: usize = 64;

#[func]
fn produce(rank: usize, ask: Ask, begin: Queue<u64>, channel: Sender<Tensor<f32>>) -> anyhow::Result<()> {
    ask.pin(rank % 2)?;
    let tensor = TensorMut::full([ask.n_elements()], 1.0)?.freeze();
    begin.get()?;
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs_f64(ask.seconds) {
        for _ in 0..BETWEEN_LOOKS {
            channel.put(tensor.clone())?;
        }
    }
    Ok(())
}

/// Returns how many messages came, and when the last one did.
#[func]
fn consume(
    rank: usize,
    ask: Ask,
    ready: Queue<u64>,
    channel: Receiver<Tensor<f32>>,
) -> anyhow::Result<(u64, u64)> {
    ask.pin((rank + 1) % 2)?;
    ready.put(0)?;
    let (mut n_messages, mut end_ns) = (0_u64, 0);
    for _ in &channel {
        n_messages += 1;
        if n_messages.is_multiple_of(BETWEEN_LOOKS as u64) {
            end_ns = now_ns();
        }
    }
    Ok((n_messages, end_ns))
}

pub(crate) fn measure(ask: &Ask) -> anyhow::Result<Answer> {
    let (sender, receiver) = channel(ask.depth)?;
    let (begin, ready) = (Queue::new(ask.pairs)?, Queue::new(ask.pairs)?);
    let consumers = start_processes(consume, (ask.clone(), ready.clone(), receiver), ask.pairs)?;
    let producers = start_processes(produce, (ask.clone(), begin.clone(), sender), ask.pairs)?;
    for _ in 0..ask.pairs {
        ready.get()?;
    }
    let start_ns = now_ns();
    for _ in 0..ask.pairs {
        begin.put(0)?;
    }
    producers.into_values()?;
    let taken = consumers.into_values()?;
    let end_ns = taken.iter().map(|(_, end_ns)| *end_ns).max().unwrap_or(start_ns);
    let total: u64 = taken.iter().map(|(n_messages, _)| n_messages).sum();
    let least = taken.iter().map(|(n_messages, _)| *n_messages).min().unwrap_or(0);
    let seconds = end_ns.saturating_sub(start_ns) as f64 / 1e9;
    Ok(Answer::default()
        .with("messages_per_s", total as f64 / seconds)
        .with("least_share", least as f64 / total.max(1) as f64))
}
