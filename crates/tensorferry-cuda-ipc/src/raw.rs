//! The structures and numbers of the driver's C interface that are used here, from `cuda.h`. They are the
//! same in all versions of CUDA since 11.

pub(crate) const OUT_OF_MEMORY: u32 = 2;
/// The library is the toolkit's stub; no device, or none that this process may see.
pub(crate) const NO_DEVICE: [u32; 2] = [34, 100];
/// Illegal address, launch timeout, device-side assert, hardware stack error, illegal instruction, misaligned
/// address, invalid address space, invalid program counter, launch failed, tensor memory leak, and an error
/// that the device has contained. For all of these the CUDA reference says that the process or the context
/// has to end. For uncorrectable errors of memory and NVLink (214, 220) it says nothing; memory that had one
/// must not be used again.
pub(crate) const STICKY: [u32; 13] = [214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721];

/// The driver is shutting down, the context is invalid, or it was destroyed.
pub(crate) const DESTROYED: [u32; 3] = [4, 201, 709];

pub(crate) const NOT_READY: u32 = 600;
pub(crate) const INVALID_VALUE: u32 = 1;
pub(crate) const PEER_ACCESS_ALREADY_ENABLED: u32 = 704;
pub(crate) const NOT_SUPPORTED: u32 = 801;
/// Errors of calls that are refused because a stream captures, from unsupported to wrong thread.
pub(crate) const STREAM_CAPTURE: std::ops::RangeInclusive<u32> = 900..=908;
/// The null stream waits for a stream that captures.
pub(crate) const STREAM_CAPTURE_IMPLICIT: u32 = 906;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, without which no handle can be opened.
pub(crate) const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// `CU_MEMHOSTREGISTER_PORTABLE`: pinned for all contexts.
pub(crate) const PORTABLE: u32 = 1;

/// `CU_MEMHOSTREGISTER_DEVICEMAP`: has an address for devices.
pub(crate) const DEVICE_MAP: u32 = 2;

/// `CU_STREAM_WAIT_VALUE_GEQ`: waits until the word is at least the value, as the sign of their difference
/// tells.
pub(crate) const WAIT_VALUE_AT_LEAST: u32 = 0;
/// `CU_STREAM_WRITE_VALUE_DEFAULT`: everything before it is visible to whoever sees the value.
pub(crate) const WRITE_VALUE_DEFAULT: u32 = 0;

/// `CU_STREAM_NON_BLOCKING`: does not wait for the null stream.
pub(crate) const STREAM_NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
pub(crate) const EVENT_DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`; requires [`EVENT_DISABLE_TIMING`].
pub(crate) const EVENT_INTERPROCESS: u32 = 4;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
pub(crate) const CAPTURE_RELAXED: u32 = 2;

/// `CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES`, an `int`.
pub(crate) const POOL_ALLOWS_INTERNAL_DEPENDENCIES: i32 = 3;

// CUdevice_attribute.
pub(crate) const ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT: i32 = 102;
pub(crate) const ATTRIBUTE_POSIX_FILE_DESCRIPTORS: i32 = 103;
pub(crate) const ATTRIBUTE_MEMORY_POOLS: i32 = 115;
/// A mask of handle types.
pub(crate) const ATTRIBUTE_POOL_HANDLE_TYPES: i32 = 119;
/// `CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS`, of the functions whose names end in `_v2`.
pub(crate) const ATTRIBUTE_STREAM_MEMORY_OPERATIONS_64: i32 = 122;
pub(crate) const ATTRIBUTE_IPC_EVENTS: i32 = 125;

// CUpointer_attribute.
pub(crate) const POINTER_DEVICE_ORDINAL: i32 = 9;
pub(crate) const POINTER_IS_LEGACY_IPC_CAPABLE: i32 = 10;
pub(crate) const POINTER_ALLOWED_HANDLE_TYPES: i32 = 14;
pub(crate) const POINTER_MEMORY_POOL: i32 = 17;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const POSIX_FILE_DESCRIPTOR: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
pub(crate) const READ_WRITE: u32 = 3;

const ALLOCATION_PINNED: u32 = 1;
const LOCATION_DEVICE: u32 = 1;

/// `CUmemLocation`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Location {
    kind: u32,
    id: i32,
}

/// `CUmemAllocationProp`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    kind: u32,
    handle_types: u32,
    location: Location,
    win32_metadata: usize,
    compression: u8,
    is_rdma_capable: u8,
    usage: u16,
    reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AccessDescription {
    location: Location,
    flags: u32,
}

impl Location {
    fn device(ordinal: i32) -> Self {
        Self { kind: LOCATION_DEVICE, id: ordinal }
    }
}

impl AllocationProperties {
    /// Device memory that can leave the process as a descriptor.
    pub(crate) fn exportable(ordinal: i32) -> Self {
        Self {
            kind: ALLOCATION_PINNED,
            handle_types: POSIX_FILE_DESCRIPTOR,
            location: Location::device(ordinal),
            win32_metadata: 0,
            compression: 0,
            is_rdma_capable: 0,
            usage: 0,
            reserved: [0; 4],
        }
    }

    /// A place for the driver to write the properties of an allocation.
    pub(crate) fn unknown() -> Self {
        Self { kind: 0, handle_types: 0, location: Location { kind: 0, id: -1 }, ..Self::exportable(0) }
    }

    /// The ordinal of the device.
    pub(crate) fn ordinal(&self) -> i32 {
        self.location.id
    }
}

/// `CUmemPoolProps`. The layout of its tail differs between versions of CUDA; it is zero here.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct PoolProperties {
    kind: u32,
    handle_types: u32,
    location: Location,
    tail: [u64; 9],
}

impl PoolProperties {
    /// A pool of a device whose memory can leave the process.
    pub(crate) fn exportable(ordinal: i32) -> Self {
        Self {
            kind: ALLOCATION_PINNED,
            handle_types: POSIX_FILE_DESCRIPTOR,
            location: Location::device(ordinal),
            tail: [0; 9],
        }
    }
}

impl AccessDescription {
    pub(crate) fn read_write(ordinal: i32) -> Self {
        Self { location: Location::device(ordinal), flags: READ_WRITE }
    }
}

/// `CUipcMemHandle`, `CUipcEventHandle` and `CUmemPoolPtrExportData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct IpcHandle(pub(crate) [u8; IPC_HANDLE_LEN_BYTES]);

/// `CU_IPC_HANDLE_SIZE`.
pub(crate) const IPC_HANDLE_LEN_BYTES: usize = 64;

const _: () = assert!(size_of::<AllocationProperties>() == 32);
const _: () = assert!(size_of::<AccessDescription>() == 12);
const _: () = assert!(size_of::<PoolProperties>() == 88);
