//! A loader feeds a trainer on another machine: `loader_and_trainer KEYFILE` trains, and starts itself as
//! `loader_and_trainer KEYFILE ADDRESS`, which makes batches. On two machines, the second would be started
//! there by hand. Without a key file it makes one that is gone afterwards.

#![expect(clippy::print_stdout, reason = "an example talks to people")]
#![expect(clippy::disallowed_methods, reason = "this is about processes that something else starts")]

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tensorferry_queue::{channel, channel_with_leases};
use tensorferry_remote::{Key, Listener, connect, feed, forward};
use tensorferry_tensor::{Tensor, TensorMut};

const N_BATCHES: usize = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().map(PathBuf::from);
    if let (Some(path), Some(address)) = (&path, arguments.next()) {
        return load(path, &address.to_string_lossy());
    }
    match path {
        Some(path) => train(&path),
        None => {
            let path = std::env::temp_dir().join(format!("tensorferry-key-{}", std::process::id()));
            let mut secret = [0; 32];
            std::fs::File::open("/dev/urandom")?.read_exact(&mut secret)?;
            // For nobody else's eyes.
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?.write_all(&secret)?;
            let outcome = train(&path);
            std::fs::remove_file(&path)?;
            outcome
        }
    }
}

/// Makes batches, and sends them to the trainer.
fn load(path: &Path, address: &str) -> Result<(), Box<dyn Error>> {
    let mut connection = connect(address, &Key::read(path)?)?;
    // Any number of processes of this machine could put into it.
    let (sender, receiver) = channel_with_leases::<Tensor<f32>>(4, 8)?;
    let loader = std::thread::spawn(move || -> Result<(), Box<dyn Error + Send + Sync>> {
        for n in 0..N_BATCHES {
            sender.put(TensorMut::full([32, 3, 64, 64], n as f32)?.freeze())?;
        }
        Ok(())
    });
    forward(&receiver, &mut connection)?;
    loader.join().map_err(|_| "the loader has panicked")?.map_err(|error| error.to_string())?;
    Ok(())
}

/// Receives batches. Any number of processes of this machine could get them from the queue.
fn train(path: &Path) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0", &Key::read(path)?)?;
    let address = listener.local_addr()?.to_string();
    let mut other = Command::new(std::env::current_exe()?).arg(path).arg(&address).spawn()?;
    let mut connection = listener.accept()?;
    let (sender, batches) = channel::<Tensor<f32>>(4)?;
    let feeding = std::thread::spawn(move || feed(&mut connection, &sender));
    let mut n_batches = 0;
    for batch in &batches {
        if n_batches % 5 == 0 {
            println!("batch {n_batches}: {:?} of {}", batch.shape(), batch.get([0, 0, 0, 0])?);
        }
        n_batches += 1;
    }
    feeding.join().map_err(|_| "feeding has panicked")??;
    println!("{n_batches} batches; the loader ended with {}", other.wait()?);
    if n_batches == N_BATCHES { Ok(()) } else { Err("some are missing".into()) }
}
