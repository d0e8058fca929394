//! `cargo xtask demo [--runs N] [--check]`: the example `hogwild` many times, with one process and with more.

use std::fmt::Write as _;
use std::num::NonZero;
use std::process::ExitCode;
use std::thread;

use anyhow::{Context as _, ensure};
use lexopt::prelude::*;
use serde_json::Value;
use xshell::Shell;

use crate::command_line::{CommandLine, Stream};

/// The least accuracy, on images that were held out, that every run has to reach.
const MIN_ACCURACY: f64 = 0.95;
/// With `--check`: how many times as many samples per second two processes have to train as one.
const MIN_SPEED_UP: f64 = 1.6;

/// What the user asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    runs: u32,
    check: bool,
}

/// What one run of the example said in its last line.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Run {
    processes: u64,
    epochs: u64,
    accuracy: f64,
    samples_per_second: f64,
    bytes_copied: u64,
    bytes_snapshot: u64,
}

impl Options {
    pub(crate) fn parse(args: &mut lexopt::Parser) -> anyhow::Result<Options> {
        let mut options = Options { runs: 3, check: false };
        while let Some(arg) = args.next()? {
            match arg {
                Long("runs") => options.runs = args.value()?.parse()?,
                Long("check") => options.check = true,
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(options.runs > 0, "--runs has to be at least 1");
        Ok(options)
    }
}

/// Runs the example, one process and more in turn so that a disturbance hits all alike, and prints the table.
pub(crate) fn run(sh: &Shell, options: &Options) -> anyhow::Result<ExitCode> {
    let build = CommandLine::cargo("build --release --example hogwild");
    println!("{build}");
    ensure!(build.run(sh)?.success(), "the example did not build");

    let mut runs = Vec::new();
    for i in 0..options.runs {
        for processes in series(thread::available_parallelism().map_or(1, NonZero::get)) {
            let line = example(processes);
            println!("[{}/{}] {line}", i + 1, options.runs);
            runs.push(run_once(sh, &line)?);
        }
    }
    let complaints = complaints(&runs, options.check);
    print!("\n{}", table(&runs));
    complaints.iter().for_each(|complaint| println!("FAILED: {complaint}"));
    Ok(if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The numbers of processes to run with; `None` leaves the number to the example, which takes one for each
/// core.
fn series(n_cores: usize) -> Vec<Option<u64>> {
    let mut series = vec![Some(1), Some(2), None];
    series.retain(|processes| *processes != u64::try_from(n_cores).ok());
    series
}

/// The line that a user types; `--quiet` only keeps cargo itself silent.
fn example(processes: Option<u64>) -> CommandLine {
    let line = CommandLine::cargo("run --quiet --release --example hogwild -- --json");
    match processes {
        Some(n) => line.args(["--processes", &n.to_string()]),
        None => line,
    }
}

fn run_once(sh: &Shell, line: &CommandLine) -> anyhow::Result<Run> {
    let mut last = String::new();
    let mut complaint = String::new();
    let status = line.watch(sh, |stream, text| match stream {
        Stream::Stdout if !text.trim().is_empty() => text.clone_into(&mut last),
        Stream::Stdout => (),
        Stream::Stderr => complaint.extend([text, "\n"]),
    })?;
    ensure!(status.success(), "`{line}` failed ({status}):\n{complaint}{last}");
    Run::parse(&last).with_context(|| format!("the last line of `{line}` was `{last}`"))
}

impl Run {
    fn parse(line: &str) -> anyhow::Result<Run> {
        let json: Value = serde_json::from_str(line).context("not a JSON object")?;
        let count =
            |field: &str| json[field].as_u64().with_context(|| format!("no count in the field `{field}`"));
        let number =
            |field: &str| json[field].as_f64().with_context(|| format!("no number in the field `{field}`"));
        Ok(Run {
            processes: count("processes")?,
            epochs: count("epochs")?,
            accuracy: number("accuracy")?,
            samples_per_second: number("samples_per_second")?,
            bytes_copied: count("bytes_copied")?,
            bytes_snapshot: count("bytes_snapshot")?,
        })
    }
}

/// What is wrong with the runs; nothing when the demonstration succeeded.
fn complaints(runs: &[Run], check: bool) -> Vec<String> {
    // A NaN is not an accuracy: it fails like one that is too small.
    let reached = |run: &&Run| run.accuracy.is_nan() || run.accuracy < MIN_ACCURACY;
    let mut complaints: Vec<_> = runs
        .iter()
        .filter(reached)
        .map(|run| {
            let Run { accuracy, processes, .. } = run;
            format!(
                "a run with {processes} process(es) reached accuracy {accuracy:.4}, less than {MIN_ACCURACY}"
            )
        })
        .collect();
    if check {
        match speed_up(runs) {
            Some(ratio) if ratio >= MIN_SPEED_UP => (),
            Some(ratio) => {
                complaints.push(format!("2 processes are {ratio:.2} times 1, less than {MIN_SPEED_UP}"))
            }
            None => complaints.push("there are no runs with 1 and with 2 processes to compare".to_owned()),
        }
    }
    complaints
}

/// The samples per second of two processes over those of one, both as the median of their runs.
fn speed_up(runs: &[Run]) -> Option<f64> {
    Some(median_rate(runs, 2)? / median_rate(runs, 1)?)
}

fn median_rate(runs: &[Run], processes: u64) -> Option<f64> {
    let of_these = runs.iter().filter(|run| run.processes == processes);
    let mut rates: Vec<_> = of_these.map(|run| run.samples_per_second).collect();
    rates.sort_by(f64::total_cmp);
    let middle = rates.len() / 2;
    let upper = *rates.get(middle)?;
    if rates.len() % 2 == 1 { Some(upper) } else { Some(f64::midpoint(*rates.get(middle - 1)?, upper)) }
}

fn table(runs: &[Run]) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{:>4} {:>9} {:>6} {:>9} {:>14} {:>14} {:>16}",
        "run", "processes", "epochs", "accuracy", "samples/s", "bytes copied", "bytes snapshot"
    );
    for (i, run) in runs.iter().enumerate() {
        let Run { processes, epochs, accuracy, samples_per_second, bytes_copied, bytes_snapshot } = run;
        let _ = writeln!(
            out,
            "{:>4} {processes:>9} {epochs:>6} {accuracy:>9.4} {samples_per_second:>14.0} {bytes_copied:>14} {bytes_snapshot:>16}",
            i + 1,
        );
    }
    let min_accuracy = runs.iter().map(|run| run.accuracy).fold(f64::INFINITY, f64::min);
    let _ = writeln!(out, "\nleast accuracy: {min_accuracy:.4}");
    let mut counts: Vec<_> = runs.iter().map(|run| run.processes).collect();
    counts.sort_unstable();
    counts.dedup();
    for processes in counts {
        if let Some(rate) = median_rate(runs, processes) {
            let _ = writeln!(out, "median samples/s with {processes} process(es): {rate:.0}");
        }
    }
    if let Some(ratio) = speed_up(runs) {
        let _ = writeln!(out, "2 processes over 1: {ratio:.2}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_run(processes: u64, accuracy: f64, samples_per_second: f64) -> Run {
        Run { processes, epochs: 3, accuracy, samples_per_second, bytes_copied: 0, bytes_snapshot: 9 }
    }

    #[test]
    fn the_last_line_of_the_example_is_read() {
        let line = r#"{"accuracy":0.97,"samples_per_second":1e5,"processes":2,"epochs":3,"bytes_copied":0,"bytes_snapshot":9}"#;
        assert_eq!(Run::parse(line).unwrap(), a_run(2, 0.97, 1e5));
        let error = Run::parse(r#"{"accuracy":0.97,"processes":2,"epochs":3}"#).unwrap_err();
        assert!(error.to_string().contains("samples_per_second"), "{error}");
        Run::parse("done").unwrap_err();
    }

    #[test]
    fn one_run_below_the_accuracy_fails_the_demonstration() {
        assert_eq!(complaints(&[a_run(1, 0.95, 1.0)], false), Vec::<String>::new());
        for accuracy in [0.9499, f64::NAN] {
            assert_eq!(complaints(&[a_run(1, 0.97, 1.0), a_run(2, accuracy, 1.0)], false).len(), 1);
        }
    }

    #[test]
    fn the_speed_up_is_checked_on_medians() {
        let one = [100.0, 110.0, 5.0, 105.0].map(|rate| a_run(1, 0.97, rate));
        let enough = [&one[..], &[a_run(2, 0.97, 170.0)]].concat();
        assert_eq!(median_rate(&enough, 1), Some(102.5));
        assert_eq!(complaints(&enough, true), Vec::<String>::new());
        let too_little = [&one[..], &[a_run(2, 0.97, 150.0)]].concat();
        assert_eq!(complaints(&too_little, true).len(), 1);
        assert_eq!(complaints(&too_little, false), Vec::<String>::new());
        assert_eq!(complaints(&one, true).len(), 1, "one process alone proves no speed-up");
    }

    #[test]
    fn every_number_of_processes_is_run_once() {
        assert_eq!(series(1), [Some(2), None]);
        assert_eq!(series(2), [Some(1), None]);
        assert_eq!(series(8), [Some(1), Some(2), None]);
    }

    #[test]
    fn the_table_has_every_run_and_the_ratio() {
        let text = table(&[a_run(1, 0.96, 100.0), a_run(2, 0.97, 180.0)]);
        assert!(text.contains("0.9600") && text.contains("0.9700") && text.contains("1.80"), "{text}");
        assert!(text.contains("least accuracy: 0.9600"), "{text}");
    }
}
