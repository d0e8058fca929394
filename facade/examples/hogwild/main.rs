//! Hogwild: several processes train one network whose parameters lie in shared memory, without locks.
//!
//! What to see: the loss falls and the accuracy rises as if one process trained; with a process on every core
//! it goes about as many times faster; and the transport copies nothing, because parameters and images are
//! sent as handles. `--copy` sends the parameters by value instead, and shows what that costs.
//!
//! (B. Recht, C. Re, S. Wright, F. Niu: Hogwild: A Lock-Free Approach to Parallelizing Stochastic Gradient
//! Descent, 2011.)

mod digits;
mod exchange;
mod network;
mod options;
mod random;
mod training;
mod worker;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::ensure;
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

use crate::digits::Digits;
use crate::network::{Network, Score};
use crate::options::{HELP, Options};
use crate::training::{Outcome, Transport};
use crate::worker::Recipe;

/// What a shell expects of a program that was called in a wrong way.
const USAGE_ERROR: u8 = 2;

fn main() -> anyhow::Result<ExitCode> {
    let digits = Digits::load()?;
    let options = match Options::parse(lexopt::Parser::from_env(), digits.training.len()) {
        Ok(options) => options,
        Err(error) => {
            writeln!(io::stderr(), "hogwild: {error:#}\ntry --help")?;
            return Ok(ExitCode::from(USAGE_ERROR));
        }
    };
    if options.help {
        writeln!(io::stdout(), "{HELP}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let Options { processes, epochs, hidden, batch, seed, transport, least_accuracy, json, .. } = options;
    let recipe = Recipe { network: Network { n_hidden: hidden }, epochs, batch, seed };
    let bar = ProgressBar::new(epochs as u64)
        .with_style(ProgressStyle::with_template("{msg} [{wide_bar}] {pos}/{len} epochs")?);

    let mut outcomes = Vec::new();
    if processes > 1 {
        bar.set_message("1 process");
        let quiet = |epoch, _| {
            bar.set_position(epoch as u64);
            Ok(())
        };
        outcomes.push(training::run(&digits, recipe, 1, transport, quiet)?);
    }
    bar.set_message(format!("{processes} process(es)"));
    let told = |epoch, score| {
        bar.set_position(epoch as u64);
        bar.suspend(|| tell(epoch, score))
    };
    let outcome = training::run(&digits, recipe, processes, transport, told)?;
    bar.finish_and_clear();
    outcomes.push(outcome);

    writeln!(io::stdout(), "\n{}", table(&outcomes))?;
    if json {
        writeln!(io::stdout(), "{}", as_json(&outcome, epochs))?;
    }
    if let Some(least) = least_accuracy {
        let Outcome { accuracy, bytes_copied, .. } = outcome;
        ensure!(accuracy >= least, "an accuracy of {accuracy:.4}, where {least} was to be reached");
        let copies = transport == Transport::ByValue;
        ensure!((bytes_copied > 0) == copies, "the transport copied {bytes_copied} bytes");
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(epoch: usize, score: Score) -> anyhow::Result<()> {
    let (loss, accuracy) = (score.mean_loss(), score.accuracy());
    writeln!(io::stdout(), "epoch {epoch:>3}  loss {loss:.4}  accuracy while training {accuracy:.4}")?;
    Ok(())
}

fn table(outcomes: &[Outcome]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header([
        "processes",
        "accuracy, held out",
        "samples/s",
        "times one",
        "bytes copied by the transport",
        "bytes of local snapshots",
    ]);
    for outcome in outcomes {
        table.add_row([
            outcome.processes.to_string(),
            format!("{:.4}", outcome.accuracy),
            format!("{:.0}", outcome.samples_per_second),
            format!("{:.2}", outcome.samples_per_second / outcomes[0].samples_per_second),
            outcome.bytes_copied.to_string(),
            outcome.bytes_snapshot.to_string(),
        ]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn as_json(outcome: &Outcome, epochs: usize) -> serde_json::Value {
    serde_json::json!({
        "accuracy": outcome.accuracy,
        "samples_per_second": outcome.samples_per_second,
        "processes": outcome.processes,
        "epochs": epochs,
        "bytes_copied": outcome.bytes_copied,
        "bytes_snapshot": outcome.bytes_snapshot,
    })
}
