//! A3C: several actors learn to balance a pole, each in a process of its own, with shared parameters and
//! without locks.
//!
//! What to see: the mean reward rises to 195 of 200 over the last 100 episodes, which is when this problem
//! counts as solved. Each actor plays with a snapshot of the parameters, and adds what it has learnt to the
//! shared ones while the others do the same. Rewards come back through a queue. `--curve PATH` draws the
//! learning curve.
//!
//! (V. Mnih and others: Asynchronous Methods for Deep Reinforcement Learning, 2016; the pole is described in
//! `cart_pole.rs`.)

mod actor;
mod cart_pole;
mod curve;
mod descent;
mod network;
mod options;
mod random;
mod training;

use std::io::{self, Write as _};
use std::process::ExitCode;

use crate::curve::Curve;
use crate::options::{HELP, Options};
use crate::training::Progress;

/// What a shell expects of a program that was called in a wrong way.
const USAGE_ERROR: u8 = 2;

fn main() -> anyhow::Result<ExitCode> {
    let options = match Options::parse(lexopt::Parser::from_env()) {
        Ok(options) => options,
        Err(error) => {
            writeln!(io::stderr(), "a3c: {error:#}\ntry --help")?;
            return Ok(ExitCode::from(USAGE_ERROR));
        }
    };
    if options.help {
        writeln!(io::stdout(), "{HELP}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let outcome = training::run(options.actors, options.seed, options.episodes, tell)?;
    let Progress { n_episodes, n_steps, mean, .. } = outcome.progress;
    let verdict = if outcome.is_solved { "solved" } else { "not solved" };
    writeln!(
        io::stdout(),
        "\n{verdict} after {n_episodes} episodes ({n_steps} steps): mean reward {mean:.1} over the last 100\n\
         {} actor(s), {} changes of {} shared parameters, {} bytes copied by the transport",
        options.actors,
        outcome.n_changes,
        network::N_PARAMETERS,
        outcome.bytes_copied,
    )?;
    if let Some(path) = &options.curve {
        Curve::new(&outcome.episodes).save(path)?;
        writeln!(io::stdout(), "learning curve: {}", path.display())?;
    }
    Ok(if options.check && !outcome.is_solved { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn tell(progress: Progress) -> anyhow::Result<()> {
    let Progress { n_episodes, n_steps, best, mean } = progress;
    writeln!(
        io::stdout(),
        "episode {n_episodes:>5}  steps {n_steps:>7}  best reward {best:>3}  mean of the last 100 {mean:>5.1}"
    )?;
    Ok(())
}
