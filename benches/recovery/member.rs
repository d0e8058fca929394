//! A member of a domain that is killed.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use tensorferry::queue::{GetError, Receiver, Sender, channel};
use tensorferry::spawn::{Process, ProcessHandle, func};
use tensorferry::storage::Heap;
use tensorferry::tensor::TensorMut;

use crate::killed_while;

/// Allocates, says so, and waits to be killed.
#[func]
fn hold(_rank: usize, mib: usize, ready: Sender<u8>, never: Receiver<u8>) -> Result<(), String> {
    let held = TensorMut::<u8>::full([mib << 20], 1).map_err(|error| error.to_string())?;
    ready.put(1).map_err(|error| error.to_string())?;
    let _ = never.get();
    drop(held);
    Ok(())
}

struct Victim {
    process: ProcessHandle<()>,
    ready: Receiver<u8>,
    _never: Sender<u8>,
}

impl Victim {
    fn start(mib: usize) -> anyhow::Result<Self> {
        let (to_say, ready) = channel(2)?;
        let (never, to_hear) = channel(2)?;
        let process = Process::new(hold, (mib, to_say, to_hear)).start()?;
        ready.get().context("the process did not get ready")?;
        Ok(Self { process, ready, _never: never })
    }
}

fn is_alone(heap: &Heap) -> bool {
    heap.domain().members().len() == 1
}

fn wait_alone(heap: &Heap) {
    while !is_alone(heap) {
        std::thread::yield_now();
    }
}

/// From the kill to the return of a `get` that nobody can serve any more.
pub(crate) fn wake_up(mib: usize) -> anyhow::Result<Duration> {
    let heap = Heap::current()?;
    let Victim { process, ready, _never } = Victim::start(mib)?;
    let process = &process;
    let (time, outcome) = killed_while(|| Ok(process.kill()?), || Ok(ready.get()))?;
    ensure!(matches!(outcome, Err(GetError::PeerDied)), "the get returned {outcome:?}");
    wait_alone(heap);
    Ok(time)
}

/// From the kill to the slot being free, and to the domain having no more memory than before.
pub(crate) fn given_back(mib: usize) -> anyhow::Result<(Duration, Duration)> {
    let heap = Heap::current()?;
    let victim = Victim::start(mib)?;
    let before = heap.domain().allocated_bytes()?;
    let wanted = before - (u64::try_from(mib)? << 20);
    let killed_at = Instant::now();
    victim.process.kill()?;
    let (mut free, mut back) = (None, None);
    while free.is_none() || back.is_none() {
        if free.is_none() && is_alone(heap) {
            free = Some(killed_at.elapsed());
        }
        if back.is_none() && heap.domain().allocated_bytes()? <= wanted {
            back = Some(killed_at.elapsed());
        }
        if killed_at.elapsed() > Duration::from_secs(60) {
            bail!("not given back within a minute: slot {free:?}, memory {back:?}");
        }
        std::thread::yield_now();
    }
    free.zip(back).context("both were seen")
}
