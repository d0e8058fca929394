//! The primary context of a device: the one that all libraries of a process share.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::device::Device;
use crate::error::Result;

/// A reference to the primary context of a device. The last one that goes takes the context with it. Clones are one
/// reference.
#[derive(Clone, Debug)]
pub struct PrimaryContext {
    retained: Arc<Retained>,
}

/// The memory of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// What nobody has, in bytes.
    pub free_bytes: usize,
    /// All that there is, in bytes.
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

    /// Its device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.retained.device
    }

    /// The driver's handle, to compare with what other libraries hold: equal handles are the same context.
    #[must_use]
    pub fn handle(&self) -> usize {
        self.retained.handle
    }

    /// Makes it current on this thread, until the answer is dropped. What was current before is so again then.
    ///
    /// # Errors
    /// What the driver says.
    pub fn make_current(&self) -> Result<CurrentContext<'_>> {
        self.device().driver().push_current(self.handle())?;
        Ok(CurrentContext { context: self, not_send: PhantomData })
    }

    /// Waits until the device has done everything that was asked of it in this context.
    ///
    /// # Errors
    /// What the driver says, also about work that was queued before.
    pub fn synchronize(&self) -> Result<()> {
        let _current = self.make_current()?;
        self.device().driver().synchronize()
    }

    /// How much memory the device has and has left, for all processes together.
    ///
    /// # Errors
    /// What the driver says.
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let _current = self.make_current()?;
        let (free_bytes, total_bytes) = self.device().driver().memory_info()?;
        Ok(MemoryInfo { free_bytes, total_bytes })
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        // After a fork there is nothing to release, and nobody to tell.
        let _ = self.device.driver().primary_release(self.device.ordinal());
    }
}

/// While this is there, its context is the current one of its thread.
#[derive(Debug)]
pub struct CurrentContext<'a> {
    context: &'a PrimaryContext,
    /// Being current is a matter of one thread.
    not_send: PhantomData<*const ()>,
}

impl Drop for CurrentContext<'_> {
    fn drop(&mut self) {
        let _ = self.context.device().driver().pop_current();
    }
}
