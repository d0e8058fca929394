//! Functions of the CUDA driver that no crate calls yet, for the processes of the tests.
//!
//! # Safety
//! The library is the software driver, or the one that [`DRIVER_VARIABLE`] names; its functions have the types of
//! `cuda.h`. Out-pointers and texts point to locals; handles and addresses are checked by the driver.
#![expect(unsafe_code, reason = "calls functions of the driver that no crate calls yet")]

use std::ffi::{c_char, c_void};
use std::os::fd::{FromRawFd, OwnedFd};

use libloading::Library;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use tensorferry_cuda_ipc::DRIVER_VARIABLE;

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

    /// A descriptor of a pool.
    pub(crate) fn pool_fd(&self, pool: usize) -> Result<OwnedFd, u32> {
        let mut fd = -1;
        match self.pool_export(&mut fd, pool, 1, 0) {
            // SAFETY: from_raw_fd needs an open descriptor that nobody else owns: the driver has just made it for us.
            0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
            code => Err(code),
        }
    }
}

/// Forks, asks in the fork, and answers what it said: a small number.
pub(crate) fn in_fork(ask: impl FnOnce() -> u8) -> u8 {
    // SAFETY: a fork may do little where other threads hold locks: the driver's are idle when a test asks, and the fork asks one
    // thing and exits.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => std::process::exit(ask().into()),
        ForkResult::Parent { child } => match waitpid(child, None).unwrap() {
            WaitStatus::Exited(_, code) => u8::try_from(code).unwrap(),
            status => panic!("the fork ended with {status:?}"),
        },
    }
}
