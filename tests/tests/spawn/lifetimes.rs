//! Who outlives whom: nobody outlives its parent, whoever started it and however the parent ends.

use std::time::Duration;

use tensorferry::spawn::{func, start_processes};
use tensorferry_os::pidfd::PidFd;
use tensorferry_process::{Failure, Inherited, SIGKILL, Start};
use tensorferry_tests::Leftovers;

use crate::support::{DEADLINE, Guest, Meeting, attend, exists};

tensorferry_process::entry! {
    static HEAD = "test.head" => head;
    static OVERSEER = "test.overseer" => overseer;
    static OTHER_GROUP = "test.other-group" => other_group;
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

/// Starts a small program that somebody kills, and has nothing more than before.
fn overseer(inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = String::from_utf8(inherited.payload().to_vec())?;
    let before = Leftovers::look();
    let mut main = Start::new(&HEAD).payload(meeting).start()?;
    main.wait(Some(DEADLINE))?.ok_or_else(|| Failure::Refused(String::from("it lives on")))?;
    drop(main);
    before.wait_nothing_more();
    Ok(())
}

/// Becomes a member of another group and waits. The kernel takes back the promise of a signal then (prctl(2)).
#[func]
fn leaf_of_other_group(rank: usize, meeting: String) {
    // Where that is not allowed, this is one more process that ends with its parent.
    let _ = nix::unistd::setegid(nix::unistd::Gid::from_raw(OTHER_GID));
    attend(&meeting, rank);
}

/// `nogroup`, as it is called on many systems.
const OTHER_GID: u32 = 65_534;

/// The parent of a process (the fourth field of `/proc/PID/stat`).
fn parent_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

fn other_group(inherited: &mut Inherited) -> Result<(), Failure> {
    let meeting = String::from_utf8(inherited.payload().to_vec())?;
    start_processes(leaf_of_other_group, (meeting,), 2)?.join(None, None)?;
    Ok(())
}

#[test]
fn a_process_that_has_changed_its_group_ends_with_its_parent_too() {
    let meeting = Meeting::new();
    let main = Start::new(&OTHER_GROUP).payload(meeting.name()).start().unwrap();
    let guests = meeting.guests(2);
    main.kill().unwrap();
    guests.iter().for_each(Guest::wait_gone);
}

#[test]
fn a_process_that_is_stopped_ends_with_its_parent_too() {
    let meeting = Meeting::new();
    let main = Start::new(&HEAD).payload(meeting.name()).start().unwrap();
    let guests = meeting.guests(6);
    for guest in &guests {
        PidFd::open(guest.pid).unwrap().send_signal(nix::sys::signal::Signal::SIGSTOP as i32).unwrap();
    }
    main.kill().unwrap();
    guests.iter().for_each(Guest::wait_gone);
}

#[test]
fn a_killed_main_process_leaves_no_descriptor_name_or_file_either() {
    let meeting = Meeting::new();
    let folder = std::env::temp_dir().join(meeting.name());
    std::fs::create_dir(&folder).unwrap();
    let mut overseer = Start::new(&OVERSEER).payload(meeting.name()).env("TMPDIR", &folder).start().unwrap();
    let guests = meeting.guests(6);
    let branch = guests.iter().find(|guest| guest.rank == 10).unwrap();
    PidFd::open(parent_of(branch.pid)).unwrap().send_signal(SIGKILL).unwrap();
    let exit = overseer.wait(Some(DEADLINE)).unwrap().expect("it did not end");
    assert!(exit.is_success(), "{exit:#}");
    guests.iter().for_each(Guest::wait_gone);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "temporary files");
    std::fs::remove_dir(folder).unwrap();
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
