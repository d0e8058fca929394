//! Processes that meet at an address.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod hardened;
mod invitations;
mod meeting;
mod offers;
mod publishing;
mod refusals;

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tensorferry::listen::{AcceptError, Listener};
use tensorferry::queue::Connection;
use tensorferry_kit::tasks::Caller;
use tensorferry_kit::{Child, DEADLINE, Family, Item, Loner};

/// A name that no other test has.
fn address() -> String {
    static N_MADE: AtomicU32 = AtomicU32::new(0);
    format!("@tensorferry-test-{}-{}", std::process::id(), N_MADE.fetch_add(1, Ordering::Relaxed))
}

fn listen(family: &Family) -> (Listener, String) {
    let address = address();
    (Listener::bind_in(family.heap(), &address).unwrap(), address)
}

/// A process that is no member of the family.
fn caller(address: &str) -> Child {
    Loner::start(&Caller { address: address.to_owned() }, &[])
}

#[track_caller]
fn accept(listener: &Listener) -> Connection<Item> {
    listener.accept_timeout(2, DEADLINE).unwrap()
}

/// Lets a process connect, which becomes a member or is one.
#[track_caller]
fn connected(child: &Child, listener: &Listener) -> Connection<Item> {
    child.say("connect 60");
    let connection = accept(listener);
    child.expect("connected");
    connection
}

#[track_caller]
fn refusal(listener: &Listener) -> AcceptError {
    listener.accept_timeout::<Item, Item>(2, DEADLINE).unwrap_err()
}

const SHORT: Duration = Duration::from_millis(20);
