//! The project's own commands: `cargo xtask <command>`. This file parses and dispatches; each command is one
//! file.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks to its user")]

mod bench;
mod ci;
mod command_line;
mod counts;
mod demo;
mod fuzz;
mod kill;
mod tally;
mod test;
mod test_gpu;
mod tidy;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use lexopt::prelude::*;
use xshell::Shell;

const HELP: &str = "\
cargo xtask <command>

  ci                         everything that has to hold, on any machine with Rust; the one command before landing
  test [FILTER]              unit, crate and process tests, then doctests; only those whose name holds FILTER
  test-gpu [--bench [--check]] [--simulate]   the CUDA tests and examples on this machine's GPU; fails where there is none
  test-gpu --pack DIR        the same as a folder with a `run.sh`, for a machine with a GPU but no Rust
  bench [NAME] [ARGS..]      the table of tensorferry and its peers, or the bench called NAME; ARGS go to the bench
                             (of the table: --quick, --rounds N, --row NAME, --python PATH, --check)
  bench --list               the names of the benches
  bench --counts [--record]  instructions of put, get, allocate and drop against what was recorded; needs valgrind
  demo [--runs N] [--check]  the example `hogwild` N times with 1, 2 and all processes: a table, and the speed-up
  kill [ARGS..]              children are killed at every position of a call; `kill --help` tells how
  chaos [ARGS..]             many processes pass tensors on and are killed at random; `chaos --help` tells how
  fuzz [TARGET..] [--seconds N]   the fuzz targets, or some, for so long each (60); needs a nightly compiler
  tidy                       the rules of docs/STYLE.md that a program can check
";

fn main() -> ExitCode {
    match dispatch() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch() -> anyhow::Result<ExitCode> {
    let sh = Shell::new()?;
    sh.change_dir(root()?);

    let mut args = lexopt::Parser::from_env();
    let command = match args.next()? {
        Some(Value(command)) => command.string()?,
        Some(Long("help") | Short('h')) | None => {
            print!("{HELP}");
            return Ok(ExitCode::SUCCESS);
        }
        Some(other) => return Err(other.unexpected().into()),
    };
    match command.as_str() {
        "ci" => {
            no_more(&mut args)?;
            ci::run(&sh)
        }
        "test" => {
            let filter = args.next()?.map(only_value).transpose()?;
            no_more(&mut args)?;
            test::run(&sh, filter.as_deref())
        }
        "test-gpu" => test_gpu::run(&sh, &test_gpu::Options::parse(&mut args)?),
        "bench" => bench::run(&sh, &rest(&mut args)?),
        "demo" => demo::run(&sh, &demo::Options::parse(&mut args)?),
        "kill" => kill::run(&sh, &rest(&mut args)?),
        "chaos" => kill::run_chaos(&sh, &rest(&mut args)?),
        "fuzz" => fuzz::run(&sh, &fuzz::Options::parse(&mut args)?),
        "tidy" => {
            no_more(&mut args)?;
            tidy::run(&sh)?;
            Ok(ExitCode::SUCCESS)
        }
        unknown => bail!("no command is called `{unknown}`\n\n{HELP}"),
    }
}

fn rest(args: &mut lexopt::Parser) -> anyhow::Result<Vec<String>> {
    let rest: Result<Vec<_>, _> = args.raw_args()?.map(|arg| arg.string()).collect();
    Ok(rest?)
}

fn only_value(arg: lexopt::Arg<'_>) -> anyhow::Result<String> {
    match arg {
        Value(value) => Ok(value.string()?),
        other => Err(other.unexpected().into()),
    }
}

fn no_more(args: &mut lexopt::Parser) -> anyhow::Result<()> {
    args.next()?.map_or(Ok(()), |arg| Err(arg.unexpected().into()))
}

/// The root of the checkout. Cargo says at run time where this package lies, so a checkout that was moved
/// still works.
fn root() -> anyhow::Result<PathBuf> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = package.parent().map(Path::to_path_buf);
    root.context("the package xtask has no parent directory")
}
