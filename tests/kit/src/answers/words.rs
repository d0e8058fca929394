//! Words of shared memory that streams wait for and write.

use std::os::fd::AsFd;
use std::time::Duration;

use super::{Probe, ask, one, told, two};
use crate::Process;

/// How long nothing has to happen.
const PATIENCE: Duration = Duration::from_millis(500);

/// Two processes that have the same words registered.
fn shared() -> (Process, Process) {
    let (writer, waiter) = two();
    assert_eq!(ask(&writer, "make-words"), "close-on-exec");
    let fd = writer.take_fd();
    waiter.say_with("map-words", &[fd.as_fd()]);
    waiter.expect("ok");
    (writer, waiter)
}

/// Whether a stream that was told to wait goes on once something was done.
fn goes_on(waiter: &Process, done: impl FnOnce()) -> String {
    waiter.say("synchronize");
    if waiter.hear_within(PATIENCE).is_some() {
        return "does not wait".to_owned();
    }
    done();
    match waiter.hear().as_str() {
        "ok" => "goes on".to_owned(),
        error => error.to_owned(),
    }
}

pub(super) const PROBES: &[Probe] = &[
    ("word-shared", || {
        let (writer, waiter) = shared();
        told(&waiter, &["wait-word 0 1"]);
        let by_stream = goes_on(&waiter, || told(&writer, &["write-word 0 1"]));
        told(&waiter, &["wait-word 0 2"]);
        format!("{by_stream}; {}", goes_on(&waiter, || told(&writer, &["set-word 0 2"])))
    }),
    ("word-writer-killed", || {
        let (writer, waiter) = shared();
        told(&writer, &["alloc a 4194304", "hold", "queue-fill a 7", "write-word 0 1"]);
        told(&waiter, &["wait-word 0 1"]);
        writer.kill();
        let waits = ask(&waiter, "query-stream");
        told(&waiter, &["set-word 0 4611686018427387904"]);
        format!("{waits}; {}", ask(&waiter, "synchronize"))
    }),
    ("word-after-all-before", || {
        let (writer, waiter) = shared();
        told(&writer, &["alloc a 4194304", "hold", "queue-fill a 7", "write-word 0 1"]);
        told(&waiter, &["wait-word 0 1"]);
        goes_on(&waiter, || told(&writer, &["run"]))
    }),
    ("word-unregistered", || {
        let process = one();
        ask(&process, "wait-byte 0 1")
    }),
    ("word-unaligned", || {
        let (_writer, waiter) = shared();
        ask(&waiter, "wait-byte 4 1")
    }),
];
