//! Data loaders: which batches come, what is said of those that do not, and workers that die.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod batches;
mod deaths;
mod drawn;
mod failures;
mod iterable;
mod order;
mod passes;
mod resumed;
mod structs;
mod whole;

use std::process::abort;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use tensorferry::data::rand_core::Rng as _;
use tensorferry::data::{Batch, DataLoaderBuilder, Dataset, LoadError, SampleRng, dataset};
use tensorferry::sync::{Event, RawValue};
use tensorferry::{BoxedError, DataLoader, Tensor};

/// Samples of an index and a random number.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Noisy {
    n_samples: usize,
}

#[dataset]
impl Dataset for Noisy {
    type Sample = (u64, [u64; 2]);

    fn len(&self) -> usize {
        self.n_samples
    }

    fn get(&self, index: usize, rng: &mut SampleRng) -> Result<Self::Sample, BoxedError> {
        Ok((index as u64, [rng.next_u64(), rng.next_u64()]))
    }
}

/// What happens when a sample is made.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Trouble {
    Error,
    Panic,
    Kill,
    Exit(i32),
    /// Aborts until it was made so often.
    AbortUntil(RawValue<u64>, u64),
    /// Says which process it is, then waits.
    Wait(RawValue<u32>, Event),
    /// Has another shape.
    Longer,
}

impl Trouble {
    /// What becomes of the sample with this number.
    fn at(&self, sample: u64) -> Result<Vec<u64>, BoxedError> {
        match self {
            Self::Error => return Err(format!("no sample {sample}").into()),
            Self::Panic => panic!("at sample {sample}"),
            Self::Kill => kill(Pid::this(), Signal::SIGKILL)?,
            Self::Exit(code) => std::process::exit(*code),
            Self::AbortUntil(n_calls, enough) => {
                if n_calls.fetch_add(1) + 1 < *enough {
                    abort();
                }
            }
            Self::Wait(says, go) => {
                says.set(std::process::id());
                go.wait()?;
            }
            Self::Longer => return Ok(vec![0, 0]),
        }
        Ok(vec![sample])
    }
}

/// Samples of their index, one of which makes trouble.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Troubled {
    n_samples: usize,
    at: usize,
    trouble: Trouble,
    /// How many samples were begun.
    n_begun: RawValue<u64>,
}

impl Troubled {
    fn new(n_samples: usize, at: usize, trouble: Trouble) -> Self {
        Self { n_samples, at, trouble, n_begun: RawValue::new(0).unwrap() }
    }
}

#[dataset]
impl Dataset for Troubled {
    type Sample = Vec<u64>;

    fn len(&self) -> usize {
        self.n_samples
    }

    fn get(&self, index: usize, _: &mut SampleRng) -> Result<Self::Sample, BoxedError> {
        self.n_begun.fetch_add(1);
        if index == self.at { self.trouble.at(index as u64) } else { Ok(vec![index as u64]) }
    }
}

#[track_caller]
fn start<D: Dataset>(builder: DataLoaderBuilder<D>) -> DataLoader<D> {
    builder.start().unwrap()
}

/// The batches of an epoch, all of which come.
#[track_caller]
fn all<D: Dataset>(loader: &DataLoader<D>, epoch: u64) -> Vec<Batch<D>> {
    loader.epoch(epoch).collect::<Result<_, _>>().unwrap()
}

/// The outcomes of an epoch: the indices in each batch, or why it did not come.
fn outcomes(loader: &DataLoader<Troubled>, epoch: u64) -> Vec<Result<Vec<u64>, LoadError>> {
    loader.epoch(epoch).map(|batch| batch.map(Tensor::into_vec)).collect()
}

/// As [`tensorferry_kit::leaving_nothing`], after the test has run once.
#[track_caller]
fn leaving_nothing(test: impl Fn()) {
    tensorferry_kit::leaving_nothing(&test, &test);
}
