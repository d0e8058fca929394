//! One producer, several workers, and two ways to tell the workers that no more work comes: sentinels and
//! `close`.
//!
//! `cargo run -p tensorferry-queue --example closing`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::thread;

use tensorferry_queue::{GetError, Queue};

const WORKERS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Python's way: a sentinel for each worker. With one fewer, one worker never returns.
    let work = Queue::<Option<u32>>::new(4)?;
    let done = thread::scope(|scope| {
        let workers: Vec<_> =
            (0..WORKERS).map(|_| scope.spawn(|| work.iter().take_while(Option::is_some).count())).collect();
        for item in 0..30 {
            work.put(Some(item))?;
        }
        for _ in 0..WORKERS {
            work.put(None)?;
        }
        Ok::<_, Box<dyn std::error::Error>>(workers.into_iter().filter_map(|w| w.join().ok()).sum::<usize>())
    })?;
    println!("with sentinels: {done} items");

    // The better way: the workers still get what is in a closed queue, and then `Closed`.
    let work = Queue::<u32>::new(4)?;
    let done = thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS).map(|_| scope.spawn(|| work.iter().count())).collect();
        for item in 0..30 {
            work.put(item)?;
        }
        work.close();
        Ok::<_, Box<dyn std::error::Error>>(workers.into_iter().filter_map(|w| w.join().ok()).sum::<usize>())
    })?;
    println!("with close: {done} items");

    // Errors say what happened, and give back a value that was not sent.
    if let Err(GetError::Closed) = work.get() {
        println!("nothing more to get");
    }
    if let Err(error) = work.put(7) {
        println!("put: {error}; the value is back: {}", error.value);
    }
    Ok(())
}
