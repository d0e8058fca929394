//! A device for each process: process `rank` uses device `rank mod devices`, with a context and a seed of its
//! own, and the processor where there is no device.
//!
//! The first process makes the input on its device and puts a handle of it into a queue for each of the
//! others. Each copies its share of it from device to device, without a detour through the host, and sums it
//! up. What to see: the shares add up to the whole, and no byte was copied to send the input.
//!
//! `cargo run --example cuda_ranks --features cuda` wants a GPU, or does without; with `-- --simulate` there
//! are two devices of a software driver. One H200 has
//! run it; several devices only that driver.

use std::collections::HashSet;
use std::io::{self, Write as _};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};
use tensorferry::cuda::{CudaError, CudaTensor, DRIVER_VARIABLE, Driver, Stream};
use tensorferry::spawn::Options;
use tensorferry::{Queue, Tensor, TensorMut, bytes_copied, func, rank_seed};

const N_PROCESSES: usize = 4;
/// A multiple of the number of processes.
const N_ELEMENTS: usize = 1 << 20;
/// The seeds of the processes are made of this and their index.
const SEED: u64 = 1234;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// What the first process sends.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Input {
    Device(CudaTensor<u32>),
    Host(Tensor<u32>),
}

/// What a process says about itself.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    place: String,
    seed: u64,
    sum: u64,
    bytes_copied: u64,
}

/// The stream of a process on its device; `None` where there is none.
fn stream_of(rank: usize) -> Result<Option<Stream>, CudaError> {
    let driver = match Driver::load() {
        Ok(driver) => driver,
        // Or it has nothing to drive, or `CUDA_VISIBLE_DEVICES` hides it.
        Err(error) if error.is_no_device() => return Ok(None),
        Err(error) => return Err(error),
    };
    let devices = driver.devices()?;
    let Some(device) = devices.get(rank % devices.len().max(1)) else { return Ok(None) };
    Stream::create(&device.retain_primary_context()?).map(Some)
}

fn make_input(stream: Option<&Stream>) -> Result<Input, Error> {
    let elements: Vec<u32> = (0..).take(N_ELEMENTS).collect();
    Ok(match stream {
        Some(stream) => Input::Device(CudaTensor::from_slice(stream, &elements, [N_ELEMENTS])?),
        None => {
            let mut input = TensorMut::empty([N_ELEMENTS])?; // in shared memory from the start
            input.as_mut_slice().copy_from_slice(&elements);
            Input::Host(input.freeze())
        }
    })
}

/// The elements of a process's share, which lie on its own device for a moment.
fn share(rank: usize, input: &Input, stream: Option<&Stream>) -> Result<Vec<u32>, Error> {
    let len = N_ELEMENTS / N_PROCESSES;
    match (input, stream) {
        (Input::Device(input), Some(stream)) => {
            let mine = CudaTensor::empty(stream, [len])?;
            mine.copy_from(stream, &input.narrow(0, rank * len, len)?)?;
            Ok(mine.to_vec(stream)?)
        }
        (Input::Device(_), None) => Err("the input lies on a device, and this process has none".into()),
        (Input::Host(input), _) => Ok(input.narrow(0, rank * len, len)?.to_vec()),
    }
}

/// Runs in each process.
#[func]
fn work(rank: usize, inputs: Queue<Input>) -> Result<Report, Error> {
    let stream = stream_of(rank)?;
    let input = match rank {
        0 => {
            let input = make_input(stream.as_ref())?;
            for _ in 1..N_PROCESSES {
                // A clone is another handle of the same memory.
                inputs.put(input.clone())?;
            }
            input
        }
        _ => inputs.get()?,
    };
    let place = match &stream {
        Some(stream) => stream.context().device().uuid()?.to_string(),
        None => "the processor".to_owned(),
    };
    let sum = share(rank, &input, stream.as_ref())?.into_iter().map(u64::from).sum();
    Ok(Report { place, seed: rank_seed(SEED, rank), sum, bytes_copied: bytes_copied() })
}

fn main() -> anyhow::Result<()> {
    let mut options = Options::new();
    if std::env::args().any(|argument| argument == "--simulate") {
        let variables = tensorferry_sim_cuda::environment(DRIVER_VARIABLE, "devices=2");
        for (name, value) in variables.context("cargo builds the software driver")? {
            options = options.env(name, value);
        }
    }
    let inputs = Queue::new(N_PROCESSES)?;
    let reports = options.spawn(work, (inputs,), N_PROCESSES)?;

    let mut out = io::stdout().lock();
    for (rank, Report { place, seed, sum, bytes_copied }) in reports.iter().enumerate() {
        writeln!(
            out,
            "process {rank} on {place}: seed {seed}, sum {sum}, {bytes_copied} bytes copied to send"
        )?;
    }
    let mut seeds: Vec<u64> = reports.iter().map(|report| report.seed).collect();
    seeds.sort_unstable();
    seeds.dedup();
    ensure!(seeds.len() == N_PROCESSES, "two processes have one seed");
    ensure!(reports.iter().all(|report| report.bytes_copied == 0), "something was copied to be sent");
    let n_places = reports.iter().map(|report| &report.place).collect::<HashSet<_>>().len();
    let is_in_turn = |(rank, report): (usize, &Report)| report.place == reports[rank % n_places].place;
    ensure!(reports.iter().enumerate().all(is_in_turn), "the processes do not take the devices in turn");
    let whole = (0..N_ELEMENTS as u64).sum::<u64>();
    ensure!(reports.iter().map(|report| report.sum).sum::<u64>() == whole, "the shares are not the whole");
    writeln!(out, "together {whole}, as it should be")?;
    Ok(())
}
