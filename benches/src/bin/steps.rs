//! Runs one operation so often: `steps OPERATION N`. For counting instructions, which the load of the machine
//! does not change.
//!
//! # Safety
//! No slice of shared memory is alive when a process is forked.

#![expect(unsafe_code, reason = "allows the start method fork")]

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry::domain::Domain;
use tensorferry::queue::{SoleReceiver, SoleSender, spsc_in};
use tensorferry::spawn::{StartMethod, get_context};
use tensorferry::storage::Heap;
use tensorferry::sync::{Lock, Semaphore};
use tensorferry::{Tensor, TensorMut, func};

/// valgrind has less address space than a domain takes by itself.
const ADDRESS_SPACE_BYTES: usize = 1 << 30;

const FRESH_ELEMENTS: usize = 1024;
const MANY: usize = 100;

fn existing(heap: &Heap) -> anyhow::Result<Tensor<f32>> {
    Ok(TensorMut::zeros_in(heap, [1])?.freeze())
}

/// Puts a value and gets it, and drops what came. The value is made for the number of its turn.
#[inline(always)]
fn to_and_fro<T>(heap: &Heap, times: usize, make: impl Fn(u64) -> anyhow::Result<T>) -> anyhow::Result<()>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    let (mut sender, mut receiver): (SoleSender<T>, SoleReceiver<T>) = spsc_in(heap, 16)?;
    for number in 0..times as u64 {
        sender.put(make(number)?)?;
        receiver.get()?;
    }
    Ok(())
}

#[func]
fn nothing(_rank: usize) {}

/// A process that does nothing, from its start to its end.
fn start_and_join(method: StartMethod, times: usize) -> anyhow::Result<()> {
    (0..times).try_for_each(|_| Ok(get_context(method).spawn(nothing, (), 1).map(drop)?))
}

/// The same with this program and nothing of the library but its constructor.
#[expect(clippy::disallowed_methods, reason = "the standard library's way is what is compared with")]
fn command() -> anyhow::Result<()> {
    let status = std::process::Command::new("/proc/self/exe").args(["nothing", "0"]).status()?;
    ensure!(status.success(), "the program did not end well: {status}");
    Ok(())
}

fn main() -> anyhow::Result<()> {
    // SAFETY: no slice of shared memory is alive when a process is started, no thread is named as parked, and
    // no member of a domain is started but by the library.
    unsafe { tensorferry::spawn::allow_fork() };
    let mut arguments = std::env::args().skip(1);
    let operation = arguments.next().context("the first argument is an operation")?;
    let times: usize = arguments.next().context("the second argument is a number")?.parse()?;
    match operation.as_str() {
        "nothing" => return Ok(()),
        "spawn" => return start_and_join(StartMethod::Spawn, times),
        "forkserver" => return start_and_join(StartMethod::Forkserver, times),
        "fork" => return start_and_join(StartMethod::Fork, times),
        "command" => return (0..times).try_for_each(|_| command()),
        _ => {}
    }
    let heap = &Heap::create(Domain::builder().address_space_bytes(ADDRESS_SPACE_BYTES))?;
    match operation.as_str() {
        "number" => to_and_fro(heap, times, Ok)?,
        "one" => {
            let tensor = existing(heap)?;
            to_and_fro(heap, times, |_| Ok(tensor.clone()))?;
        }
        "stamped" => {
            let tensor = existing(heap)?;
            to_and_fro(heap, times, |number| Ok((number, tensor.clone())))?;
        }
        "hundred" => {
            let tensors: Vec<_> = (0..MANY).map(|_| existing(heap)).collect::<anyhow::Result<_>>()?;
            to_and_fro(heap, times, |_| Ok(tensors.clone()))?;
        }
        "fresh" => {
            to_and_fro(heap, times, |_| Ok(TensorMut::<f32>::empty_in(heap, [FRESH_ELEMENTS])?.freeze()))?
        }
        "put" => {
            let (mut sender, _receiver) = spsc_in(heap, times)?;
            let tensor = existing(heap)?;
            for _ in 0..times {
                sender.put(tensor.clone())?;
            }
        }
        "allocate" => {
            for _ in 0..times {
                drop(TensorMut::<f32>::empty_in(heap, [FRESH_ELEMENTS])?);
            }
        }
        "clone" => {
            let tensor = existing(heap)?;
            for _ in 0..times {
                drop(std::hint::black_box(tensor.clone()));
            }
        }
        "lock" => {
            let lock = Lock::new_in(heap)?;
            for _ in 0..times {
                drop(lock.lock()?);
            }
        }
        "permit" => {
            let semaphore = Semaphore::new_in(heap, 1)?;
            for _ in 0..times {
                drop(semaphore.acquire()?);
            }
        }
        other => bail!("no operation is called {other}"),
    }
    Ok(())
}
