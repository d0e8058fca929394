//! The atomics of shared memory: those of the standard library, and one marker for their order.
//!
//! `tests/loom` compiles the files that import this module over the atomics of loom.

pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

pub use tensorferry_os::prefetch::{prefetch_address_to_read, prefetch_address_to_write, prefetch_to_write};

/// Marks the place between a sequentially consistent change of one word and a sequentially consistent load of
/// another, where another thread does the same with the words exchanged. At least one of the two threads sees
/// the other's change. The language orders such accesses already (C++20, [atomics.order]; Rust uses its
/// model), so this does nothing. loom has a total order of fences only, so its version is a fence.
#[inline]
pub const fn change_before_load() {}
