//! A device, and the identity by which processes agree which one they mean.

use std::fmt;

use crate::context::PrimaryContext;
use crate::driver::Driver;
use crate::error::Result;
use crate::raw;

/// The identity of a device: the same in every process, whatever `CUDA_VISIBLE_DEVICES` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// From its bytes, as they travel.
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

    /// Its bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

/// As nvidia-smi writes it: `GPU-` and five groups.
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

    /// Its number in this process.
    #[must_use]
    pub fn ordinal(&self) -> i32 {
        self.ordinal
    }

    /// Its product name.
    ///
    /// # Errors
    /// What the driver says.
    pub fn name(&self) -> Result<String> {
        self.driver.device_name(self.ordinal)
    }

    /// Its identity.
    ///
    /// # Errors
    /// What the driver says.
    pub fn uuid(&self) -> Result<Uuid> {
        self.driver.device_uuid(self.ordinal).map(Uuid)
    }

    /// All of its memory, in bytes.
    ///
    /// # Errors
    /// What the driver says.
    pub fn total_bytes(&self) -> Result<usize> {
        self.driver.device_total_bytes(self.ordinal)
    }

    /// Whether [`crate::DeviceMemory`] works on it: virtual memory management, with descriptors as handles.
    ///
    /// # Errors
    /// What the driver says.
    pub fn has_shareable_memory(&self) -> Result<bool> {
        Ok(self.has(raw::ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT)?
            && self.has(raw::ATTRIBUTE_POSIX_FILE_DESCRIPTORS)?)
    }

    /// Whether it has memory pools.
    ///
    /// # Errors
    /// What the driver says.
    pub fn has_memory_pools(&self) -> Result<bool> {
        self.has(raw::ATTRIBUTE_MEMORY_POOLS)
    }

    /// Whether the memory of its pools can leave the process as a descriptor and a pointer.
    ///
    /// # Errors
    /// What the driver says.
    pub fn has_shareable_pools(&self) -> Result<bool> {
        let types = self.driver.device_attribute(self.ordinal, raw::ATTRIBUTE_POOL_HANDLE_TYPES)?;
        Ok(self.has_memory_pools()? && types.cast_unsigned() & raw::POSIX_FILE_DESCRIPTOR != 0)
    }

    /// Whether it has events that other processes can wait for.
    ///
    /// # Errors
    /// What the driver says.
    pub fn has_interprocess_events(&self) -> Result<bool> {
        match self.has(raw::ATTRIBUTE_IPC_EVENTS) {
            // The attribute is younger than such events (CUDA 12.0): drivers that do not know it had them on every device.
            Err(error) if error.code() == Some(raw::INVALID_VALUE) => Ok(true),
            answer => answer,
        }
    }

    fn has(&self, attribute: i32) -> Result<bool> {
        Ok(self.driver.device_attribute(self.ordinal, attribute)? != 0)
    }

    /// What lengths of memory have to be multiples of, in bytes.
    ///
    /// # Errors
    /// What the driver says; a missing function when it is too old.
    pub fn granularity_bytes(&self) -> Result<usize> {
        self.driver.granularity_bytes(self.ordinal)
    }

    /// Whether it can reach the memory of `peer` directly.
    ///
    /// # Errors
    /// What the driver says.
    pub fn can_access(&self, peer: &Self) -> Result<bool> {
        self.driver.can_access_peer(self.ordinal, peer.ordinal)
    }

    /// Holds its primary context, which is made if there is none yet.
    ///
    /// # Errors
    /// What the driver says.
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
