//! The example `hogwild` against PyTorch's Hogwild, with the same network and the same batches, in turn.
//!
//! `--python PATH` names a Python that has PyTorch; without it only the example is measured. `--check` fails
//! unless the example is at least twice as fast per process.

#[path = "../../facade/examples/hogwild/digits.rs"]
mod digits;
#[path = "../../facade/examples/hogwild/exchange.rs"]
mod exchange;
#[path = "../../facade/examples/hogwild/network.rs"]
#[expect(dead_code, reason = "the example shows the losses, the bench does not")]
mod network;
#[path = "../../facade/examples/hogwild/random.rs"]
mod random;
#[path = "../../facade/examples/hogwild/training.rs"]
#[expect(dead_code, reason = "the example shows more of the outcome, and has another transport")]
mod training;
#[path = "../../facade/examples/hogwild/worker.rs"]
mod worker;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, ensure};
use lexopt::prelude::*;

use crate::digits::Digits;
use crate::network::Network;
use crate::training::Transport;
use crate::worker::Recipe;

const HIDDEN: usize = 128;
const BATCH: usize = 32;
const PROCESSES: [usize; 2] = [1, 2];
/// How many times as fast the example has to be with `--check`.
const MIN_RATIO: f64 = 2.0;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/hogwild.py");
const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../facade/examples/data/digits.csv.gz");

/// What the user asked for.
#[derive(Debug)]
struct Options {
    python: Option<OsString>,
    rounds: usize,
    epochs: usize,
    check: bool,
}

/// What one training came to.
#[derive(Clone, Copy, Debug)]
struct Run {
    samples_per_second: f64,
    accuracy: f64,
}

/// All trainings of one kind with so many processes.
#[derive(Debug)]
struct Series {
    who: &'static str,
    processes: usize,
    runs: Vec<Run>,
}

impl Options {
    fn parse() -> anyhow::Result<Self> {
        let mut options = Self { python: None, rounds: 7, epochs: 200, check: false };
        let mut arguments = lexopt::Parser::from_env();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("python") => options.python = Some(arguments.value()?),
                Long("rounds") => options.rounds = arguments.value()?.parse()?,
                Long("epochs") => options.epochs = arguments.value()?.parse()?,
                Long("quick") => options.rounds = 1,
                Long("check") => options.check = true,
                // What `cargo bench` adds to every bench.
                Long("bench") => {}
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(options.rounds > 0 && options.epochs > 0, "--rounds and --epochs have to be at least 1");
        Ok(options)
    }
}

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse()?;
    let mut out = io::stdout();
    let torch = match &options.python {
        None => Err("no --python was given".to_owned()),
        Some(python) => torch_version(python),
    };
    match &torch {
        Ok(version) => writeln!(out, "PyTorch {version}; the example and PyTorch in turn")?,
        Err(why) => writeln!(out, "PyTorch is not measured: {why}")?,
    }

    let digits = Digits::load()?;
    let mut all = Vec::new();
    for processes in PROCESSES {
        all.push(Series { who: "example", processes, runs: Vec::new() });
        if torch.is_ok() {
            all.push(Series { who: "PyTorch", processes, runs: Vec::new() });
        }
    }
    for round in 0..options.rounds {
        for series in &mut all {
            let run = match &options.python {
                Some(python) if series.who == "PyTorch" => {
                    with_torch(python, series.processes, options.epochs, round)?
                }
                _ => with_example(&digits, series.processes, options.epochs, round)?,
            };
            series.runs.push(run);
        }
    }
    for series in &all {
        writeln!(out, "{series}")?;
    }
    let mut is_fast = torch.is_ok();
    for pair in all.chunks_exact(2).filter(|_| torch.is_ok()) {
        let ratio = pair[0].median() / pair[1].median();
        is_fast &= ratio >= MIN_RATIO;
        let processes = pair[0].processes;
        writeln!(out, "with {processes} process(es) the example is {ratio:.2} times as fast as PyTorch")?;
    }
    if options.check && !is_fast {
        writeln!(out, "FAILED: the example was not shown to be {MIN_RATIO} times as fast")?;
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn with_example(digits: &Digits, processes: usize, epochs: usize, seed: usize) -> anyhow::Result<Run> {
    let network = Network { n_hidden: HIDDEN };
    let recipe = Recipe { network, epochs, batch: BATCH, seed: seed as u64 };
    let outcome = training::run(digits, recipe, processes, Transport::Shared, |_, _| Ok(()))?;
    Ok(Run { samples_per_second: outcome.samples_per_second, accuracy: outcome.accuracy })
}

fn with_torch(python: &OsString, processes: usize, epochs: usize, seed: usize) -> anyhow::Result<Run> {
    let numbers = [
        ("--processes", processes),
        ("--epochs", epochs),
        ("--hidden", HIDDEN),
        ("--batch", BATCH),
        ("--seed", seed),
    ];
    let mut arguments = vec![SCRIPT.to_owned(), DATA.to_owned()];
    arguments.extend(numbers.iter().flat_map(|(name, value)| [(*name).to_owned(), value.to_string()]));
    let answer = run(python, &arguments).map_err(anyhow::Error::msg)?;
    let json: serde_json::Value = serde_json::from_str(answer.lines().last().unwrap_or_default())?;
    let number = |field: &str| json[field].as_f64().with_context(|| format!("no `{field}` in {json}"));
    Ok(Run { samples_per_second: number("samples_per_second")?, accuracy: number("accuracy")? })
}

fn torch_version(python: &OsString) -> Result<String, String> {
    let question = ["-c".to_owned(), "import torch; print(torch.__version__)".to_owned()];
    Ok(run(python, &question)?.trim().to_owned())
}

/// What Python writes, or what went wrong.
#[expect(clippy::disallowed_methods, reason = "Python is no process of ours")]
fn run(python: &OsString, arguments: &[String]) -> Result<String, String> {
    let shown = python.display();
    let output = Command::new(python).args(arguments).output();
    let output = output.map_err(|error| format!("`{shown}` does not start: {error}"))?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        let last = complaint.lines().last().unwrap_or("it does not say why").to_owned();
        return Err(format!("`{shown}` failed ({}): {last}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Series {
    fn sorted(&self) -> Vec<f64> {
        let mut rates: Vec<_> = self.runs.iter().map(|run| run.samples_per_second).collect();
        rates.sort_by(f64::total_cmp);
        rates
    }

    /// The middle one; of an even number, the upper of the two.
    fn median(&self) -> f64 {
        let rates = self.sorted();
        rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

impl std::fmt::Display for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rates = self.sorted();
        let (min, max) =
            (rates.first().copied().unwrap_or(f64::NAN), rates.last().copied().unwrap_or(f64::NAN));
        let accuracy = self.runs.iter().map(|run| run.accuracy).fold(f64::INFINITY, f64::min);
        let Self { who, processes, .. } = self;
        write!(f, "{who}, {processes} process(es): {min:.0} / {:.0} / {max:.0} samples/s ", self.median())?;
        write!(f, "(least, median, most), least accuracy {accuracy:.4}")
    }
}
