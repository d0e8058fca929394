//! CUDA between processes: on the software driver, or, with `cargo xtask test-gpu`, on a real one.

mod answers;
mod cache;
mod calls;
mod capture;
mod comings;
mod cudarc;
mod deaths;
mod events;
mod faults;
mod fd_store;
mod forged;
mod fork;
mod full;
mod many;
mod memory;
mod opening;
mod raw;
mod refusals;
mod staging;
mod strategies;
mod tensors;
mod torch;
mod uploads;
mod waits;

use std::os::fd::AsFd;

use tensorferry_kit::{Process, needs_software_driver};

/// Tells a process to do something and hears the answer.
#[track_caller]
fn ask(process: &Process, line: &str) -> String {
    refuse_where_real(line);
    process.say(line);
    process.hear()
}

/// Ends the test where a real driver cannot do what the line says.
fn refuse_where_real(line: &str) {
    let is_of_every_driver = matches!(line, "control held" | "control running");
    if line == "used" || (line.starts_with("control ") && !is_of_every_driver) {
        needs_software_driver();
    }
}

/// Tells a process to do things that answer `ok`.
#[track_caller]
fn told(process: &Process, lines: &[&str]) {
    for line in lines {
        refuse_where_real(line);
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
