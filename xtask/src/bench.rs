//! `cargo xtask bench [NAME] [ARGS..]`: the benches of the package `benches`; ARGS go to the bench itself.

use std::process::ExitCode;

use anyhow::{Context as _, bail, ensure};
use xshell::Shell;

use crate::cargo::CargoLine;
use crate::workspace::Workspace;

const PACKAGE: &str = "tensorferry-benches";

/// Lists the benches, or runs one or all of them.
pub(crate) fn run(sh: &Shell, args: &[String]) -> anyhow::Result<ExitCode> {
    let workspace = Workspace::load(sh)?;
    let package =
        workspace.package(PACKAGE).with_context(|| format!("the workspace has no package `{PACKAGE}`"))?;
    if args == ["--list"] {
        package.benches.iter().for_each(|name| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    }
    let line = line(&package.benches, args)?;
    println!("{line}");
    let status = line.run(sh)?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The call of cargo. Benches are named one by one: `cargo bench` alone would also start the empty bench of a library,
/// which knows none of criterion's arguments.
fn line(benches: &[String], args: &[String]) -> anyhow::Result<CargoLine> {
    let (chosen, rest) = match args.split_first() {
        Some((name, rest)) if !name.starts_with('-') => {
            if !benches.contains(name) {
                bail!("no bench is called `{name}`; there are: {}", benches.join(", "));
            }
            (std::slice::from_ref(name), rest)
        }
        _ => (benches, args),
    };
    ensure!(!chosen.is_empty(), "the package `{PACKAGE}` has no benches");
    let mut line = CargoLine::new(&format!("bench -p {PACKAGE}"));
    for name in chosen {
        line = line.args(["--bench", name]);
    }
    if !rest.is_empty() {
        line = line.args(["--"]).args(rest);
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(args: &[&str]) -> anyhow::Result<String> {
        let owned = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        line(&owned(&["hogwild", "queue"]), &owned(args)).map(|line| line.to_string())
    }

    #[test]
    fn all_benches_or_one_with_its_arguments() {
        let all = "cargo bench -p tensorferry-benches --bench hogwild --bench queue -- --quick";
        assert_eq!(shown(&["--quick"]).unwrap(), all);
        let one = "cargo bench -p tensorferry-benches --bench hogwild -- --python python3";
        assert_eq!(shown(&["hogwild", "--python", "python3"]).unwrap(), one);
    }

    #[test]
    fn a_bench_that_does_not_exist_is_refused_with_the_names_of_those_that_do() {
        let error = shown(&["quue"]).unwrap_err().to_string();
        assert!(error.contains("quue") && error.contains("hogwild, queue"), "{error}");
    }
}
