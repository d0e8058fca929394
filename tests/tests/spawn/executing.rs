//! How a spawned process is made: by clone3(2), or as the standard library does where there is none.

use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tensorferry::spawn::{Options, func};
use tensorferry::{Tensor, TensorMut};
use tensorferry_kit::forbid;
use tensorferry_os::child::{Program, Strings, null};
use tensorferry_os::pidfd::PidFd;
use tensorferry_process::{Ended, Entry, Failure, Inherited, SIGINT, Start};

use crate::support::DEADLINE;

tensorferry_process::entry! {
    static WITHOUT_CLONE3 = "test.without-clone3" => without_clone3;
    static AMID_SIGNALS = "test.amid-signals" => amid_signals;
    static LEAF = "test.executing-leaf" => leaf;
}

fn leaf(_inherited: &mut Inherited) -> Result<(), Failure> {
    Ok(())
}

#[func]
fn sum(rank: usize, tensor: Tensor<u64>) -> Result<(u64, Option<String>), String> {
    let sum: u64 = tensor.as_slice().map_err(|e| e.to_string())?.iter().sum();
    Ok((sum + rank as u64, std::env::var("COLOUR").ok()))
}

fn run(entry: &'static Entry) {
    let mut child = Start::new(entry).start().unwrap();
    let exit = child.wait_timeout(DEADLINE).unwrap().expect("the child did not end");
    assert!(exit.is_success(), "{exit:#}");
}

/// What the library asks for first.
fn execute_by_clone3() -> tensorferry_os::Result<PidFd> {
    let null = null()?;
    let mut arguments = Strings::with_capacity(1);
    arguments.push(&["true".as_ref()])?;
    let program = Program {
        path: c"/bin/true",
        arguments,
        environment: Strings::with_capacity(0),
        directory: None,
        stdin: null.as_fd(),
        stdout: None,
        stderr: None,
    };
    program.execute()
}

/// As in a container, whose filter cannot look into what clone3 is given.
fn without_clone3(_inherited: &mut Inherited) -> Result<(), Failure> {
    forbid(&[libc::SYS_clone3], libc::ENOSYS).map_err(|error| Failure::Refused(error.to_string()))?;
    assert_eq!(execute_by_clone3().unwrap_err().raw_os_error(), Some(libc::ENOSYS));
    let tensor = TensorMut::from_slice(&[1_u64, 2, 3], [3])?.freeze();
    let options = Options::new().env("COLOUR", "red").env("COLOUR", "green");
    let green = Some("green".to_owned());
    assert_eq!(options.spawn(sum, (tensor,), 2)?, [(6, green.clone()), (7, green)]);
    Ok(())
}

#[test]
fn where_there_is_no_clone3_processes_are_started_all_the_same() {
    run(&WITHOUT_CLONE3);
}

/// A process has its parent's memory until it executes its program. A handler that ran there would change
/// that, here the count.
fn amid_signals(_inherited: &mut Inherited) -> Result<(), Failure> {
    static HANDLED: AtomicU32 = AtomicU32::new(0);
    static IS_OVER: AtomicBool = AtomicBool::new(false);
    ctrlc::set_handler(|| {
        HANDLED.fetch_add(1, Ordering::SeqCst);
    })?;
    // Whoever is there, from the first moment on.
    let children = format!("/proc/self/task/{}/children", Pid::this());
    let interrupting = std::thread::spawn(move || {
        while !IS_OVER.load(Ordering::SeqCst) {
            for child in std::fs::read_to_string(&children).unwrap().split_whitespace() {
                // It may have ended.
                let _ = kill(Pid::from_raw(child.parse().unwrap()), Signal::SIGINT);
            }
        }
    });
    let mut n_interrupted = 0;
    for _ in 0..200 {
        let mut child = Start::new(&LEAF).start()?;
        let exit = child.wait_timeout(DEADLINE)?.ok_or(Errno::ETIME)?;
        n_interrupted += u32::from(exit.ended == Ended::Signaled { signal: SIGINT, core_dumped: false });
    }
    IS_OVER.store(true, Ordering::SeqCst);
    interrupting.join().unwrap();
    assert!(n_interrupted > 0, "no child met the signal");
    assert_eq!(HANDLED.load(Ordering::SeqCst), 0, "a child handled what its parent handles");
    Ok(())
}

#[test]
fn no_handler_of_its_parent_runs_in_a_process_that_has_not_executed_its_program() {
    run(&AMID_SIGNALS);
}
