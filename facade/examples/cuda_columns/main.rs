//! Columns of one matrix in the memory of a device, and twice as many processes as columns: each adds 10 to
//! every element of one column, by a kernel of its own (`add_ten.ptx`).
//!
//! The first process makes the matrix and puts a handle of it into a queue for each of the others. Two
//! processes work on each column, in any order and at the same time; they do not harm each other, because the
//! addition is atomic. Nobody waits for a device before it sends the matrix back: the stream of the first
//! process waits for the streams of all others. What to see: exactly 20 everywhere, and no byte was copied to
//! send the matrix.
//!
//! `cargo run --example cuda_columns --features cudarc` wants a GPU; with `-- --simulate` there is a software
//! driver in its place, which runs the same kernel. `--columns N` and `--rows N` set the shape. One H200
//! has run it.
//!
//! # Safety
//! The kernel is launched with what it was written for: a column of as many rows as it is told. The memory
//! stays what it is until the kernel is done, because what was queued on a stream after `on`, and before the
//! last handle of the tensor in this process is dropped, is over before the memory is used for anything else.
#![expect(unsafe_code, reason = "launches a kernel")]

use std::io::{self, Write as _};

use anyhow::{Context as _, ensure};
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg as _};
use cudarc::nvrtc::Ptx;
use lexopt::prelude::*;
use serde::{Deserialize, Serialize};
use tensorferry::cuda::{DRIVER_VARIABLE, Driver, Stream};
use tensorferry::spawn::Options as SpawnOptions;
use tensorferry::{CudaTensor, Queue, bytes_copied, func};

const KERNEL: &str = include_str!("add_ten.ptx");
const N_PROCESSES_OF_A_COLUMN: usize = 2;
const WANTED: f32 = 20.0;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// Rows and columns.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Size {
    n_rows: usize,
    n_columns: usize,
}

/// What a process says at the end.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    device: String,
    bytes_copied: u64,
    /// How many elements are not what they should be; the first process alone looks.
    n_wrong: Option<usize>,
}

/// Runs in each process.
#[func]
fn work(
    rank: usize,
    size: Size,
    matrices: Queue<CudaTensor<f32>>,
    back: Queue<CudaTensor<f32>>,
) -> Result<Report, Error> {
    let n_processes = size.n_columns * N_PROCESSES_OF_A_COLUMN;
    // Before the first call of cudarc, so that the two use the same driver.
    let device = Driver::load()?.device(0)?;
    let name = device.name()?;
    let context = CudaContext::new(0)?;
    let streams = context.new_stream()?;
    let stream = Stream::try_from(&streams)?;

    let matrix = if rank == 0 {
        let matrix = CudaTensor::zeros(&stream, [size.n_rows, size.n_columns])?;
        for _ in 1..n_processes {
            matrices.put(matrix.clone())?;
        }
        matrix
    } else {
        matrices.get()?
    };

    let module = context.load_module(Ptx::from_src(KERNEL))?;
    let add_ten = module.load_function("add_ten")?;
    let column = matrix.select(1, rank % size.n_columns)?;
    let on = column.on(&stream)?;
    let pitch_bytes = u32::try_from(size.n_columns * size_of::<f32>())?;
    let (address, n_rows) = (on.address(), u32::try_from(size.n_rows)?);
    let mut launch = streams.launch_builder(&add_ten);
    launch.arg(&address).arg(&pitch_bytes).arg(&n_rows);
    let grid = LaunchConfig::for_num_elems(n_rows);
    // SAFETY: launch wants arguments as the kernel has them, and that it touches only what it may: see the
    // top.
    unsafe { launch.launch(grid) }?;

    let n_wrong = if rank == 0 {
        for _ in 1..n_processes {
            // The stream waits for the process that sends the matrix back.
            let _ = back.get()?.on(&stream)?;
        }
        let elements = matrix.to_vec(&stream)?;
        Some(elements.iter().filter(|&&element| element != WANTED).count())
    } else {
        back.put(matrix)?;
        None
    };
    Ok(Report { device: name, bytes_copied: bytes_copied(), n_wrong })
}

/// What the user asked for.
struct Options {
    size: Size,
    is_simulated: bool,
}

impl Options {
    fn parse(mut arguments: lexopt::Parser) -> anyhow::Result<Self> {
        let mut options = Self { size: Size { n_rows: 1000, n_columns: 4 }, is_simulated: false };
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("rows") => options.size.n_rows = arguments.value()?.parse()?,
                Long("columns") => options.size.n_columns = arguments.value()?.parse()?,
                Long("simulate") => options.is_simulated = true,
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(options.size.n_rows > 0 && options.size.n_columns > 0, "a matrix has rows and columns");
        Ok(options)
    }
}

fn main() -> anyhow::Result<()> {
    let Options { size, is_simulated } = Options::parse(lexopt::Parser::from_env())?;
    let n_processes = size.n_columns * N_PROCESSES_OF_A_COLUMN;
    let mut options = SpawnOptions::new();
    if is_simulated {
        let variables = tensorferry_sim_cuda::environment(DRIVER_VARIABLE, "");
        for (name, value) in variables.context("cargo builds the software driver")? {
            options = options.env(name, value);
        }
    }
    let (matrices, back) = (Queue::new(n_processes)?, Queue::new(n_processes)?);
    let reports = options.spawn(work, (size, matrices, back), n_processes)?;

    let first = reports.first().context("there is a first process")?;
    let n_wrong = first.n_wrong.context("the first process looks")?;
    let n_copied: u64 = reports.iter().map(|report| report.bytes_copied).sum();
    let (n_elements, device) = (size.n_rows * size.n_columns, &first.device);
    ensure!(n_wrong == 0, "{n_wrong} of {n_elements} elements are not {WANTED}");
    ensure!(n_copied == 0, "{n_copied} bytes were copied to send the matrix");
    writeln!(
        io::stdout(),
        "{n_processes} processes have added 10 to one of {} columns each, on {device}: {WANTED} in all {n_elements} elements, \
         0 bytes copied to send them",
        size.n_columns
    )?;
    Ok(())
}
