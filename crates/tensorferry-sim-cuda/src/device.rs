//! The properties of a device.

use crate::driver::Driver;
use crate::{Answer, Status};

/// The earliest version for which the known attributes are listed here.
pub(crate) const FIRST_VERSION: i32 = 11_040;
/// For each version: the first attribute that the driver does not know (`CU_DEVICE_ATTRIBUTE_MAX` in
/// `cuda.h`).
const FIRST_UNKNOWN_ATTRIBUTES: [(i32, i32); 12] = [
    (FIRST_VERSION, 120),
    (11_060, 122),
    (11_070, 125),
    (12_000, 130),
    (12_010, 133),
    (12_020, 135),
    (12_050, 136),
    (12_080, 144),
    (13_000, 148),
    (13_010, 149),
    (13_030, 157),
    (13_040, 162),
];
/// The memory that is reported if the settings name no limit.
const DEFAULT_MEMORY_BYTES: usize = 4096 << 20;

// Numbers of `CUdevice_attribute`.
const MAX_THREADS_PER_BLOCK: i32 = 1;
const MAX_BLOCK_DIM: std::ops::RangeInclusive<i32> = 2..=4;
const MAX_GRID_DIM: std::ops::RangeInclusive<i32> = 5..=7;
const WARP_SIZE: i32 = 10;
const MULTIPROCESSOR_COUNT: i32 = 16;
const UNIFIED_ADDRESSING: i32 = 41;
const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
const COMPUTE_CAPABILITY_MINOR: i32 = 76;
const VIRTUAL_MEMORY_MANAGEMENT: i32 = 102;
const POSIX_FILE_DESCRIPTOR_HANDLES: i32 = 103;
const MEMORY_POOLS: i32 = 115;
const MEMORY_POOL_HANDLE_TYPES: i32 = 119;
const STREAM_MEMORY_OPERATIONS_64: i32 = 122;
const IPC_EVENTS: i32 = 125;

impl Driver {
    /// `cuDeviceGetCount`.
    pub(crate) fn device_count(&self) -> Answer<i32> {
        self.check_process()?;
        i32::try_from(self.devices.len()).map_err(|_| Status::UNKNOWN)
    }

    /// The machine's number of the device with this handle.
    fn device(&self, device: i32) -> Answer<usize> {
        self.check_process()?;
        let ordinal = usize::try_from(device).map_err(|_| Status::INVALID_DEVICE)?;
        self.devices.get(ordinal).copied().ok_or(Status::INVALID_DEVICE)
    }

    /// `cuDeviceGet`.
    pub(crate) fn device_get(&self, ordinal: i32) -> Answer<i32> {
        self.device(ordinal).map(|_| ordinal)
    }

    /// `cuDeviceGetName`.
    pub(crate) fn device_name(&self, device: i32) -> Answer<String> {
        Ok(format!("software device {}", self.device(device)?))
    }

    /// `cuDeviceGetUuid`: the same in every process, whichever devices the process sees.
    pub(crate) fn device_uuid(&self, device: i32) -> Answer<[u8; 16]> {
        let mut uuid = *b"SIM-CUDA-DEVICE\0";
        uuid[15] = u8::try_from(self.device(device)?).map_err(|_| Status::UNKNOWN)?;
        Ok(uuid)
    }

    /// `cuDeviceTotalMem`, in bytes.
    pub(crate) fn device_total_bytes(&self, device: i32) -> Answer<usize> {
        self.device(device)?;
        Ok(self.total_bytes())
    }

    pub(crate) fn total_bytes(&self) -> usize {
        self.settings.memory_bytes.unwrap_or(DEFAULT_MEMORY_BYTES)
    }

    /// `cuDeviceGetAttribute`. Attributes that nothing here depends on are 0.
    ///
    /// # Errors
    /// INVALID_VALUE for an attribute that the driver's version does not know.
    pub(crate) fn device_attribute(&self, attribute: i32, device: i32) -> Answer<i32> {
        self.device(device)?;
        let of_version =
            FIRST_UNKNOWN_ATTRIBUTES.iter().rev().find(|(from, _)| *from <= self.settings.version);
        let first_unknown = of_version.map_or(0, |(_, first_unknown)| *first_unknown);
        if !(1..first_unknown).contains(&attribute) {
            return Err(Status::INVALID_VALUE);
        }
        let settings = &self.settings;
        Ok(match attribute {
            MAX_THREADS_PER_BLOCK => 1024,
            WARP_SIZE => 32,
            MULTIPROCESSOR_COUNT => 8,
            UNIFIED_ADDRESSING => 1,
            COMPUTE_CAPABILITY_MAJOR => 9,
            COMPUTE_CAPABILITY_MINOR => 0,
            VIRTUAL_MEMORY_MANAGEMENT | POSIX_FILE_DESCRIPTOR_HANDLES => settings.has_vmm.into(),
            // Bit 0: POSIX file descriptors.
            MEMORY_POOLS | MEMORY_POOL_HANDLE_TYPES => settings.has_pools.into(),
            STREAM_MEMORY_OPERATIONS_64 => settings.has_words.into(),
            IPC_EVENTS => settings.has_ipc.into(),
            _ if MAX_BLOCK_DIM.contains(&attribute) => 1024,
            _ if MAX_GRID_DIM.contains(&attribute) => 65_535,
            _ => 0,
        })
    }

    /// `cuDeviceCanAccessPeer`.
    pub(crate) fn device_can_access_peer(&self, device: i32, peer: i32) -> Answer<bool> {
        let (device, peer) = (self.device(device)?, self.device(peer)?);
        Ok(device != peer && self.settings.has_peers)
    }
}
