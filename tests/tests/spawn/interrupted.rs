//! Ctrl-C: SIGINT to a whole process group, as a terminal sends it. Quiet, soon, and with the status that a
//! shell expects.

use std::io::{PipeReader, Write as _};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, setpgid};
use tensorferry::spawn::{Cause, SpawnError, StartMethod, func, get_context};
use tensorferry_kit::until;
use tensorferry_process::{Child, Ended, Failure, Inherited, Stage, Start, wait_any};

use crate::support::{DEADLINE, Guest, Meeting, attend, for_every_program, read_to_end, told};

tensorferry_process::entry! {
    static FOREGROUND = "test.foreground" => foreground;
    static CATCHES = "test.foreground-catches" => catches;
    static STARTING = "test.foreground-starting" => starting;
}

/// Has children of its own that wait too.
#[func]
fn wait(rank: usize, method: StartMethod, meeting: String, is_deaf: bool) -> Result<(), SpawnError> {
    let leaf = get_context(method).start_processes(wait_alone, (meeting.clone(), is_deaf), 1)?;
    // From here on it could not be forked any more.
    if is_deaf {
        deaf();
    }
    attend(&meeting, rank);
    leaf.into_values().map(drop)
}

#[func]
fn wait_alone(rank: usize, meeting: String, is_deaf: bool) {
    if is_deaf {
        deaf();
    }
    attend(&meeting, 10 + rank);
}

#[func]
fn nothing(_rank: usize) {}

/// Does not end by SIGINT from here on, and has one thread more.
fn deaf() {
    ctrlc::set_handler(|| {}).unwrap();
}

/// A process group of its own, as a shell gives to each job.
fn lead_group() -> Result<(), Errno> {
    setpgid(Pid::from_raw(0), Pid::from_raw(0))
}

/// What a program in the foreground does that has not thought of Ctrl-C: it waits.
fn foreground(inherited: &mut Inherited) -> Result<(), Failure> {
    lead_group()?;
    let (method, meeting, is_deaf) = arguments(inherited);
    get_context(method).start_processes(wait, (method, meeting, is_deaf), 2)?.into_values()?;
    Ok(())
}

/// Under which index the main process comes to a meeting.
const MAIN: usize = 99;

/// One that catches SIGINT, so that it can tidy up.
fn catches(inherited: &mut Inherited) -> Result<(), Failure> {
    lead_group()?;
    let (method, meeting, is_deaf) = arguments(inherited);
    let started = get_context(method).start_processes(wait, (method, meeting.clone(), is_deaf), 2)?;
    deaf();
    attend(&meeting, MAIN);
    let error = started.into_values().unwrap_err();
    let SpawnError::Failed(errors) = error else { return Err(error.into()) };
    assert!(errors.is_interrupt(), "{errors}");
    for failure in errors.failures() {
        assert_eq!(failure.cause, Cause::Signaled { signal: 2, core_dumped: false });
    }
    // As a shell would tell of a job that SIGINT ended.
    std::io::stdout().write_all(&[errors.root_cause().shell_status()])?;
    Ok(())
}

/// One that starts processes without end.
fn starting(inherited: &mut Inherited) -> Result<(), Failure> {
    lead_group()?;
    let method = get_context(told(inherited).0);
    inherited.taken();
    loop {
        method.start_processes(nothing, (), 3)?.into_values()?;
    }
}

fn arguments(inherited: &Inherited) -> (StartMethod, String, bool) {
    let (method, text) = told(inherited);
    let meeting = text.strip_suffix(" deaf");
    (method, meeting.unwrap_or(text).to_owned(), meeting.is_some())
}

/// The program, what it writes, and what it complains of.
fn start(entry: &'static tensorferry_process::Entry, payload: String) -> (Child, PipeReader, PipeReader) {
    let ((out, stdout), (err, stderr)) = (std::io::pipe().unwrap(), std::io::pipe().unwrap());
    let child = Start::new(entry).payload(payload).stdout(stdout).stderr(stderr).start().unwrap();
    (child, out, err)
}

fn group(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.pid()).unwrap())
}

/// Ends by SIGINT, for which a shell says 130 (bash(1)), without a word; and with it all others.
fn assert_interrupted(mut child: Child, out: PipeReader, err: PipeReader) {
    let group = child.pid();
    let exit = child.wait_timeout(DEADLINE).unwrap().expect("it did not end");
    assert_eq!(exit.ended, Ended::Signaled { signal: 2, core_dumped: false }, "{exit:#}");
    // The ends of the pipes are the ends of all who had them.
    assert_eq!((read_to_end(out), read_to_end(err)), (String::new(), String::new()));
    until("nobody is left in the group", || n_in_group(group) == 0);
}

/// How many processes of this group run (the third and the fifth field of `/proc/PID/stat`). A zombie is not
/// one: it may wait for whoever collects orphans here.
fn n_in_group(group: u32) -> usize {
    let stat = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("stat")).ok();
    let stats = std::fs::read_dir("/proc").unwrap().flatten().filter_map(stat);
    let group = group.to_string();
    let is_member = |stat: &String| {
        let mut fields = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ');
        !matches!(fields.next(), None | Some("Z" | "X")) && fields.nth(1) == Some(&group)
    };
    stats.filter(is_member).count()
}

for_every_program! {
    fn all_end_by_the_signal_without_a_word(method: StartMethod) {
        let meeting = Meeting::new();
        let (child, out, err) = start(&FOREGROUND, format!("{method} {}", meeting.name()));
        let guests = meeting.guests(4);
        killpg(group(&child), Signal::SIGINT).unwrap();
        assert_interrupted(child, out, err);
        guests.iter().for_each(Guest::wait_gone);
    }

    fn those_that_do_not_listen_end_with_their_parent(method: StartMethod) {
        let meeting = Meeting::new();
        let (child, out, err) = start(&FOREGROUND, format!("{method} {} deaf", meeting.name()));
        let guests = meeting.guests(4);
        killpg(group(&child), Signal::SIGINT).unwrap();
        assert_interrupted(child, out, err);
        guests.iter().for_each(Guest::wait_gone);
    }

    fn a_program_that_catches_it_is_told_that_its_processes_were_interrupted(method: StartMethod) {
        let meeting = Meeting::new();
        let (mut child, out, err) = start(&CATCHES, format!("{method} {}", meeting.name()));
        let guests = meeting.guests(5);
        assert_eq!(guests[4].rank, MAIN);
        guests[4].release();
        killpg(group(&child), Signal::SIGINT).unwrap();
        let exit = child.wait_timeout(DEADLINE).unwrap().expect("it did not end");
        assert!(exit.is_success(), "{exit:#}");
        let mut status = Vec::new();
        std::io::Read::read_to_end(&mut { out }, &mut status).unwrap();
        assert_eq!((status, read_to_end(err)), (vec![130], String::new()), "none of the children complains");
        guests.iter().for_each(Guest::wait_gone);
    }

    fn it_may_come_while_processes_are_being_started(method: StartMethod) {
        // Of forks there is seldom more than one at a time: each is waited for until it has what it needs.
        let most = if method == StartMethod::Fork { 2 } else { 4 };
        for n_members in (1..=most).cycle().take(8) {
            let (mut child, out, err) = start(&STARTING, format!("{method} "));
            while child.stage() < Stage::Taken {
                assert!(wait_any(std::slice::from_mut(&mut child), Some(DEADLINE)).unwrap());
            }
            until("the group has members", || n_in_group(child.pid()) >= n_members);
            killpg(group(&child), Signal::SIGINT).unwrap();
            assert_interrupted(child, out, err);
        }
    }
}
