//! Typed queues inside one process. The `tests` package tests them between processes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod any;
mod awaiting;
mod connection;
mod ends;
mod join;
mod leases;
mod values;

use tensorferry_domain::Domain;
use tensorferry_storage::Heap;

/// A heap of its own, so that tests do not see each other.
fn heap() -> Heap {
    Heap::create(Domain::builder().address_space_bytes(1 << 30).limit_bytes(256 << 20)).unwrap()
}
