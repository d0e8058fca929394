//! Connections with other machines, of which a forked process has a copy.
//!
//! # Safety
//! The test that forks by itself says what its child does.
#![expect(unsafe_code, reason = "forks")]

use std::sync::Mutex;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use tensorferry::BoxedError;
use tensorferry::remote::{self, Connection, ConnectionError, Key, RecvError, SendErrorKind};
use tensorferry::spawn::{StartMethod, func, get_context};
use tensorferry_os::fork::exit_at_once;
use tensorferry_process::{Failure, Inherited};

use crate::fork::run;
use crate::support::DEADLINE;

tensorferry_process::entry! {
    static CONNECTED = "test.fork-connected" => connected;
    static SAME_NUMBER = "test.fork-same-number" => same_number;
}

fn key() -> Key {
    Key::new("a secret that is long enough").unwrap()
}

/// Sends back what comes from another machine, until there is no more.
#[func]
fn echo(_rank: usize, address: std::net::SocketAddr) -> Result<(), BoxedError> {
    let mut connection = remote::connect::<u32, u32>(address, &key())?;
    while let Ok(number) = connection.recv() {
        connection.send(number)?;
    }
    Ok(())
}

static CONNECTION: Mutex<Option<Connection<u32, u32>>> = Mutex::new(None);

/// Uses its copy of the parent's connection, and lets go of it.
#[func]
fn use_copy(_rank: usize) -> Result<(), String> {
    let mut copy = CONNECTION.lock().unwrap().take().unwrap();
    let sent = copy.send(7).unwrap_err();
    assert!(matches!(sent.kind, SendErrorKind::Connection(ConnectionError::Forked)), "{sent}");
    let received = copy.recv_timeout(Duration::ZERO).unwrap_err();
    assert!(matches!(received, RecvError::Connection(ConnectionError::Forked)), "{received}");
    let (sender, _receiver) = copy.split();
    assert!(matches!(sender.close().unwrap_err(), ConnectionError::Forked));
    Ok(())
}

fn connected(_inherited: &mut Inherited) -> Result<(), Failure> {
    let listener = remote::Listener::bind("127.0.0.1:0", &key())?;
    let address = listener.local_addr()?;
    let mut echoing = get_context(StartMethod::Spawn).start_processes(echo, (address,), 1)?;
    let mut connection = listener.accept()?;
    connection.send(1)?;
    *CONNECTION.lock().unwrap() = Some(connection);
    get_context(StartMethod::Fork).spawn(use_copy, (), 2)?;
    let mut connection = CONNECTION.lock().unwrap().take().unwrap();
    connection.send(2)?;
    assert_eq!((connection.recv_timeout(DEADLINE)?, connection.recv_timeout(DEADLINE)?), (1, 2));
    drop(connection);
    assert!(echoing.join_timeout(DEADLINE)?);
    Ok(())
}

#[test]
fn a_forked_process_neither_uses_nor_ends_the_connections_of_its_parent() {
    run(&CONNECTED, "");
}

/// Forks into a new PID namespace, in which the child has the number 1. Returns the code with which the child
/// ended; `None` where the kernel makes no such namespace for this process.
fn in_new_namespace(work: impl FnOnce() -> Result<(), Failure>) -> Result<Option<i32>, Failure> {
    if unshare(CloneFlags::CLONE_NEWPID).is_err() {
        return Ok(None);
    }
    // SAFETY: it lends no slice across the fork, and the child could meet a lock that nobody opens; what is
    // tested does without. `fork_alone` would look at threads in `/proc`, which is that of another namespace.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            exit_at_once(if matches!(outcome, Ok(Ok(()))) { 7 } else { 1 });
        }
        ForkResult::Parent { child } => match waitpid(child, None)? {
            WaitStatus::Exited(_, code) => Ok(Some(code)),
            status => panic!("{status:?}"),
        },
    }
}

/// A parent and its child that both have the number 1, and a connection of the parent.
#[expect(clippy::print_stdout, reason = "a test says why it was skipped")]
fn same_number(_inherited: &mut Inherited) -> Result<(), Failure> {
    let parent = || {
        assert_eq!(std::process::id(), 1);
        let listener = remote::Listener::bind("127.0.0.1:0", &key())?;
        let address = listener.local_addr()?;
        let other = std::thread::spawn(move || remote::connect::<u32, u32>(address, &key()).unwrap());
        let mut connection = listener.accept::<u32, u32>()?;
        let mut other = other.join().unwrap();
        let child = || {
            assert_eq!(std::process::id(), 1);
            let error = connection.send(7).unwrap_err();
            assert!(matches!(error.kind, SendErrorKind::Connection(ConnectionError::Forked)), "{error}");
            drop(connection);
            Ok(())
        };
        assert_eq!(in_new_namespace(child)?, Some(7));
        // The connection itself was dropped here, and the goodbye is the first that comes.
        let error = other.recv_timeout(DEADLINE).unwrap_err();
        assert!(matches!(error, RecvError::Disconnected), "{error}");
        Ok(())
    };
    match in_new_namespace(parent)? {
        Some(code) => assert_eq!(code, 7),
        None => println!("skipped: this process may not make PID namespaces"),
    }
    Ok(())
}

#[test]
fn a_forked_process_with_the_number_of_its_parent_does_not_use_the_connections_of_that_one() {
    run(&SAME_NUMBER, "");
}
