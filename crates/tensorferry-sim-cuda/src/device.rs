//! What a device says of itself.

use crate::driver::Driver;
use crate::{Answer, Status};

/// The version that the driver gives itself: CUDA 13.0.
pub(crate) const VERSION: i32 = 13_000;
/// What is shown when the settings name no limit.
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
const IPC_EVENTS: i32 = 125;

impl Driver {
    /// `cuDeviceGetCount`.
    pub(crate) fn device_count(&self) -> Answer<i32> {
        self.check_process()?;
        i32::try_from(self.devices.len()).map_err(|_| Status::UNKNOWN)
    }

    /// The device of the machine with this handle.
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

    /// `cuDeviceGetUuid`: the same in every process, whatever it sees.
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
    pub(crate) fn device_attribute(&self, attribute: i32, device: i32) -> Answer<i32> {
        self.device(device)?;
        if attribute <= 0 {
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
