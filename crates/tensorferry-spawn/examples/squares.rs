//! Spawns a registered function in three processes, then one that fails in one of them.
//!
//! Expected output: the values in order of the index, then the failure of one process with message, location
//! and backtrace. The others are stopped because of it.

use std::io::Write as _;

use tensorferry_spawn::{func, spawn};

#[func]
fn square(rank: usize, offset: u64) -> Result<u64, std::num::TryFromIntError> {
    Ok((u64::try_from(rank)? + offset).pow(2))
}

#[func]
fn stumble(rank: usize) {
    if rank == 1 {
        let empty: [u8; 0] = [];
        assert_eq!(empty.len(), rank, "process {rank} has nothing to do");
    }
    // The others do not end by themselves.
    loop {
        std::thread::park();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout();
    writeln!(out, "squares: {:?}", spawn(square, (10,), 3)?)?;
    match spawn(stumble, (), 3) {
        Ok(_) => writeln!(out, "nobody stumbled")?,
        Err(error) => writeln!(out, "{error}")?,
    }
    Ok(())
}
