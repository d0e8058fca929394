//! Queues between processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod awaiting;
mod connections;
mod contents;
mod order;
mod passing;
mod peers;
mod sealed;
mod several;
mod sharing;
mod waiting;

use tensorferry::queue::{Queue, Receiver, Sender, channel_in};
use tensorferry_kit::{Child, Family, Item, tasks::Puppet};

/// A child that gets from `from`.
#[track_caller]
fn getter(family: &Family, from: &Receiver<Item>) -> Child {
    family.start(Puppet { from: Some(from.clone()), ..Puppet::default() })
}

/// A child that puts to `to`.
#[track_caller]
fn putter(family: &Family, to: &Sender<Item>) -> Child {
    family.start(Puppet { to: Some(to.clone()), ..Puppet::default() })
}

/// A child that does both with `queue`.
#[track_caller]
fn member(family: &Family, queue: &Queue<Item>) -> Child {
    family.start(Puppet { queue: Some(queue.clone()), ..Puppet::default() })
}

fn channel(family: &Family, capacity_items: usize) -> (Sender<Item>, Receiver<Item>) {
    channel_in(family.heap(), capacity_items).unwrap()
}
