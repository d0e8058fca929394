//! One producer, several workers, and two ways to tell the workers that there is no more: sentinels and `close`.
//!
//! `cargo run -p tensorferry-queue --example closing`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::thread;

use tensorferry_queue::{GetError, Queue};

const WORKERS: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Python's way: a sentinel for each worker. One fewer, and one worker waits for ever.
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

    // The better way: what is in a closed queue can still be got, then every worker is told.
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

    // Errors say what happened, and a value that was not sent comes back.
    if let Err(GetError::Closed) = work.get() {
        println!("nothing more to get");
    }
    if let Err(error) = work.put(7) {
        println!("put: {error}; the value is back: {}", error.value);
    }
    Ok(())
}
