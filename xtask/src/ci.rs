//! `cargo xtask ci`: everything that has to hold, on any machine with Rust, without a GPU.
//!
//! All steps use the same profile, flags and target directory, so that what one step has built the next one
//! finds. Warnings are therefore made errors by arguments of clippy and rustdoc, never by `RUSTFLAGS`.

use std::process::ExitCode;
use std::time::Instant;

use xshell::Shell;

use crate::command_line::{CommandLine, pass_on};
use crate::tally::Tally;
use crate::workspace::{Package, Workspace};
use crate::{counts, fuzz, test, tidy};

/// The arguments with which `ci` runs an example that would otherwise take long, or want a GPU.
const EXAMPLE_ARGUMENTS: &[(&str, &str)] = &[
    ("a3c", "--actors 2 --check"),
    ("cuda_columns", "--simulate --rows 100"),
    ("cuda_ranks", "--simulate"),
    ("cuda_replicas", "--simulate"),
    ("hogwild", "--processes 2 --epochs 2 --hidden 16 --check 0.5"),
];

/// The features that examples need.
const EXAMPLE_FEATURES: &[(&str, &str)] =
    &[("cuda_columns", "cudarc"), ("cuda_ranks", "cuda"), ("cuda_replicas", "cudarc")];

/// One thing that has to hold.
struct Step {
    name: String,
    action: Action,
}

enum Action {
    /// A tool of the toolchain; it uses the terminal as it likes.
    Tool(CommandLine),
    /// A program of ours; killed where it hangs.
    Program(CommandLine),
    /// A test runner; its tests are counted.
    Tests(CommandLine),
    Tidy,
    /// Skipped, with the reason, where it cannot be done; so is the next one.
    Fuzz,
    Counts,
}

/// How long `ci` runs each fuzz target.
const FUZZ_SECONDS: u32 = 4;

/// Runs the steps in order up to the first that fails. The last line counts: tests, and each other step as
/// one.
pub(crate) fn run(sh: &Shell) -> anyhow::Result<ExitCode> {
    let steps = steps(sh, &Workspace::load(sh)?);
    let begin = Instant::now();
    let mut tally = Tally::default();
    let mut summary = Vec::new();
    let mut failed = None;
    for (i, step) in steps.iter().enumerate() {
        println!("\n[{}/{}] {}: {}", i + 1, steps.len(), step.name, step.action.shown());
        let step_begin = Instant::now();
        // A step that could not be run is a step that failed: the summary and the count still follow.
        let (success, counted) = step.action.run(sh).unwrap_or_else(|error| {
            println!("error: {error:#}");
            (false, Tally::of(false))
        });
        tally += counted;
        let verdict = if success { "ok" } else { "FAILED" };
        summary.push(format!("{:>8.1} s  {verdict:<6}  {}", step_begin.elapsed().as_secs_f64(), step.name));
        if !success {
            failed = Some(step);
            break;
        }
    }

    println!("\n{}", summary.join("\n"));
    println!("{:>8.1} s  in all, {} of {} steps", begin.elapsed().as_secs_f64(), summary.len(), steps.len());
    if let Some(step) = failed {
        println!("failed: {}; to repeat: {}", step.name, step.action.shown());
    }
    println!("{tally}");
    Ok(if failed.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is checked, the quickest first.
fn steps(sh: &Shell, workspace: &Workspace) -> Vec<Step> {
    let tool = |name: &str, line: CommandLine| Step { name: name.to_owned(), action: Action::Tool(line) };
    let docs =
        CommandLine::cargo("doc --workspace --no-deps --all-features").env("RUSTDOCFLAGS", "-D warnings");
    let mut steps = vec![
        tool("fmt", CommandLine::cargo("fmt --all --check")),
        Step { name: "tidy".to_owned(), action: Action::Tidy },
        tool("clippy", clippy("--workspace --all-targets --all-features")),
        tool("docs", docs),
        Step { name: "tests".to_owned(), action: Action::Tests(test::tests(sh, None)) },
        Step {
            name: "doctests".to_owned(),
            action: Action::Tests(test::doctests(&workspace.target_dir, None)),
        },
        Step { name: "fuzz".to_owned(), action: Action::Fuzz },
        Step { name: "counts".to_owned(), action: Action::Counts },
    ];
    steps.extend(
        test::cuda_configurations(sh).into_iter().map(|line| Step {
            name: "CUDA in another configuration".to_owned(),
            action: Action::Tests(line),
        }),
    );
    for package in workspace.crates() {
        let name = &package.name;
        steps.push(tool(&format!("{name} alone"), clippy(&format!("-p {name}"))));
        steps.push(tool(
            &format!("{name} without features"),
            clippy(&format!("-p {name} --no-default-features")),
        ));
    }
    // Each example is checked with the features that its crate has by itself, and runs with those of all
    // crates, with which the tests have built everything.
    let with_examples: Vec<_> = workspace.crates().chain(workspace.package("tensorferry")).collect();
    steps.extend(with_examples.iter().flat_map(|package| checks_of_examples(package)));
    steps.push(tool("examples", CommandLine::cargo("build --workspace --all-features --examples")));
    let folder = format!("{}/debug/examples", workspace.target_dir);
    steps.extend(with_examples.iter().flat_map(|package| examples(package, &folder)));
    steps
}

/// A check of the code that refuses warnings, with the same flags everywhere.
fn clippy(selection: &str) -> CommandLine {
    CommandLine::cargo(&format!("clippy {selection} -- -D warnings"))
}

/// Checks of a package's examples: of those together that need the same features.
fn checks_of_examples(package: &Package) -> impl Iterator<Item = Step> {
    let mut needed: Vec<_> = package.examples.iter().map(|example| features(example)).collect();
    needed.sort_unstable();
    needed.dedup();
    needed.into_iter().map(|needed| {
        let alike = package.examples.iter().filter(|example| features(example) == needed);
        let examples = alike.map(|example| format!(" --example {example}")).collect::<String>();
        let line = clippy(&format!("-p {}{examples}{needed}", package.name));
        Step { name: format!("{} examples alone", package.name), action: Action::Tool(line) }
    })
}

/// The features that an example needs, as an argument.
fn features(example: &str) -> String {
    let needed = EXAMPLE_FEATURES.iter().find(|(name, _)| *name == example);
    needed.map_or_else(String::new, |(_, features)| format!(" --features {features}"))
}

/// The examples of a package, which were built into this folder.
fn examples<'a>(package: &'a Package, folder: &'a str) -> impl Iterator<Item = Step> + 'a {
    package.examples.iter().map(move |example| {
        let arguments = EXAMPLE_ARGUMENTS.iter().find(|(name, _)| name == example);
        let arguments = arguments.map_or("", |(_, arguments)| arguments);
        let line = CommandLine::program(format!("{folder}/{example}")).args(arguments.split_whitespace());
        Step { name: format!("{} example {example}", package.name), action: Action::Program(line) }
    })
}

impl Action {
    /// The line that repeats this step by hand.
    fn shown(&self) -> String {
        match self {
            Action::Tool(line) | Action::Program(line) | Action::Tests(line) => line.to_string(),
            Action::Tidy => "cargo xtask tidy".to_owned(),
            Action::Fuzz => format!("cargo xtask fuzz --seconds {FUZZ_SECONDS}"),
            Action::Counts => "cargo xtask bench --counts".to_owned(),
        }
    }

    fn run(&self, sh: &Shell) -> anyhow::Result<(bool, Tally)> {
        let success = match self {
            Action::Tests(line) => return test::count(sh, line),
            Action::Tool(line) => line.run(sh)?.success(),
            Action::Program(line) => line.watch(sh, pass_on)?.success(),
            Action::Tidy => tidy::run(sh).map(|()| true)?,
            Action::Fuzz => {
                if let Some(reason) = fuzz::missing(sh) {
                    return Ok(skipped(reason));
                }
                let options = fuzz::Options { seconds_each: Some(FUZZ_SECONDS), ..fuzz::Options::default() };
                fuzz::run(sh, &options)? == ExitCode::SUCCESS
            }
            Action::Counts => {
                if let Some(reason) = counts::missing(sh) {
                    return Ok(skipped(reason));
                }
                counts::run(sh, &[])? == ExitCode::SUCCESS
            }
        };
        Ok((success, Tally::of(success)))
    }
}

fn skipped(reason: &str) -> (bool, Tally) {
    println!("SKIPPED: {reason}");
    (true, Tally::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, folder: &str, examples: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            manifest: format!("{folder}/Cargo.toml"),
            examples: examples.iter().map(|example| (*example).to_owned()).collect(),
            ..Package::default()
        }
    }

    #[test]
    fn every_crate_is_built_alone_and_every_example_runs() {
        let packages = vec![
            package("tensorferry", "facade", &["hogwild", "cuda_ranks", "a3c"]),
            package("tensorferry-os", "crates/tensorferry-os", &["map"]),
            package("tensorferry-tests", "tests", &["not_run"]),
        ];
        let sh = Shell::new().unwrap();
        let steps = steps(&sh, &Workspace { packages, target_dir: "/built".to_owned() });
        let lines: Vec<_> = steps.iter().map(|step| step.action.shown()).collect();
        for expected in [
            "cargo xtask tidy",
            "cargo clippy -p tensorferry-os -- -D warnings",
            "cargo clippy -p tensorferry-os --no-default-features -- -D warnings",
            "cargo clippy -p tensorferry-os --example map -- -D warnings",
            "cargo clippy -p tensorferry --example hogwild --example a3c -- -D warnings",
            "cargo clippy -p tensorferry --example cuda_ranks --features cuda -- -D warnings",
            "cargo build --workspace --all-features --examples",
            "/built/debug/examples/map",
            "/built/debug/examples/hogwild --processes 2 --epochs 2 --hidden 16 --check 0.5",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected} is not in {lines:#?}");
        }
        assert!(!lines.iter().any(|line| line.contains("not_run")), "{lines:#?}");
    }

    #[test]
    fn a_step_that_fails_is_counted() {
        let sh = Shell::new().unwrap();
        let fails = Action::Tool(CommandLine::cargo("no-such-command"));
        assert_eq!(fails.run(&sh).unwrap(), (false, Tally { passed: 0, failed: 1 }));
        let works = Action::Tool(CommandLine::cargo("--version"));
        assert_eq!(works.run(&sh).unwrap(), (true, Tally { passed: 1, failed: 0 }));
    }
}
