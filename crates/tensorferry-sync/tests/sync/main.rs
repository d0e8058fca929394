//! Values, arrays and locks inside one process, and on their way through a message. The `tests` package tests
//! them between processes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod array;
mod hostile;
mod locks;
mod order;
mod value;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_domain::Domain;
use tensorferry_reduce::{DecodeError, Parcel};
use tensorferry_storage::Heap;

/// A heap of its own, so that tests do not see each other.
fn heap() -> Heap {
    Heap::create(Domain::builder().address_space_bytes(64 << 20).limit_bytes(16 << 20)).unwrap()
}

/// Sends a value, and returns what the receiver reads.
fn sent<A: Serialize, B: DeserializeOwned>(heap: &Heap, value: &A) -> Result<B, DecodeError> {
    let parcel = Parcel::pack(heap, value).unwrap();
    Parcel::open(heap, parcel.id())
}
