//! `cargo xtask test [FILTER]`: the tests of all packages, then the examples in the docs.

use std::num::NonZero;
use std::process::ExitCode;
use std::thread;

use anyhow::bail;
use xshell::{Shell, cmd};

use crate::command_line::{CommandLine, pass_on};
use crate::tally::Tally;
use crate::workspace::Workspace;

/// Runs the tests whose name holds `filter`, or all; both steps run even if the first one fails.
pub(crate) fn run(sh: &Shell, filter: Option<&str>) -> anyhow::Result<ExitCode> {
    let mut tally = Tally::default();
    let mut failed = Vec::new();
    let configurations = if filter.is_none() { cuda_configurations(sh) } else { Vec::new() };
    let doctests = doctests(&Workspace::load(sh)?.target_dir, filter);
    for line in [tests(sh, filter), doctests].into_iter().chain(configurations) {
        println!("{line}");
        let (success, counted) = count(sh, &line)?;
        tally += counted;
        if !success {
            failed.push(line);
        }
    }
    for line in &failed {
        println!("failed; to repeat: {line}");
    }
    if let Some(filter) = filter
        && tally.total() == 0
        && failed.is_empty()
    {
        bail!("no test has `{filter}` in its name");
    }
    println!("{tally}");
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Unit tests, crate tests and the tests with processes: by nextest where it is installed, else by cargo
/// itself.
pub(crate) fn tests(sh: &Shell, filter: Option<&str>) -> CommandLine {
    // The doctests may still hold what the filter asks for.
    let on_none = if filter.is_some() { "pass" } else { "fail" };
    runner(sh, "--workspace --all-features --tests --no-fail-fast", on_none).args(filter)
}

/// The tests of this selection, by nextest where it is installed, else by cargo itself. `on_none` is what
/// nextest makes of it when there are none.
///
/// Many tests wait for most of their time, so there are more at a time than there are processors.
fn runner(sh: &Shell, selection: &str, on_none: &str) -> CommandLine {
    if has_nextest(sh) {
        let n_processors = thread::available_parallelism().map_or(1, NonZero::get);
        let n_threads = n_processors + n_processors.div_ceil(2);
        CommandLine::cargo(&format!(
            "nextest run {selection} --no-tests={on_none} --test-threads={n_threads}"
        ))
    } else {
        CommandLine::cargo(&format!("test {selection}"))
    }
}

/// The examples in the docs and in README.md. Those of CUDA do nothing without a driver, so they have the
/// software driver that the tests have built.
pub(crate) fn doctests(target_dir: &str, filter: Option<&str>) -> CommandLine {
    let driver = format!("{target_dir}/debug/deps/libtensorferry_sim_cuda.so");
    let line = CommandLine::cargo("test --workspace --all-features --doc --no-fail-fast");
    line.env("TENSORFERRY_CUDA_DRIVER", driver).args(filter)
}

/// The tests of CUDA once more, with other settings of the software driver: any broken rule ends the process;
/// everything that a device does takes a while, and the driver is an old one that returns before it must;
/// each way of sharing memory by itself, one of them with events of the driver; and as if it were a real one,
/// as `test-gpu` does it.
pub(crate) fn cuda_configurations(sh: &Shell) -> Vec<CommandLine> {
    let line = || runner(sh, "--workspace --all-features --test cuda --no-fail-fast", "fail");
    let simulated = |settings: &str| line().env("TENSORFERRY_TEST_CUDA", settings);
    vec![
        simulated("strict"),
        simulated("delay_us=200,staged_copies,version=11.6"),
        simulated("strict,disable=legacy+pool+words"),
        simulated("strict,disable=vmm+pool"),
        simulated("strict,disable=vmm+legacy"),
        line().env("TENSORFERRY_TEST_GPU", "rehearsal").env("TENSORFERRY_SIM_CUDA", "devices=3"),
    ]
}

/// Runs a test runner and counts. A runner that failed without a failed test (it did not compile) counts as
/// one.
pub(crate) fn count(sh: &Shell, line: &CommandLine) -> anyhow::Result<(bool, Tally)> {
    let mut tally = Tally::default();
    let status = line.watch(sh, |stream, text| {
        pass_on(stream, text);
        tally.read(text);
    })?;
    if !status.success() && tally.failed == 0 {
        tally += Tally::of(false);
    }
    Ok((status.success(), tally))
}

fn has_nextest(sh: &Shell) -> bool {
    cmd!(sh, "cargo nextest --version").quiet().ignore_stdout().ignore_stderr().run().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_reaches_both_runners() {
        let sh = Shell::new().unwrap();
        for line in [tests(&sh, Some("queue")), doctests("/built", Some("queue"))] {
            assert!(line.to_string().ends_with(" queue"), "{line}");
        }
    }

    #[test]
    fn a_runner_that_does_not_start_its_tests_counts_as_a_failure() {
        let sh = Shell::new().unwrap();
        let (success, tally) = count(&sh, &CommandLine::cargo("test --no-such-option")).unwrap();
        assert!(!success);
        assert_eq!(tally, Tally { passed: 0, failed: 1 });
    }
}
