//! One process by itself: what it is started with, how it is watched and ended, and what it returns.

use std::io::Write as _;
use std::time::Duration;

use tensorferry::spawn::{OnDrop, Process, SpawnError, StartErrorKind, func};
use tensorferry_os::socket::{Interest, wait_ready};

use crate::support::{DEADLINE, Meeting, attend, exists, read_to_end, within_deadline};

#[func]
fn add(rank: usize, a: usize, b: usize) -> Result<usize, String> {
    if a == 0 { Err(String::from("nothing to add")) } else { Ok(rank + a + b) }
}

/// What it is called, where it runs, two variables, its nice value, its processors.
#[func]
fn describe(_rank: usize) -> Result<[String; 6], std::io::Error> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The 19th field; the 3rd is the first after the name (proc_pid_stat(5)).
    let nice = stat.rsplit_once(") ").unwrap().1.split(' ').nth(16).unwrap().to_owned();
    let variable = |name| std::env::var(name).unwrap_or_default();
    let comm = std::fs::read_to_string("/proc/self/comm")?.trim().to_owned();
    let dir = std::env::current_dir()?.display().to_string();
    Ok([comm, dir, variable("COLOUR"), variable("HOME"), nice, allowed_cpus()])
}

/// `0-3,8`.
fn allowed_cpus() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.unwrap().trim().to_owned()
}

#[func]
fn meet(rank: usize, meeting: String) {
    attend(&meeting, rank);
    std::io::stdout().write_all(b"done").unwrap();
}

/// Meets the test again and again, and is alive all the while.
#[func]
fn meet_often(rank: usize, meeting: String, n_times: usize) {
    (0..n_times).for_each(|_| attend(&meeting, rank));
    std::io::stdout().write_all(b"done").unwrap();
}

#[func]
fn exit_with(_rank: usize, code: i32) {
    std::process::exit(code);
}

fn not_registered(_rank: usize, _text: String) {}

#[test]
fn a_value_comes_back_and_a_failure_too() {
    assert_eq!(Process::new(add, (1, 2)).start().unwrap().into_value().unwrap(), 3);
    let mut process = Process::new(add, (0, 2)).name("adder").start().unwrap();
    for _ in 0..2 {
        let SpawnError::Failed(errors) = process.join().unwrap_err() else { panic!("it failed") };
        let cause = errors.root_cause();
        assert_eq!((cause.name.as_str(), cause.pid), ("adder", process.pid()));
        assert_eq!(cause.report().unwrap().message, "nothing to add");
    }
    assert_eq!(process.exitcode().unwrap(), Some(1));
}

#[test]
fn it_is_what_it_was_made_to_be() {
    let cpus = allowed_cpus();
    let last: usize = cpus.rsplit([',', '-']).next().unwrap().parse().unwrap();
    let process = Process::new(describe, ())
        .name("painter")
        .current_dir("/proc")
        .env("COLOUR", "green")
        .env_remove("HOME")
        .nice(19)
        .cpus([last])
        .start()
        .unwrap();
    assert_eq!(process.name(), "painter");
    let expected = ["painter", "/proc", "green", "", "19", &last.to_string()];
    assert_eq!(process.into_value().unwrap(), expected);
}

#[test]
fn it_is_watched_until_it_ends() {
    let meeting = Meeting::new();
    let mut process = Process::new(meet, (meeting.name(),)).start().unwrap();
    let guests = meeting.guests(1);
    assert_eq!(process.pid(), guests[0].pid);
    assert!(process.is_alive().unwrap());
    assert_eq!(process.exitcode().unwrap(), None);
    assert!(!process.join_timeout(Duration::ZERO).unwrap());
    let ready = |process: &tensorferry::spawn::ProcessHandle<()>, timeout| {
        wait_ready(&[(process.sentinel(), Interest::Readable)], Some(timeout)).unwrap()
    };
    assert_eq!(ready(&process, Duration::ZERO), [false]);
    guests[0].release();
    assert_eq!(ready(&process, DEADLINE), [true]);
    assert!(!process.is_alive().unwrap());
    assert_eq!(process.exitcode().unwrap(), Some(0));
    assert!(process.join_timeout(Duration::ZERO).unwrap());
    process.join().unwrap();
    process.kill().unwrap();
}

#[test]
fn it_is_ended_by_each_signal_and_says_which() {
    for signal in [15, 9, 2] {
        let meeting = Meeting::new();
        let mut process = Process::new(meet, (meeting.name(),)).start().unwrap();
        let _guests = meeting.guests(1);
        match signal {
            15 => process.terminate(),
            9 => process.kill(),
            _ => process.interrupt(),
        }
        .unwrap();
        let error = process.join().unwrap_err();
        assert!(matches!(error, SpawnError::Failed(_)), "{error}");
        assert_eq!(process.exitcode().unwrap(), Some(-signal));
        assert!(!exists(process.pid()), "it must have been collected");
    }
    let mut process = Process::new(exit_with, (123,)).start().unwrap();
    assert!(process.join().is_err());
    assert_eq!(process.exitcode().unwrap(), Some(123));
}

#[test]
fn dropping_its_handle_kills_it() {
    let meeting = Meeting::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let process = Process::new(meet_often, (meeting.name(), 1)).stdout(writer).start().unwrap();
    let (_guests, pid) = (meeting.guests(1), process.pid());
    within_deadline("the end of the process", move || drop(process));
    assert!(!exists(pid));
    assert_eq!(read_to_end(reader), "");
}

#[test]
fn dropping_its_handle_waits_for_it_where_the_policy_says_so() {
    const N_TIMES: usize = 50;
    let meeting = Meeting::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let process = Process::new(meet_often, (meeting.name(), N_TIMES)).on_drop(OnDrop::Wait).stdout(writer);
    let process = process.start().unwrap();
    let (mut guests, pid) = (meeting.guests(1), process.pid());
    let dropping = std::thread::spawn(move || drop(process));
    for _ in 1..N_TIMES {
        guests[0].release();
        guests = meeting.guests(1);
    }
    assert!(exists(pid) && !dropping.is_finished(), "it is waited for");
    guests[0].release();
    within_deadline("the end of the process", move || dropping.join().unwrap());
    assert!(!exists(pid));
    assert_eq!(read_to_end(reader), "done");
}

#[test]
fn a_process_that_cannot_be_started_gives_its_arguments_back() {
    let text = || (String::from("mine"),);
    let error = Process::new(not_registered, text()).start().unwrap_err();
    assert!(matches!(error.kind, StartErrorKind::NotRegistered { .. }), "{error}");
    assert_eq!(error.into_args(), text());
    let error = Process::new(meet, text()).current_dir("/no/such/folder").start().unwrap_err();
    assert!(error.to_string().contains("/no/such/folder"), "{error}");
    assert_eq!(error.into_args(), text());
    let error = Process::new(meet, text()).cpus([]).on_drop(OnDrop::Wait).start().unwrap_err();
    assert!(error.to_string().contains("sched_setaffinity"), "{error}");
    assert_eq!(error.into_args(), text());
    let error = Process::new(meet, text()).cpus([9_999_999]).start().unwrap_err();
    assert!(error.to_string().contains("9999999"), "{error}");
}
