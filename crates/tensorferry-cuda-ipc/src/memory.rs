//! Memory of a device that can leave its process.

use std::os::fd::{AsFd, OwnedFd};

use crate::capture::Relaxed;
use crate::device::Device;
use crate::error::{CudaError, Result};
use crate::refused;

/// Memory of a device: a handle of `cuMemCreate`, or one that was imported. Dropping it releases the handle; the memory
/// itself goes with the last handle, mapping and descriptor of all processes.
///
/// It cannot be touched by itself: [`crate::DeviceMapping`] gives it an address.
#[derive(Debug)]
pub struct DeviceMemory {
    device: Device,
    /// `None` once it was released.
    handle: Option<u64>,
    len_bytes: usize,
}

impl DeviceMemory {
    /// Allocates. The content is what was there before.
    ///
    /// # Errors
    /// [`CudaError::NotGranular`]; what the driver says, [`CudaError::is_out_of_memory`] among it; a missing function when
    /// the driver is too old.
    pub fn create(device: &Device, len_bytes: usize) -> Result<Self> {
        check_granularity(device, len_bytes)?;
        let handle = device.driver().create(device.ordinal(), len_bytes)?;
        Ok(Self { device: device.clone(), handle: Some(handle), len_bytes })
    }

    /// Takes memory that another process exported, or this one. The descriptor stays the caller's, and may be closed.
    ///
    /// `len_bytes` is what the exporter said. A mapping of more than there is fails, so a wrong number does no harm.
    ///
    /// # Errors
    /// [`CudaError::NotGranular`]; what the driver says: the descriptor is no memory of a device, or of a device that this
    /// process does not see; or the memory lies on another device than `device`.
    pub fn import(device: &Device, fd: impl AsFd, len_bytes: usize) -> Result<Self> {
        check_granularity(device, len_bytes)?;
        let driver = device.driver();
        let memory = Self { device: device.clone(), handle: Some(driver.import(fd.as_fd())?), len_bytes };
        let ordinal = driver.properties(memory.handle()?)?.ordinal();
        if ordinal == device.ordinal() {
            return Ok(memory);
        }
        Err(CudaError::WrongDevice { expected: device.uuid()?, found: driver.device(ordinal)?.uuid()? })
    }

    /// A descriptor for another process: pass it over a Unix socket. It alone keeps the memory, until it is closed.
    ///
    /// # Errors
    /// What the driver says.
    pub fn export(&self) -> Result<OwnedFd> {
        self.device.driver().export(self.handle()?)
    }

    /// Where it lies.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(crate) fn handle(&self) -> Result<u64> {
        // Only `release` takes it away, and that consumes the value.
        self.handle.ok_or(CudaError::Released)
    }

    /// Releases the handle, as dropping does, and says how it went.
    ///
    /// # Errors
    /// What the driver says.
    pub fn release(mut self) -> Result<()> {
        self.release_once()
    }

    fn release_once(&mut self) -> Result<()> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        // A program may capture meanwhile.
        let _relaxed = Relaxed::begin();
        let answer = self.device.driver().release(handle);
        if answer.as_ref().is_err_and(CudaError::is_about_capture) {
            // Nothing was done, so it can be asked for again.
            self.handle = Some(handle);
        }
        answer
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // Whoever wants to know calls `release`.
        if self.release_once().is_err_and(|error| error.is_about_capture()) {
            let (device, handle, len_bytes) = (self.device.clone(), self.handle.take(), self.len_bytes);
            refused::keep(Self { device, handle, len_bytes });
        }
    }
}

fn check_granularity(device: &Device, len_bytes: usize) -> Result<()> {
    let granularity_bytes = device.granularity_bytes()?;
    if len_bytes > 0 && len_bytes.is_multiple_of(granularity_bytes) {
        return Ok(());
    }
    Err(CudaError::NotGranular { len_bytes, granularity_bytes })
}
