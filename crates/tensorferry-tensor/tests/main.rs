//! The crate's public interface in one process. A message that is packed and opened here goes through the
//! same memory and the same checks as one between processes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops here")]

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_reduce::{DecodeError, Parcel};
use tensorferry_storage::Heap;

mod any;
mod exclusive;
mod frozen;
mod hostile;
mod private;
mod sealed;
mod shared;

/// Sends a value as a message and receives it.
fn send<T: Serialize + ?Sized, U: DeserializeOwned>(value: &T) -> U {
    try_send(value).unwrap()
}

/// As [`send`], with the error of the receiver.
fn try_send<T: Serialize + ?Sized, U: DeserializeOwned>(value: &T) -> Result<U, DecodeError> {
    let heap = Heap::current().unwrap();
    let parcel = Parcel::pack(heap, value).unwrap();
    Parcel::open(heap, parcel.id())
}

/// A value that cannot be serialised.
struct Refuses;

impl Serialize for Refuses {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("never"))
    }
}
