//! The atomics of shared memory: those of the standard library, and one word about their order.
//!
//! The files that name them thus are also built over the atomics of loom; see `tests/loom`.

pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

pub use tensorferry_os::prefetch::{prefetch_address_to_write, prefetch_to_write};

/// Stands where a sequentially consistent change of one word comes before a sequentially consistent load of another, and
/// somebody else does the same the other way around: one of the two sees the other. The language orders such accesses as
/// they are (C++20, [atomics.order]; Rust has its model), so there is nothing to do. loom knows a total order of fences
/// only, so there it is a fence.
#[inline]
pub const fn change_before_load() {}
