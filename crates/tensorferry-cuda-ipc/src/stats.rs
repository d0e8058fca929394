//! What this process has of device memory, in numbers, and how much of it is kept for later.

use std::fmt;
use std::time::Duration;

use crate::registry;

/// Numbers of this process about device memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Slabs that this process made and has not given up.
    pub slabs_owned: usize,
    /// Their length, in bytes.
    pub owned_bytes: usize,
    /// What of that is free for the next tensors, in bytes.
    pub free_bytes: usize,
    /// Slabs of other processes that this one knows, and what was staged ([`CudaTensor::to_staged`](crate::CudaTensor::to_staged)),
    /// by this process too.
    pub slabs_received: usize,
    /// Those of them that are mapped here, or copied to a device here.
    pub slabs_mapped: usize,
    /// Storages that tensors of this process hold.
    pub tensors: usize,
    /// Storages that no tensor here holds any more, which a device or another process is not done with.
    pub tensors_leaving: usize,
    /// Streams, of this process and of others, whose points travel in messages.
    pub timelines: usize,
    /// How often a part of a slab came back of which it cannot be known who is at it still: somebody died while using it, or
    /// lost the context. Such a slab is used for nothing any more and given up when the rest of it is free.
    pub slabs_poisoned: u64,
    /// Storages in memory of another library of this process, shared as it is; those that are being let go of, too.
    pub slabs_lent: usize,
    /// Slabs that are given up and not freed yet: a device is at them, or another process has them open.
    pub slabs_dying: usize,
    /// Slabs, of this process and of others, that stay as they are until this process ends: its context broke, so it will never
    /// be known when the device is done with them.
    pub slabs_leaked: usize,
    /// Slabs of others that the driver has failed to close. Their owners cannot free them until this process ends.
    pub slabs_unclosed: usize,
}

/// What this process has of the memory of one device, and how much of it is free at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceUsage {
    /// In tensors of this process that lie in its own slabs, in bytes.
    pub live_bytes: usize,
    /// What this process has let go of, and others, messages on their way or a device have not, in bytes.
    pub leaving_bytes: usize,
    /// Free parts of slabs of which others are in use, in bytes.
    pub free_bytes: usize,
    /// Slabs that are given up and not freed yet, in bytes: a device is at them, or another process has them open.
    pub dying_bytes: usize,
    /// Slabs of this process that stay as they are until it ends, because its context broke, in bytes.
    pub leaked_bytes: usize,
    /// In memory of another library of this process, shared as it is; what is being let go of, too. In bytes.
    pub lent_bytes: usize,
    /// Slabs of other processes that are mapped here, in bytes. The copies of what was staged count for the device from which
    /// it was staged.
    pub received_bytes: usize,
    /// What of the device is free, in bytes.
    pub device_free_bytes: usize,
    /// All that the device has, in bytes.
    pub device_bytes: usize,
}

impl fmt::Display for DeviceUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { live_bytes, leaving_bytes, free_bytes, dying_bytes, .. } = self;
        let Self { leaked_bytes, lent_bytes, received_bytes, device_free_bytes, device_bytes, .. } = self;
        write!(
            f,
            "this process has {live_bytes} bytes in tensors, {leaving_bytes} that others are not done with, {free_bytes} free \
             between them, {dying_bytes} about to be freed, {leaked_bytes} that a broken context may be at, {lent_bytes} of \
             other libraries, and {received_bytes} of other processes; of the device's {device_bytes} bytes {device_free_bytes} are free"
        )
    }
}

/// How much is kept for later, and how long is waited for what comes back.
///
/// ```
/// use tensorferry_cuda_ipc::{CacheLimits, set_cache_limits};
///
/// // Nothing of others stays mapped that no tensor here lies in.
/// set_cache_limits(CacheLimits::new().free_bytes(256 << 20).idle_slabs(0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    pub(crate) free_bytes: usize,
    pub(crate) idle_slabs: usize,
    pub(crate) full_device_timeout: Duration,
}

impl CacheLimits {
    /// 1 GiB, 64 slabs and 2 s.
    #[must_use]
    pub const fn new() -> Self {
        Self { free_bytes: 1 << 30, idle_slabs: 64, full_device_timeout: Duration::from_secs(2) }
    }

    /// For each device, domain and strategy: free slabs of this process, in bytes. 1 GiB by default.
    #[must_use]
    pub const fn free_bytes(self, free_bytes: usize) -> Self {
        Self { free_bytes, ..self }
    }

    /// Slabs of other processes that stay mapped although no tensor here lies in them. A slab that its owner gives up is
    /// let go of at once. 64 by default.
    #[must_use]
    pub const fn idle_slabs(self, idle_slabs: usize) -> Self {
        Self { idle_slabs, ..self }
    }

    /// How long a tensor that is made on a full device waits for memory that this process has let go of, and others or
    /// devices have not. 2 s by default.
    #[must_use]
    pub const fn full_device_timeout(self, full_device_timeout: Duration) -> Self {
        Self { full_device_timeout, ..self }
    }
}

impl Default for CacheLimits {
    fn default() -> Self {
        Self::new()
    }
}

/// Numbers of this process at this moment.
#[must_use]
pub fn device_stats() -> DeviceStats {
    registry::get().stats()
}

/// Sets how much is kept for later and how long is waited, from now on.
pub fn set_cache_limits(limits: CacheLimits) {
    registry::get().set_limits(limits);
}

/// Frees what others have let go of: tensors of this process that nobody else holds any more, and slabs that their owners
/// have given up. Now instead of a moment later.
pub fn ipc_collect() {
    registry::get().collect();
}

/// Gives all free device memory back to the driver: slabs of this process without tensors, and mappings of slabs of others
/// that no tensor here lies in. The next tensors pay for it again.
///
/// Of the strategy [`Pool`](crate::CudaStrategy::Pool) the driver keeps what it is given back until this process ends: it is free
/// for that strategy, and for what else is allocated from the pool ([`use_exportable_pool`](crate::use_exportable_pool)), and for
/// nothing else on the device.
///
/// # Blocking
/// While a device is still at the last work for such memory.
pub fn empty_cache() {
    registry::get().trim(0);
}
