//! `cargo xtask bench [NAME] [ARGS..]`: the benches of the package `benches`; ARGS go to the bench itself.
//! Without NAME the table, which needs the program of the peers.

use std::process::ExitCode;

use anyhow::{Context as _, bail};
use xshell::Shell;

use crate::command_line::CommandLine;
use crate::counts;
use crate::workspace::Workspace;

const PACKAGE: &str = "tensorferry-benches";
/// The bench that is meant when none is named.
const TABLE: &str = "table";
/// A workspace of its own, so that nothing but the table waits for the peers.
const PEERS: &str = "benches/peers/Cargo.toml";
const PEERS_TARGET: &str = "target/peers";
const PEERS_PROGRAM: &str = "target/peers/release/tensorferry-bench-peers";

const HELP: &str = "\
cargo xtask bench [--quick] [--rounds N] [--seconds S] [--row NAME].. [--python PATH] [--out DIR] [--check]
cargo xtask bench NAME [ARGS..]        the bench of that name; ARGS go to it
cargo xtask bench --list               the names of the benches
cargo xtask bench --counts [--record]  instructions of single calls against what was recorded; needs valgrind

  --quick        one round of short measurements, to see whether all of it runs
  --rounds N     how often everything is measured (7)
  --seconds S    for how long each stream is (0.3)
  --row NAME     only rows whose name holds NAME; several are possible
  --python PATH  a Python with torch, whose columns are left out otherwise
  --out DIR      where the table and its plot go (docs/bench for the whole table; nowhere for --quick and --row)
  --check        only the rows that have bounds, up to three times; fails where one of them falls short
";

/// Lists the benches, or runs one of them.
pub(crate) fn run(sh: &Shell, args: &[String]) -> anyhow::Result<ExitCode> {
    if args == ["--help"] {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    if let Some((first, rest)) = args.split_first()
        && first == "--counts"
    {
        return counts::run(sh, rest);
    }
    let workspace = Workspace::load(sh)?;
    let package =
        workspace.package(PACKAGE).with_context(|| format!("the workspace has no package `{PACKAGE}`"))?;
    if args == ["--list"] {
        package.benches.iter().for_each(|name| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    }
    let (name, args) = chosen(&package.benches, args)?;
    let mut args = args.to_vec();
    if name == TABLE && !args.iter().any(|arg| arg == "--peers") {
        let peers = CommandLine::cargo("build --release").args([
            "--manifest-path",
            PEERS,
            "--target-dir",
            PEERS_TARGET,
        ]);
        println!("{peers}");
        // Without the network the peers may not be there; the table says so then.
        if peers.run(sh)?.success() {
            let program = sh.current_dir().join(PEERS_PROGRAM);
            args.extend(["--peers".to_owned(), program.display().to_string()]);
        }
    }
    let line = line(name, &args);
    println!("{line}");
    let status = line.run(sh)?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The bench that is meant, and what goes to it.
fn chosen<'a>(benches: &'a [String], args: &'a [String]) -> anyhow::Result<(&'a str, &'a [String])> {
    let (wanted, rest) = match args.split_first() {
        Some((name, rest)) if !name.starts_with('-') => (name.as_str(), rest),
        _ => (TABLE, args),
    };
    match benches.iter().find(|name| *name == wanted) {
        Some(name) => Ok((name, rest)),
        None => bail!("no bench is called `{wanted}`; there are: {}", benches.join(", ")),
    }
}

/// The call of cargo. Benches are named: `cargo bench` alone would also start the empty bench of a library,
/// which knows none of criterion's arguments.
fn line(name: &str, args: &[String]) -> CommandLine {
    let line = CommandLine::cargo(&format!("bench -p {PACKAGE} --bench {name}"));
    if args.is_empty() { line } else { line.args(["--"]).args(args) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(args: &[&str]) -> anyhow::Result<String> {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let (benches, args) = (owned(&["hogwild", "queue", "table"]), owned(args));
        let (name, args) = chosen(&benches, &args)?;
        Ok(line(name, args).to_string())
    }

    #[test]
    fn the_table_or_one_bench_with_its_arguments() {
        let table = "cargo bench -p tensorferry-benches --bench table -- --quick";
        assert_eq!(shown(&["--quick"]).unwrap(), table);
        assert_eq!(shown(&[]).unwrap(), "cargo bench -p tensorferry-benches --bench table");
        let one = "cargo bench -p tensorferry-benches --bench hogwild -- --python python3";
        assert_eq!(shown(&["hogwild", "--python", "python3"]).unwrap(), one);
    }

    #[test]
    fn a_bench_that_does_not_exist_is_refused_with_the_names_of_those_that_do() {
        let error = shown(&["quue"]).unwrap_err().to_string();
        assert!(error.contains("quue") && error.contains("hogwild, queue, table"), "{error}");
    }
}
