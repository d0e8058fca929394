//! Waiting for processes, with and without time-outs, and stopping the others when one fails.
#![expect(clippy::disallowed_methods, reason = "sends a signal by the command of that name")]

use std::process::Command;
use std::time::{Duration, Instant};

use tensorferry::spawn::{Cause, ProcessContext, ProcessErrors, SpawnError, func};

use crate::support::{Meeting, attend, exists, for_every_method};

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

fn failed<T>(context: &mut ProcessContext<T>, grace_period: Option<Duration>) -> ProcessErrors {
    match context.join(None, grace_period).unwrap_err() {
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
        assert!(!context.join(Some(Duration::ZERO), None).unwrap());
        // Out of order: the last one first.
        guests[1].release();
        guests[1].wait_gone();
        assert!(!context.join(Some(Duration::ZERO), None).unwrap());
        guests[0].release();
        for _ in 0..3 {
            assert!(context.join(None, None).unwrap());
        }
        assert_eq!(context.into_values().unwrap(), [0, 10]);
    }

    fn all_are_signalled_at_once(method: Context) {
        for (name, signal) in [("SIGTERM", 15), ("SIGKILL", 9), ("SIGINT", 2)] {
            let meeting = Meeting::new();
            let mut context = method.start_processes(attend_only, (meeting.name(),), 2).unwrap();
            let _guests = meeting.guests(2);
            match signal {
                15 => context.terminate(),
                9 => context.kill(),
                _ => context.interrupt(),
            }
            .unwrap();
            let errors = failed(&mut context, Some(Duration::from_secs(20)));
            assert_eq!(errors.failures().len(), 2, "{errors}");
            assert!(errors.failures().iter().all(|error| error.signal_name().as_deref() == Some(name)));
            assert!(context.pids().iter().all(|&pid| !exists(pid)), "each is collected");
        }
    }

    fn a_time_out_is_kept(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(attend_only, (meeting.name(),), 1).unwrap();
        let start = Instant::now();
        assert!(!context.join(Some(Duration::from_millis(30)), None).unwrap());
        assert!(start.elapsed() >= Duration::from_millis(30));
    }

    fn without_a_grace_period_the_others_are_terminated_at_once(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(zero_exits, (meeting.name(),), 3).unwrap();
        let guests = meeting.guests(3);
        guests[0].release();
        let errors = failed(&mut context, None);
        assert_eq!(errors.failures().len(), 1, "{errors}");
        assert_eq!(errors.root_cause().cause, Cause::Exited { code: 123 });
        assert_eq!(errors.stopped(), [1, 2]);
        assert!(guests.iter().all(|guest| !exists(guest.pid)), "no process remains");
        // The answer stays.
        assert_eq!(failed(&mut context, None), errors);
    }

    fn within_the_grace_period_the_others_end_by_themselves(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(zero_exits, (meeting.name(),), 2).unwrap();
        let guests = meeting.guests(2);
        guests[0].release();
        guests[0].wait_gone();
        let grace = Some(Duration::from_secs(20));
        assert!(!context.join(Some(Duration::from_millis(20)), grace).unwrap(), "the other one is left alone");
        guests[1].release();
        let errors = failed(&mut context, grace);
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
        let errors = failed(&mut context, Some(Duration::from_millis(50)));
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
        let grace = Some(Duration::from_millis(100));
        while exists(guests[0].pid) {
            assert!(!context.join(Some(Duration::ZERO), grace).unwrap());
        }
        // A fork server has collected it before it says so.
        let _ = context.join(Some(Duration::ZERO), grace);
        // The grace period of the call that saw it counts, not that of the later ones.
        let errors = failed(&mut context, Some(Duration::from_secs(3600)));
        assert_eq!(errors.stopped(), [1]);
    }

    fn a_process_that_somebody_else_kills_is_a_failure_by_signal(method: Context) {
        let meeting = Meeting::new();
        let mut context = method.start_processes(attend_only, (meeting.name(),), 2).unwrap();
        let guests = meeting.guests(2);
        send("-KILL", guests[1].pid);
        let errors = failed(&mut context, None);
        assert_eq!(errors.root_cause().rank, 1);
        assert_eq!(errors.root_cause().cause, Cause::Signaled { signal: 9, core_dumped: false });
        assert!(errors.to_string().contains("SIGKILL"), "{errors}");
    }
}
