//! Tensors of a device: a process in Python by itself, and several with one in Rust that has no driver.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tensorferry::cuda::CudaTensor;
use tensorferry::listen::Listener;
use tensorferry::queue::Connection;
use tensorferry_kit::{
    Child, DEADLINE, Family, Machine, not_here, start_python, where_possible, with_family,
};

use crate::address;

#[derive(Debug, Serialize, Deserialize)]
struct Named {
    x: CudaTensor<i32>,
}

fn program(machine: &Machine, arguments: &[&str]) -> Child {
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/device.py"));
    start_python(script, arguments, &[], &machine.environment())
}

/// A process on the machine, and the connection with it.
fn member(machine: &Machine, family: &Family) -> (Child, Connection<Named, Named>) {
    let address = address();
    let listener = Listener::bind_in(family.heap(), &address).unwrap();
    let child = program(machine, &["member", &address]);
    let connection = listener.accept_timeout(2, DEADLINE).unwrap();
    child.expect("connected");
    (child, connection)
}

fn does(child: &Child, what: &str) {
    child.say(what);
    child.expect("ok");
}

fn holds(child: &Child, elements: &str) {
    child.say("cpu");
    child.expect(elements);
}

fn end(child: Child) {
    does(&child, "drop");
    child.say("end");
    child.expect("done");
    child.finish();
}

#[test]
fn device_tensors_are_the_memory_that_other_libraries_see() {
    where_possible(|| {
        let child = program(&Machine::new("memory_mib=1024"), &["alone"]);
        child.expect("done");
        child.finish();
    });
}

#[test]
fn pytorch_has_the_same_memory_in_two_processes_in_the_order_of_its_streams() {
    where_possible(|| {
        let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/torch_device.py"));
        // PyTorch finds the driver by itself, and so does the module here.
        let child = start_python(script, &[&address()], &["torch"], &[]);
        if child.hear() == "no device" {
            not_here("a device for PyTorch");
        }
        child.expect("done");
        child.finish();
    });
}

#[test]
fn device_tensors_go_to_other_processes_as_the_same_memory() {
    where_possible(|| {
        with_family(|family| {
            let machine = Machine::new("");
            let ((a, mut to_a), (b, mut to_b)) = (member(&machine, family), member(&machine, family));
            does(&a, "make 1 2 3");
            does(&a, "send");
            // Rust knows the type, and passes the handle on without a driver.
            let named = to_a.recv().unwrap();
            assert_eq!(named.x.shape().as_slice(), [3]);
            to_b.send(named).unwrap();
            does(&b, "recv");
            holds(&b, "[1, 2, 3]");
            does(&b, "write 4 5 6");
            holds(&a, "[4, 5, 6]");
            // Whoever made it may go.
            a.kill();
            family.wait_members(2);
            holds(&b, "[4, 5, 6]");
            end(b);
        });
    });
}

#[test]
fn a_sender_that_was_killed_is_told_whoever_reads_what_it_has_not_written() {
    where_possible(|| {
        with_family(|family| {
            let machine = Machine::new("");
            let ((a, mut to_a), (b, mut to_b)) = (member(&machine, family), member(&machine, family));
            for what in ["make 1 2 3", "send"] {
                does(&a, what);
            }
            to_b.send(to_a.recv().unwrap()).unwrap();
            does(&b, "recv");
            b.say("is_written");
            b.expect("True");
            for what in ["queue", "send"] {
                does(&a, what);
            }
            to_b.send(to_a.recv().unwrap()).unwrap();
            does(&b, "recv");
            b.say("is_written");
            b.expect("False");
            // One copy begins before.
            does(&b, "copy");
            a.kill();
            family.wait_members(2);
            does(&b, "gone");
            end(b);
        });
    });
}
