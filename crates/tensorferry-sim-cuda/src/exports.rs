//! The C functions of the shared library. Each line converts the C types and calls the driver.
//!
//! # Safety
//! Each symbol is one of `libcuda.so`, with the parameters of `cuda.h`; no other code in a program that loads
//! this library defines it. Only the types of `abi.rs` dereference pointers.
#![expect(unsafe_code, reason = "exports the symbols of the driver")]

use std::ffi::c_char;
use std::os::fd::IntoRawFd;
use std::sync::OnceLock;

use crate::abi::{
    AccessDescription, AllocationProperties, Arguments, Bytes64, HostFunction, In, InOut, Out,
    PoolProperties, Text,
};
use crate::access::HostMemory;
use crate::capture::Mode;
use crate::copy::Rows;
use crate::driver::Driver;
use crate::exit::at_exit;
use crate::fault::Fate;
use crate::memory::PointerAttribute;
use crate::ptx::Grid;
use crate::vmm::AccessFlags;
use crate::{Answer, Settings, Status};

static DRIVER: OnceLock<Driver> = OnceLock::new();

fn driver() -> Answer<&'static Driver> {
    DRIVER.get().ok_or(Status::NOT_INITIALIZED)
}

/// The result code for C. No panic may unwind into C.
fn code(work: impl FnOnce() -> Answer) -> u32 {
    let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    answer.unwrap_or(Err(Status::UNKNOWN)).map_or_else(Status::code, |()| 0)
}

fn call(function: &str, work: impl FnOnce(&Driver) -> Answer) -> u32 {
    code(|| {
        let driver = driver()?;
        driver.check_process()?;
        if driver.faults.meet(function)? == Fate::Lost {
            return Ok(());
        }
        driver.meet_captures(function)?;
        let answer = work(driver);
        // If the driver was torn down meanwhile, a stream that the call waited for was not finished.
        driver.check_process()?;
        driver.breaking(answer)
    })
}

macro_rules! exports {
    ($(fn $name:ident($($argument:ident: $type:ty),* $(,)?) |$driver:ident| $work:expr;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> u32 {
            call(stringify!($name), |$driver| $work)
        }
    )*};
}

extern "C" fn tear_down() {
    let _ = code(|| {
        driver()?.tear_down();
        Ok(())
    });
}

/// Makes the driver of this process.
#[unsafe(no_mangle)]
extern "C" fn cuInit(flags: u32) -> u32 {
    code(|| {
        if flags != 0 {
            return Err(Status::INVALID_VALUE);
        }
        if DRIVER.get().is_none() {
            let settings = Settings::from_environment().map_err(|_| Status::INVALID_VALUE)?;
            let mut is_new = false;
            let driver = DRIVER.get_or_init(|| {
                is_new = true;
                Driver::new(settings)
            });
            if is_new && driver.settings.teardown {
                at_exit(tear_down)?;
            }
        }
        let driver = driver()?;
        driver.check_process()?;
        driver.faults.meet("cuInit")?;
        if driver.devices.is_empty() { Err(Status::NO_DEVICE) } else { Ok(()) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: Out<i32>) -> u32 {
    code(|| {
        // The version is the only query that a driver answers before cuInit.
        let of_settings = || Settings::from_environment().map(|settings| settings.version);
        let found = DRIVER.get().map_or_else(of_settings, |driver| Ok(driver.settings.version));
        version.set(found.map_err(|_| Status::INVALID_VALUE)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(error: u32, name: Out<*const c_char>) -> u32 {
    code(|| {
        // It tells nothing any more once the process exits.
        DRIVER.get().map_or(Ok(()), Driver::check_up)?;
        name.set(Status::name_of(error).ok_or(Status::INVALID_VALUE)?.as_ptr())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(error: u32, text: Out<*const c_char>) -> u32 {
    code(|| text.set(Status::text_of(error).ok_or(Status::INVALID_VALUE)?.as_ptr()))
}

/// Not a function of CUDA: changes a running driver, as [`Driver::control`].
#[unsafe(no_mangle)]
extern "C" fn tensorferry_sim_cuda_control(word: Text) -> u32 {
    code(|| driver()?.control(&word.get()?))
}

/// Writes a text with a final zero, cut to `len` bytes.
fn set_text(out: Out<[u8; 256]>, len: i32, text: &str) -> Answer {
    let len = usize::try_from(len).ok().filter(|&len| len >= 256).ok_or(Status::INVALID_VALUE)?;
    let mut bytes = [0; 256];
    let n = text.len().min(255).min(len);
    bytes[..n].copy_from_slice(&text.as_bytes()[..n]);
    out.set(bytes)
}

fn set_attribute(out: Out<u8>, attribute: PointerAttribute) -> Answer {
    match attribute {
        PointerAttribute::Word(value) => out.cast().set(value),
        PointerAttribute::Unsigned(value) => out.cast().set(value),
        PointerAttribute::Signed(value) => out.cast().set(value),
        PointerAttribute::Flag(value) => out.set(value.into()),
    }
}

/// Attributes up to this number have the type `int`; the others are lengths.
const LAST_INT_POOL_ATTRIBUTE: i32 = 3;

fn get_pool_attribute(value: In<u64>, attribute: i32) -> Answer<u64> {
    if attribute > LAST_INT_POOL_ATTRIBUTE { value.get() } else { value.cast::<u32>().get().map(u64::from) }
}

fn set_pool_attribute(out: Out<u64>, attribute: i32, value: u64) -> Answer {
    if attribute > LAST_INT_POOL_ATTRIBUTE {
        return out.set(value);
    }
    out.cast().set(u32::try_from(value).map_err(|_| Status::INVALID_VALUE)?)
}

fn to_host(address: usize, len_bytes: usize) -> Answer<HostMemory> {
    HostMemory::from_c(address, len_bytes)
}

fn no_flags(flags: u64) -> Answer {
    if flags == 0 { Ok(()) } else { Err(Status::INVALID_VALUE) }
}

/// The number of a descriptor that C passes in a pointer.
fn fd_of(os_handle: usize) -> Answer<i32> {
    i32::try_from(os_handle).map_err(|_| Status::INVALID_VALUE)
}

exports! {
    fn cuDeviceGetCount(count: Out<i32>) |driver| count.set(driver.device_count()?);
    fn cuDeviceGet(device: Out<i32>, ordinal: i32) |driver| device.set(driver.device_get(ordinal)?);
    fn cuDeviceGetName(name: Out<[u8; 256]>, len: i32, device: i32) |driver| set_text(name, len, &driver.device_name(device)?);
    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) |driver| uuid.set(driver.device_uuid(device)?);
    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) |driver| uuid.set(driver.device_uuid(device)?);
    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) |driver| bytes.set(driver.device_total_bytes(device)?);
    fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) |driver| value.set(driver.device_attribute(attribute, device)?);
    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) |driver| can.set(driver.device_can_access_peer(device, peer)?.into());

    fn cuDevicePrimaryCtxRetain(context: Out<usize>, device: i32) |driver| context.set(driver.primary_ctx_retain(device)?);
    fn cuDevicePrimaryCtxRelease_v2(device: i32) |driver| driver.primary_ctx_release(device);
    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) |driver| {
        flags.set(0)?;
        active.set(driver.primary_ctx_is_active(device)?.into())
    };
    fn cuCtxGetCurrent(context: Out<usize>) |driver| context.set(driver.ctx_get_current()?);
    fn cuCtxSetCurrent(context: usize) |driver| driver.ctx_set_current(context);
    fn cuCtxPushCurrent_v2(context: usize) |driver| driver.ctx_push(context);
    fn cuCtxPopCurrent_v2(context: Out<usize>) |driver| context.set_if_wanted(driver.ctx_pop()?);
    fn cuCtxGetDevice(device: Out<i32>) |driver| device.set(i32::try_from(driver.current()?.device).map_err(|_| Status::UNKNOWN)?);
    fn cuCtxSynchronize() |driver| driver.ctx_synchronize();
    fn cuCtxEnablePeerAccess(peer: usize, flags: u32) |driver| {
        no_flags(flags.into())?;
        driver.ctx_enable_peer_access(peer)
    };
    fn cuCtxDisablePeerAccess(peer: usize) |driver| driver.ctx_disable_peer_access(peer);

    fn cuStreamCreate(stream: Out<usize>, flags: u32) |driver| stream.set(driver.stream_create(flags)?);
    fn cuStreamCreateWithPriority(stream: Out<usize>, flags: u32, _priority: i32) |driver| stream.set(driver.stream_create(flags)?);
    fn cuStreamDestroy_v2(stream: usize) |driver| driver.stream_destroy(stream);
    fn cuStreamSynchronize(stream: usize) |driver| driver.stream(stream)?.synchronize();
    fn cuStreamQuery(stream: usize) |driver| driver.stream(stream)?.query();
    fn cuStreamWaitEvent(stream: usize, event: usize, _flags: u32) |driver| driver.stream_wait_event(stream, event);
    fn cuLaunchHostFunc(stream: usize, function: HostFunction, data: usize) |driver| {
        let function = function.with(data)?;
        driver.stream(stream)?.push(move |_| {
            function();
            Ok(())
        })
    };
    fn cuStreamIsCapturing(stream: usize, status: Out<u32>) |driver| status.set(driver.stream_is_capturing(stream)?.into());
    fn cuStreamBeginCapture_v2(stream: usize, mode: u32) |driver| driver.stream_begin_capture(stream, Mode::from_code(mode)?);
    fn cuStreamEndCapture(stream: usize, graph: Out<usize>) |driver| {
        graph.set(0)?;
        driver.stream_end_capture(stream)
    };
    fn cuThreadExchangeStreamCaptureMode(mode: InOut<u32>) |driver| mode.set(driver.exchange_thread_mode(Mode::from_code(mode.get()?)?).code());
    fn cuEventCreate(event: Out<usize>, flags: u32) |driver| event.set(driver.event_create(flags)?);
    fn cuEventDestroy_v2(event: usize) |driver| driver.event_destroy(event);
    fn cuEventRecord(event: usize, stream: usize) |driver| driver.event_record(event, stream);
    fn cuEventQuery(event: usize) |driver| driver.event_query(event);
    fn cuEventSynchronize(event: usize) |driver| driver.event_synchronize(event);
    fn cuEventElapsedTime(milliseconds: Out<f32>, begin: usize, end: usize) |driver| milliseconds.set(driver.event_elapsed(begin, end)?);
    fn cuEventElapsedTime_v2(milliseconds: Out<f32>, begin: usize, end: usize) |driver| milliseconds.set(driver.event_elapsed(begin, end)?);

    fn cuMemAlloc_v2(address: Out<u64>, len_bytes: usize) |driver| address.set(driver.mem_alloc(len_bytes)?);
    fn cuMemFree_v2(address: u64) |driver| driver.mem_free(address);
    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) |driver| {
        let (free_bytes, total_bytes) = driver.mem_info()?;
        free.set(free_bytes)?;
        total.set(total_bytes)
    };
    fn cuMemGetAddressRange_v2(base: Out<u64>, len_bytes: Out<usize>, address: u64) |driver| {
        let range = driver.address_range(address)?;
        base.set_if_wanted(range.base)?;
        len_bytes.set_if_wanted(range.len_bytes)
    };
    fn cuPointerGetAttribute(data: Out<u8>, attribute: i32, address: u64) |driver| set_attribute(data, driver.pointer_attribute(attribute, address)?);
    fn cuMemAllocHost_v2(address: Out<u64>, len_bytes: usize) |driver| address.set(driver.host_alloc(len_bytes)?);
    fn cuMemHostAlloc(address: Out<u64>, len_bytes: usize, _flags: u32) |driver| address.set(driver.host_alloc(len_bytes)?);
    fn cuMemFreeHost(address: u64) |driver| driver.host_free(address);
    fn cuMemHostRegister_v2(address: usize, len_bytes: usize, _flags: u32) |driver| driver.host_register(to_host(address, len_bytes)?);
    fn cuMemHostUnregister(address: u64) |driver| driver.host_unregister(address);
    fn cuMemHostGetDevicePointer_v2(pointer: Out<u64>, address: u64, flags: u32) |driver| pointer.set(driver.host_device_pointer(address, flags)?);
    fn cuStreamWaitValue64_v2(stream: usize, address: u64, value: u64, flags: u32) |driver| driver.stream_wait_value(stream, address, value, flags);
    fn cuStreamWriteValue64_v2(stream: usize, address: u64, value: u64, flags: u32) |driver| driver.stream_write_value(stream, address, value, flags);

    fn cuMemcpyHtoD_v2(to: u64, from: usize, len_bytes: usize) |driver| driver.copy_htod_at_once(to, to_host(from, len_bytes)?);
    fn cuMemcpyDtoH_v2(to: usize, from: u64, len_bytes: usize) |driver| driver.at_once(|| driver.copy_dtoh(to_host(to, len_bytes)?, from, 0));
    fn cuMemcpyDtoD_v2(to: u64, from: u64, len_bytes: usize) |driver| driver.on_device(|| driver.copy_dtod(to, from, len_bytes, 0));
    fn cuMemcpyHtoDAsync_v2(to: u64, from: usize, len_bytes: usize, stream: usize) |driver| driver.copy_htod(to, to_host(from, len_bytes)?, stream);
    fn cuMemcpyDtoHAsync_v2(to: usize, from: u64, len_bytes: usize, stream: usize) |driver| driver.copy_dtoh(to_host(to, len_bytes)?, from, stream);
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, len_bytes: usize, stream: usize) |driver| driver.copy_dtod(to, from, len_bytes, stream);
    fn cuMemcpyPeerAsync(to: u64, _to_context: usize, from: u64, _from_context: usize, len_bytes: usize, stream: usize) |driver| driver.copy_dtod(to, from, len_bytes, stream);
    fn cuMemsetD8_v2(to: u64, value: u8, n: usize) |driver| driver.on_device(|| driver.fill(to, Rows::ONE, &value.to_ne_bytes(), n, 0));
    fn cuMemsetD16_v2(to: u64, value: u16, n: usize) |driver| driver.on_device(|| driver.fill(to, Rows::ONE, &value.to_ne_bytes(), n, 0));
    fn cuMemsetD32_v2(to: u64, value: u32, n: usize) |driver| driver.on_device(|| driver.fill(to, Rows::ONE, &value.to_ne_bytes(), n, 0));
    fn cuMemsetD8Async(to: u64, value: u8, n: usize, stream: usize) |driver| driver.fill(to, Rows::ONE, &value.to_ne_bytes(), n, stream);
    fn cuMemsetD32Async(to: u64, value: u32, n: usize, stream: usize) |driver| driver.fill(to, Rows::ONE, &value.to_ne_bytes(), n, stream);
    fn cuMemsetD2D32Async(to: u64, pitch_bytes: usize, value: u32, n: usize, n_rows: usize, stream: usize) |driver| driver.fill(to, Rows { pitch_bytes, n_rows }, &value.to_ne_bytes(), n, stream);

    fn cuIpcGetMemHandle(handle: Out<Bytes64>, address: u64) |driver| handle.set(Bytes64(driver.ipc_get_mem_handle(address)?));
    fn cuIpcOpenMemHandle_v2(address: Out<u64>, handle: Bytes64, flags: u32) |driver| address.set(driver.ipc_open_mem_handle(&handle.0, flags)?);
    fn cuIpcCloseMemHandle(address: u64) |driver| driver.ipc_close_mem_handle(address);
    fn cuIpcGetEventHandle(handle: Out<Bytes64>, event: usize) |driver| handle.set(Bytes64(driver.ipc_get_event_handle(event)?));
    fn cuIpcOpenEventHandle(event: Out<usize>, handle: Bytes64) |driver| event.set(driver.ipc_open_event_handle(&handle.0)?);

    fn cuMemGetAllocationGranularity(len_bytes: Out<usize>, properties: In<AllocationProperties>, _option: i32) |driver| len_bytes.set(driver.granularity_bytes(properties.get()?.check()?.location.device()?)?);
    fn cuMemCreate(handle: Out<u64>, len_bytes: usize, properties: In<AllocationProperties>, flags: u64) |driver| {
        no_flags(flags)?;
        let properties = properties.get()?.check()?;
        handle.set(driver.vmm_create(len_bytes, properties.location.device()?, properties.handle_types)?)
    };
    fn cuMemRelease(handle: u64) |driver| driver.vmm_release(handle);
    fn cuMemExportToShareableHandle(out: Out<i32>, handle: u64, handle_type: u32, flags: u64) |driver| {
        no_flags(flags)?;
        out.set(driver.vmm_export(handle, handle_type)?.into_raw_fd())
    };
    fn cuMemImportFromShareableHandle(handle: Out<u64>, os_handle: usize, handle_type: u32) |driver| handle.set(driver.vmm_import(fd_of(os_handle)?, handle_type)?);
    fn cuMemRetainAllocationHandle(handle: Out<u64>, address: u64) |driver| handle.set(driver.vmm_retain(address)?);
    fn cuMemGetAllocationPropertiesFromHandle(properties: Out<AllocationProperties>, handle: u64) |driver| {
        let (device, handle_types) = driver.vmm_properties(handle)?;
        properties.set(AllocationProperties::new(device, handle_types))
    };
    fn cuMemAddressReserve(address: Out<u64>, len_bytes: usize, align_bytes: usize, _wish: u64, flags: u64) |driver| {
        no_flags(flags)?;
        address.set(driver.vmm_reserve(len_bytes, align_bytes)?)
    };
    fn cuMemAddressFree(address: u64, len_bytes: usize) |driver| driver.vmm_address_free(address, len_bytes);
    fn cuMemMap(address: u64, len_bytes: usize, offset_bytes: usize, handle: u64, flags: u64) |driver| {
        no_flags(flags)?;
        driver.vmm_map(address, len_bytes, offset_bytes, handle)
    };
    fn cuMemUnmap(address: u64, len_bytes: usize) |driver| driver.vmm_unmap(address, len_bytes);
    fn cuMemSetAccess(address: u64, len_bytes: usize, descriptions: In<AccessDescription>, n: usize) |driver| {
        let grant = |i| {
            let description = descriptions.at(i)?;
            Ok((description.location.device()?, AccessFlags::from_code(description.flags)?))
        };
        driver.vmm_set_access(address, len_bytes, &(0..n).map(grant).collect::<Answer<Vec<_>>>()?)
    };
    fn cuMemGetAccess(flags: Out<u64>, location: In<crate::abi::Location>, address: u64) |driver| flags.set(driver.vmm_access(location.get()?.device()?, address)?.code());

    fn cuDeviceGetDefaultMemPool(pool: Out<usize>, device: i32) |driver| pool.set(driver.default_pool(device)?);
    fn cuDeviceGetMemPool(pool: Out<usize>, device: i32) |driver| pool.set(driver.current_pool(device)?);
    fn cuDeviceSetMemPool(device: i32, pool: usize) |driver| driver.set_current_pool(device, pool);
    fn cuMemPoolCreate(pool: Out<usize>, properties: In<PoolProperties>) |driver| {
        let properties = properties.get()?.check()?;
        pool.set(driver.pool_create(properties.location.device()?, properties.handle_types)?)
    };
    fn cuMemPoolDestroy(pool: usize) |driver| driver.pool_destroy(pool);
    fn cuMemPoolTrimTo(pool: usize, _keep_bytes: usize) |driver| driver.pool_trim(pool);
    fn cuMemPoolSetAttribute(pool: usize, attribute: i32, value: In<u64>) |driver| driver.pool_set_attribute(pool, attribute, get_pool_attribute(value, attribute)?);
    fn cuMemPoolGetAttribute(pool: usize, attribute: i32, value: Out<u64>) |driver| set_pool_attribute(value, attribute, driver.pool_attribute(pool, attribute)?);
    fn cuMemAllocAsync(address: Out<u64>, len_bytes: usize, stream: usize) |driver| address.set(driver.alloc_async(len_bytes, stream)?);
    fn cuMemAllocFromPoolAsync(address: Out<u64>, len_bytes: usize, pool: usize, stream: usize) |driver| address.set(driver.alloc_from_pool(len_bytes, pool, stream)?);
    fn cuMemFreeAsync(address: u64, stream: usize) |driver| driver.free_async(address, stream);
    fn cuMemPoolSetAccess(pool: usize, descriptions: In<AccessDescription>, n: usize) |driver| {
        let grant = |i| {
            let description = descriptions.at(i)?;
            Ok((description.location.device()?, AccessFlags::from_code(description.flags)?))
        };
        driver.pool_set_access(pool, &(0..n).map(grant).collect::<Answer<Vec<_>>>()?)
    };
    fn cuMemPoolExportToShareableHandle(out: Out<i32>, pool: usize, handle_type: u32, flags: u64) |driver| {
        no_flags(flags)?;
        out.set(driver.pool_export(pool, handle_type)?.into_raw_fd())
    };
    fn cuMemPoolImportFromShareableHandle(pool: Out<usize>, os_handle: usize, handle_type: u32, flags: u64) |driver| {
        no_flags(flags)?;
        pool.set(driver.pool_import(fd_of(os_handle)?, handle_type)?)
    };
    fn cuMemPoolExportPointer(data: Out<Bytes64>, address: u64) |driver| data.set(Bytes64(driver.pool_export_pointer(address)?));
    fn cuMemPoolImportPointer(address: Out<u64>, pool: usize, data: In<Bytes64>) |driver| address.set(driver.pool_import_pointer(pool, &data.get()?.0)?);

    fn cuModuleLoadData(module: Out<usize>, image: Text) |driver| module.set(driver.module_load(&image.get()?)?);
    fn cuModuleUnload(module: usize) |driver| driver.module_unload(module);
    fn cuModuleGetFunction(function: Out<usize>, module: usize, name: Text) |driver| function.set(driver.module_function(module, &name.get()?)?);
    fn cuLaunchKernel(function: usize, blocks_x: u32, blocks_y: u32, blocks_z: u32, threads_x: u32, threads_y: u32, threads_z: u32, _shared_bytes: u32, stream: usize, arguments: Arguments, _extra: usize) |driver| {
        let kernel = driver.kernel(function)?;
        let arguments = arguments.get(kernel.parameter_lens())?;
        let grid = Grid { blocks: [blocks_x, blocks_y, blocks_z], threads: [threads_x, threads_y, threads_z] };
        driver.launch(kernel, arguments, grid, stream)
    };
}
