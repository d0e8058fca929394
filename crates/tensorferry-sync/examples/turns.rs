//! Workers that take turns, meet, and stop when they are told to.
//!
//! `cargo run -p tensorferry-sync --example turns`

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::thread;

use tensorferry_sync::{Barrier, Condition, Event, Lock, RawValue, Semaphore, WaitError};

const WORKERS: u32 = 3;
const ROUNDS: u32 = 4;

/// What the workers share: handles, of which another process would get its own with its arguments. Threads
/// stand in for processes here.
#[derive(Clone)]
struct Shared {
    start: Event,
    lock: Lock,
    changed: Condition,
    turn: RawValue<u32>,
    slots: Semaphore,
    end: Barrier,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let shared = Shared {
        start: Event::new()?,
        lock: Lock::new()?,
        changed: Condition::new()?,
        turn: RawValue::new(0)?,
        slots: Semaphore::new(2)?,
        end: Barrier::new(WORKERS + 1)?,
    };
    thread::scope(|scope| {
        for rank in 0..WORKERS {
            let shared = shared.clone();
            scope.spawn(move || match work(rank, &shared) {
                Ok(()) => {}
                Err(error) => println!("worker {rank}: {error}"),
            });
        }
        shared.start.set();
        shared.end.wait()
    })?;
    println!("{} turns, each after the one before", shared.turn.get());
    println!("permits that are back: {}", shared.slots.available_permits());
    shared.start.clear();
    match shared.start.wait_timeout(std::time::Duration::from_millis(1)) {
        Err(WaitError::TimedOut) => println!("cleared, so nobody passes"),
        other => other?,
    }
    Ok(())
}

fn work(rank: u32, shared: &Shared) -> Result<(), Box<dyn std::error::Error>> {
    shared.start.wait()?;
    for round in 0..ROUNDS {
        let permit = shared.slots.acquire()?; // two may prepare at a time
        drop(permit);
        let mut guard = shared.lock.lock()?;
        shared.changed.wait_while(&mut guard, || shared.turn.get() != round * WORKERS + rank)?;
        shared.turn.fetch_add(1);
        shared.changed.notify_all();
    }
    shared.end.wait()?;
    Ok(())
}
