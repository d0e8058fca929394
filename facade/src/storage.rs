//! Memory: allocation, limits, statistics, and blocks for types of your own.
//!
//! What a program needs of it; the rest of the crate `tensorferry-storage` is for crates that build on it.

#[doc(no_inline)]
pub use tensorferry_inspect::Snapshot;
pub use tensorferry_storage::{
    BlockId, ExclusiveBlock, FrozenBlock, Heap, HeapStats, HeapUsage, SharedBlock, StorageError,
};
