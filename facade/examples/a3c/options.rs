//! The command line.

use std::path::PathBuf;

use anyhow::Context as _;
use lexopt::prelude::*;
use tensorferry::cpu_count;

pub(crate) const HELP: &str = "\
Several processes learn to balance a pole on a cart, with parameters that they share.

Usage: a3c [OPTIONS]

  --actors N    how many processes play and learn [default: one for each core, at most 8]
  --seed N      where all random numbers come from [default: 0]
  --episodes N  when to give up [default: 5000]
  --curve PATH  draw the learning curve, as an SVG picture
  --check       fail unless the mean reward of 100 episodes in a row reaches 195
  --help        print this";

/// A domain has room for 63 processes, and the parent is one of them.
const MAX_ACTORS: usize = 62;

/// The problem is so small that more would only wait for each other.
const MAX_ACTORS_BY_DEFAULT: usize = 8;

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) actors: usize,
    pub(crate) seed: u64,
    pub(crate) episodes: usize,
    pub(crate) curve: Option<PathBuf>,
    pub(crate) check: bool,
    pub(crate) help: bool,
}

impl Default for Options {
    fn default() -> Self {
        let actors = cpu_count().min(MAX_ACTORS_BY_DEFAULT);
        Self { actors, seed: 0, episodes: 5_000, curve: None, check: false, help: false }
    }
}

impl Options {
    pub(crate) fn parse(mut arguments: lexopt::Parser) -> anyhow::Result<Self> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("actors") => options.actors = count(&mut arguments, "actors", MAX_ACTORS)?,
                Long("episodes") => options.episodes = count(&mut arguments, "episodes", 1_000_000)?,
                Long("seed") => {
                    let value = arguments.value()?;
                    options.seed =
                        value.parse().with_context(|| format!("--seed is a whole number, not {value:?}"))?;
                }
                Long("curve") => options.curve = Some(arguments.value()?.into()),
                Long("check") => options.check = true,
                Short('h') | Long("help") => options.help = true,
                other => return Err(other.unexpected().into()),
            }
        }
        Ok(options)
    }
}

fn count(arguments: &mut lexopt::Parser, name: &str, max: usize) -> anyhow::Result<usize> {
    let value = arguments.value()?;
    let count = value.parse().ok();
    let in_range = count.filter(|count| (1..=max).contains(count));
    in_range.with_context(|| format!("--{name} is a whole number from 1 to {max}, not {}", value.display()))
}
