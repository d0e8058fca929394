//! Functions that fail, and tasks that are refused. No worker dies of either.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, waitpid};
use tensorferry::pool::{PoolError, SubmitErrorKind, TaskError, TaskRaisedError};
use tensorferry::spawn::{Cause, ReportKind, StartMethod, get_context};
use tensorferry::sync::Event;
use tensorferry::{BoxedError, Pool, Queue, Tensor, TensorMut, func};
use tensorferry_kit::Limit;

use crate::{died, get, pid, pool, square};

#[derive(Debug, thiserror::Error)]
#[error("no data")]
struct NoData {
    source: std::num::ParseIntError,
}

#[func]
fn parse(_worker: usize, text: String) -> Result<u32, NoData> {
    text.parse().map_err(|source| NoData { source })
}

#[func]
fn panic_at(_worker: usize, n: u32) -> Result<u32, String> {
    if n == 3 {
        panic!("not {n}");
    }
    Ok(n)
}

#[func]
fn abort(_worker: usize) {
    std::process::abort();
}

/// Starts a pool where there is no room for the stack of a thread.
#[func]
fn start_without_thread(_rank: usize) -> Result<(), BoxedError> {
    // What the process has anyway: its domain and the thread of that.
    let _queue = Queue::<u8>::new(1)?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).ok_or("it has a size")?;
    let size_bytes = size.trim().trim_end_matches(" kB").parse::<u64>()? << 10;
    Limit::AddressSpace.set(size_bytes + (1 << 20));
    let error = Pool::new(2).unwrap_err();
    assert!(matches!(error, PoolError::Thread(_)), "{error}");
    let children = waitpid(None, Some(WaitPidFlag::WNOHANG));
    assert_eq!(children, Err(Errno::ECHILD), "a process is left");
    Ok(())
}

/// A value that cannot be sent.
#[derive(Debug, serde::Deserialize)]
struct Unsendable;

impl serde::Serialize for Unsendable {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("it never is"))
    }
}

/// A number of which only even ones can be sent. One that cannot be says so.
#[derive(serde::Deserialize)]
struct Even(u32, Event);

impl serde::Serialize for Even {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 % 2 == 1 {
            self.1.set();
            return Err(serde::ser::Error::custom("it is odd"));
        }
        (self.0, &self.1).serialize(serializer)
    }
}

/// Fails for 2, once another one could not be sent.
#[func]
fn refuse_two(_worker: usize, n: Even) -> Result<u32, BoxedError> {
    if n.0 == 2 {
        n.1.wait()?;
        return Err("not 2".into());
    }
    Ok(n.0)
}

#[func]
fn unsendable(_worker: usize) -> Result<Unsendable, String> {
    Ok(Unsendable)
}

#[func]
fn takes_unsendable(_worker: usize, _value: Unsendable) -> Result<(), BoxedError> {
    Ok(())
}

fn not_registered(_worker: usize, n: u64) -> Result<u64, String> {
    Ok(n)
}

#[track_caller]
fn raised<T: std::fmt::Debug>(outcome: Result<T, TaskError>) -> TaskRaisedError {
    match outcome {
        Err(TaskError::Raised(raised)) => *raised,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_error_is_told_with_its_causes_and_the_worker_lives_on() {
    let pool = pool(1);
    let before = pool.apply(pid, ()).unwrap();
    let error = raised(pool.apply(parse, (String::from("x"),)));
    assert_eq!((error.worker, error.pid), (0, before));
    assert!(error.function.ends_with("failures::parse"), "{}", error.function);
    assert_eq!(error.report.message, "no data");
    assert_eq!(error.report.chain, ["invalid digit found in string"]);
    assert_eq!(pool.apply(parse, (String::from("7"),)).unwrap(), 7);
    assert_eq!(pool.apply(pid, ()).unwrap(), before);
}

#[test]
fn a_panic_is_told_with_its_place_and_stack_and_the_worker_lives_on() {
    let pool = pool(1);
    let before = pool.apply(pid, ()).unwrap();
    for _ in 0..12 {
        let report = raised(pool.apply(panic_at, (3,))).report;
        assert_eq!((report.kind, report.message.as_str()), (ReportKind::Panic, "not 3"));
        assert!(report.location.unwrap().file.ends_with("failures.rs"));
        assert!(report.backtrace.unwrap().contains("panic_at"));
        assert!(report.chain.is_empty(), "earlier ones are none of its causes: {:?}", report.chain);
    }
    assert_eq!(pool.apply(pid, ()).unwrap(), before);
}

/// Other threads panic in it, which it handles.
#[func]
fn handle_panics(_worker: usize, panics_itself: bool) -> Result<(), String> {
    (0..2).for_each(|_| drop(thread::spawn(|| panic!("handled")).join()));
    if panics_itself { panic!("of its own") } else { Ok(()) }
}

#[test]
fn a_panic_that_is_over_is_not_what_a_worker_dies_of_later() {
    let pool = pool(1);
    for panics_itself in [true, false] {
        for _ in 0..3 {
            assert_eq!(pool.apply(handle_panics, (panics_itself,)).is_err(), panics_itself);
        }
        let report = raised(pool.apply(panic_at, (3,))).report;
        assert!(report.chain.is_empty(), "{:?}", report.chain);
        let process = died(get(pool.apply_async(abort, ()).unwrap())).process.unwrap();
        assert!(matches!(process.cause, Cause::Signaled { signal: 6, .. }), "{process}");
    }
}

/// A value that panics instead.
#[derive(Debug, serde::Deserialize)]
struct Panics;

impl serde::Serialize for Panics {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("it is not serialised")
    }
}

#[func]
fn value_panics(_worker: usize) -> Result<Panics, String> {
    Ok(Panics)
}

#[func]
fn takes_panics(_worker: usize, _value: Panics) {}

#[test]
fn a_value_that_panics_when_it_is_serialised_costs_no_worker_and_no_place() {
    let pool = pool(1);
    let before = pool.apply(pid, ()).unwrap();
    assert_eq!(raised(pool.apply(value_panics, ())).report.message, "it is not serialised");
    let caught = catch_unwind(AssertUnwindSafe(|| pool.apply(takes_panics, (Panics,))));
    assert!(caught.is_err());
    let error = Pool::builder().initializer(takes_panics, (Panics,)).start().unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    assert_eq!(pool.n_pending(), 0);
    assert_eq!(pool.apply(pid, ()).unwrap(), before);
}

#[func]
fn many(_worker: usize, n_tensors: usize, bytes: Vec<u8>) -> Result<(Vec<Tensor<u8>>, Vec<u8>), BoxedError> {
    let tensors = (0..n_tensors).map(|_| Ok(TensorMut::full([8], 1)?.freeze()));
    Ok((tensors.collect::<Result<_, BoxedError>>()?, bytes))
}

#[test]
fn what_does_not_fit_into_a_slot_travels_and_too_many_handles_are_an_error() {
    let pool = pool(1);
    let (tensors, bytes) = pool.apply(many, (5000, vec![3; 1_000_000])).unwrap();
    assert_eq!((tensors.len(), bytes.len()), (5000, 1_000_000));
    let error = raised(pool.apply(many, (70_000, Vec::new())));
    assert!(error.report.message.contains("70000 handles"), "{error}");
}

#[test]
fn map_tells_which_item_failed_first() {
    let pool = pool(2);
    let error = pool.map(panic_at, [1, 3, 2, 3]).unwrap_err();
    assert_eq!(error.index, 1);
    assert!(error.to_string().starts_with("item 1: `"), "{error}");
    let outcomes: Vec<_> = pool.imap(panic_at, [1, 3, 2]).collect();
    assert_eq!(outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, false, true]);
}

#[test]
fn what_cannot_be_sent_is_an_error_on_either_side() {
    let pool = pool(1);
    let error = raised(pool.apply(unsendable, ()));
    assert!(error.report.message.contains("its value cannot be sent"), "{error}");
    let refused = pool.apply_async(takes_unsendable, (Unsendable,)).unwrap_err();
    assert!(matches!(refused.kind, SubmitErrorKind::Arguments(_)), "{refused}");
    assert_eq!(pool.apply(square, (3,)).unwrap(), 9);
}

#[test]
fn a_function_that_is_not_registered_is_refused() {
    let pool = pool(1);
    let refused = pool.apply_async(not_registered, (3,)).unwrap_err();
    assert!(matches!(refused.kind, SubmitErrorKind::NotRegistered(_)), "{refused}");
    assert_eq!(refused.into_args(), (3,));
    let error = Pool::builder().initializer(not_registered, (3,)).start().unwrap_err();
    assert!(matches!(error, PoolError::Initializer(SubmitErrorKind::NotRegistered(_))), "{error}");
}

#[test]
fn a_pool_without_a_thread_is_an_error_and_leaves_no_process() {
    get_context(StartMethod::Spawn).spawn(start_without_thread, (), 1).unwrap();
}

#[test]
fn a_pool_has_processes_that_are_not_forked() {
    assert!(matches!(Pool::new(0), Err(PoolError::NoProcesses)));
    let forked = Pool::builder().start_method(StartMethod::Fork).start();
    assert!(matches!(forked, Err(PoolError::Fork)));
}

#[test]
fn the_first_item_without_a_value_is_told_of_also_where_a_later_one_cannot_be_sent() {
    let pool = pool(1);
    let first_of = |numbers: [u32; 4]| {
        let one_is_odd = Event::new().unwrap();
        pool.map(refuse_two, numbers.map(|n| Even(n, one_is_odd.clone()))).unwrap_err()
    };
    let error = first_of([0, 2, 4, 5]);
    assert!(matches!((error.index, &error.error), (1, TaskError::Raised(_))), "{error}");
    let error = first_of([0, 4, 5, 2]);
    assert!(matches!((error.index, &error.error), (2, TaskError::Submit(_))), "{error}");
}
