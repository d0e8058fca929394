//! How a pool ends.

use std::collections::BTreeSet;
use std::thread;

use nix::libc;
use tensorferry::pool::{Pool, PoolError, SubmitErrorKind, TaskError};
use tensorferry::sync::{Event, RawValue};
use tensorferry::{BoxedError, Tensor, TensorMut, func};
use tensorferry_kit::{forbid, in_fork, until};

use crate::{get, leaving_nothing, pool, square, wait};

#[func]
fn fail(_worker: usize, with_panic: bool) -> Result<(), BoxedError> {
    if with_panic { panic!("no model") } else { Err("no model".into()) }
}

#[func]
fn kill_itself(_worker: usize, n_calls: RawValue<u32>, enough: u32) {
    if n_calls.fetch_add(1) + 1 < enough {
        std::process::abort();
    }
}

/// Has this process map nothing more, as when it has as many mappings as it may have.
#[func]
fn map_no_more(_worker: usize) -> Result<(), String> {
    forbid(&[libc::SYS_mprotect], libc::ENOMEM).map_err(|error| error.to_string())
}

#[func]
fn sum(_worker: usize, tensor: Tensor<u64>) -> Result<u64, BoxedError> {
    Ok(tensor.as_slice()?.iter().sum())
}

#[test]
fn a_worker_that_is_killed_in_its_initializer_is_replaced_but_not_for_ever() {
    leaving_nothing(|| {
        let n_calls = RawValue::new(0).unwrap();
        let start =
            |enough| Pool::builder().processes(1).initializer(kill_itself, (n_calls.clone(), enough)).start();
        let pool = start(4).unwrap();
        assert_eq!(get(pool.apply_async(square, (3,)).unwrap()).unwrap(), 9);
        assert_eq!(n_calls.get(), 4);
        n_calls.set(0);
        let pool = start(1000).unwrap();
        let error =
            pool.apply_async(square, (3,)).map_or_else(TaskError::from, |result| get(result).unwrap_err());
        let TaskError::Pool(error) = error else { panic!("{error:?}") };
        assert!(error.to_string().contains("SIGABRT"), "{error}");
        assert_eq!(n_calls.get(), 8);
    });
}

#[test]
fn join_waits_until_what_was_submitted_is_done() {
    leaving_nothing(|| {
        let pool = pool(2);
        let results: Vec<_> = (0..100).map(|n| pool.apply_async(square, (n,)).unwrap()).collect();
        pool.join().unwrap();
        assert!(results.iter().all(|result| result.is_ready()));
        assert!(results.into_iter().zip(0_u64..).all(|(result, n)| result.get().unwrap() == n * n));
    });
}

#[test]
fn a_closed_pool_takes_nothing_more() {
    let pool = pool(1);
    pool.close();
    let refused = pool.apply_async(square, (3,)).unwrap_err();
    assert!(matches!(refused.kind, SubmitErrorKind::Closed), "{refused}");
    assert_eq!(pool.n_pending(), 0);
    // As often as one likes, also when nobody is there any more to be told.
    until("its worker has ended", || pool.processes().is_empty());
    (0..1000).for_each(|_| pool.close());
    pool.join().unwrap();
}

#[test]
fn a_process_that_something_else_has_forked_ends_no_workers() {
    leaving_nothing(|| {
        let mut pool = Some(pool(2));
        let pids = |pool: &Option<Pool>| {
            let pids: BTreeSet<_> =
                pool.iter().flat_map(Pool::processes).map(|process| process.pid()).collect();
            pids
        };
        let before = pids(&pool);
        let dropped = in_fork(|| {
            drop(pool.take());
            1
        });
        assert_eq!(dropped, 1);
        assert_eq!(pool.as_ref().unwrap().apply(square, (3,)).unwrap(), 9);
        assert_eq!(pids(&pool), before);
    });
}

#[test]
fn who_waits_is_told_that_the_pool_was_terminated() {
    leaving_nothing(|| {
        let pool = pool(1);
        let (says, go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
        let done = pool.apply_async(square, (5,)).unwrap();
        done.wait();
        let task = pool.apply_async(wait, (says.clone(), go)).unwrap();
        let behind = pool.apply_async(square, (4,)).unwrap();
        until("it has begun", || says.get() != 0);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| get(task));
            pool.terminate();
            assert!(matches!(waiting.join().unwrap(), Err(TaskError::Terminated)));
        });
        assert!(matches!(get(behind), Err(TaskError::Terminated)));
        assert_eq!(done.get().unwrap(), 25, "what was done stays done");
        let refused = pool.apply_async(square, (3,)).unwrap_err();
        assert!(matches!(refused.kind, SubmitErrorKind::Terminated), "{refused}");
        pool.join().unwrap();
    });
}

#[test]
fn dropping_a_pool_ends_its_processes() {
    leaving_nothing(|| {
        let (says, go) = (RawValue::new(0).unwrap(), Event::new().unwrap());
        let pool = pool(2);
        let task = pool.apply_async(wait, (says.clone(), go)).unwrap();
        until("it has begun", || says.get() != 0);
        drop(pool);
        assert!(matches!(get(task), Err(TaskError::Terminated)));
    });
}

#[test]
fn an_initializer_that_fails_fails_the_pool_and_says_why() {
    for with_panic in [false, true] {
        leaving_nothing(|| {
            let builder = Pool::builder().processes(2).initializer(fail, (with_panic,));
            let pool = builder.start().unwrap();
            let told = match pool.apply_async(square, (3,)) {
                Ok(result) => get(result).map(drop).unwrap_err(),
                Err(refused) => refused.into(),
            };
            let TaskError::Pool(error) = told else { panic!("{told:?}") };
            assert!(matches!(&*error, PoolError::Ended(_)), "{error}");
            assert!(error.to_string().contains("no model"), "{error}");
            let again = pool.apply_async(square, (3,)).unwrap_err();
            assert!(matches!(again.kind, SubmitErrorKind::Pool(_)), "{again}");
            assert!(pool.join().unwrap_err().to_string().contains("no model"));
        });
    }
}

#[test]
fn workers_that_cannot_map_a_task_fail_the_pool_and_say_why() {
    leaving_nothing(|| {
        let pool = Pool::builder().processes(1).initializer(map_no_more, ()).start().unwrap();
        assert_eq!(get(pool.apply_async(square, (3,)).unwrap()).unwrap(), 9, "that needs no mapping");
        let tensor = TensorMut::from_slice(&vec![1_u64; 1 << 17], [1 << 17]).unwrap().freeze();
        let error = get(pool.apply_async(sum, (tensor,)).unwrap()).unwrap_err();
        let TaskError::Pool(error) = error else { panic!("{error:?}") };
        assert!(matches!(&*error, PoolError::Ended(_)), "{error}");
        assert!(format!("{error:#}").contains("os error 12"), "ENOMEM: {error}");
    });
}
