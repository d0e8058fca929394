//! Counters, a flag and a result for each worker, shared without a lock.
//!
//! `cargo run -p tensorferry-sync --example tally`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::thread;

use tensorferry_sync::{RawArray, RawValue};

const WORKERS: usize = 3;
const NUMBERS: u64 = 30_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // All of this lies in shared memory. Another process that gets these handles, through a queue or as spawn
    // arguments, uses the same memory. Threads stand in for processes here.
    let next = RawValue::new(1_u64)?;
    let primes = RawValue::new(0_u32)?;
    let looked_at = RawArray::full(WORKERS, 0_u64)?;
    let largest = RawValue::new(0_u64)?;

    thread::scope(|scope| {
        for rank in 0..WORKERS {
            let (next, primes, looked_at, largest) =
                (next.clone(), primes.clone(), looked_at.clone(), largest.clone());
            scope.spawn(move || {
                // fetch_add hands out each number once, to one of the workers.
                while let number @ 1..=NUMBERS = next.fetch_add(1) {
                    if let Some(looked_at) = looked_at.at(rank) {
                        looked_at.fetch_add(1);
                    }
                    if is_prime(number) {
                        primes.fetch_add(1);
                        let _ = largest.fetch_update(|seen| (number > seen).then_some(number));
                    }
                }
            });
        }
    });

    println!("{} primes up to {NUMBERS}, the largest is {}", primes.get(), largest.get());
    let shares = looked_at.to_vec();
    println!("numbers looked at by each: {shares:?}");
    println!("nothing lost, nothing twice: {}", shares.iter().sum::<u64>() == NUMBERS);
    if let Err(error) = looked_at.set(WORKERS, 0) {
        println!("outside is an error: {error}");
    }
    Ok(())
}

fn is_prime(number: u64) -> bool {
    number > 1 && (2..).take_while(|d| d * d <= number).all(|d| !number.is_multiple_of(d))
}
