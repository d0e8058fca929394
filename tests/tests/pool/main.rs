//! Pools of worker processes: calls and their values, workers that die, and how a pool ends.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod calls;
mod deaths;
mod ends;
mod failures;

use std::process::abort;

use serde::de::DeserializeOwned;
use tensorferry::func;
use tensorferry::pool::{AsyncResult, Pool, TaskError, WorkerDiedError};
use tensorferry::sync::{Event, RawValue};
use tensorferry_kit::DEADLINE;

#[func]
fn square(_worker: usize, n: u64) -> Result<u64, String> {
    Ok(n * n)
}

#[func]
fn pid(_worker: usize) -> Result<u32, String> {
    Ok(std::process::id())
}

/// Says which process it is, and then waits to be let go, or to be killed.
#[func]
fn wait(_worker: usize, says: RawValue<u32>, go: Event) -> Result<u32, String> {
    let me = std::process::id();
    says.set(me);
    go.wait().map_err(|error| error.to_string())?;
    Ok(me)
}

/// Kills its process until it was called so often.
#[func]
fn abort_until(_worker: usize, n_calls: RawValue<u32>, enough: u32) -> Result<u32, String> {
    let n = n_calls.fetch_add(1) + 1;
    if n < enough {
        abort();
    }
    Ok(n)
}

/// The outcome, which comes in time.
#[track_caller]
fn get<T: DeserializeOwned>(result: AsyncResult<T>) -> Result<T, TaskError> {
    assert!(result.wait_timeout(DEADLINE), "no outcome in {DEADLINE:?}: {result:?}");
    result.get()
}

#[track_caller]
fn died<T: std::fmt::Debug>(outcome: Result<T, TaskError>) -> WorkerDiedError {
    match outcome {
        Err(TaskError::WorkerDied(died)) => *died,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn pool(n_processes: usize) -> Pool {
    Pool::new(n_processes).unwrap()
}

/// As [`tensorferry_kit::leaving_nothing`], after another pool.
#[track_caller]
fn leaving_nothing(test: impl FnOnce()) {
    tensorferry_kit::leaving_nothing(|| pool(1).join().unwrap(), test);
}
