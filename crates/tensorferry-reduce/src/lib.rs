//! STUB being replaced by the lead: signatures other crates compile against.
#![allow(missing_docs, clippy::all, clippy::restriction, clippy::pedantic, unused, missing_debug_implementations, reason = "stub")]
use tensorferry_storage::*;
/// Why a handle could not be given or taken; e.g. serialising a tensor with serde_json outside of a message.
#[derive(Debug, thiserror::Error)] #[non_exhaustive]
pub enum TransitError { #[error("stub")] Stub }
// Called from Serialize impls (errors go to S::Error::custom). Each returns the index to write in the payload.
pub fn give_frozen(block: &FrozenBlock) -> Result<u32, TransitError> { todo!() }
pub fn give_shared(block: &SharedBlock) -> Result<u32, TransitError> { todo!() }
/// Claims the block at once: from here on it is moved (restored when the put fails).
pub fn give_exclusive(block: &ExclusiveBlock) -> Result<u32, TransitError> { todo!() }
/// The heap that the message being built belongs to: private tensors are copied into it.
pub fn heap() -> Result<Heap, TransitError> { todo!() }
/// Counts tensor bytes copied by the transport.
pub fn count_copied(len_bytes: usize) { todo!() }
// Called from Deserialize impls. Each entry knows its kind; a wrong kind, an index out of range, or taking an exclusive twice is an error.
// Indexes may be taken several times for frozen and shared blocks (two views of one storage share an entry).
pub fn take_frozen(index: u32) -> Result<FrozenBlock, TransitError> { todo!() }
pub fn take_shared(index: u32) -> Result<SharedBlock, TransitError> { todo!() }
pub fn take_exclusive(index: u32) -> Result<ExclusiveBlock, TransitError> { todo!() }
