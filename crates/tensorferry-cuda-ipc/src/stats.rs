//! What this process has of device memory, in numbers, and how much of it is kept for later.

use crate::registry;

/// Numbers of this process about device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Slabs that this process made.
    pub slabs_owned: usize,
    /// Their length, in bytes.
    pub bytes_owned: usize,
    /// What of that is free for the next tensors, in bytes.
    pub bytes_free: usize,
    /// Slabs of other processes that this one knows.
    pub slabs_received: usize,
    /// Those of them that are mapped.
    pub slabs_mapped: usize,
    /// Storages that tensors of this process hold.
    pub tensors: usize,
    /// Storages that no tensor here holds any more, which a device or another process is not done with.
    pub tensors_leaving: usize,
    /// Streams, of this process and of others, whose points travel in messages.
    pub timelines: usize,
    /// How often a part of a slab came back of which it cannot be known who is at it still: somebody died while using it, or
    /// lost the context. Such a slab is used for nothing any more and given up when the rest of it is free.
    pub slabs_spoilt: u64,
    /// Tensors that lie in memory of another library of this process.
    pub slabs_lent: usize,
    /// Slabs that are given up and not freed yet: a device is at them, or another process has them open.
    pub slabs_dying: usize,
    /// Slabs, of this process and of others, that stay as they are until this process ends: its context broke, so it will never
    /// be known when the device is done with them.
    pub slabs_leaked: usize,
    /// Slabs of others that the driver has failed to close. Their owners cannot free them until this process ends.
    pub slabs_unclosed: usize,
}

/// How much is kept for later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// For each device: free slabs of this process, in bytes.
    pub free_bytes: usize,
    /// Slabs of other processes that stay mapped although no tensor here lies in them. A slab that its owner gives up is
    /// let go of at once.
    pub idle_slabs: usize,
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self { free_bytes: 1 << 30, idle_slabs: 64 }
    }
}

/// Numbers of this process at this moment.
#[must_use]
pub fn device_stats() -> DeviceStats {
    registry::get().stats()
}

/// Sets how much is kept for later, from now on.
pub fn set_cache_limits(limits: CacheLimits) {
    registry::get().set_limits(limits);
}

/// Looks after tensors that others have let go of, and after slabs that their owners have given up, now instead of a
/// moment later.
pub fn ipc_collect() {
    registry::get().collect();
}

/// Gives all free device memory back to the driver: slabs of this process without tensors, and mappings of slabs of others
/// that no tensor here lies in. The next tensors pay for it again.
///
/// # Blocking
/// While a device is still at the last work for such memory.
pub fn empty_cache() {
    registry::get().trim(0);
}
