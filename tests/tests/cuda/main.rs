//! CUDA between processes, on the software driver.

mod cache;
mod calls;
mod cudarc;
mod deaths;
mod events;
mod faults;
mod forged;
mod fork;
mod keeper;
mod many;
mod memory;
mod opening;
mod raw;
mod refusals;
mod staging;
mod strategies;
mod tensors;

use std::os::fd::AsFd;

use tensorferry_tests::Process;

/// Tells a process to do something and hears the answer.
#[track_caller]
fn ask(process: &Process, line: &str) -> String {
    process.say(line);
    process.hear()
}

/// Tells a process to do things that answer `ok`.
#[track_caller]
fn told(process: &Process, lines: &[&str]) {
    for line in lines {
        process.say(line);
        process.expect("ok");
    }
}

/// Passes a descriptor on, and says what to do with it.
#[track_caller]
fn hand_over(from: &Process, export: &str, to: &Process, import: &str) -> String {
    let answer = ask(from, export);
    let fd = from.take_fd();
    to.say_with(import, &[fd.as_fd()]);
    assert_eq!(to.hear(), "ok");
    answer
}
