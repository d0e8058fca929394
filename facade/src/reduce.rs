//! How a type of your own travels by handle, and how many bytes were copied.
//!
//! What a program needs of it; the rest of the crate `tensorferry-reduce` is for crates that carry messages.
//!
//! ```
//! use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
//! use tensorferry::reduce::{HandleIndex, give_frozen, take_frozen};
//! use tensorferry::storage::{FrozenBlock, Heap};
//! use tensorferry::Queue;
//!
//! /// Compressed bytes in shared memory.
//! struct Jpeg(FrozenBlock);
//!
//! impl Serialize for Jpeg {
//!     fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
//!         give_frozen(&self.0).map_err(ser::Error::custom)?.serialize(serializer)
//!     }
//! }
//!
//! impl<'de> Deserialize<'de> for Jpeg {
//!     fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
//!         take_frozen(HandleIndex::deserialize(deserializer)?).map(Self).map_err(de::Error::custom)
//!     }
//! }
//!
//! let images = Queue::new(1)?;
//! let mut block = Heap::current()?.allocate(3)?;
//! block.bytes_mut().copy_from_slice(&[0xff, 0xd8, 0xff]);
//! images.put(Jpeg(block.freeze()))?;
//! assert_eq!(images.get()?.0.bytes(), [0xff, 0xd8, 0xff]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use tensorferry_reduce::{
    DecodeError, EncodeError, HandleIndex, HandleKind, Parcel, TransitError, bytes_copied, count_copied,
    give_exclusive, give_frozen, give_shared, heap, refuse, refuse_as, take_exclusive, take_frozen,
    take_shared,
};
