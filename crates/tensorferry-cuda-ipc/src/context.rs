//! The primary context of a device, which all libraries of a process share.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::device::Device;
use crate::error::Result;

/// A reference to the primary context of a device. Clones share one reference, and dropping the last clone
/// releases it.
#[derive(Clone, Debug)]
pub struct PrimaryContext {
    retained: Arc<Retained>,
}

/// The memory of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Free bytes.
    pub free_bytes: usize,
    /// All bytes.
    pub total_bytes: usize,
}

#[derive(Debug)]
struct Retained {
    device: Device,
    handle: usize,
}

impl PrimaryContext {
    pub(crate) fn retain(device: Device) -> Result<Self> {
        let handle = device.driver().primary_retain(device.ordinal())?;
        Ok(Self { retained: Arc::new(Retained { device, handle }) })
    }

    /// The device of the context.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.retained.device
    }

    /// The driver's handle, to compare with handles of other libraries. Equal handles are the same context.
    #[must_use]
    pub fn handle(&self) -> usize {
        self.retained.handle
    }

    /// Makes the context current on this thread until the returned guard is dropped. Then the context that
    /// was current before is current again.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn make_current(&self) -> Result<CurrentContext<'_>> {
        self.device().driver().push_current(self.handle())?;
        Ok(CurrentContext { context: self, not_send: PhantomData })
    }

    /// Waits until the device has done all work that was queued in this context.
    ///
    /// # Errors
    /// The driver's error, including errors of work that was queued before.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.make_current()?;
        self.device().driver().synchronize()
    }

    /// How much memory the device has, and how much of it is free, across all processes.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let _current = self.make_current()?;
        let (free_bytes, total_bytes) = self.device().driver().memory_info()?;
        Ok(MemoryInfo { free_bytes, total_bytes })
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        // In a forked process this fails, and there is nothing to release.
        let _ = self.device.driver().primary_release(self.device.ordinal());
    }
}

/// A guard: while it lives, its context is current on its thread.
#[derive(Debug)]
pub struct CurrentContext<'a> {
    context: &'a PrimaryContext,
    /// A context is current on one thread, so the guard must not move to another.
    not_send: PhantomData<*const ()>,
}

impl Drop for CurrentContext<'_> {
    fn drop(&mut self) {
        let _ = self.context.device().driver().pop_current();
    }
}
