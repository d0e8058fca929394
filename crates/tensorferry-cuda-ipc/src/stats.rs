//! Statistics about the device memory of this process, and limits on how much of it is cached.

use std::fmt;
use std::time::Duration;

use crate::{registry, upload};

/// Statistics about the device memory of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Slabs that this process made and has not given up.
    pub slabs_owned: usize,
    /// Total length of these slabs, in bytes.
    pub owned_bytes: usize,
    /// Bytes of these slabs that are free for the next tensors.
    pub free_bytes: usize,
    /// Slabs of other processes that this process knows, and staged copies
    /// ([`CudaTensor::to_staged`](crate::CudaTensor::to_staged)), including those that this process made.
    pub slabs_received: usize,
    /// Those of `slabs_received` that are mapped here, or copied to a device here.
    pub slabs_mapped: usize,
    /// Storages that tensors of this process hold.
    pub tensors: usize,
    /// Storages that no tensor of this process holds any more, but that a device or another process still
    /// uses.
    pub tensors_leaving: usize,
    /// Streams, of this process and of others, whose points travel in messages.
    pub timelines: usize,
    /// How many parts came back poisoned: a device may still use such a part, because a process died while it
    /// used it, or lost its context. No tensor is made in the slab of such a part any more. The slab is given
    /// up when the rest of it is free.
    pub slabs_poisoned: u64,
    /// Storages in memory that another library of this process allocated and that is shared as it is.
    /// Includes those that are being let go of.
    pub slabs_lent: usize,
    /// Slabs that are given up and not freed yet, because a device uses them or another process has them
    /// open.
    pub slabs_dying: usize,
    /// Slabs, of this process and of others, that stay until this process ends. The context broke, so it can
    /// never be known when the device is done with them.
    pub slabs_leaked: usize,
    /// Slabs of other processes that the driver has failed to close. Their owners cannot free them until this
    /// process ends.
    pub slabs_unclosed: usize,
}

/// How much memory of one device this process has, and how much of the device is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceUsage {
    /// Bytes in tensors of this process that lie in its own slabs.
    pub live_bytes: usize,
    /// Bytes that this process has let go of, but that other processes, messages in flight or a device still
    /// use.
    pub leaving_bytes: usize,
    /// Bytes in free parts of slabs whose other parts are in use.
    pub free_bytes: usize,
    /// Bytes in slabs that are given up and not freed yet, because a device uses them or another process has
    /// them open.
    pub dying_bytes: usize,
    /// Bytes in slabs of this process that stay until it ends, because its context broke.
    pub leaked_bytes: usize,
    /// Bytes in memory that another library of this process allocated and that is shared as it is. Includes
    /// memory that is being let go of.
    pub lent_bytes: usize,
    /// Bytes in slabs of other processes that are mapped here. Copies of a staged tensor count for the device
    /// from which it was staged.
    pub received_bytes: usize,
    /// Free bytes of the device.
    pub device_free_bytes: usize,
    /// All bytes of the device.
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

/// How much memory is cached, and how long an allocation on a full device waits.
///
/// ```
/// use tensorferry_cuda_ipc::{CacheLimits, set_cache_limits};
///
/// // Unmap slabs of other processes as soon as no tensor of this process lies in them.
/// set_cache_limits(CacheLimits::new().free_bytes(256 << 20).idle_slabs(0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    pub(crate) free_bytes: usize,
    pub(crate) idle_slabs: usize,
    pub(crate) full_device_timeout: Duration,
}

impl CacheLimits {
    /// The defaults: 1 GiB, 64 slabs and 2 s.
    #[must_use]
    pub const fn new() -> Self {
        Self { free_bytes: 1 << 30, idle_slabs: 64, full_device_timeout: Duration::from_secs(2) }
    }

    /// Sets how many bytes of free slabs this process keeps for each device, domain and strategy. 1 GiB by
    /// default.
    #[must_use]
    pub const fn free_bytes(self, free_bytes: usize) -> Self {
        Self { free_bytes, ..self }
    }

    /// Sets how many slabs of other processes stay mapped although no tensor of this process lies in them. A
    /// slab that its owner gives up is unmapped at once. 64 by default.
    #[must_use]
    pub const fn idle_slabs(self, idle_slabs: usize) -> Self {
        Self { idle_slabs, ..self }
    }

    /// Sets how long an allocation on a full device waits for memory that this process has let go of, but
    /// that other processes or devices still use. 2 s by default.
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

/// The statistics of this process at this moment.
#[must_use]
pub fn device_stats() -> DeviceStats {
    registry::get().stats()
}

/// Sets the cache limits of this process, from now on.
pub fn set_cache_limits(limits: CacheLimits) {
    registry::get().set_limits(limits);
}

/// Frees tensors of this process that no process holds any more, and slabs that their owners have given up.
/// Without this call, the same happens a moment later.
pub fn ipc_collect() {
    registry::get().collect();
}

/// Gives all free device memory back to the driver: slabs of this process without tensors, and mappings of
/// other processes' slabs in which no tensor of this process lies. The next tensors pay for it again. So does
/// the page-locked memory of copies that are done
/// ([`CudaTensor::from_tensor_non_blocking`](crate::CudaTensor::from_tensor_non_blocking)).
///
/// For the strategy [`Pool`](crate::CudaStrategy::Pool), the driver keeps the returned memory in the pool
/// until this process ends. It is free for that strategy, and for other allocations from the pool
/// ([`use_exportable_pool`](crate::use_exportable_pool)), but for nothing else on the device.
///
/// # Blocking
/// While a device is still running the last work that uses such memory.
pub fn empty_cache() {
    registry::get().trim(0);
    upload::trim();
}
