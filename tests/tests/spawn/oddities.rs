//! Whatever a function fails with, its parent is told, and nobody hangs.

use std::fmt;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tensorferry::spawn::{Context, ProcessErrors, Report, ReportKind, SpawnError, func};

use crate::support::{DEADLINE, Meeting, attend, exists, for_every_method};

/// An error that cannot even say what it is.
#[derive(Debug)]
struct Speechless;

impl fmt::Display for Speechless {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Speechless {}

/// What panics once more when it is dropped.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        panic!("dropped")
    }
}

/// An error that is its own cause, for ever.
#[derive(Debug)]
struct Circular;

impl fmt::Display for Circular {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("round and round")
    }
}

impl std::error::Error for Circular {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&Self)
    }
}

#[func]
fn fail_oddly(_rank: usize, how: u8) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    match how {
        0 => std::panic::panic_any(7_i32),
        1 => std::panic::panic_any(Grenade),
        2 => Err(Speechless.into()),
        3 => Err(Circular.into()),
        _ => Err("x".repeat(10 << 20).into()),
    }
}

/// What only the process that made it can read, if it is odd.
#[derive(Debug, PartialEq, Serialize)]
struct Picky(usize);

impl<'de> Deserialize<'de> for Picky {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match usize::deserialize(deserializer)? {
            odd if odd % 2 == 1 => Err(D::Error::custom(format!("{odd} is odd"))),
            even => Ok(Self(even)),
        }
    }
}

/// Returns its index, once it is let go on.
#[func]
fn return_picky(rank: usize, meeting: String) -> Result<Picky, String> {
    attend(&meeting, rank);
    Ok(Picky(rank))
}

/// Does not end by SIGTERM.
#[func]
fn fail_or_be_deaf(rank: usize, meeting: String) -> Result<(), String> {
    if rank > 0 {
        ctrlc::set_handler(|| {}).map_err(|e| e.to_string())?;
    }
    attend(&meeting, rank);
    if rank == 0 {
        return Err(String::from("on purpose"));
    }
    attend(&meeting, rank);
    Ok(())
}

fn failed<T: std::fmt::Debug>(result: Result<T, SpawnError>) -> ProcessErrors {
    match result.expect_err("it fails") {
        SpawnError::Failed(errors) => errors,
        other => panic!("{other}"),
    }
}

fn report_of(method: Context, how: u8) -> Report {
    let mut context = method.start_processes(fail_oddly, (how,), 1).unwrap();
    let errors = failed(context.join_timeout(DEADLINE));
    errors.root_cause().report().unwrap().clone()
}

for_every_method! {
    fn a_payload_that_is_no_text_is_a_panic_all_the_same(method: Context) {
        for how in [0, 1] {
            let report = report_of(method, how);
            assert_eq!((report.kind, report.message.as_str()), (ReportKind::Panic, "Box<dyn Any>"));
            assert!(report.location.unwrap().file.ends_with("oddities.rs"));
        }
    }

    fn an_error_that_cannot_be_displayed_is_a_panic(method: Context) {
        let report = report_of(method, 2);
        assert_eq!((report.kind, report.message.as_str()), (ReportKind::Panic, "no words"));
    }

    fn an_error_without_end_is_cut(method: Context) {
        let report = report_of(method, 3);
        assert_eq!(report.message, "round and round");
        assert!((1..=16).contains(&report.chain.len()), "{}", report.chain.len());
        let report = report_of(method, 4);
        assert!(
            report.message.starts_with("xxx") && report.message.len() <= 17 << 10,
            "{}",
            report.message.len()
        );
    }

    fn a_value_that_cannot_be_read_is_that_of_its_process_and_costs_no_other(method: Context) {
        let meeting = Meeting::new();
        let started = || {
            let context = method.start_processes(return_picky, (meeting.name(),), 4).unwrap();
            // The last one sends its value first.
            for guest in meeting.guests(4).iter().rev() {
                guest.release();
                guest.wait_gone();
            }
            context
        };
        let mut context = started();
        let each = context.take_each_value().unwrap();
        for (rank, value) in each.into_iter().enumerate() {
            match value {
                Ok(value) => assert_eq!((value, rank % 2), (Picky(rank), 0)),
                Err(error @ SpawnError::Value { .. }) => {
                    let wanted = [format!("process {rank} "), format!("{rank} is odd")];
                    let text = error.to_string();
                    assert!(wanted.iter().all(|wanted| text.contains(wanted)), "{text}");
                }
                Err(other) => panic!("{other}"),
            }
        }
        let again = context.take_values().unwrap_err().to_string();
        assert!(again.contains("process 0 ") && again.contains("taken already"), "{again}");
        let error = started().into_values().unwrap_err();
        assert!(matches!(error, SpawnError::Value { rank: 1, .. }), "{error}");
        assert!(error.to_string().contains("1 is odd"), "{error}");
    }

    fn those_that_catch_sigterm_are_all_killed_by_one_clock(method: Context) {
        let (meeting, grace) = (Meeting::new(), Duration::from_millis(50));
        let options = method.options().grace_period(grace);
        let mut context = options.start_processes(fail_or_be_deaf, (meeting.name(),), 5).unwrap();
        let guests = meeting.guests(5);
        // The deaf come again once their handlers are there and they have been let go on.
        guests[1..].iter().for_each(crate::support::Guest::release);
        let again = meeting.guests(4);
        guests[0].release();
        let errors = failed(context.join_timeout(DEADLINE));
        assert_eq!((errors.failures().len(), errors.root_cause().rank), (1, 0), "{errors}");
        assert_eq!(errors.stopped(), [1, 2, 3, 4]);
        assert!(again.iter().all(|guest| !exists(guest.pid)));
    }
}
