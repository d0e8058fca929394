//! The heap and the ring inside one process. What needs several processes is tested in the `tests` package.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bundles;
mod heap;
mod members;
mod pins;
mod recycling;
mod ring;
mod states;

use tensorferry_domain::Domain;
use tensorferry_storage::Heap;

/// A heap of its own, so that tests do not see each other.
fn heap() -> Heap {
    Heap::create(Domain::builder().address_space_bytes(1 << 30).limit_bytes(256 << 20)).unwrap()
}
