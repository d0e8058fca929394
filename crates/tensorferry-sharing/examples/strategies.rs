//! Which sharing strategies work on this machine, and the file behind one of them.
//!
//! `cargo run -p tensorferry-sharing --example strategies`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::os::fd::AsFd;

use tensorferry_sharing::{
    Backing, SharingStrategy, get_all_sharing_strategies, get_sharing_strategy, set_sharing_strategy,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The set is found by trying, not by asking for a version.
    for strategy in get_all_sharing_strategies() {
        println!("works here: {strategy}");
    }
    println!("the next domain will use: {}", get_sharing_strategy());

    // The names are torch's. A known strategy that is not supported and an unknown one fail differently.
    for name in ["file_descriptor", "file_system", "carrier_pigeon"] {
        match name.parse::<SharingStrategy>().and_then(set_sharing_strategy) {
            Ok(()) => println!("set to {name}"),
            Err(error) => println!("refused: {error}"),
        }
    }

    // A domain is backed by a file without a name, whose size no process can change. Another process receives
    // the descriptor and checks exactly that before it maps anything.
    let made = Backing::create(get_sharing_strategy(), 1 << 40)?;
    let received = Backing::from_fd(made.as_fd().try_clone_to_owned()?)?;
    println!("a descriptor of {} bytes by {}", received.len_bytes(), received.strategy());
    let (pipe, _) = std::io::pipe()?;
    if let Err(error) = Backing::from_fd(pipe.into()) {
        println!("a pipe instead: {error}");
    }
    Ok(())
}
