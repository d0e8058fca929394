//! Processes: from their start to their end, from a panic to the parent's error, and how long those take to
//! stop that do not want to.
//!
//! Beside `std::process::Command` with this very program, which exits at once, and beside torch's spawn when
//! `--python PATH` names a Python that has PyTorch. `--check` fails when stopping takes longer than it may.
//!
//! # Safety
//! No slice of shared memory is lent here.
#![expect(unsafe_code, reason = "allows the start method fork")]

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use lexopt::prelude::*;
use serde::Deserialize;
use tensorferry::spawn::{
    Options as SpawnOptions, ProcessErrors, Redirect, SpawnError, StartMethod, get_context,
};
use tensorferry::{Queue, func};
use tensorferry_benches::{ask_python, median, now_ns, number};

/// How many processes are started at once.
const COUNTS: [usize; 4] = [1, 2, 4, 8];

/// With this argument the program exits at once.
const EXIT: &str = "exit-at-once";

/// How many processes do not react to SIGTERM.
const N_DEAF: usize = 8;

/// How long those have before SIGTERM, and again before SIGKILL.
const GRACE_PERIOD: Duration = Duration::from_millis(200);

/// With `--check`: how much longer than twice the grace period stopping them may take.
const MAX_MORE: Duration = Duration::from_millis(100);

/// With `--check`: how long one start by a running fork server may take.
const MAX_FORKSERVER_START_MS: f64 = 1.0;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/processes.py");

/// Starts so many processes that do nothing, and waits for them.
type StartAndJoin = fn(usize) -> anyhow::Result<()>;

/// The ways to start processes that are in this program, in the order of the table.
const WAYS: [(&str, StartAndJoin); 4] = [
    ("spawn", |count| with_method(StartMethod::Spawn, count)),
    ("forkserver", |count| with_method(StartMethod::Forkserver, count)),
    ("fork", |count| with_method(StartMethod::Fork, count)),
    ("Command", with_command),
];

/// What the user asked for.
#[derive(Debug)]
struct Options {
    python: Option<OsString>,
    rounds: usize,
    check: bool,
}

impl Options {
    fn parse(mut arguments: lexopt::Parser) -> anyhow::Result<Self> {
        let mut options = Self { python: None, rounds: 21, check: false };
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("python") => options.python = Some(arguments.value()?),
                Long("rounds") => options.rounds = arguments.value()?.parse()?,
                Long("quick") => options.rounds = 3,
                Long("check") => options.check = true,
                // What `cargo bench` adds to every bench.
                Long("bench") => {}
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(options.rounds > 0, "--rounds has to be at least 1");
        Ok(options)
    }
}

fn main() -> anyhow::Result<ExitCode> {
    if std::env::args().nth(1).as_deref() == Some(EXIT) {
        return Ok(ExitCode::SUCCESS);
    }
    // SAFETY: nothing here lends a slice of shared memory, names threads as parked, or starts members of a
    // domain by itself.
    unsafe { tensorferry::spawn::allow_fork() };
    let options = Options::parse(lexopt::Parser::from_env())?;
    let starts = starts(options.rounds)?;
    let forkserver_starts = rounds(options.rounds, forkserver_start)?;
    let panics = rounds(options.rounds, || panic_to_error("0"))?;
    let panics_with_stack = rounds(options.rounds, || panic_to_error("1"))?;
    let stops = rounds(options.rounds.min(5), failure_to_stopped)?;
    let torch = match &options.python {
        None => Err(anyhow::Error::msg("no --python was given")),
        Some(python) => {
            writeln!(io::stdout(), "PyTorch is measured as well; that takes minutes")?;
            with_torch(python, options.rounds.div_ceil(7))
        }
    };

    let mut text = String::from("from start to join, median, in ms\n");
    write!(text, "{:<24}", "processes")?;
    COUNTS.iter().try_for_each(|count| write!(text, "{count:>10}"))?;
    for ((name, _), medians) in WAYS.iter().zip(&starts) {
        row(&mut text, name, medians)?;
    }
    if let Ok(torch) = &torch {
        row(&mut text, "torch spawn", &torch.start_to_join_ms)?;
    }
    let torch_ms = |what: &str, value: fn(&Torch) -> f64| match &torch {
        Ok(torch) => format!("; torch, {what}: {} ms", number(value(torch))),
        Err(_) => String::new(),
    };
    let each = median(&forkserver_starts);
    write!(text, "\n\none start by the running fork server, of {} together: {} ms", COUNTS[3], number(each))?;
    let (panic, with_stack) = (number(median(&panics)), number(median(&panics_with_stack)));
    let from_torch = torch_ms("an exception", |torch| torch.raise_to_error_ms);
    writeln!(
        text,
        "\nfrom a panic to the parent's error: {panic} ms, with its stack {with_stack} ms{from_torch}"
    )?;
    let longest = stops.iter().copied().fold(0.0, f64::max);
    let from_torch = torch_ms("the same", |torch| torch.failure_to_stopped_ms);
    writeln!(
        text,
        "from a failure until {N_DEAF} others are gone that do not react to SIGTERM, with a grace period of {} ms: {} ms, \
         at most {}{from_torch}",
        GRACE_PERIOD.as_millis(),
        number(median(&stops)),
        number(longest),
    )?;
    match &torch {
        Ok(torch) => writeln!(text, "torch {}", torch.version)?,
        Err(why) => writeln!(text, "torch is not measured: {why}")?,
    }
    io::stdout().write_all(text.as_bytes())?;
    if options.check && each > MAX_FORKSERVER_START_MS {
        writeln!(io::stdout(), "FAILED: a start by the fork server took {each:.2} ms")?;
        return Ok(ExitCode::FAILURE);
    }
    let limit = (2 * GRACE_PERIOD + MAX_MORE).as_secs_f64() * 1e3;
    // Not even once.
    if options.check && longest > limit {
        writeln!(io::stdout(), "FAILED: stopping them took {longest:.0} ms, more than {limit:.0}")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn row(text: &mut String, name: &str, medians: &[f64]) -> std::fmt::Result {
    write!(text, "\n{name:<24}")?;
    medians.iter().try_for_each(|ms| write!(text, "{:>10}", number(*ms)))
}

fn rounds(n: usize, mut measure: impl FnMut() -> anyhow::Result<f64>) -> anyhow::Result<Vec<f64>> {
    (0..n).map(|_| measure()).collect()
}

/// The medians of each way for each number of processes, in ms. All in turn, so that a disturbance hits all
/// alike.
fn starts(n_rounds: usize) -> anyhow::Result<Vec<Vec<f64>>> {
    let mut all = vec![vec![Vec::new(); COUNTS.len()]; WAYS.len()];
    // The first round is a warm-up.
    for round in 0..=n_rounds {
        for (place, &count) in COUNTS.iter().enumerate() {
            for ((_, way), series) in WAYS.iter().zip(&mut all) {
                let begin = Instant::now();
                way(count)?;
                if round > 0 {
                    series[place].push(begin.elapsed().as_secs_f64() * 1e3);
                }
            }
        }
    }
    Ok(all.iter().map(|series| series.iter().map(|values| median(values)).collect()).collect())
}

#[func]
fn nothing(_rank: usize) {}

fn with_method(method: StartMethod, count: usize) -> anyhow::Result<()> {
    get_context(method).spawn(nothing, (), count)?;
    Ok(())
}

/// Starts the most processes by the fork server, which runs already; returns the time for each of them, in
/// ms.
fn forkserver_start() -> anyhow::Result<f64> {
    let count = COUNTS[COUNTS.len() - 1];
    let begin = Instant::now();
    let mut processes = get_context(StartMethod::Forkserver).start_processes(nothing, (), count)?;
    let each = begin.elapsed().as_secs_f64() * 1e3 / count as f64;
    processes.join()?;
    Ok(each)
}

#[expect(clippy::disallowed_methods, reason = "the standard library's way is what is compared with")]
fn with_command(count: usize) -> anyhow::Result<()> {
    let exe = std::env::current_exe()?;
    let children: Result<Vec<_>, _> = (0..count).map(|_| Command::new(&exe).arg(EXIT).spawn()).collect();
    for mut child in children? {
        let status = child.wait()?;
        ensure!(status.success(), "the program did not end well: {status}");
    }
    Ok(())
}

#[func]
#[expect(clippy::panic, reason = "how long it takes until somebody hears of it is measured")]
fn fail(_rank: usize) {
    panic!("on purpose");
}

/// From the moment of a panic, as its report has it, until the parent has the error, in ms; with
/// `RUST_BACKTRACE` as given.
fn panic_to_error(backtrace: &str) -> anyhow::Result<f64> {
    let process = tensorferry::spawn::Process::new(fail, ()).env("RUST_BACKTRACE", backtrace);
    let errors = failed(process.stderr(Redirect::Null).start()?.into_value())?;
    since_raised(&errors)
}

fn since_raised(errors: &ProcessErrors) -> anyhow::Result<f64> {
    let now = Duration::from_nanos(now_ns());
    let report = errors.root_cause().report().context("no report")?;
    Ok(now.saturating_sub(report.raised_at).as_secs_f64() * 1e3)
}

fn failed<T>(result: Result<T, SpawnError>) -> anyhow::Result<ProcessErrors> {
    match result {
        Err(SpawnError::Failed(errors)) => Ok(errors),
        Err(other) => Err(other.into()),
        Ok(_) => bail!("nothing failed"),
    }
}

/// The first fails when it is told to; the others do not react to SIGTERM, and never end.
#[func]
fn fail_or_be_deaf(rank: usize, ready: Queue<()>, go: Queue<()>) -> anyhow::Result<()> {
    if rank == 0 {
        go.get()?;
        bail!("on purpose");
    }
    ctrlc::set_handler(|| {})?;
    ready.put(())?;
    loop {
        std::thread::park();
    }
}

/// From the moment of a failure until all others are gone, in ms.
fn failure_to_stopped() -> anyhow::Result<f64> {
    let (ready, go) = (Queue::new(N_DEAF)?, Queue::new(1)?);
    let options = SpawnOptions::new().grace_period(GRACE_PERIOD);
    let context = options.start_processes(fail_or_be_deaf, (ready.clone(), go.clone()), 1 + N_DEAF)?;
    for _ in 0..N_DEAF {
        ready.get()?;
    }
    go.put(())?;
    let errors = failed(context.into_values())?;
    ensure!(errors.stopped().len() == N_DEAF, "some ended by themselves: {errors}");
    since_raised(&errors)
}

/// What the script says, in its last line.
#[derive(Debug, Deserialize)]
struct Torch {
    version: String,
    start_to_join_ms: Vec<f64>,
    raise_to_error_ms: f64,
    failure_to_stopped_ms: f64,
}

fn with_torch(python: &OsString, rounds: usize) -> anyhow::Result<Torch> {
    let counts = COUNTS.map(|count| count.to_string()).join(",");
    let args = [rounds.to_string(), counts, GRACE_PERIOD.as_millis().to_string()];
    ask_python(python, SCRIPT.as_ref(), &args)
}
