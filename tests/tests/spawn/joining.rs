//! Waiting for processes, with and without time-outs, and stopping the others when one fails.
#![expect(clippy::disallowed_methods, reason = "sends a signal by the command of that name")]

use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use tensorferry::spawn::{Cause, ProcessContext, ProcessErrors, SpawnError, func};

use crate::support::{DEADLINE, Meeting, attend, exists, for_every_method};

#[func]
fn attend_only(rank: usize, meeting: String) -> Result<usize, String> {
    attend(&meeting, rank);
    Ok(rank * 10)
}

/// Process 0 exits with 123 when it is let go on, the others return.
#[func]
fn zero_exits(rank: usize, meeting: String) {
    attend(&meeting, rank);
    if rank == 0 {
        std::process::exit(123);
    }
}

fn send(signal: &str, pid: u32) {
    assert!(Command::new("kill").arg(signal).arg(pid.to_string()).status().unwrap().success());
}

fn failed<T>(context: &mut ProcessContext<T>) -> ProcessErrors {
    match context.join().unwrap_err() {
        SpawnError::Failed(errors) => errors,
        other => panic!("{other}"),
    }
}

for_every_method! {
    fn joining_without_waiting_is_false_until_all_have_ended_and_true_ever_after(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(attend_only, (meeting.name(),), 2).unwrap();
        let guests = meeting.guests(2);
        assert_eq!(context.pids(), [guests[0].pid, guests[1].pid]);
        assert!(!context.join_timeout(Duration::ZERO).unwrap());
        // Out of order: the last one first.
        guests[1].release();
        guests[1].wait_gone();
        assert!(!context.join_timeout(Duration::ZERO).unwrap());
        guests[0].release();
        for _ in 0..3 {
            context.join().unwrap();
        }
        assert_eq!(context.into_values().unwrap(), [0, 10]);
    }

    fn processes_of_a_parent_that_waits_for_signals_are_stopped_by_them(method: Context) {
        // As a server does that ends in good order (sigwait(3)): its threads inherit this, and so do its
        // children.
        let waits_for = SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT]);
        waits_for.thread_block().unwrap();
        for signal in [15, 2] {
            let meeting = Meeting::new();
            let mut context = method.start_processes(attend_only, (meeting.name(),), 2).unwrap();
            let _guests = meeting.guests(2);
            if signal == 15 { context.terminate() } else { context.interrupt() }.unwrap();
            context.set_grace_period(DEADLINE);
            let errors = failed(&mut context);
            assert!(errors.into_iter().all(|error| error.exit_code() == Some(-signal)), "{errors}");
        }
        waits_for.thread_unblock().unwrap();
    }

    fn all_are_signalled_at_once(method: Context) {
        for (name, signal) in [("SIGTERM", 15), ("SIGKILL", 9), ("SIGINT", 2)] {
            let meeting = Meeting::new();
            let mut context = method.start_processes(attend_only, (meeting.name(),), 2).unwrap();
            let _guests = meeting.guests(2);
            context.set_grace_period(Duration::from_secs(20));
            match signal {
                15 => context.terminate(),
                9 => context.kill(),
                _ => context.interrupt(),
            }
            .unwrap();
            let errors = failed(&mut context);
            assert_eq!(errors.failures().len(), 2, "{errors}");
            assert!(errors.failures().iter().all(|error| error.signal_name().as_deref() == Some(name)));
            assert!(context.pids().iter().all(|&pid| !exists(pid)), "each is collected");
        }
    }

    fn a_time_out_is_kept(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(attend_only, (meeting.name(),), 1).unwrap();
        let start = Instant::now();
        assert!(!context.join_timeout(Duration::from_millis(30)).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(30));
    }

    fn without_a_grace_period_the_others_are_terminated_at_once(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(zero_exits, (meeting.name(),), 3).unwrap();
        let guests = meeting.guests(3);
        guests[0].release();
        let errors = failed(&mut context);
        assert_eq!(errors.failures().len(), 1, "{errors}");
        assert_eq!(errors.root_cause().cause, Cause::Exited { code: 123 });
        assert_eq!(errors.stopped(), [1, 2]);
        assert!(guests.iter().all(|guest| !exists(guest.pid)), "no process remains");
        // The answer stays.
        assert_eq!(failed(&mut context), errors);
    }

    fn within_the_grace_period_the_others_end_by_themselves(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(zero_exits, (meeting.name(),), 2).unwrap();
        let guests = meeting.guests(2);
        guests[0].release();
        guests[0].wait_gone();
        context.set_grace_period(Duration::from_secs(20));
        assert!(!context.join_timeout(Duration::from_millis(20)).unwrap(), "the other one is left alone");
        guests[1].release();
        let errors = failed(&mut context);
        assert_eq!(errors.root_cause().cause, Cause::Exited { code: 123 });
        assert!(errors.stopped().is_empty(), "{errors}");
        assert!(guests.iter().all(|guest| !exists(guest.pid)), "no process remains");
    }

    fn one_that_does_not_react_to_sigterm_is_killed_after_the_grace_period(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(zero_exits, (meeting.name(),), 2).unwrap();
        let guests = meeting.guests(2);
        // SIGTERM waits until a stopped process goes on; SIGKILL does not.
        send("-STOP", guests[1].pid);
        guests[0].release();
        let start = Instant::now();
        context.set_grace_period(Duration::from_millis(50));
        let errors = failed(&mut context);
        assert!(start.elapsed() >= Duration::from_millis(100), "a period before SIGTERM and one after it");
        assert_eq!(errors.stopped(), [1]);
        assert!(!exists(guests[1].pid));
    }

    fn a_stopping_that_a_time_out_interrupts_goes_on(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(zero_exits, (meeting.name(),), 2).unwrap();
        let guests = meeting.guests(2);
        guests[0].release();
        guests[0].wait_gone();
        // Until the failure has been seen and the process collected.
        context.set_grace_period(Duration::from_millis(100));
        while exists(guests[0].pid) {
            assert!(!context.join_timeout(Duration::ZERO).unwrap());
        }
        // A fork server has collected it before it says so.
        let _ = context.join_timeout(Duration::ZERO);
        // What counts is the grace period at which the failure was seen, not what is set later.
        context.set_grace_period(Duration::from_secs(3600));
        let errors = failed(&mut context);
        assert_eq!(errors.stopped(), [1]);
    }

    fn a_process_that_somebody_else_kills_is_a_failure_by_signal(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(attend_only, (meeting.name(),), 2).unwrap();
        let guests = meeting.guests(2);
        send("-KILL", guests[1].pid);
        let errors = failed(&mut context);
        assert_eq!(errors.root_cause().rank, 1);
        assert_eq!(errors.root_cause().cause, Cause::Signaled { signal: 9, core_dumped: false });
        assert!(errors.to_string().contains("SIGKILL"), "{errors}");
    }
}
