//! `cargo xtask kill`: kills children in every operation, and prints how many positions were covered.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks to its user")]

use std::process::ExitCode;

use lexopt::prelude::*;
use tensorferry_kit::Random;
use tensorferry_kit::kill::{Coverage, Operation, PLANTS, Plan, Plant, cover};

const HELP: &str = "\
cargo xtask kill [--exhaustive | --sample N] [--operation NAME].. [--seed S] [--json]
cargo xtask kill --plant NAME [--operation NAME].. [--json]
cargo xtask kill --plants | --list

  --exhaustive      kill at every position
  --sample N        kill at N positions of each operation and at the last (8)
  --operation NAME  this operation only; may be repeated
  --seed S          where the sample's random numbers start
  --json            one JSON object for each operation, in a line of its own
  --plant NAME      plant this bug first: the run has to fail then
  --plants          plant one bug after the other; fails when a run does not
  --list            the names of operations and bugs
";

/// The exit code (`FOUND` of `xtask/src/kill.rs`) when what a killed process has left is not as it should be:
/// what a planted bug has to lead to. Anything else that goes wrong has another one.
const FOUND: u8 = 3;

struct Options {
    n_drawn: Option<usize>,
    operations: Vec<Operation>,
    random: Random,
    json: bool,
}

fn main() -> ExitCode {
    match Options::parse() {
        Ok(Some(options)) => run(&options),
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}\n\n{HELP}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    /// `None` when only something to read was wanted.
    fn parse() -> Result<Option<Self>, lexopt::Error> {
        let mut options = Self {
            n_drawn: Some(8),
            operations: Vec::new(),
            random: Random::from_environment(),
            json: false,
        };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Long("exhaustive") => options.n_drawn = None,
                Long("sample") => options.n_drawn = Some(parser.value()?.parse()?),
                Long("seed") => options.random = Random::from_seed(parser.value()?.parse()?),
                Long("json") => options.json = true,
                // The caller has planted it; here it decides where to look.
                Long("plant") => options.look_for(&parser.value()?.string()?)?,
                Long("list") => {
                    list();
                    return Ok(None);
                }
                Long("list-plants") => {
                    PLANTS.iter().for_each(|plant| println!("{}", plant.name));
                    return Ok(None);
                }
                Long("operation") => {
                    let name = parser.value()?.string()?;
                    let unknown = || lexopt::Error::Custom(format!("no operation is called `{name}`").into());
                    options.operations.push(Operation::with_name(&name).ok_or_else(unknown)?);
                }
                Long("help") | Short('h') => {
                    print!("{HELP}");
                    return Ok(None);
                }
                other => return Err(other.unexpected()),
            }
        }
        if options.operations.is_empty() {
            options.operations = Operation::ALL.to_vec();
        }
        Ok(Some(options))
    }

    /// Every position of the operations in which this bug shows.
    fn look_for(&mut self, name: &str) -> Result<(), lexopt::Error> {
        let unknown = || lexopt::Error::Custom(format!("no planted bug is called `{name}`").into());
        let plant = Plant::with_name(name).ok_or_else(unknown)?;
        self.n_drawn = None;
        self.operations.extend(plant.noticed_in);
        Ok(())
    }
}

fn run(options: &Options) -> ExitCode {
    let seed = options.random.seed();
    if !options.json {
        println!(
            "{:<20} {:>9} {:>9} {:>13} {:>9}",
            "operation", "covered", "in all", "instructions", "seconds"
        );
    }
    let (mut covered, mut in_all, mut failed) = (0, 0, Vec::new());
    for &operation in &options.operations {
        let mut plan = match options.n_drawn {
            None => Plan::Exhaustive,
            Some(n_drawn) => Plan::Sampled { n_drawn, random: options.random.clone() },
        };
        match std::panic::catch_unwind(move || cover(operation, &mut plan)) {
            Ok(Ok(coverage)) => {
                covered += coverage.positions_covered;
                in_all += coverage.positions_in_all;
                show(&coverage, options.json);
            }
            Ok(Err(errno)) => {
                eprintln!("error: this process may not trace its children: {errno}");
                return ExitCode::FAILURE;
            }
            Err(_) => failed.push(operation.name()),
        }
    }
    if options.json {
        let total = serde_json::json!({
            "positions_covered": covered, "positions_in_all": in_all, "failed": failed, "seed": seed,
        });
        println!("{total}");
    } else {
        println!("{:<20} {covered:>9} {in_all:>9}   seed {seed}", "all");
        failed.iter().for_each(|name| println!("FAILED: {name}"));
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FOUND) }
}

fn list() {
    println!("operations");
    Operation::ALL.iter().for_each(|operation| println!("  {}", operation.name()));
    println!("bugs");
    PLANTS.iter().for_each(|plant| println!("  {:<24} {}", plant.name, plant.bug));
}

fn show(coverage: &Coverage, json: bool) {
    if json {
        println!("{}", serde_json::to_string(coverage).unwrap_or_default());
        return;
    }
    let Coverage { operation, positions_covered, positions_in_all, instructions, elapsed } = coverage;
    let seconds = elapsed.as_secs_f64();
    println!(
        "{operation:<20} {positions_covered:>9} {positions_in_all:>9} {instructions:>13} {seconds:>9.1}"
    );
}
