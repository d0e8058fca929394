//! From the start of processes to their end.

use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::ensure;
use tensorferry::{func, spawn};
use tensorferry_benches::{Answer, Ask, median};

/// With this argument the program ends at once.
pub(crate) const EXIT: &str = "exit";

#[func]
fn nothing(_rank: usize) {}

/// So many at once.
#[expect(clippy::disallowed_methods, reason = "the standard library's way is what is compared with")]
fn commands(n_processes: usize) -> anyhow::Result<()> {
    let start = || Ok(Command::new(std::env::current_exe()?).arg(EXIT).spawn()?);
    let processes: Vec<Child> = (0..n_processes).map(|_| start()).collect::<anyhow::Result<_>>()?;
    for mut process in processes {
        let status = process.wait()?;
        ensure!(status.success(), "the program did not end well: {status}");
    }
    Ok(())
}

/// In turn with `std::process::Command`, as many processes of the same executable.
pub(crate) fn measure(ask: &Ask) -> anyhow::Result<Answer> {
    let (mut spawned, mut commanded) = (Vec::new(), Vec::new());
    let begin = Instant::now();
    while spawned.len() < 6 || begin.elapsed() < Duration::from_secs_f64(ask.seconds) {
        let start = Instant::now();
        spawn(nothing, (), ask.count)?;
        spawned.push(start.elapsed().as_secs_f64() * 1e6);
        let start = Instant::now();
        commands(ask.count)?;
        commanded.push(start.elapsed().as_secs_f64() * 1e6);
    }
    // The first of each is a warm-up.
    Ok(Answer::default().with("spawn_us", median(&spawned[1..])).with("command_us", median(&commanded[1..])))
}
