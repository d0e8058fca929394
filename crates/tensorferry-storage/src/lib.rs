//! STUB being replaced by the lead: signatures other crates compile against.
#![allow(missing_docs, clippy::all, clippy::restriction, clippy::pedantic, unused, missing_debug_implementations, reason = "stub")]
use std::sync::atomic::AtomicU64;
#[derive(Debug, thiserror::Error)] #[non_exhaustive]
pub enum StorageError { #[error("stub")] Stub }
/// This process's view of one domain's memory; cheap to clone.
#[derive(Clone, Debug)] pub struct Heap;
impl Heap {
    /// The heap of the default domain (created on first use).
    pub fn current() -> Result<Heap, StorageError> { todo!() }
    /// Contents are whatever the last user left (never another domain's); len 0 gives an empty block.
    pub fn allocate(&self, len_bytes: usize) -> Result<ExclusiveBlock, StorageError> { todo!() }
    pub fn allocate_zeroed(&self, len_bytes: usize) -> Result<ExclusiveBlock, StorageError> { todo!() }
}
/// Identity of a block within a domain; equal ids alias the same memory. Empty blocks all have id 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)] pub struct BlockId(pub u64);
/// The only right to a block's bytes in the whole domain. 64-byte aligned. Not Clone.
/// A block that was sent away through an alias (e.g. an Arc clone was serialised) becomes empty: len 0, `is_moved()`.
#[derive(Debug)] pub struct ExclusiveBlock;
impl ExclusiveBlock {
    pub fn empty() -> Self { todo!() }
    pub fn len_bytes(&self) -> usize { todo!() }
    pub fn is_moved(&self) -> bool { todo!() }
    pub fn id(&self) -> BlockId { todo!() }
    /// takes &mut on purpose: that is what makes sending an exclusive block through serde sound
    pub fn bytes(&mut self) -> &[u8] { todo!() }
    pub fn bytes_mut(&mut self) -> &mut [u8] { todo!() }
    pub fn freeze(self) -> FrozenBlock { todo!() }
    pub fn share(self) -> SharedBlock { todo!() }
}
/// Bytes that nobody writes any more. Clone is one private counter.
#[derive(Clone, Debug)] pub struct FrozenBlock;
impl FrozenBlock {
    pub fn empty() -> Self { todo!() }
    pub fn len_bytes(&self) -> usize { todo!() }
    pub fn id(&self) -> BlockId { todo!() }
    pub fn bytes(&self) -> &[u8] { todo!() }
    /// Ok when nobody else (process, message in flight, clone in this process) holds it.
    pub fn try_into_exclusive(self) -> Result<ExclusiveBlock, FrozenBlock> { todo!() }
}
/// Bytes that several processes read and write on purpose: atomic words only.
#[derive(Clone, Debug)] pub struct SharedBlock;
impl SharedBlock {
    pub fn empty() -> Self { todo!() }
    pub fn len_bytes(&self) -> usize { todo!() }
    pub fn id(&self) -> BlockId { todo!() }
    /// `len_bytes` rounded up to whole words. ALL access to a shared block goes through these 64-bit words
    /// (Rust has no mixed-size atomics): smaller elements are shifted and masked, stores of part of a word are CAS loops.
    pub fn words(&self) -> &[AtomicU64] { todo!() }
    pub fn try_into_exclusive(self) -> Result<ExclusiveBlock, SharedBlock> { todo!() }
}
