//! Devices, and the identity by which processes agree on a device.

use std::fmt;

use crate::context::PrimaryContext;
use crate::driver::Driver;
use crate::error::Result;
use crate::raw;

/// The identity of a device. It is the same in every process, whatever `CUDA_VISIBLE_DEVICES` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// Makes the identity from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(crate) fn to_words(self) -> [u64; 2] {
        bytemuck::must_cast(self.0)
    }

    pub(crate) fn from_words(words: [u64; 2]) -> Self {
        Self(bytemuck::must_cast(words))
    }

    /// The bytes of the identity.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// Prints the format of nvidia-smi: `GPU-` and five groups.
impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 0 | 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// A device that this process sees.
#[derive(Clone, Debug)]
pub struct Device {
    driver: Driver,
    ordinal: i32,
}

impl Device {
    pub(crate) fn new(driver: Driver, ordinal: i32) -> Self {
        Self { driver, ordinal }
    }

    pub(crate) fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The ordinal of the device in this process.
    #[must_use]
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// The product name.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn name(&self) -> Result<String> {
        self.driver.device_name(self.ordinal)
    }

    /// The identity.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn uuid(&self) -> Result<Uuid> {
        self.driver.device_uuid(self.ordinal).map(Uuid)
    }

    /// The total memory of the device, in bytes.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn total_bytes(&self) -> Result<usize> {
        self.driver.device_total_bytes(self.ordinal)
    }

    /// Whether [`crate::DeviceMemory`] works on this device: it needs virtual memory management, with
    /// descriptors as handles.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn has_shareable_memory(&self) -> Result<bool> {
        Ok(self.has(raw::ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT)?
            && self.has(raw::ATTRIBUTE_POSIX_FILE_DESCRIPTORS)?)
    }

    /// Whether the device has memory pools.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn has_memory_pools(&self) -> Result<bool> {
        self.has(raw::ATTRIBUTE_MEMORY_POOLS)
    }

    /// Whether memory of the device's pools can leave the process as a descriptor and a pointer.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn has_shareable_pools(&self) -> Result<bool> {
        let types = self.driver.device_attribute(self.ordinal, raw::ATTRIBUTE_POOL_HANDLE_TYPES)?;
        Ok(self.has_memory_pools()? && types.cast_unsigned() & raw::POSIX_FILE_DESCRIPTOR != 0)
    }

    /// Whether the device has events that other processes can wait for.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn has_interprocess_events(&self) -> Result<bool> {
        match self.has(raw::ATTRIBUTE_IPC_EVENTS) {
            // The attribute (CUDA 12.0) is younger than such events. Drivers that do not know it had them on
            // every device.
            Err(error) if error.code() == Some(raw::INVALID_VALUE) => Ok(true),
            answer => answer,
        }
    }

    /// Whether streams of the device can wait for words of memory, and write them: 64-bit stream memory
    /// operations (CUDA 11.7).
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn has_stream_memory_operations(&self) -> Result<bool> {
        match self.has(raw::ATTRIBUTE_STREAM_MEMORY_OPERATIONS_64) {
            // A driver that does not know the attribute does not have the functions.
            Err(error) if error.code() == Some(raw::INVALID_VALUE) => Ok(false),
            answer => answer,
        }
    }

    fn has(&self, attribute: i32) -> Result<bool> {
        Ok(self.driver.device_attribute(self.ordinal, attribute)? != 0)
    }

    /// The granularity of device memory, in bytes: lengths have to be multiples of it.
    ///
    /// # Errors
    /// The driver's error; [`CudaError::MissingSymbol`](crate::CudaError::MissingSymbol) if the driver is too
    /// old.
    pub fn granularity_bytes(&self) -> Result<usize> {
        self.driver.granularity_bytes(self.ordinal)
    }

    /// Whether the device can reach the memory of `peer` directly.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn can_access(&self, peer: &Self) -> Result<bool> {
        self.driver.can_access_peer(self.ordinal, peer.ordinal)
    }

    /// Retains the primary context of the device, and makes it if there is none yet.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`](crate::CudaError::Driver)).
    pub fn retain_primary_context(&self) -> Result<PrimaryContext> {
        PrimaryContext::retain(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_written_as_tools_write_it() {
        let uuid = Uuid::from_bytes(std::array::from_fn(|i| u8::try_from(i * 16 + i).unwrap()));
        assert_eq!(uuid.to_string(), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
