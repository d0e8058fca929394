//! A program in Rust makes batches, and one in Python (`trainer.py`) trains on them. The weights are in
//! memory that both see while they change.
//!
//! `trainer [PYTHON]` starts the interpreter by itself, with the module that was built beside it. With
//! PyTorch installed there, that is what computes.

#![expect(clippy::print_stdout, reason = "an example talks to people")]
#![expect(clippy::disallowed_methods, reason = "this is about processes that something else starts")]

use std::error::Error;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_listen::Listener;
use tensorferry_queue::{Receiver, channel};
use tensorferry_tensor::{SharedTensor, Tensor, TensorMut};

const N_BATCHES: u16 = 200;
const BATCH_SIZE: usize = 32;
/// What is to be learned: `y = 3 x - 2`.
const TRUE_WEIGHTS: [f32; 2] = [3.0, -2.0];

/// What the trainer gets first. In Python it is a dict.
#[derive(Serialize, Deserialize)]
struct Start {
    weights: SharedTensor<f32>,
    batches: Receiver<Batch>,
}

#[derive(Serialize, Deserialize)]
struct Batch {
    step: u16,
    x: Tensor<f32>,
    y: Tensor<f32>,
}

/// What it says now and then. In Python it was a dict.
#[derive(Serialize, Deserialize)]
struct Progress {
    step: u16,
    loss: f64,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let python = std::env::args_os().nth(1).unwrap_or_else(|| "python3".into());
    if !has_python(&python) {
        println!("NOT RUN: {} is no Python 3.11 or newer", Path::new(&python).display());
        return Ok(ExitCode::SUCCESS);
    }
    let address = format!("@tensorferry-trainer-{}", std::process::id());
    let listener = Listener::bind(&address)?;
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/trainer.py");
    let mut trainer =
        Command::new(&python).arg(program).arg(&address).env("PYTHONPATH", module()?).spawn()?;
    // If it cannot even start, nobody connects.
    let mut connection = listener.accept_timeout::<Start, Progress>(4, Duration::from_secs(30))?;

    let weights = SharedTensor::zeros([2])?;
    let (batches, theirs) = channel(4)?;
    connection.send(Start { weights: weights.clone(), batches: theirs })?;
    for step in 0..N_BATCHES {
        batches.put(make_batch(step)?)?;
    }
    drop(batches); // the trainer's loop ends
    while let Ok(Progress { step, loss }) = connection.recv() {
        println!("step {step:>3}: loss {loss:.6}");
    }
    let status = trainer.wait()?;
    let [w, b] = [weights.load([0])?, weights.load([1])?];
    println!("learned y = {w:.3} x + {b:.3}; the trainer ended with {status}");
    let is_close = (w - TRUE_WEIGHTS[0]).abs() < 0.05 && (b - TRUE_WEIGHTS[1]).abs() < 0.05;
    Ok(if status.success() && is_close { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Points on the line, in shared memory from the start.
fn make_batch(step: u16) -> Result<Batch, Box<dyn Error>> {
    let (mut x, mut y) = (TensorMut::empty([BATCH_SIZE])?, TensorMut::empty([BATCH_SIZE])?);
    // From -1 to 1, in another order each time.
    let mut at = f32::from(step) * 0.37;
    for (x, y) in x.as_mut_slice().iter_mut().zip(y.as_mut_slice()) {
        at = (at + 0.618_034).fract();
        *x = 2.0 * at - 1.0;
        *y = TRUE_WEIGHTS[0] * *x + TRUE_WEIGHTS[1];
    }
    Ok(Batch { step, x: x.freeze(), y: y.freeze() })
}

fn has_python(python: &OsString) -> bool {
    let is_new = "import sys; sys.exit(sys.version_info < (3, 11))";
    Command::new(python).args(["-c", is_new]).status().is_ok_and(|status| status.success())
}

/// The folder in which Python finds the module: what `pip install` would do, for this program alone.
fn module() -> Result<PathBuf, Box<dyn Error>> {
    let examples = std::env::current_exe()?.parent().ok_or("a program is in a folder")?.to_owned();
    let built = examples.with_file_name("deps").join("libtensorferry_python.so");
    if !built.is_file() {
        return Err(format!("cargo builds {} beside an example", built.display()).into());
    }
    let folder = examples.join("python");
    std::fs::create_dir_all(&folder)?;
    let link = folder.join("tensorferry.abi3.so");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(built, link)?;
    Ok(folder)
}
