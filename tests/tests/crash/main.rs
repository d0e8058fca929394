//! Processes that are killed or stopped: nobody hangs, what was put is delivered, nothing is left.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod bundles;
mod deaths;
mod ends;
mod leases;
mod many;
mod memory;
mod namespaces;
mod random;
mod root;
mod scan_requests;
mod steps;
mod stopped;
mod sweeps;

use tensorferry::Queue;
use tensorferry_kit::tasks::Puppet;
use tensorferry_kit::{Child, Family, Item};

/// A child that puts to and gets from `queue`.
#[track_caller]
fn member(family: &Family, queue: &Queue<Item>) -> Child {
    family.start(Puppet { queue: Some(queue.clone()), ..Puppet::default() })
}

fn queue(family: &Family, maxsize: usize) -> Queue<Item> {
    Queue::new_in(family.heap(), maxsize).unwrap()
}
