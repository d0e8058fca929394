//! Who outlives whom: nobody outlives its parent, whoever started it and however the parent ends.

use std::time::Duration;

use tensorferry::spawn::{func, start_processes};
use tensorferry_process::{Failure, Inherited, Start};

use crate::support::{DEADLINE, Guest, Meeting, attend, exists};

tensorferry_process::entry! {
    static HEAD = "test.head" => head;
}

#[func]
fn leaf(rank: usize, meeting: String) {
    attend(&meeting, rank);
}

/// Starts two leaves of its own from another thread, and waits for them.
#[func]
fn branch(rank: usize, meeting: String) -> Result<(), tensorferry::spawn::SpawnError> {
    let name = meeting.clone();
    let mut leaves = std::thread::spawn(move || start_processes(leaf, (name,), 2)).join().unwrap()?;
    attend(&meeting, 10 + rank);
    leaves.join(None, None)?;
    Ok(())
}

/// The main process of a small program: two branches with two leaves each.
fn head(inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = String::from_utf8(inherited.payload().to_vec())?;
    start_processes(branch, (meeting,), 2)?.join(None, None)?;
    Ok(())
}

#[test]
fn a_dropped_context_leaves_no_process() {
    let meeting = Meeting::new();
    let context = start_processes(leaf, (meeting.name(),), 3).unwrap();
    let guests = meeting.guests(3);
    drop(context);
    assert!(guests.iter().all(|guest| !exists(guest.pid)));
}

#[test]
fn processes_outlive_the_thread_that_started_them() {
    let meeting = Meeting::new();
    let name = meeting.name();
    let mut context = std::thread::spawn(move || start_processes(leaf, (name,), 2).unwrap()).join().unwrap();
    let guests = meeting.guests(2);
    assert!(!context.join(Some(Duration::from_millis(50)), None).unwrap());
    guests.iter().for_each(Guest::release);
    assert!(context.join(Some(DEADLINE), None).unwrap());
}

#[test]
fn grandchildren_are_gone_after_their_parent() {
    for signal in [9, 15] {
        let meeting = Meeting::new();
        let context = start_processes(branch, (meeting.name(),), 1).unwrap();
        let guests = meeting.guests(3);
        assert_eq!(guests.iter().map(|guest| guest.rank).collect::<Vec<_>>(), [0, 1, 10]);
        context.send_signal(signal).unwrap();
        guests.iter().for_each(Guest::wait_gone);
    }
}

#[test]
fn a_killed_main_process_leaves_nothing() {
    let meeting = Meeting::new();
    let main = Start::new(&HEAD).payload(meeting.name()).start().unwrap();
    let guests = meeting.guests(6);
    main.kill().unwrap();
    guests.iter().for_each(Guest::wait_gone);
}

#[test]
fn nested_processes_end_well_when_they_are_let() {
    let meeting = Meeting::new();
    let mut main = Start::new(&HEAD).payload(meeting.name()).start().unwrap();
    meeting.guests(6).iter().for_each(Guest::release);
    let exit = main.wait(Some(DEADLINE)).unwrap().expect("it did not end");
    assert!(exit.is_success(), "{exit:#}");
}
