//! The limit of this machine: two processes, one mapping, a ring of 64-byte descriptors, one contended
//! set-and-clear on a block's header for each message, preallocated buffers that cycle back. It survives no
//! crash, allocates nothing, has no types, one sender and one receiver.

mod ends;
mod memory;
mod ring;

use std::hint::spin_loop;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::Context as _;
use tensorferry_benches::{Answer, Ask, Control as _, Far, Near, Other, Row, measure, median, serve};

use crate::ends::{ends, len_bytes};
use crate::memory::Shared;

/// Round trips of one look at the bare line.
const LINE_ROUNDS: u64 = 20_000;
const LINE_LOOKS: usize = 9;

fn main() -> anyhow::Result<()> {
    let ask = Ask::from_arguments()?;
    if let Some(path) = Other::argument() {
        let shared = Shared::open(&path, len_bytes(&ask))?;
        let control = (std::io::stdin(), std::io::stdout());
        if ask.row == Row::Line {
            return answer_line(&ask, &shared, control);
        }
        let (source, sink) = ends(&ask, &shared, 1)?;
        return serve(&ask, &mut Far { source, sink, control });
    }
    let shared = Shared::create(len_bytes(&ask))?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), shared.file().as_raw_fd());
    let mut control = Other::start(&ask, &path)?;
    let answer = if ask.row == Row::Line {
        control.hear()?;
        line(&ask, &shared)
    } else {
        let (source, sink) = ends(&ask, &shared, 0)?;
        measure(&ask, &mut Near { source, sink, control })
    };
    answer?.print()
}

/// One cache line to and fro, nothing else.
fn line(ask: &Ask, shared: &Shared) -> anyhow::Result<Answer> {
    ask.pin(1)?;
    let word = shared.words(0, 1).first().context("no word")?;
    let mut looks = Vec::new();
    let mut number = 0;
    for _ in 0..LINE_LOOKS {
        let begin = Instant::now();
        for _ in 0..LINE_ROUNDS {
            number += 2;
            word.store(number - 1, Ordering::Release);
            while word.load(Ordering::Acquire) != number {
                spin_loop();
            }
        }
        looks.push(begin.elapsed().as_secs_f64() * 1e9 / 2.0 / LINE_ROUNDS as f64);
    }
    Ok(Answer::default().with("line_ns", median(&looks)))
}

fn answer_line(
    ask: &Ask,
    shared: &Shared,
    mut control: impl tensorferry_benches::Control,
) -> anyhow::Result<()> {
    ask.pin(0)?;
    let word = shared.words(0, 1).first().context("no word")?;
    control.tell(0)?;
    let n_round_trips = LINE_ROUNDS * LINE_LOOKS as u64;
    for number in (1..=n_round_trips).map(|round| round * 2) {
        while word.load(Ordering::Acquire) != number - 1 {
            spin_loop();
        }
        word.store(number, Ordering::Release);
    }
    Ok(())
}
