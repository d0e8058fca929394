//! What the parent learns about processes that fail: all of them, the root cause first.

use std::time::Duration;

use tensorferry::Queue;
use tensorferry::spawn::{
    Cause, ProcessContext, ProcessErrors, ProcessExitedError, ProcessRaisedError, ReportKind, SpawnError,
    func, spawn,
};

use crate::support::{DEADLINE, Meeting, attend, exists, for_every_method, read_to_end};

const GRACE: Duration = Duration::from_secs(20);

#[func]
fn fail_one(rank: usize, which: usize) -> Result<(), std::io::Error> {
    if rank == which {
        return Err(std::io::Error::other(format!("legitimate error from process {rank}")));
    }
    Ok(())
}

#[derive(Debug)]
struct Outer(std::num::ParseFloatError);

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("bad learning rate")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[func]
fn fail_with_chain(_rank: usize, text: String) -> Result<f64, Outer> {
    text.parse().map_err(Outer)
}

#[func]
fn fail_all(rank: usize, meeting: String) -> Result<(), String> {
    attend(&meeting, rank);
    Err(format!("legitimate error from process {rank}"))
}

#[inline(never)]
fn look_up(rank: usize) -> usize {
    [1, 2, 3][rank + 3]
}

#[func]
fn panic_out_of_bounds(rank: usize) -> Result<usize, String> {
    Ok(look_up(rank))
}

#[func]
fn abort(_rank: usize) {
    std::process::abort();
}

#[func]
fn exit_with(_rank: usize, code: i32) {
    std::process::exit(code);
}

/// Each process does what its letter says once the test lets it go on: `e`rror, e`x`it 3, `o`k.
#[func]
fn act(rank: usize, meeting: String, acts: String) -> Result<(), String> {
    attend(&meeting, rank);
    match acts.as_bytes()[rank] {
        b'e' => Err(String::from("my peer is gone")),
        b'x' => std::process::exit(3),
        _ => Ok(()),
    }
}

/// Starts children that fail, and passes on what they did, twice: as its error and through a queue.
#[func]
fn pass_on(_rank: usize, told: Queue<ProcessErrors>) -> Result<(), SpawnError> {
    let error = spawn(fail_one, (1,), 2).unwrap_err();
    if let SpawnError::Failed(errors) = &error {
        told.put(errors.clone()).unwrap();
    }
    Err(error)
}

fn failed<T: std::fmt::Debug>(result: Result<T, SpawnError>) -> ProcessErrors {
    match result.unwrap_err() {
        SpawnError::Failed(errors) => errors,
        other => panic!("{other}"),
    }
}

/// One failure does not end the others before they have failed by themselves.
fn patient<T>(context: &mut ProcessContext<T>) -> &mut ProcessContext<T> {
    context.set_grace_period(GRACE);
    context
}

for_every_method! {
    fn one_error_is_reported_with_its_process(method: Context) {
        let mut context = method.start_processes(fail_one, (1,), 3).unwrap();
        let pids = context.pids();
        let errors = failed(patient(&mut context).join());
        let cause = errors.root_cause();
        assert_eq!((errors.failures().len(), cause.rank, cause.pid), (1, 1, pids[1]));
        let report = cause.report().unwrap();
        assert_eq!(
            (report.kind, report.message.as_str()),
            (ReportKind::Error, "legitimate error from process 1")
        );
        assert!(errors.stopped().is_empty(), "the others had time to end");
        let text = errors.to_string();
        assert!(
            text.starts_with(&format!(
                "process 1 (`fail_one 1`, pid {}) failed: returned an error: legitimate",
                pids[1]
            )),
            "{text}"
        );
    }

    fn the_chain_of_an_error_arrives(method: Context) {
        let errors = failed(method.spawn(fail_with_chain, (String::from("fast"),), 1));
        let report = errors.root_cause().report().unwrap();
        assert_eq!(report.message, "bad learning rate");
        assert_eq!(report.chain, ["invalid float literal"]);
    }

    fn a_value_may_come_where_an_error_could(method: Context) {
        assert_eq!(method.spawn(fail_with_chain, (String::from("0.5"),), 2).unwrap(), [0.5, 0.5]);
    }

    fn all_failures_are_reported_not_only_the_first(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(fail_all, (meeting.name(),), 4).unwrap();
        for guest in meeting.guests(4).iter().rev() {
            guest.release();
            guest.wait_gone();
        }
        let errors = failed(patient(&mut context).join());
        let order: Vec<usize> = errors.failures().iter().map(|failure| failure.rank).collect();
        assert_eq!(order, [3, 2, 1, 0], "in the order in which they failed");
        let text = errors.to_string();
        for rank in 0..4 {
            assert!(text.contains(&format!("legitimate error from process {rank}")), "{text}");
        }
    }

    fn a_panic_arrives_with_message_place_and_stack(method: Context) {
        let errors = failed(method.options().env("RUST_BACKTRACE", "1").spawn(
            panic_out_of_bounds,
            (),
            1,
        ));
        let report = errors.root_cause().report().unwrap();
        assert_eq!(report.kind, ReportKind::Panic);
        assert_eq!(report.message, "index out of bounds: the len is 3 but the index is 3");
        let location = report.location.as_ref().unwrap();
        assert!(location.file.ends_with("failures.rs") && location.line > 1, "{location}");
        let backtrace = report.backtrace.as_ref().unwrap();
        assert!(backtrace.contains("look_up") && backtrace.contains("panic_out_of_bounds"), "{backtrace}");
        assert!(!backtrace.contains("tensorferry_process::"), "{backtrace}");
        let text = errors.to_string();
        assert!(text.contains(&location.to_string()) && !text.contains("look_up"), "one line: {text}");
        // What a `main` prints that returns the error.
        let in_full = format!("{errors:?}");
        assert!(in_full.contains(&location.to_string()) && in_full.contains("look_up"), "{in_full}");
    }

    fn a_panic_is_printed_with_the_name_of_its_process(method: Context) {
        let (reader, writer) = std::io::pipe().unwrap();
        let process = method.process(panic_out_of_bounds, ()).name("worker").env_remove("RUST_BACKTRACE");
        let mut process = process.stderr(writer).start().unwrap();
        assert!(process.join().is_err());
        let text = read_to_end(reader);
        let line = format!("thread 'worker' ({}) panicked at tests/tests/spawn/failures.rs:", process.pid());
        assert!(text.contains(&line) && text.contains("the len is 3 but the index is 3"), "{text}");
        assert!(text.contains("RUST_BACKTRACE=1") && !text.contains("look_up"), "{text}");
        let (reader, writer) = std::io::pipe().unwrap();
        let process = method.process(panic_out_of_bounds, ()).env("RUST_BACKTRACE", "1").stderr(writer);
        assert!(process.start().unwrap().join().is_err());
        let text = read_to_end(reader);
        assert!(text.contains("stack backtrace:") && text.contains("look_up"), "{text}");
    }

    fn a_signal_is_named(method: Context) {
        let errors = failed(method.spawn(abort, (), 1));
        assert!(matches!(errors.root_cause().cause, Cause::Signaled { signal: 6, .. }), "{errors}");
        assert!(errors.to_string().contains("terminated by signal SIGABRT"), "{errors}");
    }

    fn an_exit_code_is_told_and_zero_before_the_end_is_no_success(method: Context) {
        let errors = failed(method.spawn(exit_with, (123,), 1));
        assert_eq!(errors.root_cause().cause, Cause::Exited { code: 123 });
        assert!(errors.to_string().contains("exited with code 123"), "{errors}");
        let errors = failed(method.spawn(exit_with, (0,), 1));
        assert_eq!(errors.root_cause().cause, Cause::Exited { code: 0 });
        assert!(errors.to_string().contains("before its function returned"), "{errors}");
    }

    fn what_raised_and_what_exited_are_different_errors_that_travel(method: Context) {
        let raised = failed(method.spawn(fail_one, (0,), 1)).root_cause().clone();
        let exited = failed(method.spawn(exit_with, (12,), 1)).root_cause().clone();
        let signaled = failed(method.spawn(abort, (), 1)).root_cause().clone();
        assert_eq!(ProcessExitedError::try_from(raised.clone()).unwrap_err(), raised, "it comes back");
        assert_eq!(ProcessRaisedError::try_from(exited.clone()).unwrap_err(), exited);
        let text = raised.to_string();
        let raised = ProcessRaisedError::try_from(raised).unwrap();
        assert_eq!(
            (raised.to_string(), raised.report.message.as_str()),
            (text, "legitimate error from process 0")
        );
        let signaled = ProcessExitedError::try_from(signaled).unwrap();
        assert_eq!((signaled.exit_code, signaled.signal_name.as_deref()), (Some(-6), Some("SIGABRT")));
        let exited = ProcessExitedError::try_from(exited).unwrap();
        assert_eq!((exited.exit_code, exited.signal_name.as_deref()), (Some(12), None));
        // As a process does that passes on what its children did.
        let way = Queue::new(1).unwrap();
        way.put((raised.clone(), exited.clone(), signaled.clone())).unwrap();
        assert_eq!(way.get_timeout(DEADLINE).unwrap(), (raised, exited, signaled));
    }

    fn success_first_then_failure_is_a_failure(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(act, (meeting.name(), String::from("oe")), 2).unwrap();
        let guests = meeting.guests(2);
        guests[0].release();
        guests[0].wait_gone();
        assert!(!patient(&mut context).join_timeout(Duration::from_millis(20)).unwrap());
        guests[1].release();
        let errors = failed(patient(&mut context).join());
        assert_eq!((errors.failures().len(), errors.root_cause().rank), (1, 1));
    }

    fn a_silent_death_comes_before_the_error_about_it(method: Context) {
        // Nobody looks until both have ended, so the parent cannot know when the first one died; but the
        // other one's error has a time, and the first one may have been dead by then.
        let meeting = Meeting::new();
        let mut context = method.start_processes(act, (meeting.name(), String::from("ex")), 2).unwrap();
        for guest in meeting.guests(2).iter().rev() {
            guest.release();
            guest.wait_gone();
        }
        let errors = failed(patient(&mut context).join());
        assert_eq!(errors.root_cause().cause, Cause::Exited { code: 3 }, "{errors}");
        assert_eq!(errors.failures()[1].report().unwrap().message, "my peer is gone");
    }

    fn a_silent_death_after_an_error_comes_after_it(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(act, (meeting.name(), String::from("xe")), 2).unwrap();
        let guests = meeting.guests(2);
        guests[1].release();
        // Until the parent has collected it; a fork server may have done that while the parent did not look.
        while exists(guests[1].pid) {
            assert!(!patient(&mut context).join_timeout(Duration::from_millis(5)).unwrap());
        }
        assert!(!patient(&mut context).join_timeout(Duration::from_millis(5)).unwrap());
        guests[0].release();
        let errors = failed(patient(&mut context).join());
        let order: Vec<usize> = errors.failures().iter().map(|failure| failure.rank).collect();
        assert_eq!(order, [1, 0], "{errors}");
    }

    fn a_process_passes_on_how_its_own_children_failed(method: Context) {
        let told = Queue::new(1).unwrap();
        let mut context = method.start_processes(pass_on, (told.clone(),), 1).unwrap();
        let grandchildren: ProcessErrors = told.get_timeout(DEADLINE).unwrap();
        let cause = grandchildren.root_cause();
        assert_eq!((cause.rank, cause.name.as_str()), (1, "fail_one 1"));
        assert_eq!(cause.report().unwrap().message, "legitimate error from process 1");
        let errors = failed(patient(&mut context).join());
        let report = errors.root_cause().report().unwrap();
        assert_eq!(report.message, grandchildren.to_string(), "its own error says the same");
    }
}
