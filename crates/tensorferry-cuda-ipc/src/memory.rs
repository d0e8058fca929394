//! Device memory that can be shared with other processes.

use std::os::fd::{AsFd, OwnedFd};

use crate::capture::Relaxed;
use crate::device::Device;
use crate::error::{CudaError, Result};
use crate::refused;

/// Device memory: a handle of `cuMemCreate`, or an imported one. Dropping it releases the handle. The memory
/// itself is freed with the last handle, mapping and descriptor of all processes.
///
/// The memory has no address by itself: [`crate::DeviceMapping`] gives it one.
#[derive(Debug)]
pub struct DeviceMemory {
    device: Device,
    /// `None` once it was released.
    handle: Option<u64>,
    len_bytes: usize,
}

impl DeviceMemory {
    /// Allocates memory. Its contents are unspecified: what was there before.
    ///
    /// # Errors
    /// [`CudaError::NotGranular`]; the driver's error, which may be [`CudaError::is_out_of_memory`];
    /// [`CudaError::MissingSymbol`] if the driver is too old.
    pub fn create(device: &Device, len_bytes: usize) -> Result<Self> {
        check_granularity(device, len_bytes)?;
        // The program may be capturing, here and wherever else memory comes and goes.
        let _relaxed = Relaxed::begin();
        let handle = device.driver().create(device.ordinal(), len_bytes)?;
        Ok(Self { device: device.clone(), handle: Some(handle), len_bytes })
    }

    /// Imports memory that another process exported, or this one. The caller keeps the descriptor and may
    /// close it.
    ///
    /// `len_bytes` is the length that the exporter reported. Mapping more than there is fails, so a wrong
    /// length does no harm.
    ///
    /// # Errors
    /// [`CudaError::NotGranular`]; [`CudaError::WrongDevice`] if the memory lies on another device than
    /// `device`; the driver's error, for example for a descriptor that is no device memory, or is memory of a
    /// device that this process does not see.
    pub fn import(device: &Device, fd: impl AsFd, len_bytes: usize) -> Result<Self> {
        check_granularity(device, len_bytes)?;
        let driver = device.driver();
        let _relaxed = Relaxed::begin();
        let memory = Self { device: device.clone(), handle: Some(driver.import(fd.as_fd())?), len_bytes };
        let ordinal = driver.properties(memory.handle()?)?.ordinal();
        if ordinal == device.ordinal() {
            return Ok(memory);
        }
        Err(CudaError::WrongDevice { expected: device.uuid()?, found: driver.device(ordinal)?.uuid()? })
    }

    /// A descriptor of the memory, to pass to another process over a Unix socket. The descriptor by itself
    /// keeps the memory until it is closed.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`]).
    pub fn export(&self) -> Result<OwnedFd> {
        self.device.driver().export(self.handle()?)
    }

    /// The device that has the memory.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(crate) fn handle(&self) -> Result<u64> {
        // Only `release` takes the handle away, and it consumes the value.
        self.handle.ok_or(CudaError::Released)
    }

    /// Releases the handle, as dropping does, and returns the driver's answer.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`]).
    pub fn release(mut self) -> Result<()> {
        self.release_once()
    }

    fn release_once(&mut self) -> Result<()> {
        let Some(handle) = self.handle.take() else { return Ok(()) };
        let _relaxed = Relaxed::begin();
        let answer = self.device.driver().release(handle);
        if answer.as_ref().is_err_and(CudaError::is_about_capture) {
            // The driver did nothing, so the release can be tried again.
            self.handle = Some(handle);
        }
        answer
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // Errors are dropped here. A caller that needs them uses `release`.
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
