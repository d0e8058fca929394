//! The command line.

use std::num::NonZero;
use std::thread;

use anyhow::Context as _;
use lexopt::prelude::*;

use crate::training::Transport;

pub(crate) const HELP: &str = "\
Trains a network on images of handwritten digits, with several processes that share its parameters.

Usage: hogwild [OPTIONS]

  --processes N  how many processes train [default: one for each core]
  --epochs N     how often they go through all images, together [default: 200]
  --hidden N     how many hidden units the network has [default: 128]
  --batch N      how many images make one step [default: 32]
  --seed N       where the parameters and the order of the images come from [default: 0]
  --copy         send the parameters by value instead of sharing them, to see what that costs
  --check A      fail where the accuracy is below A (0.95, say), or the transport copied although it need not
  --json         print a JSON object as the last line
  --help         print this";

/// A domain has room for 63 processes, and the parent is one of them.
const MAX_PROCESSES: usize = 62;

/// What the user asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Options {
    pub(crate) processes: usize,
    pub(crate) epochs: usize,
    pub(crate) hidden: usize,
    pub(crate) batch: usize,
    pub(crate) seed: u64,
    pub(crate) transport: Transport,
    pub(crate) least_accuracy: Option<f64>,
    pub(crate) json: bool,
    pub(crate) help: bool,
}

impl Default for Options {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            processes: cores.min(MAX_PROCESSES),
            epochs: 200,
            hidden: 128,
            batch: 32,
            seed: 0,
            transport: Transport::Shared,
            least_accuracy: None,
            json: false,
            help: false,
        }
    }
}

impl Options {
    /// Reads the command line; `n_images` is how many there are to learn from.
    pub(crate) fn parse(mut arguments: lexopt::Parser, n_images: usize) -> anyhow::Result<Self> {
        let mut options = Self::default();
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("processes") => options.processes = count(&mut arguments, "processes", MAX_PROCESSES)?,
                Long("epochs") => options.epochs = count(&mut arguments, "epochs", 1_000_000)?,
                Long("hidden") => options.hidden = count(&mut arguments, "hidden", 1 << 16)?,
                Long("batch") => options.batch = count(&mut arguments, "batch", n_images)?,
                Long("seed") => {
                    let value = arguments.value()?;
                    options.seed =
                        value.parse().with_context(|| format!("--seed is a whole number, not {value:?}"))?;
                }
                Long("copy") => options.transport = Transport::ByValue,
                Long("check") => {
                    let value = arguments.value()?;
                    let accuracy = value.parse().ok().filter(|accuracy| (0.0..=1.0).contains(accuracy));
                    let accuracy = accuracy.with_context(|| {
                        format!("--check is a number from 0 to 1, not {}", value.display())
                    })?;
                    options.least_accuracy = Some(accuracy);
                }
                Long("json") => options.json = true,
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
