//! `cargo xtask bench --counts [--record]`: how many instructions an operation takes, as callgrind counts
//! them, against what was recorded. The load of the machine does not change them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use xshell::{Shell, cmd};

use crate::command_line::CommandLine;
use crate::workspace::Workspace;

const RECORD: &str = "docs/bench/counts.json";
/// In the folder that cargo builds into.
const PROGRAM: &str = "release/steps";
/// Where callgrind writes, in that folder: a file for each thread, with the thread's number behind it.
const PROFILE: &str = "callgrind.out";
/// What it writes of the thread that begins. The service thread looks around every so often, and so does more
/// where the same takes longer.
const PROFILE_OF_MAIN: &str = "callgrind.out-01";
/// More than so many percent above what was recorded is a regression, and as much below wants a new record.
const TOLERANCE_PERCENT: u64 = 5;
/// So many instructions more or less are none: the same sources in another folder have other symbol names,
/// and with them the compiler decides otherwise what to inline (7 of 337 instructions with the `bench`
/// profile; 17 with `release`, whose many units of code are also cut otherwise, which is why that profile is
/// not counted).
const TOLERANCE_INSTRUCTIONS: u64 = 24;

/// An operation of `benches/src/bin/steps.rs`.
struct Operation {
    name: &'static str,
    what: &'static str,
    /// How often it is done in the shorter run.
    few: u64,
    /// And how much more often in the longer one.
    more: u64,
}

const OPERATIONS: &[Operation] = &[
    Operation { name: "allocate", what: "allocating and dropping 4 KiB", few: 500, more: 2000 },
    Operation { name: "clone", what: "cloning a tensor and dropping the clone", few: 500, more: 2000 },
    Operation { name: "number", what: "putting and getting a number", few: 500, more: 2000 },
    Operation { name: "put", what: "putting a tensor", few: 500, more: 2000 },
    Operation { name: "one", what: "putting and getting a tensor, and dropping it", few: 500, more: 2000 },
    Operation { name: "stamped", what: "the same with a number beside it", few: 500, more: 2000 },
    Operation {
        name: "fresh",
        what: "putting, getting and dropping a tensor with 4 KiB allocated for it",
        few: 500,
        more: 2000,
    },
    Operation { name: "lock", what: "taking a lock and releasing it", few: 500, more: 2000 },
    Operation { name: "permit", what: "taking a permit and giving it back", few: 500, more: 2000 },
    Operation { name: "hundred", what: "putting and getting 100 tensors", few: 20, more: 60 },
];

/// Counts, and holds each count against the record, or makes a new one.
pub(crate) fn run(sh: &Shell, args: &[String]) -> anyhow::Result<ExitCode> {
    let records = match args {
        [] => false,
        [arg] if arg == "--record" => true,
        _ => bail!("`--counts` is followed by `--record` or by nothing"),
    };
    if let Some(reason) = missing(sh) {
        bail!("{reason}");
    }
    let build = CommandLine::cargo("build --profile bench -p tensorferry-benches --bin steps");
    println!("{build}");
    ensure!(build.run(sh)?.success(), "`{build}` failed");
    let built = PathBuf::from(Workspace::load(sh)?.target_dir);
    let mut counts = BTreeMap::new();
    for operation in OPERATIONS {
        let few = instructions(sh, &built, operation.name, operation.few)?;
        let many = instructions(sh, &built, operation.name, operation.few + operation.more)?;
        counts.insert(operation.name, many.saturating_sub(few) / operation.more);
    }
    let compiler = cmd!(sh, "rustc --version").quiet().read()?;
    if records {
        let record = json!({ "compiler": compiler, "instructions": counts });
        sh.write_file(RECORD, format!("{record:#}\n"))?;
    }
    let record: Value = serde_json::from_str(&sh.read_file(RECORD)?)?;
    if record["compiler"] != compiler.as_str() {
        println!("recorded with {}, counted with {compiler}", record["compiler"]);
    }
    let mut holds = true;
    for operation in OPERATIONS {
        let (count, recorded) =
            (counts[operation.name], record["instructions"][operation.name].as_u64().unwrap_or(0));
        let verdict = verdict(count, recorded);
        holds &= verdict != Verdict::More;
        println!("{} {count:>7} instructions, recorded {recorded:>7}: {}", verdict.word(), operation.what);
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Why nothing can be counted here; `None` when it can.
pub(crate) fn missing(sh: &Shell) -> Option<&'static str> {
    let works = cmd!(sh, "valgrind --version").quiet().ignore_stdout().ignore_stderr().run().is_ok();
    (!works).then_some("counting instructions needs valgrind: `apt-get install valgrind`")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Holds,
    More,
    Less,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Holds => "holds ",
            Verdict::More => "FAILS ",
            Verdict::Less => "better",
        }
    }
}

fn verdict(count: u64, recorded: u64) -> Verdict {
    let slack = (recorded * TOLERANCE_PERCENT / 100).max(TOLERANCE_INSTRUCTIONS);
    if count > recorded + slack {
        Verdict::More
    } else if count + slack < recorded {
        Verdict::Less
    } else {
        Verdict::Holds
    }
}

/// The instructions of the main thread in a whole run of the program, its start included.
fn instructions(sh: &Shell, built: &Path, operation: &str, times: u64) -> anyhow::Result<u64> {
    let (program, of_main) = (built.join(PROGRAM), built.join(PROFILE_OF_MAIN));
    let profile = format!("--callgrind-out-file={}", built.join(PROFILE).display());
    let times = times.to_string();
    // No count of another run is taken for one of this.
    sh.remove_path(&of_main)?;
    let line =
        cmd!(sh, "valgrind --tool=callgrind --separate-threads=yes {profile} {program} {operation} {times}");
    let output = line.quiet().ignore_status().output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "`{} {operation} {times}` under valgrind failed:\n{told}",
        program.display()
    );
    let written = sh.read_file(&of_main)?;
    total(&written).with_context(|| format!("callgrind wrote no count into {}:\n{told}", of_main.display()))
}

/// The number in callgrind's line `totals: 4065268`.
fn total(written: &str) -> Option<u64> {
    written.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_in_what_callgrind_writes() {
        let written = "events: Ir\n\nfn=(1) totals: 7\n1 30\n\ntotals: 4065268\n";
        assert_eq!(total(written), Some(4_065_268));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn more_is_a_regression_and_less_is_worth_a_record() {
        let verdicts = [1050, 1051, 950, 949].map(|count| verdict(count, 1000));
        assert_eq!(verdicts, [Verdict::Holds, Verdict::More, Verdict::Holds, Verdict::Less]);
        // A single call that is inlined or not is no change of what is done.
        let verdicts = [324, 325, 276, 275].map(|count| verdict(count, 300));
        assert_eq!(verdicts, [Verdict::Holds, Verdict::More, Verdict::Holds, Verdict::Less]);
        // What was never recorded is not let through.
        assert_eq!(verdict(100, 0), Verdict::More);
    }
}
