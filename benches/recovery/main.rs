//! How long the living notice nothing after a kill: from SIGKILL to the wake-up of whoever waits for the dead
//! one, to its slot being free, and to its memory being back; beside what the kernel alone takes in the same
//! run.
//!
//! `--rounds N` (200), `--mib N`: how much the killed process holds (1). In each round every row is measured
//! once.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

mod kernel;
mod member;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::ensure;
use lexopt::prelude::*;
use tensorferry_benches::median;

const ROUNDS: usize = 200;

struct Options {
    rounds: usize,
    mib: usize,
}

impl Options {
    fn parse() -> anyhow::Result<Self> {
        let mut options = Self { rounds: ROUNDS, mib: 1 };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("rounds") => options.rounds = arguments.value()?.parse()?,
                Long("mib") => options.mib = arguments.value()?.parse()?,
                Long("quick") => options.rounds = 20,
                // What cargo adds.
                Long("bench") => {}
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(options.rounds > 0, "`--rounds` is 0");
        Ok(options)
    }
}

/// One line of the table.
struct Row {
    what: &'static str,
    us: Vec<f64>,
}

impl Row {
    fn new(what: &'static str) -> Self {
        Self { what, us: Vec::new() }
    }

    fn add(&mut self, time: Duration) {
        self.us.push(time.as_secs_f64() * 1e6);
    }
}

fn main() -> anyhow::Result<ExitCode> {
    if kernel::is_holder() {
        kernel::hold()?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options::parse()?;
    let mut robust = Row::new("kernel: robust mutex, its owner killed, to the waiter's return");
    let mut pidfd = Row::new("kernel: pidfd of the same process, to the return of poll");
    let mut wake = Row::new("get(), its last sender killed, to PeerDied");
    let mut slot = Row::new("its process slot free again");
    let mut memory = Row::new("its memory back with the system");
    for _ in 0..options.rounds {
        robust.add(kernel::robust_mutex()?);
        pidfd.add(kernel::pidfd()?);
        wake.add(member::wake_up(options.mib)?);
        let (free, back) = member::given_back(options.mib)?;
        slot.add(free);
        memory.add(back);
    }
    println!(
        "{} rounds, {} MiB held by the killed process; microseconds from SIGKILL",
        options.rounds, options.mib
    );
    println!();
    println!("| what | median | p99 | slowest |");
    println!("| --- | ---: | ---: | ---: |");
    for row in [robust, pidfd, wake, slot, memory] {
        let mut us = row.us;
        us.sort_unstable_by(f64::total_cmp);
        let p99 = us[(us.len() * 99).div_ceil(100) - 1];
        println!("| {} | {:.0} | {p99:.0} | {:.0} |", row.what, median(&us), us[us.len() - 1]);
    }
    Ok(ExitCode::SUCCESS)
}

/// Kills on another thread while this one waits, and returns how long it took from just before the kill.
fn killed_while<T>(
    kill: impl FnOnce() -> anyhow::Result<()> + Send,
    wait: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(Duration, T)> {
    let waiter = rustix::thread::gettid();
    std::thread::scope(|scope| {
        let killer = scope.spawn(move || {
            let path = format!("/proc/self/task/{}/stat", waiter.as_raw_nonzero());
            let is_asleep = || {
                let stat = std::fs::read_to_string(&path).unwrap_or_default();
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
            };
            while !is_asleep() {
                std::thread::yield_now();
            }
            let killed_at = Instant::now();
            kill().map(|()| killed_at)
        });
        let outcome = wait();
        let woken_at = Instant::now();
        let killed_at = killer.join().map_err(|_| anyhow::anyhow!("the killing thread panicked"))??;
        Ok((woken_at.saturating_duration_since(killed_at), outcome?))
    })
}
