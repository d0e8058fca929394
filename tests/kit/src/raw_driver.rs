//! Functions of the CUDA driver that no crate calls yet, for the processes of the tests.
//!
//! # Safety
//! The library is the software driver, or the one that [`DRIVER_VARIABLE`] names; its functions have the
//! types of `cuda.h`. Out-pointers and texts point to locals; handles and addresses are checked by the
//! driver.
#![expect(unsafe_code, reason = "calls functions of the driver that no crate calls yet")]

use std::ffi::{CStr, c_char, c_void};
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use libloading::Library;
use memmap2::MmapRaw;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use tensorferry_cuda_ipc::DRIVER_VARIABLE;
use tensorferry_cuda_ipc::cudarc::driver::{CudaSlice, CudaStream};

/// `CUipcMemHandle`, `CUipcEventHandle`, `CUmemPoolPtrExportData`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Bytes64(pub(crate) [u8; 64]);

/// `CUmemPoolProps`, as much as is not zero.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PoolProperties {
    allocation: u32,
    handle_types: u32,
    location: u32,
    device: i32,
    rest: [u64; 9],
}

impl PoolProperties {
    /// A pool on device 0 that can be exported as a descriptor.
    pub(crate) fn exportable() -> Self {
        Self { allocation: 1, handle_types: 1, location: 1, device: 0, rest: [0; 9] }
    }
}

/// `CUmemAllocationProp`: memory of device 0.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct AllocationProperties {
    kind: u32,
    handle_types: u32,
    location: u32,
    device: i32,
    rest: [u64; 2],
}

impl AllocationProperties {
    /// With these types of handles: 1 is a descriptor, 0 none.
    pub(crate) fn of(handle_types: u32) -> Self {
        Self { kind: 1, handle_types, location: 1, device: 0, rest: [0; 2] }
    }
}

/// `CUmemAccessDesc`: access for device 0.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Access {
    location: u32,
    device: i32,
    flags: u32,
}

impl Access {
    /// 1 is reading, 3 is reading and writing.
    pub(crate) fn of(flags: u32) -> Self {
        Self { location: 1, device: 0, flags }
    }
}

/// The driver, loaded.
#[derive(Debug)]
pub(crate) struct RawDriver {
    library: Library,
}

macro_rules! functions {
    ($($method:ident = $symbol:literal ($($argument:ident: $type:ty),* $(,)?);)*) => {
        impl RawDriver {
            $(
            #[allow(clippy::too_many_arguments, reason = "as many as the driver's function has")]
            pub(crate) fn $method(&self, $($argument: $type),*) -> u32 {
                type Function = unsafe extern "C" fn($($type),*) -> u32;
                // SAFETY: get needs the type of the symbol: the one of cuda.h, see above.
                let function = unsafe { self.library.get::<Function>($symbol.as_bytes()) };
                let function = function.unwrap();
                // SAFETY: references and lengths are valid for the call, handles are checked by the driver.
                unsafe { function($($argument),*) }
            })*
        }
    };
}

functions! {
    init = "cuInit"(flags: u32);
    retain = "cuDevicePrimaryCtxRetain"(context: &mut usize, device: i32);
    set_current = "cuCtxSetCurrent"(context: usize);
    synchronize = "cuCtxSynchronize"();
    alloc = "cuMemAlloc_v2"(address: &mut u64, len_bytes: usize);
    free = "cuMemFree_v2"(address: u64);
    info = "cuMemGetInfo_v2"(free: &mut usize, total: &mut usize);
    fill = "cuMemsetD32Async"(address: u64, value: u32, n: usize, stream: usize);
    read = "cuMemcpyDtoH_v2"(value: &mut u32, address: u64, len_bytes: usize);
    copy = "cuMemcpyDtoDAsync_v2"(to: u64, from: u64, len_bytes: usize, stream: usize);
    memory_handle = "cuIpcGetMemHandle"(handle: &mut Bytes64, address: u64);
    open_memory = "cuIpcOpenMemHandle_v2"(address: &mut u64, handle: Bytes64, flags: u32);
    close_memory = "cuIpcCloseMemHandle"(address: u64);
    stream_create = "cuStreamCreate"(stream: &mut usize, flags: u32);
    stream_synchronize = "cuStreamSynchronize"(stream: usize);
    wait_event = "cuStreamWaitEvent"(stream: usize, event: usize, flags: u32);
    event_create = "cuEventCreate"(event: &mut usize, flags: u32);
    event_record = "cuEventRecord"(event: usize, stream: usize);
    event_query = "cuEventQuery"(event: usize);
    event_handle = "cuIpcGetEventHandle"(handle: &mut Bytes64, event: usize);
    open_event = "cuIpcOpenEventHandle"(event: &mut usize, handle: Bytes64);
    pool_create = "cuMemPoolCreate"(pool: &mut usize, properties: &PoolProperties);
    pool_alloc = "cuMemAllocFromPoolAsync"(address: &mut u64, len_bytes: usize, pool: usize, stream: usize);
    free_async = "cuMemFreeAsync"(address: u64, stream: usize);
    pool_export = "cuMemPoolExportToShareableHandle"(fd: &mut i32, pool: usize, kind: u32, flags: u64);
    pool_import = "cuMemPoolImportFromShareableHandle"(pool: &mut usize, fd: usize, kind: u32, flags: u64);
    pointer_export = "cuMemPoolExportPointer"(data: &mut Bytes64, address: u64);
    pointer_import = "cuMemPoolImportPointer"(address: &mut u64, pool: usize, data: &Bytes64);
    count = "cuDeviceGetCount"(count: &mut i32);
    error_name = "cuGetErrorName"(code: u32, name: &mut *const c_char);
    attribute = "cuDeviceGetAttribute"(value: &mut i32, attribute: i32, device: i32);
    version = "cuDriverGetVersion"(version: &mut i32);
    device_name = "cuDeviceGetName"(name: &mut [u8; 256], len: i32, device: i32);
    release_primary = "cuDevicePrimaryCtxRelease_v2"(device: i32);
    enable_peer = "cuCtxEnablePeerAccess"(context: usize, flags: u32);
    address_range = "cuMemGetAddressRange_v2"(base: &mut u64, len_bytes: &mut usize, address: u64);
    pointer_flag = "cuPointerGetAttribute"(value: &mut u8, attribute: i32, address: u64);
    host_register = "cuMemHostRegister_v2"(address: usize, len_bytes: usize, flags: u32);
    host_unregister = "cuMemHostUnregister"(address: usize);
    device_pointer = "cuMemHostGetDevicePointer_v2"(pointer: &mut u64, address: usize, flags: u32);
    wait_value = "cuStreamWaitValue64_v2"(stream: usize, address: u64, value: u64, flags: u32);
    write_value = "cuStreamWriteValue64_v2"(stream: usize, address: u64, value: u64, flags: u32);
    stream_query = "cuStreamQuery"(stream: usize);
    event_destroy = "cuEventDestroy_v2"(event: usize);
    begin_capture = "cuStreamBeginCapture_v2"(stream: usize, mode: u32);
    end_capture = "cuStreamEndCapture"(stream: usize, graph: &mut usize);
    exchange_capture_mode = "cuThreadExchangeStreamCaptureMode"(mode: &mut u32);
    current_pool = "cuDeviceGetMemPool"(pool: &mut usize, device: i32);
    pool_attribute = "cuMemPoolGetAttribute"(pool: usize, attribute: i32, value: &mut i32);
    default_pool = "cuDeviceGetDefaultMemPool"(pool: &mut usize, device: i32);
    memory_create = "cuMemCreate"(handle: &mut u64, len_bytes: usize, properties: &AllocationProperties, flags: u64);
    memory_release = "cuMemRelease"(handle: u64);
    memory_export = "cuMemExportToShareableHandle"(fd: &mut i32, handle: u64, kind: u32, flags: u64);
    memory_import = "cuMemImportFromShareableHandle"(handle: &mut u64, fd: usize, kind: u32);
    reserve = "cuMemAddressReserve"(address: &mut u64, len_bytes: usize, align: usize, request: u64, flags: u64);
    address_free = "cuMemAddressFree"(address: u64, len_bytes: usize);
    map = "cuMemMap"(address: u64, len_bytes: usize, offset_bytes: usize, handle: u64, flags: u64);
    unmap = "cuMemUnmap"(address: u64, len_bytes: usize);
    set_access = "cuMemSetAccess"(address: u64, len_bytes: usize, access: &Access, n: usize);
    module_load = "cuModuleLoadData"(module: &mut usize, text: *const c_char);
    module_function = "cuModuleGetFunction"(function: &mut usize, module: usize, name: *const c_char);
    launch = "cuLaunchKernel"(
        function: usize, blocks_x: u32, blocks_y: u32, blocks_z: u32, threads_x: u32, threads_y: u32, threads_z: u32,
        shared_bytes: u32, stream: usize, arguments: *const *const c_void, extra: usize
    );
    launch_host = "cuLaunchHostFunc"(stream: usize, function: extern "C" fn(*mut c_void), data: usize);
    control = "tensorferry_sim_cuda_control"(word: *const c_char);
}

impl RawDriver {
    /// Loads the driver of this process.
    pub(crate) fn load() -> Self {
        let path = std::env::var_os(DRIVER_VARIABLE).unwrap_or_else(|| "libcuda.so.1".into());
        // SAFETY: new runs the library's initialisers: it is the driver, see above.
        let library = unsafe { Library::new(path) };
        Self { library: library.unwrap() }
    }

    /// What the driver calls a code.
    pub(crate) fn name_of(&self, code: u32) -> String {
        let mut name = std::ptr::null();
        if self.error_name(code, &mut name) != 0 || name.is_null() {
            return format!("code {code}");
        }
        // SAFETY: from_ptr needs a text that ends with a zero and lives: the driver's names are constants.
        unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
    }

    /// A descriptor of memory.
    pub(crate) fn memory_fd(&self, handle: u64) -> Result<OwnedFd, u32> {
        let mut fd = -1;
        match self.memory_export(&mut fd, handle, 1, 0) {
            // SAFETY: as in pool_fd.
            0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            code => Err(code),
        }
    }

    /// A descriptor of a pool.
    pub(crate) fn pool_fd(&self, pool: usize) -> Result<OwnedFd, u32> {
        let mut fd = -1;
        match self.pool_export(&mut fd, pool, 1, 0) {
            // SAFETY: from_raw_fd needs an open descriptor that nobody else owns: the driver has just made it
            // for us.
            0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            code => Err(code),
        }
    }
}

/// Words of memory that several processes map.
#[derive(Debug)]
pub(crate) struct SharedWords {
    map: MmapRaw,
}

impl SharedWords {
    /// Maps a file.
    pub(crate) fn of(fd: &OwnedFd) -> Self {
        Self { map: MmapRaw::map_raw(fd).unwrap() }
    }

    pub(crate) fn address(&self) -> usize {
        self.map.as_ptr().expose_provenance()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.map.len()
    }

    pub(crate) fn set(&self, index: usize, value: u64) {
        assert!(index < self.map.len() / 8);
        let word = self.map.as_mut_ptr().cast::<u64>().wrapping_add(index);
        // SAFETY: from_ptr needs an aligned pointer to memory that is only accessed atomically: the map
        // begins at a page, the index was checked, and processes and devices only load and store words of it.
        unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::SeqCst);
    }
}

/// A slice of cudarc over memory that is not its own: the caller leaks it.
pub(crate) fn slice_at(stream: &Arc<CudaStream>, address: u64, len: usize) -> CudaSlice<u32> {
    // SAFETY: upgrade_device_ptr wants memory with room for the elements: the caller's, and of what bytes
    // they are is the same.
    unsafe { stream.upgrade_device_ptr(address, len) }
}

/// Has cudarc track no use of the slices that it makes from now on.
pub(crate) fn track_nothing(stream: &CudaStream) {
    // SAFETY: what is used on two streams from then on, the tests put into order by what they test.
    unsafe { stream.context().disable_event_tracking() };
}

/// Allows the start method fork, which a process with a driver is refused all the same.
pub(crate) fn allow_fork() {
    // SAFETY: nothing in a process of the tests that asks this lends a slice of shared memory.
    unsafe { tensorferry::spawn::allow_fork() };
}

/// Forks, asks in the fork, and answers what it said: a small number.
pub fn in_fork(ask: impl FnOnce() -> u8) -> u8 {
    // SAFETY: a fork may do little where other threads hold locks: those of a driver, and of what else is
    // asked, are idle when a test asks, and the fork asks one thing and exits.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let answer = ask();
            // SAFETY: _exit ends the process and runs nothing: what a driver does at exit is not for a fork
            // of its process.
            unsafe { nix::libc::_exit(answer.into()) }
        }
        ForkResult::Parent { child } => match waitpid(child, None).unwrap() {
            WaitStatus::Exited(_, code) => u8::try_from(code).unwrap(),
            status => panic!("the fork ended with {status:?}"),
        },
    }
}
