//! The rows that all ways have in common, written once.
//!
//! The measuring side is *near*, the other process *far*. The far side is up before the clock starts, and
//! both have warmed up.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};

use crate::{Answer, Ask, Control, Row, Samples, median, minor_faults, now_ns};

/// Where messages are sent from.
pub trait Source {
    /// Sends one. With a `value` a fresh tensor of it, otherwise the one that exists. `stamp` travels beside
    /// it.
    ///
    /// # Errors
    /// When the other side is gone.
    fn send(&mut self, stamp: u64, value: Option<f32>) -> anyhow::Result<()>;
}

/// What a receiver does with a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// Reads one line of every page.
    Touch,
    /// Reads every element.
    Sum,
}

/// What a receiver saw.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// What travelled beside the tensor.
    pub stamp: u64,
    /// What reading came to.
    pub total: f32,
}

/// Where messages arrive.
pub trait Sink {
    /// Receives one, reads it and lets go of it.
    ///
    /// # Errors
    /// When the other side is gone.
    fn receive(&mut self, read: Read) -> anyhow::Result<Received>;
}

/// The measuring side. The far side goes when `control` does.
#[derive(Debug)]
pub struct Near<S, R, C> {
    /// To the far side; used by [`Row::Latency`] alone.
    pub source: S,
    /// From the far side.
    pub sink: R,
    /// The far side.
    pub control: C,
}

/// The other side.
#[derive(Debug)]
pub struct Far<S, R, C> {
    /// To the near side.
    pub source: S,
    /// From the near side; used by [`Row::Latency`] alone.
    pub sink: R,
    /// The near side.
    pub control: C,
}

/// The pause before each message of [`Row::Asleep`].
const PAUSE: Duration = Duration::from_millis(1);
/// What is expected of those who copy.
const COPIED_BYTES_PER_S: f64 = 2e9;
/// In how many pieces a stream is timed; the median of them counts, so that a stall does not.
const PIECES: u64 = 16;
/// How long a batch of round trips lasts at least, so that reading the clock does not count.
const BATCH: Duration = Duration::from_micros(20);

/// Measures what is asked, near.
///
/// # Errors
/// When the far side is gone, or what arrived is not what was sent.
pub fn measure<S: Source, R: Sink, C: Control>(
    ask: &Ask,
    near: &mut Near<S, R, C>,
) -> anyhow::Result<Answer> {
    ask.pin(1)?;
    match ask.row {
        Row::Latency => to_and_fro(ask, near),
        Row::Asleep => after_a_pause(ask, near),
        Row::Stream => stream(ask, near, Read::Touch),
        Row::Fresh => stream(ask, near, Read::Sum),
        _ => bail!("this way has no row {:?}", ask.row),
    }
}

/// Does what the near side needs, until it is gone.
///
/// # Errors
/// When it is gone, or cannot be reached.
pub fn serve<S: Source, R: Sink, C: Control>(ask: &Ask, far: &mut Far<S, R, C>) -> anyhow::Result<()> {
    ask.pin(0)?;
    // So that the first message meets a far side that is up.
    far.control.tell(0)?;
    loop {
        if ask.row == Row::Latency {
            far.sink.receive(Read::Touch)?;
            far.source.send(0, None)?;
            continue;
        }
        let n_messages = far.control.hear()?;
        let before = minor_faults()?;
        for number in 0..n_messages {
            match ask.row {
                Row::Asleep => {
                    std::thread::park_timeout(PAUSE);
                    far.source.send(now_ns(), None)?;
                }
                Row::Fresh => far.source.send(number, Some(value_of(number)))?,
                _ => far.source.send(number, None)?,
            }
        }
        far.control.tell(minor_faults()? - before)?;
    }
}

/// A number of messages.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, which is as good here"
)]
const fn whole(number: f64) -> u64 {
    number as u64
}

/// What the elements of fresh message `number` are.
fn value_of(number: u64) -> f32 {
    if number.is_multiple_of(2) { 1.0 } else { 2.0 }
}

fn to_and_fro<S: Source, R: Sink, C: Control>(ask: &Ask, near: &mut Near<S, R, C>) -> anyhow::Result<Answer> {
    near.control.hear()?;
    let mut round_trip = || -> anyhow::Result<()> {
        near.source.send(0, None)?;
        black_box(near.sink.receive(Read::Touch)?);
        Ok(())
    };
    if let Some(n_messages) = ask.exactly {
        (0..n_messages).try_for_each(|_| round_trip())?;
        return Ok(Answer::default());
    }
    let third = Duration::from_secs_f64(ask.seconds / 3.0);
    let warm = Instant::now();
    let mut n_warm = 0_u32;
    while n_warm < 3 || warm.elapsed() < third {
        round_trip()?;
        n_warm += 1;
    }
    let one = warm.elapsed() / n_warm;
    let n_batch = u32::try_from(BATCH.as_nanos() / one.as_nanos().max(1)).unwrap_or(1).max(1);
    let mut batches = Vec::new();
    let begin = Instant::now();
    while batches.len() < 3 || begin.elapsed() < third {
        let batch = Instant::now();
        (0..n_batch).try_for_each(|_| round_trip())?;
        batches.push(batch.elapsed().as_secs_f64() * 1e6 / 2.0 / f64::from(n_batch));
    }
    let mut samples = Samples::default();
    let begin = Instant::now();
    let mut last = begin;
    while samples.len() < 3 || last - begin < third {
        round_trip()?;
        let now = Instant::now();
        samples.add(now - last);
        last = now;
    }
    Ok(samples.answer(0.5).with("one_way_us", median(&batches)))
}

fn after_a_pause<S: Source, R: Sink, C: Control>(
    ask: &Ask,
    near: &mut Near<S, R, C>,
) -> anyhow::Result<Answer> {
    near.control.hear()?;
    let n_warm = 4;
    // Who copies gets longer for large messages.
    let each = PAUSE.as_secs_f64() + ask.size_bytes as f64 / COPIED_BYTES_PER_S;
    let n_messages = ask.exactly.unwrap_or(whole(ask.seconds / each));
    near.control.tell(n_messages + n_warm)?;
    let mut samples = Samples::default();
    for number in 0..n_messages + n_warm {
        let received = near.sink.receive(Read::Touch)?;
        if number >= n_warm {
            samples.add(Duration::from_nanos(now_ns().saturating_sub(received.stamp)));
        }
    }
    near.control.hear()?;
    let answer = samples.answer(1.0);
    let p50_us = samples.quantile_us(0.5);
    Ok(answer.with("one_way_us", p50_us))
}

fn stream<S: Source, R: Sink, C: Control>(
    ask: &Ask,
    near: &mut Near<S, R, C>,
    read: Read,
) -> anyhow::Result<Answer> {
    near.control.hear()?;
    let n_elements = ask.n_elements() as f32;
    let mut receive = |numbers: std::ops::Range<u64>| -> anyhow::Result<()> {
        for number in numbers {
            let received = near.sink.receive(read)?;
            if read == Read::Sum {
                let wanted = value_of(number) * n_elements;
                ensure!(
                    received.total == wanted,
                    "message {number} came to {}, not {wanted}",
                    received.total
                );
            }
        }
        Ok(())
    };
    if let Some(n_messages) = ask.exactly {
        near.control.tell(n_messages)?;
        receive(0..n_messages)?;
        return Ok(Answer::default());
    }
    // Twice around everything that is recycled, and then long enough to know the rate.
    let mut n_warm = ask.depth as u64 * 4 + 64;
    let mut rate;
    loop {
        near.control.tell(n_warm)?;
        let begin = Instant::now();
        receive(0..n_warm)?;
        rate = n_warm as f64 / begin.elapsed().as_secs_f64();
        near.control.hear()?;
        if n_warm as f64 / rate > ask.seconds / 8.0 {
            break;
        }
        n_warm *= 4;
    }
    // And once from a full ring, so that as much is on its way as ever will be.
    let n_full = ask.depth as u64 * 2;
    near.control.tell(n_full)?;
    std::thread::park_timeout(Duration::from_secs_f64(2.0 * n_full as f64 / rate));
    receive(0..n_full)?;
    near.control.hear()?;
    let n_piece = (whole(rate * ask.seconds) / PIECES).max(4);
    let before = minor_faults()?;
    near.control.tell(n_piece * PIECES)?;
    let mut rates = Vec::new();
    for piece in 0..PIECES {
        let begin = Instant::now();
        receive(piece * n_piece..(piece + 1) * n_piece)?;
        rates.push(n_piece as f64 / begin.elapsed().as_secs_f64());
    }
    let faults = minor_faults()? - before + near.control.hear()?;
    let rate = median(&rates);
    Ok(Answer::default()
        .with("messages_per_s", rate)
        .with("gb_per_s", rate * ask.size_bytes as f64 / 1e9)
        .with("faults_per_message", faults as f64 / (n_piece * PIECES) as f64))
}
