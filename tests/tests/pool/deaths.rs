//! Workers that die in the middle of a task.

use std::collections::BTreeSet;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tensorferry::pool::{Pool, SubmitErrorKind, TaskError};
use tensorferry::spawn::Cause;
use tensorferry::sync::{Event, RawValue};
use tensorferry::{BoxedError, func};
use tensorferry_kit::{Random, until};

use crate::{abort_until, died, get, leaving_nothing, pid, pool, square, wait};

#[func]
fn exit_with(_worker: usize, code: i32) {
    std::process::exit(code);
}

/// Kills its process for some items, at once or after half the work.
#[func]
fn risky(_worker: usize, n: u64) -> Result<u64, BoxedError> {
    if n.is_multiple_of(7) {
        kill(Pid::this(), Signal::SIGKILL)?;
    }
    Ok(n + 1)
}

fn kill_process(pid: u32) {
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL).unwrap();
}

#[test]
fn who_waits_is_told_which_process_died_how_over_which_function() {
    let pool = pool(2);
    let (says, go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
    let (other_says, other_go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
    let task = pool.apply_async(wait, (says.clone(), go)).unwrap();
    let other = pool.apply_async(wait, (other_says.clone(), other_go.clone())).unwrap();
    until("both have begun", || says.get() != 0 && other_says.get() != 0);
    kill_process(says.get());
    let error = died(get(task));
    assert!(error.function.ends_with("pool::wait"), "{}", error.function);
    assert_eq!(error.tries, 1);
    let process = error.process.as_ref().unwrap();
    assert_eq!(process.pid, says.get());
    assert!(matches!(process.cause, Cause::Signaled { signal: 9, .. }), "{process}");
    assert!(
        error.to_string().contains("SIGKILL") && error.to_string().contains("in the middle of"),
        "{error}"
    );
    other_go.set();
    assert_eq!(get(other).unwrap(), other_says.get(), "the other task went on");
    until("another process has taken its place", || {
        let pids: BTreeSet<u32> = pool.processes().iter().map(|process| process.pid()).collect();
        pids.len() == 2 && !pids.contains(&says.get())
    });
    assert_eq!(pool.map(square, 0..50).unwrap().len(), 50);
}

#[test]
fn a_process_that_exits_in_the_middle_has_died_whatever_its_code() {
    let pool = pool(1);
    for code in [0, 3] {
        let process = died(get(pool.apply_async(exit_with, (code,)).unwrap())).process.unwrap();
        assert_eq!(process.exit_code(), Some(code));
    }
}

#[test]
fn a_task_is_tried_again_as_often_as_it_may() {
    let pool = Pool::builder().processes(2).max_tries(3).start().unwrap();
    let n_calls = RawValue::new(0).unwrap();
    assert_eq!(get(pool.apply_async(abort_until, (n_calls.clone(), 3)).unwrap()).unwrap(), 3);
    n_calls.set(0);
    let error = died(get(pool.apply_async(abort_until, (n_calls.clone(), 100)).unwrap()));
    assert_eq!((error.tries, n_calls.get()), (3, 3));
    assert_eq!(error.process.as_ref().unwrap().signal_name().as_deref(), Some("SIGABRT"));
    assert!(error.to_string().contains(", in 3 tries: "), "{error}");
}

#[test]
fn an_idle_worker_that_is_killed_costs_no_task() {
    let pool = pool(1);
    let before = pool.apply(pid, ()).unwrap();
    kill_process(before);
    let after = get(pool.apply_async(pid, ()).unwrap()).unwrap();
    assert_ne!(after, before);
}

#[test]
fn the_last_worker_of_a_closed_pool_is_replaced_for_what_is_left() {
    let pool = Pool::builder().processes(1).max_tries(2).start().unwrap();
    let (says, go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
    let task = pool.apply_async(wait, (says.clone(), go.clone())).unwrap();
    let behind = pool.apply_async(square, (4,)).unwrap();
    until("it has begun", || says.get() != 0);
    let first = says.get();
    pool.close();
    kill_process(first);
    until("another process has begun it", || says.get() != first);
    go.set();
    assert_eq!(get(task).unwrap(), says.get());
    assert_eq!(get(behind).unwrap(), 16);
    pool.join().unwrap();
}

#[test]
fn of_many_tasks_each_has_its_outcome_whoever_dies() {
    leaving_nothing(|| {
        let pool = pool(3);
        let mut n_died = 0;
        for (n, outcome) in (0..210_u64).zip(pool.imap(risky, 0..210)) {
            match outcome {
                Ok(value) => assert_eq!(value, n + 1),
                Err(TaskError::WorkerDied(_)) if n.is_multiple_of(7) => n_died += 1,
                Err(error) => panic!("{n}: {error}"),
            }
        }
        assert_eq!(n_died, 30);
        assert_eq!(pool.n_pending(), 0);
    });
}

#[test]
fn workers_that_are_killed_at_any_moment_cost_only_what_they_were_at() {
    leaving_nothing(|| {
        let pool = Pool::builder().processes(2).max_tries(1000).start().unwrap();
        let results: Vec<_> = (0..200).map(|n| pool.apply_async(square, (n,)).unwrap()).collect();
        let mut random = Random::from_seed(7);
        let mut n_killed = 0;
        for (result, n) in results.into_iter().zip(0_u64..) {
            if n.is_multiple_of(10) {
                let processes = pool.processes();
                let at = usize::try_from(random.draw()).unwrap_or(0) % processes.len().max(1);
                n_killed += usize::from(processes.get(at).is_some_and(|process| process.kill().is_ok()));
            }
            assert_eq!(get(result).unwrap(), n * n);
        }
        assert!(n_killed > 0);
    });
}

/// As many as wait for a worker at a time.
const CAPACITY_ITEMS: u64 = 256;

#[test]
fn who_waits_for_room_in_the_queue_of_tasks_waits_for_the_worker_that_replaces_the_last_one() {
    let pool = pool(1);
    let (says, go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
    let task = pool.apply_async(wait, (says.clone(), go)).unwrap();
    until("it has begun", || says.get() != 0);
    let results: Vec<_> = (0..CAPACITY_ITEMS).map(|n| pool.apply_async(square, (n,)).unwrap()).collect();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| pool.apply_async(square, (7,)));
        until("it is pending", || pool.n_pending() == results.len() + 2);
        kill_process(says.get());
        assert_eq!(get(waiting.join().unwrap().unwrap()).unwrap(), 49);
    });
    died(get(task));
    assert!(results.into_iter().zip(0_u64..).all(|(result, n)| get(result).unwrap() == n * n));
}

#[test]
fn a_task_that_is_given_up_is_none_of_the_many_that_a_worker_may_do() {
    let pool = Pool::builder().processes(1).max_tasks_per_process(1).start().unwrap();
    let exits = pool.apply_async(exit_with, (1,)).unwrap();
    let results: Vec<_> = (0..3).map(|n| pool.apply_async(square, (n,)).unwrap()).collect();
    pool.close();
    died(get(exits));
    assert!(results.into_iter().zip(0_u64..).all(|(result, n)| get(result).unwrap() == n * n));
    pool.join().unwrap();
}

/// Has a pool of its own, and is killed in the middle of it.
#[func]
fn nested(_worker: usize, is_killed: bool) -> Result<u64, BoxedError> {
    let pool = Pool::new(2)?;
    let sum = pool.map(square, 0..10)?.iter().sum();
    if is_killed {
        kill(Pid::this(), Signal::SIGKILL)?;
    }
    Ok(sum)
}

#[test]
fn a_worker_may_have_a_pool_which_ends_with_it() {
    let pool = pool(2);
    assert_eq!(pool.map(nested, [false, false, false]).unwrap(), [285; 3]);
    died(pool.apply(nested, (true,)));
    assert_eq!(pool.apply(nested, (false,)).unwrap(), 285);
}

/// Stops its process.
#[func]
fn stop(_worker: usize, says: RawValue<u32>) -> Result<(), BoxedError> {
    says.set(1);
    Ok(kill(Pid::this(), Signal::SIGSTOP)?)
}

#[test]
fn stopped_workers_and_a_full_queue_end_with_the_pool() {
    leaving_nothing(|| {
        let (pool, says) = (pool(1), RawValue::new(0).unwrap());
        let stopped = pool.apply_async(stop, (says.clone(),)).unwrap();
        until("it is about to stop", || says.get() == 1);
        let n_waiting = usize::try_from(CAPACITY_ITEMS).unwrap();
        let results: Vec<_> = (0..CAPACITY_ITEMS).map(|n| pool.apply_async(square, (n,)).unwrap()).collect();
        for timeout in [Duration::ZERO, Duration::from_millis(5)] {
            let refused = pool.apply_async_timeout(square, (8,), timeout).unwrap_err();
            assert!(matches!(refused.kind, SubmitErrorKind::Full), "{refused}");
            assert_eq!((refused.into_args(), pool.n_pending()), ((8,), n_waiting + 1));
        }
        thread::scope(|scope| {
            let waiting = scope.spawn(|| pool.apply_async(square, (7,)));
            until("it is pending", || pool.n_pending() == n_waiting + 2);
            pool.terminate();
            // It was put just before, or is refused.
            match waiting.join().unwrap() {
                Ok(result) => assert!(matches!(get(result), Err(TaskError::Terminated))),
                Err(refused) => assert!(matches!(refused.kind, SubmitErrorKind::Terminated), "{refused}"),
            }
        });
        assert!(matches!(get(stopped), Err(TaskError::Terminated)));
        assert!(results.into_iter().all(|result| matches!(get(result), Err(TaskError::Terminated))));
    });
}
