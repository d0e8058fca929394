//! Reducers: how a value travels. Bytes go into a payload, and memory travels beside it as handles.
//!
//! A `serde` type may hold tensors, queues and other types that have a reducer, at any depth. Serialising
//! such a part puts a handle into the table of the message that this thread is building, and the index of the
//! handle into the payload. Deserialising takes the handle out of the table again. Outside a message both
//! fail with an error that says so: a handle written to JSON would refer to memory that nothing keeps alive.
//!
//! Most programs never call this crate: queues and spawn call [`with_encoded`] and [`decode`]. A type of your
//! own that travels by handle uses the `give_*` and `take_*` functions:
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
//!         let index = reduce::HandleIndex::deserialize(deserializer)?;
//!         reduce::take_frozen(index).map(Self).map_err(serde::de::Error::custom)
//!     }
//! }
//! ```

#![forbid(unsafe_code)]

mod buffer;
mod codec;
mod copied;
mod encoded;
mod error;
mod handle_index;
mod handle_kind;
mod parcel;
mod transit;
mod type_hash;

pub use codec::{decode, decode_as, decode_behind, with_encoded, with_encoded_behind};
pub use copied::{bytes_copied, count_copied};
pub use encoded::Encoded;
pub use error::{DecodeError, EncodeError, TransitError};
pub use handle_index::HandleIndex;
pub use handle_kind::HandleKind;
pub use parcel::Parcel;
pub use transit::{
    give_bundle, give_exclusive, give_frozen, give_monitor, give_ring, give_shared, give_sole_ring,
    handle_kind, heap, refuse, refuse_as, take_bundle, take_exclusive, take_frozen, take_monitor, take_ring,
    take_shared,
};
pub use type_hash::{ANY_TYPE, type_hash};
