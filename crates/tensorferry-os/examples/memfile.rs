//! A memory file without a name, mapped twice, and a thread that sleeps on a word of it.
//!
//! `cargo run -p tensorferry-os --example memfile`
//!
//! # Safety
//! This program makes the file and gives it to no other process, so every access to it is on this page.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]
#![expect(unsafe_code, reason = "whoever maps a file answers for what else is done with it")]

use std::sync::atomic::Ordering;
use std::thread;

use tensorferry_os::mapping::{Reservation, Tables};
use tensorferry_os::pidfd::PidFd;
use tensorferry_os::{futex, limits, memfd};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("usable processors: {}", limits::usable_cpus());
    println!("memory to be had: {:?} bytes", limits::available_memory_bytes());
    println!("this process is alive: {}", !PidFd::of_self()?.is_dead()?);

    // A gigabyte that costs nothing until it is touched, and whose size no process can change.
    let file = memfd::create_sealed("example", 1 << 30)?;
    // SAFETY: no other process has the file, and the one word that is used is always accessed as 32 bits.
    let whole = unsafe { Reservation::map(&file, 0, 1 << 30, 2 << 20) }?;
    println!("closed at first: {}", whole.words(0, 1).is_none());
    whole.open(0, 64 << 10)?;
    whole.populate(0, 64 << 10)?;
    println!("of a gigabyte, {} bytes are memory", memfd::allocated_bytes(&file)?);

    // Two mappings of one file stand for two processes.
    // SAFETY: as above.
    let head = unsafe { Tables::map(&file, 4096) }?;
    let (ours, theirs) = (whole.words_with_words32(8, 1, 0, 1), head.words32(8, 1));
    let (Some((_, [ours])), Some([theirs])) = (ours, theirs) else { return Err("not mapped".into()) };
    thread::scope(|scope| {
        scope.spawn(|| {
            while theirs.load(Ordering::Acquire) == 0 {
                // Sleeps only while the word is still 0, so a wake cannot be missed.
                let _ = futex::wait(theirs, 0, None);
            }
            println!("woken, and the word is {}", theirs.load(Ordering::Relaxed));
        });
        ours.store(7, Ordering::Release);
        futex::wake_all(ours).map(drop)
    })?;

    memfd::punch_hole(&file, 0, 64 << 10)?;
    println!(
        "after the hole {} bytes, and the word is {}",
        memfd::allocated_bytes(&file)?,
        ours.load(Ordering::Relaxed)
    );
    Ok(())
}
