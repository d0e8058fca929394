//! Worker processes: calls of a pool and of a manager's objects, and samples of a data loader, beside those
//! of Python and torch when `--python PATH` names a Python that has PyTorch.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use anyhow::ensure;
use lexopt::prelude::*;
use serde::{Deserialize, Serialize};
use tensorferry::data::{Dataset, IterableDataset, IterableLoader, SampleRng, Shard, TensorDataset, dataset};
use tensorferry::manager::{Dict, Manager};
use tensorferry::queue::{Connection, pipe};
use tensorferry::{BoxedError, DataLoader, Pool, Tensor, func, start_processes};
use tensorferry_benches::{ask_python, median, number};

/// How many workers make batches; 0 is the process that iterates.
const N_WORKERS: [usize; 2] = [0, 2];

/// A row of the first dataset, in elements, and how many rows a batch has.
const ROW_LEN: usize = 64;
const ROWS: usize = 64;

/// An image, and how many a batch has.
const IMAGE: [usize; 3] = [3, 224, 224];
const IMAGES: usize = 32;

/// A sequence, in tokens; how many a batch has, and how many each of the shards.
const SEQUENCE_LEN: usize = 1_024;
const SEQUENCES: usize = 32;
const N_SHARDS: usize = 4;
const SHARD_LEN: usize = 3_200;

/// How long an image with work takes.
const WORK: Duration = Duration::from_micros(700);

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/workers.py");

/// What the user asked for.
#[derive(Debug)]
struct Options {
    python: Option<OsString>,
    rounds: usize,
    seconds: f64,
}

impl Options {
    fn parse(mut arguments: lexopt::Parser) -> anyhow::Result<Self> {
        let mut options = Self { python: None, rounds: 7, seconds: 1.0 };
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("python") => options.python = Some(arguments.value()?),
                Long("rounds") => options.rounds = arguments.value()?.parse()?,
                Long("quick") => (options.rounds, options.seconds) = (1, 0.1),
                // What `cargo bench` adds to every bench.
                Long("bench") => {}
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(options.rounds > 0, "--rounds has to be at least 1");
        Ok(options)
    }
}

/// What was measured, medians. Times in us, rates for each second.
#[derive(Debug, Serialize, Deserialize)]
struct Figures {
    apply_us: f64,
    tasks_per_s: f64,
    /// A value of a dictionary that another process has.
    dict_get_us: f64,
    /// For each kind of sample, by the number of workers.
    rows_per_s: [f64; 2],
    images_per_s: [f64; 2],
    images_with_work_per_s: [f64; 2],
    sequences_per_s: [f64; 2],
}

/// What the script says, in its last line.
#[derive(Debug, Deserialize)]
struct Torch {
    version: String,
    figures: Figures,
}

#[func]
fn nothing(_worker: usize, n: u64) -> Result<u64, String> {
    Ok(n)
}

/// Has a dictionary until the other end of the connection is gone.
#[func]
fn keep(_rank: usize, mut other: Connection<Dict<u64, u64>, ()>) -> Result<(), BoxedError> {
    let manager = Manager::new()?;
    other.send(manager.dict_of([(7, 49)])?)?;
    let _ = other.recv();
    manager.shutdown()?;
    Ok(())
}

/// The median time of a call.
fn dict_get_us(seconds: f64) -> anyhow::Result<f64> {
    let (mut connection, other) = pipe(1)?;
    let mut keeper = start_processes(keep, (other,), 1)?;
    let dict: Dict<u64, u64> = connection.recv()?;
    let (mut times, begin) = (Vec::new(), Instant::now());
    while begin.elapsed().as_secs_f64() < seconds {
        let begin = Instant::now();
        ensure!(dict.get(&7)? == Some(49));
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    connection.send(())?;
    keeper.join()?;
    Ok(median(&times))
}

#[dataset]
type Rows = TensorDataset<(Tensor<f32>, Tensor<i64>)>;

/// Images of one number each, with work or without.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Images {
    with_work: bool,
}

#[dataset]
impl Dataset for Images {
    type Sample = (Vec<f32>, i64);

    fn len(&self) -> usize {
        if self.with_work { 640 } else { 3_200 }
    }

    fn get(&self, index: usize, _: &mut SampleRng) -> Result<Self::Sample, BoxedError> {
        let begin = Instant::now();
        let image = vec![index as f32; IMAGE.iter().product()];
        while self.with_work && begin.elapsed() < WORK {
            std::hint::spin_loop();
        }
        Ok((image, i64::try_from(index)?))
    }
}

/// Sequences of tokens, in shards.
#[derive(Debug, Serialize, Deserialize)]
struct Sequences;

#[dataset]
impl IterableDataset for Sequences {
    type Sample = Vec<u32>;

    fn n_shards(&self) -> usize {
        N_SHARDS
    }

    fn iter(&self, shard: Shard) -> Result<impl Iterator<Item = Result<Vec<u32>, BoxedError>>, BoxedError> {
        let first = u32::try_from(shard.index)?;
        Ok((0..SHARD_LEN).map(move |_| Ok(vec![first; SEQUENCE_LEN])))
    }
}

fn rows() -> anyhow::Result<Rows> {
    let n_rows = 64_000;
    let elements = Tensor::from_vec(vec![0.5; n_rows * ROW_LEN], [n_rows, ROW_LEN])?;
    let labels = Tensor::from_vec((0..i64::try_from(n_rows)?).collect(), [n_rows])?;
    Ok(Rows::new((elements, labels))?)
}

fn main() -> anyhow::Result<()> {
    let options = Options::parse(lexopt::Parser::from_env())?;
    let (mut rounds, mut rounds_of_torch) = (Vec::new(), Vec::new());
    let mut version = Err(anyhow::Error::msg("no --python was given"));
    // In turn, so that a disturbance hits both.
    for _ in 0..options.rounds {
        rounds.push(measure(options.seconds)?);
        let Some(python) = &options.python else { continue };
        match ask_python(python, SCRIPT.as_ref(), &[options.seconds.to_string()]) {
            Ok(Torch { version: found, figures }) => {
                rounds_of_torch.push(figures);
                version = Ok(found);
            }
            Err(error) => {
                version = Err(error);
                break;
            }
        }
    }
    let ours = medians(&rounds);
    let theirs = version.is_ok().then(|| medians(&rounds_of_torch));

    let mut text = String::new();
    writeln!(text, "{:<44}{:>12}{:>12}", "median", "tensorferry", "torch")?;
    let mut row = |name: &str, figure: fn(&Figures) -> f64| {
        let theirs = theirs.as_ref().map_or_else(|| String::from("-"), |theirs| number(figure(theirs)));
        writeln!(text, "{name:<44}{:>12}{theirs:>12}", number(figure(&ours)))
    };
    row("Pool: apply and its value, us", |figures| figures.apply_us)?;
    row("Pool: map, tasks per second", |figures| figures.tasks_per_s)?;
    row("Manager: a value of a dictionary, us", |figures| figures.dict_get_us)?;
    row("rows of 64 f32, 0 workers, samples per second", |figures| figures.rows_per_s[0])?;
    row("the same, 2 workers", |figures| figures.rows_per_s[1])?;
    row("3x224x224 f32, 0 workers", |figures| figures.images_per_s[0])?;
    row("the same, 2 workers", |figures| figures.images_per_s[1])?;
    row("3x224x224 f32 with 0.7 ms of work, 0 workers", |figures| figures.images_with_work_per_s[0])?;
    row("the same, 2 workers", |figures| figures.images_with_work_per_s[1])?;
    row("1,024 tokens of 4 shards, 0 workers", |figures| figures.sequences_per_s[0])?;
    row("the same, 2 workers", |figures| figures.sequences_per_s[1])?;
    match &version {
        Ok(version) => writeln!(text, "torch {version}; its pool and its manager are Python's")?,
        Err(why) => writeln!(text, "torch is not measured: {why}")?,
    }
    io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn measure(seconds: f64) -> anyhow::Result<Figures> {
    let pool = Pool::new(2)?;
    pool.map(nothing, 0..1_000)?;
    let mut times = Vec::new();
    let begin = Instant::now();
    while begin.elapsed().as_secs_f64() < seconds {
        let begin = Instant::now();
        pool.apply(nothing, (7,))?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    let (begin, mut n_tasks) = (Instant::now(), 0);
    while begin.elapsed().as_secs_f64() < seconds {
        n_tasks += pool.map(nothing, 0..10_000)?.len();
    }
    let tasks_per_s = n_tasks as f64 / begin.elapsed().as_secs_f64();
    pool.join()?;
    Ok(Figures {
        apply_us: median(&times),
        tasks_per_s,
        dict_get_us: dict_get_us(seconds)?,
        rows_per_s: samples_per_s(rows, ROWS, seconds)?,
        images_per_s: samples_per_s(|| Ok(Images { with_work: false }), IMAGES, seconds)?,
        images_with_work_per_s: samples_per_s(|| Ok(Images { with_work: true }), IMAGES, seconds)?,
        sequences_per_s: sequences_per_s(seconds)?,
    })
}

/// Samples for each second of whole epochs behind the first one, by the number of workers.
fn samples_per_s<D: Dataset>(
    dataset: impl Fn() -> anyhow::Result<D>,
    batch_size: usize,
    seconds: f64,
) -> anyhow::Result<[f64; 2]> {
    let mut rates = [0.0; 2];
    for (rate, n_workers) in rates.iter_mut().zip(N_WORKERS) {
        let loader = DataLoader::builder(dataset()?).batch_size(batch_size).shuffle().workers(n_workers);
        let loader = loader.start()?;
        let epochs =
            epochs_per_s(seconds, |epoch| Ok(loader.epoch(epoch).try_for_each(|batch| batch.map(drop))?))?;
        *rate = epochs * loader.n_samples() as f64;
        loader.join()?;
    }
    Ok(rates)
}

/// As [`samples_per_s`], of sequences.
fn sequences_per_s(seconds: f64) -> anyhow::Result<[f64; 2]> {
    let mut rates = [0.0; 2];
    for (rate, n_workers) in rates.iter_mut().zip(N_WORKERS) {
        let loader = IterableLoader::builder(Sequences).batch_size(SEQUENCES).workers(n_workers).start()?;
        let epochs =
            epochs_per_s(seconds, |epoch| Ok(loader.epoch(epoch).try_for_each(|batch| batch.map(drop))?))?;
        *rate = epochs * (N_SHARDS * SHARD_LEN) as f64;
        loader.join()?;
    }
    Ok(rates)
}

/// How many epochs come in each second, behind the first one.
fn epochs_per_s(seconds: f64, mut epoch: impl FnMut(u64) -> anyhow::Result<()>) -> anyhow::Result<f64> {
    epoch(0)?;
    let (begin, mut n_epochs) = (Instant::now(), 0);
    while n_epochs == 0 || begin.elapsed().as_secs_f64() < seconds {
        n_epochs += 1;
        epoch(n_epochs)?;
    }
    Ok(n_epochs as f64 / begin.elapsed().as_secs_f64())
}

fn medians(rounds: &[Figures]) -> Figures {
    let of = |figure: &dyn Fn(&Figures) -> f64| median(&rounds.iter().map(figure).collect::<Vec<_>>());
    let by_workers = |figure: fn(&Figures) -> [f64; 2]| [0, 1].map(|place| of(&|round| figure(round)[place]));
    Figures {
        apply_us: of(&|round| round.apply_us),
        tasks_per_s: of(&|round| round.tasks_per_s),
        dict_get_us: of(&|round| round.dict_get_us),
        rows_per_s: by_workers(|round| round.rows_per_s),
        images_per_s: by_workers(|round| round.images_per_s),
        images_with_work_per_s: by_workers(|round| round.images_with_work_per_s),
        sequences_per_s: by_workers(|round| round.sequences_per_s),
    }
}
