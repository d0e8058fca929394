//! Reducers: how a value travels. Bytes go into a payload, memory goes beside it as handles.
//!
//! Any `serde` type may hold tensors, queues and whatever else has a reducer, anywhere inside. Serialising such a
//! thing puts a handle into the table of the message that is being built on this thread, and an index into the payload;
//! deserialising takes the handle back out. Outside of a message both fail with an error that says so: a tensor
//! written to JSON would be a dangling promise.
//!
//! For users this crate is invisible: queues and spawn call [`with_encoded`] and [`decode`]. For a type that
//! travels by handle it offers the `give_*` and `take_*` functions:
//!
//! ```
//! use serde::{Deserialize, Deserializer, Serialize, Serializer};
//! use tensorferry_reduce as reduce;
//! use tensorferry_storage::FrozenBlock;
//!
//! struct Picture(FrozenBlock);
//!
//! impl Serialize for Picture {
//!     fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
//!         reduce::give_frozen(&self.0).map_err(serde::ser::Error::custom)?.serialize(serializer)
//!     }
//! }
//!
//! impl<'de> Deserialize<'de> for Picture {
//!     fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
//!         let index = u32::deserialize(deserializer)?;
//!         reduce::take_frozen(index).map(Self).map_err(serde::de::Error::custom)
//!     }
//! }
//! ```

#![forbid(unsafe_code)]

mod codec;
mod copied;
mod error;
mod parcel;
mod transit;

pub use codec::{decode, with_encoded};
pub use copied::{bytes_copied, count_copied};
pub use error::{DecodeError, EncodeError, TransitError};
pub use parcel::Parcel;
pub use transit::{
    give_exclusive, give_frozen, give_ring, give_shared, give_sole_ring, heap, refuse, refuse_as,
    take_exclusive, take_frozen, take_ring, take_shared,
};
