//! Who outlives whom: nobody outlives its parent, whoever started it and however the parent ends.

use std::time::Duration;

use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, setegid, setresuid};
use tensorferry::spawn::{StartMethod, func, get_context};
use tensorferry_kit::Leftovers;
use tensorferry_os::pidfd::PidFd;
use tensorferry_process::{Exit, Failure, Inherited, SIGKILL, Start};

use crate::support::{
    DEADLINE, Guest, Meeting, attend, attend_prepared, for_every_method, for_every_program, told,
};

tensorferry_process::entry! {
    static HEAD = "test.head" => head;
    static OVERSEER = "test.overseer" => overseer;
    static FIRST = "test.first" => first;
    static CHANGED_USER = "test.changed-user" => changed_user;
    static OTHER_GROUP = "test.other-group" => other_group;
    static LEAF_OF_OTHER_GROUP = "test.leaf-of-other-group" => leaf_without_a_domain;
}

#[func]
fn leaf(rank: usize, meeting: String) {
    attend(&meeting, rank);
}

/// Starts two leaves of its own, from another thread where that is possible, and waits for them.
#[func]
fn branch(rank: usize, method: StartMethod, meeting: String) -> Result<(), tensorferry::spawn::SpawnError> {
    let name = meeting.clone();
    let start = move || get_context(method).start_processes(leaf, (name,), 2);
    let mut leaves = match method {
        StartMethod::Fork => start()?,
        _ => std::thread::spawn(start).join().unwrap()?,
    };
    attend(&meeting, 10 + rank);
    leaves.join()?;
    Ok(())
}

/// The main process of a small program: two branches with two leaves each.
fn head(inherited: &mut Inherited) -> Result<(), Failure> {
    let (method, meeting) = told(inherited);
    get_context(method).start_processes(branch, (method, meeting.to_owned()), 2)?.join()?;
    Ok(())
}

/// Does nothing. The first child brings the pipe on which all children hang.
fn first(_inherited: &mut Inherited) -> Result<(), Failure> {
    Ok(())
}

/// Starts a small program that somebody kills, and has nothing more than before.
fn overseer(inherited: &mut Inherited) -> Result<(), Failure> {
    Start::new(&FIRST).start()?.wait()?;
    let before = Leftovers::look();
    let mut main = Start::new(&HEAD).payload(inherited.payload()).start()?;
    main.wait_timeout(DEADLINE)?.ok_or_else(|| Failure::Refused(String::from("it lives on")))?;
    drop(main);
    before.wait_nothing_more();
    Ok(())
}

/// Becomes a member of another group and another user, and waits. The kernel takes back the promise of a
/// signal then (prctl(2)). And gives up the right to have descriptors, as who locks itself in does, after
/// which poll(2) refuses everything.
#[func]
fn leaf_of_other_group(rank: usize, meeting: String) {
    attend_prepared(&meeting, rank, || {
        // Where that is not allowed, this is one more process that ends with its parent.
        let _ = setegid(Gid::from_raw(OTHER_GID));
        let user = Uid::from_raw(OTHER_UID);
        let _ = setresuid(user, user, user);
        setrlimit(Resource::RLIMIT_NOFILE, 0, 0).unwrap();
    });
}

/// As [`leaf_of_other_group`], in a process that is no member of a domain.
fn leaf_without_a_domain(inherited: &mut Inherited) -> Result<(), Failure> {
    leaf_of_other_group(2, std::str::from_utf8(inherited.payload())?.to_owned());
    Ok(())
}

/// Starts a process, becomes another user, and starts another process.
fn changed_user(inherited: &mut Inherited) -> Result<(), Failure> {
    let (method, _) = told(inherited);
    let start = || -> Result<bool, Failure> {
        let mut child = Start::new(&FIRST).method(method).start()?;
        Ok(child.wait_timeout(DEADLINE)?.is_some_and(Exit::is_success))
    };
    assert!(start()?);
    // Where that is not allowed, these are two starts by one user.
    let _ = setegid(Gid::from_raw(OTHER_GID));
    let user = Uid::from_raw(OTHER_UID);
    let _ = setresuid(user, user, user);
    assert!(start()?);
    Ok(())
}

/// `nogroup` and `nobody`, as they are called on many systems.
const OTHER_GID: u32 = 65_534;
const OTHER_UID: u32 = 65_534;

/// The parent of a process (the fourth field of `/proc/PID/stat`).
fn parent_of(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap().parse().unwrap()
}

fn other_group(inherited: &mut Inherited) -> Result<(), Failure> {
    let (method, meeting) = told(inherited);
    // First, while this process has no service thread, which would be in the way of a fork.
    let _alone = Start::new(&LEAF_OF_OTHER_GROUP).method(method).payload(meeting).start()?;
    let options = get_context(method).options();
    options.start_processes(leaf_of_other_group, (meeting.to_owned(),), 2)?.join()?;
    Ok(())
}

for_every_method! {
    fn processes_outlive_the_thread_that_started_them(method: Context) {
        let meeting = Meeting::new();
        let name = meeting.name();
        let start = move || method.start_processes(leaf, (name,), 2);
        let started = std::thread::spawn(start).join().unwrap();
        if method.start_method() == StartMethod::Fork {
            let refused = started.unwrap_err().to_string();
            assert!(refused.contains("cannot be forked"), "{refused}");
            return;
        }
        let mut context = started.unwrap();
        let guests = meeting.guests(2);
        assert!(!context.join_timeout(Duration::from_millis(50)).unwrap());
        guests.iter().for_each(Guest::release);
        assert!(context.join_timeout(DEADLINE).unwrap());
    }
}

for_every_program! {
    fn a_process_that_has_changed_its_user_ends_with_its_parent_too(method: StartMethod) {
        let meeting = Meeting::new();
        let main = Start::new(&OTHER_GROUP).payload(format!("{method} {}", meeting.name())).start().unwrap();
        let guests = meeting.guests(3);
        main.kill().unwrap();
        guests.iter().for_each(Guest::wait_gone);
    }

    fn a_process_that_has_changed_its_user_starts_others(method: StartMethod) {
        let mut main = Start::new(&CHANGED_USER).payload(format!("{method} -")).start().unwrap();
        let exit = main.wait_timeout(DEADLINE).unwrap().expect("it did not end");
        assert!(exit.is_success(), "{exit:#}");
    }

    fn a_process_that_is_stopped_ends_with_its_parent_too(method: StartMethod) {
        let meeting = Meeting::new();
        let main = Start::new(&HEAD).payload(format!("{method} {}", meeting.name())).start().unwrap();
        let guests = meeting.guests(6);
        for guest in &guests {
            PidFd::open(guest.pid).unwrap().send_signal(nix::sys::signal::Signal::SIGSTOP as i32).unwrap();
        }
        main.kill().unwrap();
        guests.iter().for_each(Guest::wait_gone);
    }

    fn a_killed_main_process_leaves_no_descriptor_name_or_file_either(method: StartMethod) {
        let meeting = Meeting::new();
        let folder = std::env::temp_dir().join(meeting.name());
        std::fs::create_dir(&folder).unwrap();
        let mut overseer = Start::new(&OVERSEER).payload(format!("{method} {}", meeting.name())).env("TMPDIR", &folder).start().unwrap();
        let guests = meeting.guests(6);
        let branch = guests.iter().find(|guest| guest.rank == 10).unwrap();
        let parent = parent_of(branch.pid);
        let main = if method == StartMethod::Forkserver { parent_of(parent) } else { parent };
        PidFd::open(main).unwrap().send_signal(SIGKILL).unwrap();
        let exit = overseer.wait_timeout(DEADLINE).unwrap().expect("it did not end");
        assert!(exit.is_success(), "{exit:#}");
        guests.iter().for_each(Guest::wait_gone);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "temporary files");
        std::fs::remove_dir(folder).unwrap();
    }

    fn nested_processes_end_well_when_they_are_let(method: StartMethod) {
        let meeting = Meeting::new();
        let mut main = Start::new(&HEAD).payload(format!("{method} {}", meeting.name())).start().unwrap();
        meeting.guests(6).iter().for_each(Guest::release);
        let exit = main.wait_timeout(DEADLINE).unwrap().expect("it did not end");
        assert!(exit.is_success(), "{exit:#}");
    }
}
