//! `cargo xtask chaos`: a soak, and its report.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks to its user")]

use std::process::ExitCode;
use std::time::Duration;

use lexopt::prelude::*;
use tensorferry_kit::{Random, Soak};

const HELP: &str = "\
cargo xtask chaos [--seconds N] [--processes P] [--seed S] [--json]

  --seconds N    how long (60)
  --processes P  how many children at a time: producers, forwarders and consumers (6)
  --seed S       where the random numbers start
  --json         the report as one JSON object
";

fn main() -> ExitCode {
    match parse() {
        Ok(Some((soak, json))) => run(soak, json),
        Ok(None) => {
            print!("{HELP}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}\n\n{HELP}");
            ExitCode::FAILURE
        }
    }
}

/// `None` when help is wanted.
fn parse() -> Result<Option<(Soak, bool)>, lexopt::Error> {
    let seed = Random::from_environment().seed();
    let mut soak = Soak { duration: Duration::from_mins(1), n_processes: 6, seed };
    let mut json = false;
    let mut parser = lexopt::Parser::from_env();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("seconds") => soak.duration = Duration::from_secs(parser.value()?.parse()?),
            Long("processes") => soak.n_processes = parser.value()?.parse()?,
            Long("seed") => soak.seed = parser.value()?.parse()?,
            Long("json") => json = true,
            Long("help") | Short('h') => return Ok(None),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some((soak, json)))
}

fn run(soak: Soak, json: bool) -> ExitCode {
    eprintln!("seed {}", soak.seed);
    let report = soak.run();
    let complaints = report.complaints();
    if json {
        println!("{}", serde_json::json!({ "report": report, "complaints": complaints }));
    } else {
        print!("{report}");
        complaints.iter().for_each(|complaint| println!("FAILED: {complaint}"));
    }
    if complaints.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
