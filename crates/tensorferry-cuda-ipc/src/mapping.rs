//! Device memory at an address of this process.

use crate::capture::Relaxed;
use crate::context::PrimaryContext;
use crate::error::{CudaError, Result};
use crate::memory::DeviceMemory;
use crate::refused;

/// Mapped device memory: it has an address that kernels and copies of this process may use. Dropping it
/// unmaps the memory.
///
/// The driver does not wait for the device when it unmaps. Work that is queued for this address must be done
/// before ([`PrimaryContext::synchronize`], or an event).
#[derive(Debug)]
pub struct DeviceMapping {
    context: PrimaryContext,
    address: u64,
    len_bytes: usize,
    /// The last step that was done; dropping undoes the steps in reverse order.
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Closed,
    Reserved,
    Mapped,
}

impl DeviceMapping {
    /// Maps all of `memory` for reading and writing by the device of `context`. The memory's handle may be
    /// released afterwards: the mapping keeps the memory.
    ///
    /// # Errors
    /// The driver's error, for example when the device cannot reach the memory of another device. In that
    /// case nothing stays mapped.
    pub fn map(memory: &DeviceMemory, context: &PrimaryContext) -> Result<Self> {
        // The program may be capturing.
        let _relaxed = Relaxed::begin();
        let driver = context.device().driver();
        let len_bytes = memory.len_bytes();
        let address = driver.reserve(len_bytes)?;
        // From here on a drop undoes the steps that were done.
        let mut mapping = Self { context: context.clone(), address, len_bytes, stage: Stage::Reserved };
        driver.map(address, len_bytes, memory.handle()?)?;
        mapping.stage = Stage::Mapped;
        driver.set_access(address, len_bytes, context.device().ordinal())?;
        Ok(mapping)
    }

    /// The first address, as a device pointer of this process.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Copies bytes to the device. Blocks until the copy is done.
    ///
    /// # Errors
    /// [`CudaError::OutOfRange`]; the driver's error.
    pub fn write(&self, offset_bytes: usize, bytes: &[u8]) -> Result<()> {
        let address = self.address_of(offset_bytes, bytes.len())?;
        let _current = self.context.make_current()?;
        self.context.device().driver().copy_to_device(address, bytes)
    }

    /// Copies bytes from the device. Blocks until the copy is done.
    ///
    /// # Errors
    /// [`CudaError::OutOfRange`]; the driver's error.
    pub fn read(&self, offset_bytes: usize, bytes: &mut [u8]) -> Result<()> {
        let address = self.address_of(offset_bytes, bytes.len())?;
        let _current = self.context.make_current()?;
        self.context.device().driver().copy_to_host(address, bytes)
    }

    fn address_of(&self, offset_bytes: usize, len_bytes: usize) -> Result<u64> {
        let is_inside = offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= self.len_bytes);
        if is_inside {
            return Ok(self.address + offset_bytes as u64);
        }
        Err(CudaError::OutOfRange { offset_bytes, len_bytes, mapping_len_bytes: self.len_bytes })
    }

    /// Unmaps the memory, as dropping does, and returns the driver's answer.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`]).
    pub fn close(mut self) -> Result<()> {
        self.close_once()
    }

    fn close_once(&mut self) -> Result<()> {
        // The program may be capturing.
        let _relaxed = Relaxed::begin();
        let driver = self.context.device().driver().clone();
        if self.stage == Stage::Mapped {
            // If unmapping fails, the addresses below the mapping are never freed.
            self.go_back_to(Stage::Reserved, driver.unmap(self.address, self.len_bytes))?;
        }
        if self.stage == Stage::Reserved {
            self.go_back_to(Stage::Closed, driver.address_free(self.address, self.len_bytes))?;
        }
        Ok(())
    }

    fn go_back_to(&mut self, stage: Stage, answer: Result<()>) -> Result<()> {
        self.stage = match &answer {
            Ok(()) => stage,
            // The driver did nothing, so the call can be tried again.
            Err(error) if error.is_about_capture() => self.stage,
            Err(_) => Stage::Closed,
        };
        answer
    }
}

impl Drop for DeviceMapping {
    fn drop(&mut self) {
        // Errors are dropped here. A caller that needs them uses `close`.
        if self.close_once().is_err_and(|error| error.is_about_capture()) {
            let context = self.context.clone();
            let (address, len_bytes, stage) = (self.address, self.len_bytes, self.stage);
            refused::keep(Self { context, address, len_bytes, stage });
        }
    }
}
