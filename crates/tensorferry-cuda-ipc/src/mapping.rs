//! The place of memory among the addresses of a process.

use crate::capture::Relaxed;
use crate::context::PrimaryContext;
use crate::error::{CudaError, Result};
use crate::memory::DeviceMemory;
use crate::refused;

/// Memory of a device, mapped: it has an address that kernels and copies of this process may use. Dropping it unmaps.
///
/// The driver does not wait for the device when it unmaps: work that is queued for this address must be done before
/// ([`PrimaryContext::synchronize`], or an event).
#[derive(Debug)]
pub struct DeviceMapping {
    context: PrimaryContext,
    address: u64,
    len_bytes: usize,
    /// What there is to take back, in the order in which it came.
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Closed,
    Reserved,
    Mapped,
}

impl DeviceMapping {
    /// Maps all of `memory` for reading and writing by the device of `context`. The memory's handle may be released
    /// afterwards: the mapping keeps the memory.
    ///
    /// # Errors
    /// What the driver says, for example that the device cannot reach the memory of another one. Nothing is left then.
    pub fn map(memory: &DeviceMemory, context: &PrimaryContext) -> Result<Self> {
        let driver = context.device().driver();
        let len_bytes = memory.len_bytes();
        let address = driver.reserve(len_bytes)?;
        // From here on a drop takes back what was done so far.
        let mut mapping = Self { context: context.clone(), address, len_bytes, stage: Stage::Reserved };
        driver.map(address, len_bytes, memory.handle()?)?;
        mapping.stage = Stage::Mapped;
        driver.set_access(address, len_bytes, context.device().ordinal())?;
        Ok(mapping)
    }

    /// Where it begins, as a device pointer of this process.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Copies bytes to the device. Blocks until that is done.
    ///
    /// # Errors
    /// [`CudaError::OutOfRange`]; what the driver says.
    pub fn write(&self, offset_bytes: usize, bytes: &[u8]) -> Result<()> {
        let address = self.address_of(offset_bytes, bytes.len())?;
        let _current = self.context.make_current()?;
        self.context.device().driver().copy_to_device(address, bytes)
    }

    /// Copies bytes from the device. Blocks until that is done.
    ///
    /// # Errors
    /// [`CudaError::OutOfRange`]; what the driver says.
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

    /// Unmaps, as dropping does, and says how it went.
    ///
    /// # Errors
    /// What the driver says.
    pub fn close(mut self) -> Result<()> {
        self.close_once()
    }

    fn close_once(&mut self) -> Result<()> {
        // A program may capture meanwhile.
        let _relaxed = Relaxed::begin();
        let driver = self.context.device().driver().clone();
        if self.stage == Stage::Mapped {
            // Addresses under a mapping that could not be undone are never freed.
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
            // Nothing was done, so it can be asked for again.
            Err(error) if error.is_about_capture() => self.stage,
            Err(_) => Stage::Closed,
        };
        answer
    }
}

impl Drop for DeviceMapping {
    fn drop(&mut self) {
        // Whoever wants to know calls `close`.
        if self.close_once().is_err_and(|error| error.is_about_capture()) {
            let context = self.context.clone();
            let (address, len_bytes, stage) = (self.address, self.len_bytes, self.stage);
            refused::keep(Self { context, address, len_bytes, stage });
        }
    }
}
