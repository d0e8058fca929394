//! A process that something else has started becomes a member: a service that was there before, a worker of a
//! batch system, or, here, a child of `std::process::Command`.
//!
//! It needs three things, which may travel in any way: where the domain's file is, an admission, which is for
//! this one process, and the name of a parcel with the queues in it.

#![expect(clippy::print_stdout, reason = "an example talks to people")]
#![expect(clippy::disallowed_methods, reason = "this is about processes that something else starts")]

use std::fs::OpenOptions;
use std::io::{BufRead, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tensorferry::domain::{Admission, Domain, PidFd};
use tensorferry::queue::{Receiver, Sender, channel};
use tensorferry::reduce::Parcel;
use tensorferry::{Heap, Tensor, TensorMut};

const ROLE: &str = "STRANGER";

/// What the stranger is told.
#[derive(Debug, Serialize, Deserialize)]
struct Invitation {
    /// The domain's file: a process of the same user can open it here, where the kernel lets it trace this
    /// one (ptrace(2)). A descriptor that was sent does as well.
    file: PathBuf,
    admission: Admission,
    /// The name of a parcel.
    ends: u64,
}

/// What lies in the parcel.
type Ends = (Receiver<Tensor<f32>>, Sender<f32>);

fn main() -> Result<()> {
    match std::env::var_os(ROLE) {
        None => host(),
        Some(_) => stranger(),
    }
}

fn host() -> Result<()> {
    Heap::create(Domain::builder().limit_bytes(1 << 30))?.make_current()?;
    let heap = Heap::current()?;
    let (work, todo) = channel(4)?;
    let (answers, sums) = channel(4)?;

    let mut child = Command::new(std::env::current_exe()?).env(ROLE, "1").stdin(Stdio::piped()).spawn()?;
    // An admission is for the process behind a pidfd, which is this child as long as nobody has collected it.
    let admission = heap.domain().admit(&PidFd::open(child.id())?)?;
    let member = admission.member();
    let ends: Ends = (todo, answers);
    let parcel = Parcel::pack(heap, &ends)?;
    drop(ends);
    let file = format!("/proc/{}/fd/{}", std::process::id(), heap.domain().as_fd().as_raw_fd()).into();
    let invitation = Invitation { file, admission, ends: parcel.id() };
    let mut stdin = child.stdin.take().context("it is piped")?;
    writeln!(stdin, "{}", serde_json::to_string(&invitation)?)?;
    // The parcel is held until that member has opened it, or is dead.
    parcel.post(member);

    for step in 1..=3_u8 {
        work.put(TensorMut::full([1 << 20], f32::from(step))?.freeze())?;
        println!("the stranger says {}", sums.get()?);
    }
    drop(work);
    println!("the stranger ended with {}", child.wait()?);
    Ok(())
}

fn stranger() -> Result<()> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let invitation: Invitation = serde_json::from_str(&line)?;
    let file = OpenOptions::new().read(true).write(true).open(&invitation.file)?;
    let heap = Heap::join(OwnedFd::from(file), invitation.admission)?;
    let (todo, answers): Ends = Parcel::open(&heap, invitation.ends)?;
    for tensor in &todo {
        answers.put(tensor.iter().sum())?;
    }
    Ok(())
}
