//! Replicas of one model on several devices, and one input for all of them.
//!
//! The model is a single weight, and a replica of it has its own. The first process makes the input on its
//! device and sends each replica a handle. A replica on that device reads the input where it lies; one on
//! another device reads it through peer access, with its own kernel (`scale.ptx`), and writes the output into
//! the memory of its own device. The outputs go back by handle and are checked on the host. What to see: the
//! input exists once, however many replicas read it, and no byte was copied to send input or outputs.
//!
//! `cargo run --example cuda_replicas --features cudarc` wants a GPU, and with several of them that reach
//! each other uses all; with `-- --simulate` there are three devices of a software driver. `--replicas N`
//! sets how many processes there are. One H200 has run it; several devices only that driver.
//!
//! # Safety
//! The kernel is launched with what it was written for: input and output of as many elements as it is told.
//! The memory of both stays what it is until the kernel is done, because what was queued on a stream after
//! `on`, and before the last handle of a tensor in this process is dropped, is over before its memory is used
//! for anything else.
#![expect(unsafe_code, reason = "launches a kernel")]

use std::collections::BTreeSet;
use std::io::{self, Write as _};

use anyhow::{Context as _, ensure};
use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg as _};
use cudarc::nvrtc::Ptx;
use lexopt::prelude::*;
use serde::{Deserialize, Serialize};
use tensorferry::cuda::{DRIVER_VARIABLE, Driver, Stream, device_stats};
use tensorferry::spawn::Options as SpawnOptions;
use tensorferry::{CudaTensor, Queue, bytes_copied, func};

const KERNEL: &str = include_str!("scale.ptx");
const N_ELEMENTS: usize = 1 << 12;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The result of a replica, on its device.
#[derive(Debug, Serialize, Deserialize)]
struct Output {
    weight: u32,
    elements: CudaTensor<u32>,
}

/// What a process says at the end.
#[derive(Debug, Serialize, Deserialize)]
struct Report {
    device: String,
    /// Where the input lies, as this process was told.
    device_of_input: String,
    bytes_copied: u64,
    /// Slabs of device memory that this process made itself.
    slabs_owned: usize,
    /// Outputs that are not what they should be; the first process alone looks.
    n_wrong: usize,
}

fn weight_of(rank: usize) -> Result<u32, Error> {
    Ok(u32::try_from(rank)? + 2)
}

/// Runs in each process.
#[func]
fn work(
    rank: usize,
    n_replicas: usize,
    inputs: Queue<CudaTensor<u32>>,
    outputs: Queue<Output>,
) -> Result<Report, Error> {
    // Before the first call of cudarc, so that the two use the same driver.
    let devices = Driver::load()?.devices()?;
    let ordinal = rank % devices.len();
    let context = CudaContext::new(ordinal)?;
    let streams = context.new_stream()?;
    let stream = Stream::try_from(&streams)?;

    let input = if rank == 0 {
        let elements: Vec<u32> = (0..).take(N_ELEMENTS).collect();
        let input = CudaTensor::from_slice(&stream, &elements, [N_ELEMENTS])?;
        for _ in 1..n_replicas {
            inputs.put(input.clone())?;
        }
        input
    } else {
        inputs.get()?
    };

    let weight = weight_of(rank)?;
    let elements = CudaTensor::empty(&stream, [N_ELEMENTS])?;
    let module = context.load_module(Ptx::from_src(KERNEL))?;
    let scale = module.load_function("scale")?;
    let (to, from) = (elements.on(&stream)?, input.on(&stream)?);
    let (to_address, from_address, n_elements) = (to.address(), from.address(), u32::try_from(N_ELEMENTS)?);
    let mut launch = streams.launch_builder(&scale);
    launch.arg(&to_address).arg(&from_address).arg(&weight).arg(&n_elements);
    // SAFETY: launch wants arguments as the kernel has them, and that it touches only what it may: see the
    // top.
    unsafe { launch.launch(LaunchConfig::for_num_elems(n_elements)) }?;

    outputs.put(Output { weight, elements })?;
    let n_wrong = if rank == 0 { wrong_outputs(n_replicas, &outputs, &stream)? } else { 0 };
    Ok(Report {
        device: devices[ordinal].uuid()?.to_string(),
        device_of_input: input.device_uuid().map(|uuid| uuid.to_string()).unwrap_or_default(),
        bytes_copied: bytes_copied(),
        slabs_owned: device_stats().slabs_owned,
        n_wrong,
    })
}

/// How many of the replicas have not done what they should have.
fn wrong_outputs(n_replicas: usize, outputs: &Queue<Output>, stream: &Stream) -> Result<usize, Error> {
    let mut missing: BTreeSet<u32> = (0..n_replicas).map(weight_of).collect::<Result<_, _>>()?;
    for _ in 0..n_replicas {
        let Output { weight, elements } = outputs.get()?;
        let wanted = (0..).take(N_ELEMENTS).map(|element: u32| element.wrapping_mul(weight));
        if elements.to_vec(stream)?.into_iter().eq(wanted) {
            missing.remove(&weight);
        }
    }
    Ok(missing.len())
}

/// What the user asked for.
struct Options {
    n_replicas: usize,
    is_simulated: bool,
}

impl Options {
    fn parse(mut arguments: lexopt::Parser) -> anyhow::Result<Self> {
        let mut options = Self { n_replicas: 4, is_simulated: false };
        while let Some(argument) = arguments.next()? {
            match argument {
                Long("replicas") => options.n_replicas = arguments.value()?.parse()?,
                Long("simulate") => options.is_simulated = true,
                other => return Err(other.unexpected().into()),
            }
        }
        ensure!(options.n_replicas > 0, "--replicas has to be at least 1");
        Ok(options)
    }
}

fn main() -> anyhow::Result<()> {
    let Options { n_replicas, is_simulated } = Options::parse(lexopt::Parser::from_env())?;
    let mut options = SpawnOptions::new();
    if is_simulated {
        let variables = tensorferry_sim_cuda::environment(DRIVER_VARIABLE, "devices=3");
        for (name, value) in variables.context("cargo builds the software driver")? {
            options = options.env(name, value);
        }
    }
    let (inputs, outputs) = (Queue::new(n_replicas)?, Queue::new(n_replicas)?);
    let reports = options.spawn(work, (n_replicas, inputs, outputs), n_replicas)?;

    let mut out = io::stdout().lock();
    for (rank, Report { device, device_of_input, .. }) in reports.iter().enumerate() {
        let place = if device == device_of_input { "where it lies" } else { "from another device" };
        writeln!(out, "replica {rank} on {device} has read the input {place}")?;
    }
    let devices: BTreeSet<_> = reports.iter().map(|report| &report.device).collect();
    let n_copied: u64 = reports.iter().map(|report| report.bytes_copied).sum();
    ensure!(reports.iter().all(|report| report.n_wrong == 0), "some replicas were wrong");
    ensure!(n_copied == 0, "{n_copied} bytes were copied to send input and outputs");
    let inputs: BTreeSet<_> = reports.iter().map(|report| &report.device_of_input).collect();
    ensure!(inputs.len() == 1, "the input lies on {} devices", inputs.len());
    // Input and output of a replica are small enough for one slab.
    ensure!(reports.iter().all(|report| report.slabs_owned == 1), "somebody has made a copy of the input");
    writeln!(
        out,
        "{n_replicas} replicas on {} devices have read one input, 0 bytes copied to send it and the outputs",
        devices.len()
    )?;
    Ok(())
}
