//! The table of driver functions, filled at run time.
//!
//! # Safety
//! Loading a library runs its initialisers, and a symbol is assumed to have the type that it has in `cuda.h`.
//! The library has the name of the CUDA driver, or the name in [`DRIVER_VARIABLE`]. A process that can set
//! this variable for another can run any code in it anyway. The library is never unloaded, because threads of
//! the driver run in it, so function pointers stay valid.
#![expect(unsafe_code, reason = "loads the driver and finds its functions")]

use std::ffi::{OsString, c_char, c_void};
use std::mem::ManuallyDrop;

use libloading::Library;

use crate::error::{CudaError, Result};
use crate::raw::{AccessDescription, AllocationProperties, IpcHandle, PoolProperties};

/// The environment variable that names the driver's library. If it is set, no other library is tried.
pub const DRIVER_VARIABLE: &str = "TENSORFERRY_CUDA_DRIVER";

const DEFAULT_NAMES: [&str; 2] = ["libcuda.so.1", "libcuda.so"];

macro_rules! table {
    ($(#[$doc:meta])* $table:ident { $($field:ident = $symbol:literal ($($type:ty),*);)* }) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $table {
            $(pub(crate) $field: unsafe extern "C" fn($($type),*) -> u32,)*
        }

        impl $table {
            fn find(library: &Library) -> Result<Self> {
                Ok(Self {
                    $($field: {
                        // SAFETY: get requires the type of the symbol: it is the type in cuda.h, see above.
                        let symbol = unsafe {
                            library.get::<unsafe extern "C" fn($($type),*) -> u32>($symbol.as_bytes())
                        };
                        *symbol.map_err(|_| CudaError::MissingSymbol { symbol: $symbol })?
                    },)*
                })
            }
        }
    };
}

table! {
    /// Functions that every driver has.
    Core {
        init = "cuInit"(u32);
        version = "cuDriverGetVersion"(*mut i32);
        error_name = "cuGetErrorName"(u32, *mut *const c_char);
        error_text = "cuGetErrorString"(u32, *mut *const c_char);
        device_count = "cuDeviceGetCount"(*mut i32);
        device_get = "cuDeviceGet"(*mut i32, i32);
        device_name = "cuDeviceGetName"(*mut c_char, i32, i32);
        device_uuid = "cuDeviceGetUuid_v2"(*mut [u8; 16], i32);
        device_total = "cuDeviceTotalMem_v2"(*mut usize, i32);
        device_attribute = "cuDeviceGetAttribute"(*mut i32, i32, i32);
        can_access_peer = "cuDeviceCanAccessPeer"(*mut i32, i32, i32);
        primary_retain = "cuDevicePrimaryCtxRetain"(*mut usize, i32);
        primary_release = "cuDevicePrimaryCtxRelease_v2"(i32);
        push_current = "cuCtxPushCurrent_v2"(usize);
        pop_current = "cuCtxPopCurrent_v2"(*mut usize);
        synchronize = "cuCtxSynchronize"();
        memory_info = "cuMemGetInfo_v2"(*mut usize, *mut usize);
        allocate = "cuMemAlloc_v2"(*mut u64, usize);
        free = "cuMemFree_v2"(u64);
        address_range = "cuMemGetAddressRange_v2"(*mut u64, *mut usize, u64);
        pointer_attribute = "cuPointerGetAttribute"(*mut c_void, i32, u64);
        host_register = "cuMemHostRegister_v2"(*mut c_void, usize, u32);
        host_unregister = "cuMemHostUnregister"(*mut c_void);
        enable_peer_access = "cuCtxEnablePeerAccess"(usize, u32);
        copy_to_device = "cuMemcpyHtoD_v2"(u64, *const c_void, usize);
        copy_to_host = "cuMemcpyDtoH_v2"(*mut c_void, u64, usize);
        queue_to_device = "cuMemcpyHtoDAsync_v2"(u64, *const c_void, usize, usize);
        queue_to_host = "cuMemcpyDtoHAsync_v2"(*mut c_void, u64, usize, usize);
        queue_copy = "cuMemcpyDtoDAsync_v2"(u64, u64, usize, usize);
        queue_fill = "cuMemsetD8Async"(u64, u8, usize, usize);
        stream_create = "cuStreamCreate"(*mut usize, u32);
        stream_destroy = "cuStreamDestroy_v2"(usize);
        stream_synchronize = "cuStreamSynchronize"(usize);
        stream_query = "cuStreamQuery"(usize);
        stream_wait = "cuStreamWaitEvent"(usize, usize, u32);
        stream_is_capturing = "cuStreamIsCapturing"(usize, *mut u32);
        exchange_capture_mode = "cuThreadExchangeStreamCaptureMode"(*mut u32);
        event_create = "cuEventCreate"(*mut usize, u32);
        event_destroy = "cuEventDestroy_v2"(usize);
        event_record = "cuEventRecord"(usize, usize);
        event_query = "cuEventQuery"(usize);
        event_synchronize = "cuEventSynchronize"(usize);
    }
}

table! {
    /// Legacy IPC: handles of events and memory for other processes.
    Ipc {
        event_handle = "cuIpcGetEventHandle"(*mut IpcHandle, usize);
        open_event = "cuIpcOpenEventHandle"(*mut usize, IpcHandle);
        memory_handle = "cuIpcGetMemHandle"(*mut IpcHandle, u64);
        open_memory = "cuIpcOpenMemHandle_v2"(*mut u64, IpcHandle, u32);
        close_memory = "cuIpcCloseMemHandle"(u64);
    }
}

table! {
    /// Memory pools.
    Pools {
        create = "cuMemPoolCreate"(*mut usize, *const PoolProperties);
        destroy = "cuMemPoolDestroy"(usize);
        set_attribute = "cuMemPoolSetAttribute"(usize, i32, *mut c_void);
        make_current = "cuDeviceSetMemPool"(i32, usize);
        allocate = "cuMemAllocFromPoolAsync"(*mut u64, usize, usize, usize);
        free = "cuMemFreeAsync"(u64, usize);
        set_access = "cuMemPoolSetAccess"(usize, *const AccessDescription, usize);
        export = "cuMemPoolExportToShareableHandle"(*mut c_void, usize, u32, u64);
        import = "cuMemPoolImportFromShareableHandle"(*mut usize, *mut c_void, u32, u64);
        pointer_export = "cuMemPoolExportPointer"(*mut IpcHandle, u64);
        pointer_import = "cuMemPoolImportPointer"(*mut u64, usize, *mut IpcHandle);
    }
}

table! {
    /// Stream memory operations, and what they need.
    Words {
        device_pointer = "cuMemHostGetDevicePointer_v2"(*mut u64, *mut c_void, u32);
        wait = "cuStreamWaitValue64_v2"(usize, u64, u64, u32);
        write = "cuStreamWriteValue64_v2"(usize, u64, u64, u32);
    }
}

table! {
    /// Virtual memory management.
    Vmm {
        granularity = "cuMemGetAllocationGranularity"(*mut usize, *const AllocationProperties, i32);
        create = "cuMemCreate"(*mut u64, usize, *const AllocationProperties, u64);
        release = "cuMemRelease"(u64);
        export = "cuMemExportToShareableHandle"(*mut i32, u64, u32, u64);
        import = "cuMemImportFromShareableHandle"(*mut u64, *mut c_void, u32);
        retain = "cuMemRetainAllocationHandle"(*mut u64, *mut c_void);
        properties = "cuMemGetAllocationPropertiesFromHandle"(*mut AllocationProperties, u64);
        reserve = "cuMemAddressReserve"(*mut u64, usize, usize, u64, u64);
        address_free = "cuMemAddressFree"(u64, usize);
        map = "cuMemMap"(u64, usize, usize, u64, u64);
        unmap = "cuMemUnmap"(u64, usize);
        set_access = "cuMemSetAccess"(u64, usize, *const AccessDescription, usize);
    }
}

/// All driver functions that are used. If an old driver lacks a group, only the operations that need the
/// group fail.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) core: Core,
    vmm: Result<Vmm>,
    ipc: Result<Ipc>,
    pools: Result<Pools>,
    words: Result<Words>,
    _library: ManuallyDrop<Library>,
}

impl Table {
    /// Loads the driver of this machine.
    pub(crate) fn load() -> Result<Self> {
        let names = std::env::var_os(DRIVER_VARIABLE)
            .map_or_else(|| DEFAULT_NAMES.map(OsString::from).to_vec(), |name| vec![name]);
        Self::load_first_of(&names)
    }

    fn load_first_of(names: &[OsString]) -> Result<Self> {
        let mut tried = Vec::new();
        for name in names {
            // SAFETY: new runs the library's initialisers: the library is the CUDA driver, or the one that
            // the user named, see above.
            match unsafe { Library::new(name) } {
                Ok(library) => return Self::of(library),
                Err(error) => tried.push(error.to_string()),
            }
        }
        Err(CudaError::DriverNotFound { tried })
    }

    fn of(library: Library) -> Result<Self> {
        let core = Core::find(&library)?;
        let (vmm, ipc, pools) = (Vmm::find(&library), Ipc::find(&library), Pools::find(&library));
        let words = Words::find(&library);
        Ok(Self { core, vmm, ipc, pools, words, _library: ManuallyDrop::new(library) })
    }

    /// # Errors
    /// [`CudaError::MissingSymbol`] with the function that this driver lacks.
    pub(crate) fn vmm(&self) -> Result<&Vmm> {
        self.vmm.as_ref().map_err(Clone::clone)
    }

    /// # Errors
    /// As [`Table::vmm`].
    pub(crate) fn ipc(&self) -> Result<&Ipc> {
        self.ipc.as_ref().map_err(Clone::clone)
    }

    /// # Errors
    /// As [`Table::vmm`].
    pub(crate) fn words(&self) -> Result<&Words> {
        self.words.as_ref().map_err(Clone::clone)
    }

    /// # Errors
    /// As [`Table::vmm`].
    pub(crate) fn pools(&self) -> Result<&Pools> {
        self.pools.as_ref().map_err(Clone::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_an_error_with_what_was_tried() {
        let names = ["libtensorferry-none.so.1", "libtensorferry-none.so"].map(OsString::from);
        let Err(CudaError::DriverNotFound { tried }) = Table::load_first_of(&names) else {
            panic!("nothing can be loaded")
        };
        assert!(tried.len() == 2 && tried[1].contains("libtensorferry-none.so"), "{tried:?}");
    }

    #[test]
    fn a_library_that_is_no_driver_is_an_error_with_the_function_it_lacks() {
        let error = Table::load_first_of(&["libc.so.6".into()]).unwrap_err();
        assert_eq!(error, CudaError::MissingSymbol { symbol: "cuInit" });
    }
}
