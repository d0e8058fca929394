//! A domain with two members, and one thread that waits for another.
//!
//! `cargo run -p tensorferry-domain --example members`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use tensorferry_domain::{Domain, DomainError, Spin, WaitWord};
use tensorferry_os::pidfd::PidFd;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let first = Domain::builder().address_space_bytes(1 << 30).limit_bytes(1 << 20).create()?;
    let layout = first.layout();
    println!("{} extents of {} bytes, all in one descriptor", layout.n_extents, layout.extent_len_bytes);

    // A member admits a process whose pidfd it holds. That process joins with the descriptor and the
    // admission.
    // Usually it is a child. Here this process admits itself and is a member twice.
    let admission = first.admit(&PidFd::of_self()?)?;
    let second = Domain::join(first.as_fd().try_clone_to_owned()?, admission)?;
    println!("members: {:?} and {:?}", first.me(), second.me());

    // Every member sees the process table. A dead member stays in it until it has been swept.
    for member in second.members() {
        println!("slot {}: {:?}, process {}", member.member.slot, member.phase, member.identity.pid);
    }
    // An admission is for one process, and can be used once.
    match Domain::join(first.as_fd().try_clone_to_owned()?, admission) {
        Err(error @ DomainError::NotAdmitted { .. }) => println!("{error}"),
        other => println!("unexpected: {other:?}"),
    }

    // Waiting: spin as long as spinning pays on this machine, then sleep. The word could also be in the
    // domain.
    let (word, answer) = (AtomicU32::new(0), AtomicU32::new(0));
    let found = thread::scope(|scope| {
        scope.spawn(|| {
            answer.store(42, Ordering::Release);
            WaitWord::new(&word).wake();
        });
        let look = || Some(answer.load(Ordering::Acquire)).filter(|&answer| answer != 0);
        WaitWord::new(&word).wait_until(&Spin::default(), None, look)
    });
    println!("waited for {found:?}");

    drop(second);
    println!("members left: {}", first.members().len());
    Ok(())
}
