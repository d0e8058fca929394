//! `cargo xtask kill` and `cargo xtask chaos`: programs of the package `tests`, built with optimisation,
//! because their children are stepped through or are many.

use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use xshell::Shell;

use crate::command_line::{CommandLine, Stream};

const PACKAGE: &str = "tensorferry-tests";
/// Builds with planted bugs lie apart.
const PLANTED_TARGET: &str = "target/planted";
/// What the program exits with when it has found something wrong: `FOUND` of `tests/src/bin/kill.rs`.
const FOUND: i32 = 3;
/// A run that has to fail need not wait as long as one that has to succeed.
const PLANTED_DEADLINE_SECONDS: u32 = 5;

/// `cargo xtask kill [ARGS..]`. The program itself reads the arguments; here only those that need another
/// build count.
pub(crate) fn run(sh: &Shell, args: &[String]) -> anyhow::Result<ExitCode> {
    if args == ["--plants"] {
        return run_all_plants(sh);
    }
    match args.iter().position(|arg| arg == "--plant") {
        None => run_program(sh, "kill", args),
        Some(at) => {
            let plant = args.get(at + 1).context("--plant wants the name of a bug; --list has them")?;
            build_planted(sh)?;
            let status = planted(plant, args).run(sh)?;
            Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

/// `cargo xtask chaos [ARGS..]`.
pub(crate) fn run_chaos(sh: &Shell, args: &[String]) -> anyhow::Result<ExitCode> {
    run_program(sh, "chaos", args)
}

fn run_program(sh: &Shell, name: &str, args: &[String]) -> anyhow::Result<ExitCode> {
    // All binaries, because the children are another one.
    let build = CommandLine::cargo(&format!("build --quiet --release -p {PACKAGE} --bins"));
    ensure!(build.run(sh)?.success(), "`{build}` failed");
    let line = CommandLine::cargo(&format!("run --quiet --release -p {PACKAGE} --bin {name} --")).args(args);
    let status = line.run(sh)?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every bug has to be noticed.
fn run_all_plants(sh: &Shell) -> anyhow::Result<ExitCode> {
    build_planted(sh)?;
    let mut names = Vec::new();
    let list = with_plants("run").args(["--bin", "kill", "--", "--list-plants"]);
    let status = list.watch(sh, |stream, line| {
        if stream == Stream::Stdout {
            names.push(line.to_owned());
        }
    })?;
    ensure!(status.success() && !names.is_empty(), "`{list}` has no names");
    // What fails without a bug has noticed none.
    let unplanted = with_plants("run").args(["--bin", "kill", "--", "--sample", "1"]);
    ensure!(unplanted.watch(sh, |_, _| ())?.success(), "`{unplanted}` fails although no bug is planted");
    let mut unnoticed = Vec::new();
    for name in &names {
        let run = planted(name, &["--plant".to_owned(), name.clone()]);
        let status = run.watch(sh, |_, _| ())?;
        // Whatever else goes wrong has noticed nothing.
        let is_noticed = status.code() == Some(FOUND);
        ensure!(is_noticed || status.success(), "`{run}` has failed: {status}");
        println!("{:<24} {}", name, if is_noticed { "noticed" } else { "NOT NOTICED" });
        if !is_noticed {
            unnoticed.push(name);
        }
    }
    println!("{} of {} planted bugs noticed", names.len() - unnoticed.len(), names.len());
    Ok(if unnoticed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn build_planted(sh: &Shell) -> anyhow::Result<()> {
    let build = with_plants("build").args(["--bins"]);
    println!("{build}");
    ensure!(build.run(sh)?.success(), "the build with planted bugs failed");
    Ok(())
}

fn planted(name: &str, args: &[String]) -> CommandLine {
    with_plants("run")
        .env("TENSORFERRY_PLANT", name)
        .env("TENSORFERRY_TEST_DEADLINE", PLANTED_DEADLINE_SECONDS.to_string())
        .args(["--bin", "kill", "--"])
        .args(args)
}

/// A line of cargo for the build in which bugs can be planted.
fn with_plants(verb: &str) -> CommandLine {
    CommandLine::cargo(&format!("{verb} --quiet --release -p {PACKAGE} --target-dir {PLANTED_TARGET}"))
        .env("RUSTFLAGS", "--cfg tensorferry_plants")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_run_can_be_repeated_by_hand() {
        let line =
            planted("drop-keeps-bit", &["--plant".to_owned(), "drop-keeps-bit".to_owned()]).to_string();
        assert!(
            line.starts_with("RUSTFLAGS='--cfg tensorferry_plants' TENSORFERRY_PLANT=drop-keeps-bit "),
            "{line}"
        );
        assert!(line.ends_with("--bin kill -- --plant drop-keeps-bit"), "{line}");
    }

    #[test]
    fn a_plant_without_a_name_is_an_error() {
        let error = run(&Shell::new().unwrap(), &["--plant".to_owned()]).unwrap_err();
        assert!(error.to_string().contains("--list"), "{error}");
    }
}
