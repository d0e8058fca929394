//! `cargo xtask fuzz [TARGET..] [--seconds N]`: the fuzz targets of `tests/fuzz`, each for a while, from its
//! corpus on.
//!
//! The flags are those of cargo-fuzz without a sanitizer of addresses: what a bad offset hits here is a
//! mapping's closed part, which is a fault without its help. So it takes a nightly compiler and a C++
//! compiler (libFuzzer is C++), and no further tool.

use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::thread;

use anyhow::{Context as _, anyhow, bail, ensure};
use lexopt::prelude::*;
use xshell::{Shell, cmd};

use crate::command_line::{CommandLine, Stream, pass_on};

const MANIFEST: &str = "tests/fuzz/Cargo.toml";
const TARGETS: &str = "tests/fuzz/fuzz_targets";
const CORPUS: &str = "tests/fuzz/corpus";
/// Builds for fuzzing lie apart, and so does what a run finds.
const BUILDS: &str = "target/fuzz";
const FOUND: &str = "target/fuzz/corpus";
const ARTIFACTS: &str = "target/fuzz/artifacts/";
/// All that this makes of the compiler is that each branch taken is counted.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";
const DEFAULT_SECONDS: u32 = 60;
/// As many as every machine has processors for.
const AT_A_TIME: usize = 2;

/// What to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// All when empty.
    pub(crate) targets: Vec<String>,
    pub(crate) seconds_each: Option<u32>,
}

impl Options {
    pub(crate) fn parse(args: &mut lexopt::Parser) -> anyhow::Result<Self> {
        let mut options = Self::default();
        while let Some(arg) = args.next()? {
            match arg {
                Long("seconds") => options.seconds_each = Some(args.value()?.parse()?),
                Value(target) => options.targets.push(target.string()?),
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(options)
    }
}

/// Runs them, two at a time; the first two of which one finds something end it.
pub(crate) fn run(sh: &Shell, options: &Options) -> anyhow::Result<ExitCode> {
    if let Some(reason) = missing(sh) {
        bail!("{reason}");
    }
    let all = targets(sh)?;
    for target in &options.targets {
        ensure!(all.contains(target), "no fuzz target is called `{target}`; there are: {}", all.join(", "));
    }
    let chosen = if options.targets.is_empty() { &all } else { &options.targets };
    let host = host(sh)?;
    let build = line("build", &host);
    println!("{build}");
    ensure!(build.run(sh)?.success(), "`{build}` failed");
    let seconds = options.seconds_each.unwrap_or(DEFAULT_SECONDS);
    let root = sh.current_dir();
    // Each target runs on one processor.
    for together in chosen.chunks(AT_A_TIME) {
        let runs: Vec<_> = thread::scope(|scope| {
            let (root, host) = (&root, &host);
            let mut threads = Vec::new();
            for target in together {
                threads.push(scope.spawn(move || run_one(root, host, target, seconds)));
            }
            threads
                .into_iter()
                .map(|thread| thread.join().map_err(|_| anyhow!("the thread of a target panicked")))
                .collect()
        });
        let mut has_found = false;
        for (target, run) in together.iter().zip(runs) {
            let Run { line, status, n_runs, told } = run??;
            println!("{line}");
            if !status.success() {
                has_found = true;
                told.iter().for_each(|(stream, text)| pass_on(*stream, text));
                println!(
                    "`{target}` found something; put its artifact into {CORPUS}/{target}, and it stays tested"
                );
                continue;
            }
            println!("{target}: {n_runs} runs in {seconds} s, nothing found");
        }
        if has_found {
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// How a target ran.
struct Run {
    line: CommandLine,
    status: ExitStatus,
    n_runs: String,
    told: Vec<(Stream, String)>,
}

fn run_one(root: &Path, host: &str, target: &str, seconds: u32) -> anyhow::Result<Run> {
    let sh = Shell::new()?;
    sh.change_dir(root);
    let found = format!("{FOUND}/{target}");
    sh.create_dir(&found)?;
    sh.create_dir(ARTIFACTS)?;
    let line = line("run", host).args(["--quiet", "--bin", target, "--"]).args([
        found,
        format!("{CORPUS}/{target}"),
        format!("-max_total_time={seconds}"),
        format!("-artifact_prefix={ARTIFACTS}{target}-"),
        "-timeout=30".to_owned(),
        "-rss_limit_mb=4096".to_owned(),
        "-print_final_stats=1".to_owned(),
    ]);
    let mut n_runs = String::new();
    let mut told = Vec::new();
    let status = line.watch(&sh, |stream, text| {
        if let Some(n) = text.strip_prefix("stat::number_of_executed_units:") {
            n.trim().clone_into(&mut n_runs);
        }
        told.push((stream, text.to_owned()));
    })?;
    Ok(Run { line, status, n_runs, told })
}

/// Why nothing can be fuzzed here; `None` when it can.
pub(crate) fn missing(sh: &Shell) -> Option<&'static str> {
    let works = |program: &str, args: &[&str]| {
        cmd!(sh, "{program} {args...}").quiet().ignore_stdout().ignore_stderr().run().is_ok()
    };
    if !works("cargo", &["+nightly", "--version"]) {
        return Some("fuzzing needs a nightly compiler: `rustup toolchain install nightly`");
    }
    let compilers = ["c++", "g++", "clang++"];
    if !compilers.iter().any(|compiler| works(compiler, &["--version"])) {
        return Some("fuzzing needs a C++ compiler, because libFuzzer is built with it");
    }
    None
}

fn targets(sh: &Shell) -> anyhow::Result<Vec<String>> {
    let files = sh.read_dir(TARGETS)?;
    let names = files.iter().filter_map(|file| Some(file.file_stem()?.to_str()?.to_owned()));
    Ok(names.collect())
}

/// The flags must not reach build scripts and macros, which is so only when a target is named.
fn host(sh: &Shell) -> anyhow::Result<String> {
    let version = cmd!(sh, "rustc +nightly -vV").quiet().read()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("`rustc +nightly -vV` names no host")?.to_owned())
}

/// The lock file is the fuzzers' own, so that nothing else would notice when a dependency of ours is missing
/// in it.
fn line(verb: &str, host: &str) -> CommandLine {
    CommandLine::cargo(&format!(
        "+nightly {verb} --locked --release --manifest-path {MANIFEST} --target-dir {BUILDS} --target {host}"
    ))
    .env("RUSTFLAGS", RUSTFLAGS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_and_seconds_are_read() {
        let parse = |args: &[&str]| Options::parse(&mut lexopt::Parser::from_args(args));
        let options = parse(&["payload", "--seconds", "5", "join"]).unwrap();
        assert_eq!(options.targets, ["payload", "join"]);
        assert_eq!(options.seconds_each, Some(5));
        assert!(parse(&["--second", "5"]).is_err());
    }

    #[test]
    fn every_target_has_a_corpus_and_is_in_the_manifest() {
        let sh = Shell::new().unwrap();
        sh.change_dir(crate::root().unwrap());
        let manifest = sh.read_file(MANIFEST).unwrap();
        let targets = targets(&sh).unwrap();
        assert!(targets.len() > 5, "{targets:?}");
        for target in targets {
            assert!(manifest.contains(&format!("name = \"{target}\"")), "{target}");
            let corpus = sh.read_dir(format!("{CORPUS}/{target}")).unwrap();
            assert!(!corpus.is_empty(), "{target}");
        }
    }
}
