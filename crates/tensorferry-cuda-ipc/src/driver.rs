//! The driver, with a safe function for each function of its C interface that is used.
//!
//! # Safety
//! The table holds functions of a CUDA driver, called as `cuda.h` says:
//!
//! - Out-pointers point to locals of the type that the function writes. In-pointers point to locals that live
//!   through the call. Lengths are those of the slices next to them.
//! - Handles and device addresses are not pointers to this program. The driver checks them, and returns an
//!   error for a wrong one. A wrong but valid one could affect other device memory. The types that call this
//!   module own their handles, and have to rule that out.
//! - Queued work outlives the call. So a copy between the device and host memory is waited for before the
//!   call returns: until the driver says that it is done, or returns an error other than that a stream
//!   captures. The stream exists and its context is current here. So such an error comes from work that was
//!   queued before (cuStreamSynchronize in the CUDA reference), or says that the context is gone. In both
//!   cases no part of the copy runs any more. The callers have refused a stream that captures; that nobody
//!   captures the stream from then until the wait is the program's part (docs/SAFETY.md).
#![expect(unsafe_code, reason = "calls the functions of the driver")]

use std::ffi::{CStr, c_char, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, OnceLock};

use crate::capture::Relaxed;
use crate::device::{Device, Uuid};
use crate::error::{CudaError, Result};
use crate::raw::{
    AccessDescription, AllocationProperties, IpcHandle, NOT_READY, POSIX_FILE_DESCRIPTOR,
    STREAM_CAPTURE_IMPLICIT, STREAM_NON_BLOCKING, WAIT_VALUE_AT_LEAST, WRITE_VALUE_DEFAULT,
};
use crate::registry;
use crate::table::{Core, Ipc, Pools, Table, Vmm, Words};
use crate::tick::TICK;

const SUCCESS: u32 = 0;
/// The stream of a copy that names none.
const NULL_STREAM: usize = 0;

/// The CUDA driver of this process, initialised. Clones are the same driver.
#[derive(Clone, Debug)]
pub struct Driver {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    table: Table,
    initialised_by: u32,
}

/// Calls a function of the table, and adds the function's name to the error.
macro_rules! call {
    ($driver:expr, $table:expr, $field:ident ($($argument:expr),*), $name:literal) => {{
        $driver.check_process()?;
        let function = $table.$field;
        // SAFETY: the function of cuda.h with this name; its arguments are as it requires, see the top of the
        // file.
        let code = unsafe { function($($argument),*) };
        $driver.check($name, code)
    }};
}

mod sharing;

/// The driver that was initialised in this process. It stays initialised until the process ends.
static LOADED: OnceLock<Driver> = OnceLock::new();

tensorferry_process::fork_hazard! {
    static DRIVER => initialised_driver;
}

fn initialised_driver() -> Option<String> {
    LOADED
        .get()
        .map(|_| String::from("it has initialised the CUDA driver, which a forked process cannot use"))
}

impl Driver {
    /// Loads and initialises the driver (`cuInit`). Loading it again costs little and returns the same
    /// driver.
    ///
    /// # Errors
    /// [`CudaError::DriverNotFound`] without a driver; [`CudaError::MissingSymbol`] if the library that was
    /// found is no driver, or too old; [`CudaError::Driver`] if the driver cannot work, for example without a
    /// device.
    pub fn load() -> Result<Self> {
        if let Some(driver) = LOADED.get().filter(|it| it.inner.initialised_by == std::process::id()) {
            return Ok(driver.clone());
        }
        let inner = Inner { table: Table::load()?, initialised_by: std::process::id() };
        let driver = Self { inner: Arc::new(inner) };
        call!(driver, driver.inner.table.core, init(0), "cuInit")?;
        let driver = LOADED.get_or_init(|| driver).clone();
        registry::finish_at_exit();
        Ok(driver)
    }

    /// The driver that was loaded, if one was.
    pub(crate) fn loaded() -> Option<&'static Self> {
        LOADED.get()
    }

    /// # Errors
    /// [`CudaError::ForkedAfterInit`].
    pub(crate) fn check_process(&self) -> Result<()> {
        let (pid, initialised_by) = (std::process::id(), self.inner.initialised_by);
        if pid == initialised_by { Ok(()) } else { Err(CudaError::ForkedAfterInit { pid, initialised_by }) }
    }

    fn check(&self, call: &'static str, code: u32) -> Result<()> {
        if code == SUCCESS {
            return Ok(());
        }
        let core = &self.inner.table.core;
        let (name, text) = (self.text(core.error_name, code), self.text(core.error_text, code));
        Err(CudaError::Driver { call, code, name, text })
    }

    fn text(&self, function: unsafe extern "C" fn(u32, *mut *const c_char) -> u32, code: u32) -> String {
        let mut text: *const c_char = ptr::null();
        // SAFETY: cuGetErrorName and cuGetErrorString write a pointer to `text`, which lives through the
        // call.
        let known = unsafe { function(code, &raw mut text) };
        if known != SUCCESS || text.is_null() {
            return "an error that the driver does not know".to_owned();
        }
        // SAFETY: from_ptr requires a text that ends with a zero and lives: the driver's texts are constants
        // of a library that is never unloaded.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }

    fn core(&self) -> &Core {
        &self.inner.table.core
    }

    fn vmm(&self) -> Result<&Vmm> {
        self.inner.table.vmm()
    }

    fn ipc(&self) -> Result<&Ipc> {
        self.inner.table.ipc()
    }

    fn pools(&self) -> Result<&Pools> {
        self.inner.table.pools()
    }

    fn words(&self) -> Result<&Words> {
        self.inner.table.words()
    }

    /// The version of CUDA that the driver supports: 1000 times the major plus 10 times the minor number.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`]).
    pub fn version(&self) -> Result<i32> {
        let mut version = 0;
        call!(self, self.inner.table.core, version(&raw mut version), "cuDriverGetVersion")?;
        Ok(version)
    }

    /// The devices that this process sees, in the order of their ordinals.
    ///
    /// # Errors
    /// The driver's error ([`CudaError::Driver`]).
    pub fn devices(&self) -> Result<Vec<Device>> {
        let mut count = 0;
        call!(self, self.inner.table.core, device_count(&raw mut count), "cuDeviceGetCount")?;
        (0..count).map(|ordinal| self.device(ordinal)).collect()
    }

    /// The device with this ordinal in this process.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` if there is none.
    pub fn device(&self, ordinal: i32) -> Result<Device> {
        let mut handle = 0;
        call!(self, self.inner.table.core, device_get(&raw mut handle, ordinal), "cuDeviceGet")?;
        Ok(Device::new(self.clone(), handle))
    }

    /// The device with this identity, whatever its ordinal in this process.
    ///
    /// # Errors
    /// [`CudaError::DeviceNotVisible`] if this process sees no such device.
    pub fn device_by_uuid(&self, uuid: Uuid) -> Result<Device> {
        for device in self.devices()? {
            if device.uuid()? == uuid {
                return Ok(device);
            }
        }
        Err(CudaError::DeviceNotVisible { uuid })
    }

    pub(crate) fn device_name(&self, device: i32) -> Result<String> {
        let mut bytes = [0_u8; 256];
        let (to, len) = (bytes.as_mut_ptr().cast(), 256);
        call!(self, self.inner.table.core, device_name(to, len, device), "cuDeviceGetName")?;
        let text = CStr::from_bytes_until_nul(&bytes).map(CStr::to_string_lossy);
        Ok(text.map(std::borrow::Cow::into_owned).unwrap_or_default())
    }

    pub(crate) fn device_uuid(&self, device: i32) -> Result<[u8; 16]> {
        let mut uuid = [0; 16];
        call!(self, self.inner.table.core, device_uuid(&raw mut uuid, device), "cuDeviceGetUuid_v2")?;
        Ok(uuid)
    }

    pub(crate) fn device_total_bytes(&self, device: i32) -> Result<usize> {
        let mut bytes = 0;
        call!(self, self.inner.table.core, device_total(&raw mut bytes, device), "cuDeviceTotalMem_v2")?;
        Ok(bytes)
    }

    pub(crate) fn device_attribute(&self, device: i32, attribute: i32) -> Result<i32> {
        let (mut value, core) = (0, &self.inner.table.core);
        call!(self, core, device_attribute(&raw mut value, attribute, device), "cuDeviceGetAttribute")?;
        Ok(value)
    }

    pub(crate) fn can_access_peer(&self, device: i32, peer: i32) -> Result<bool> {
        let (mut can, core) = (0, &self.inner.table.core);
        call!(self, core, can_access_peer(&raw mut can, device, peer), "cuDeviceCanAccessPeer")?;
        Ok(can != 0)
    }

    pub(crate) fn primary_retain(&self, device: i32) -> Result<usize> {
        let (mut context, core) = (0, &self.inner.table.core);
        call!(self, core, primary_retain(&raw mut context, device), "cuDevicePrimaryCtxRetain")?;
        Ok(context)
    }

    pub(crate) fn primary_release(&self, device: i32) -> Result<()> {
        call!(self, self.inner.table.core, primary_release(device), "cuDevicePrimaryCtxRelease_v2")
    }

    pub(crate) fn push_current(&self, context: usize) -> Result<()> {
        call!(self, self.inner.table.core, push_current(context), "cuCtxPushCurrent_v2")
    }

    pub(crate) fn pop_current(&self) -> Result<()> {
        let mut popped = 0;
        call!(self, self.inner.table.core, pop_current(&raw mut popped), "cuCtxPopCurrent_v2")
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        call!(self, self.inner.table.core, synchronize(), "cuCtxSynchronize")
    }

    pub(crate) fn memory_info(&self) -> Result<(usize, usize)> {
        let (mut free, mut total) = (0, 0);
        call!(self, self.inner.table.core, memory_info(&raw mut free, &raw mut total), "cuMemGetInfo_v2")?;
        Ok((free, total))
    }

    /// Returns when the bytes are on the device. The driver by itself may return once it has taken pageable
    /// bytes along ("API synchronization behavior" in the CUDA reference). Another process that has the
    /// memory could then still read the old contents.
    pub(crate) fn copy_to_device(&self, to: u64, bytes: &[u8]) -> Result<()> {
        let (from, core) = (bytes.as_ptr().cast::<c_void>(), &self.inner.table.core);
        call!(self, core, copy_to_device(to, from, bytes.len()), "cuMemcpyHtoD_v2")?;
        self.stream_synchronize(NULL_STREAM)
    }

    pub(crate) fn copy_to_host(&self, from: u64, bytes: &mut [u8]) -> Result<()> {
        let (to, core) = (bytes.as_mut_ptr().cast::<c_void>(), &self.inner.table.core);
        call!(self, core, copy_to_host(to, from, bytes.len()), "cuMemcpyDtoH_v2")
    }

    pub(crate) fn granularity_bytes(&self, device: i32) -> Result<usize> {
        let properties = AllocationProperties::exportable(device);
        let mut bytes = 0;
        let minimum = 0;
        let vmm = self.vmm()?;
        call!(
            self,
            vmm,
            granularity(&raw mut bytes, &raw const properties, minimum),
            "cuMemGetAllocationGranularity"
        )?;
        Ok(bytes)
    }

    pub(crate) fn create(&self, device: i32, len_bytes: usize) -> Result<u64> {
        let properties = AllocationProperties::exportable(device);
        let (mut handle, vmm) = (0, self.vmm()?);
        call!(self, vmm, create(&raw mut handle, len_bytes, &raw const properties, 0), "cuMemCreate")?;
        Ok(handle)
    }

    pub(crate) fn release(&self, handle: u64) -> Result<()> {
        call!(self, self.vmm()?, release(handle), "cuMemRelease")
    }

    pub(crate) fn export(&self, handle: u64) -> Result<OwnedFd> {
        let (mut fd, vmm) = (-1, self.vmm()?);
        let kind = POSIX_FILE_DESCRIPTOR;
        call!(self, vmm, export(&raw mut fd, handle, kind, 0), "cuMemExportToShareableHandle")?;
        // SAFETY: from_raw_fd requires an open descriptor with no other owner: the driver has just made it
        // for the caller.
        Ok(closed_on_exec(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The caller keeps the descriptor.
    pub(crate) fn import(&self, fd: BorrowedFd<'_>) -> Result<u64> {
        // The driver takes the number of the descriptor in the place of a pointer.
        let number = usize::try_from(fd.as_raw_fd()).unwrap_or(usize::MAX);
        let os_handle = ptr::without_provenance_mut::<c_void>(number);
        let (mut handle, vmm) = (0, self.vmm()?);
        let kind = POSIX_FILE_DESCRIPTOR;
        call!(self, vmm, import(&raw mut handle, os_handle, kind), "cuMemImportFromShareableHandle")?;
        Ok(handle)
    }

    pub(crate) fn properties(&self, handle: u64) -> Result<AllocationProperties> {
        let (mut properties, vmm) = (AllocationProperties::unknown(), self.vmm()?);
        call!(self, vmm, properties(&raw mut properties, handle), "cuMemGetAllocationPropertiesFromHandle")?;
        Ok(properties)
    }

    pub(crate) fn reserve(&self, len_bytes: usize) -> Result<u64> {
        let (mut address, vmm) = (0, self.vmm()?);
        call!(self, vmm, reserve(&raw mut address, len_bytes, 0, 0, 0), "cuMemAddressReserve")?;
        Ok(address)
    }

    pub(crate) fn address_free(&self, address: u64, len_bytes: usize) -> Result<()> {
        call!(self, self.vmm()?, address_free(address, len_bytes), "cuMemAddressFree")
    }

    pub(crate) fn map(&self, address: u64, len_bytes: usize, handle: u64) -> Result<()> {
        call!(self, self.vmm()?, map(address, len_bytes, 0, handle, 0), "cuMemMap")
    }

    pub(crate) fn unmap(&self, address: u64, len_bytes: usize) -> Result<()> {
        call!(self, self.vmm()?, unmap(address, len_bytes), "cuMemUnmap")
    }

    pub(crate) fn set_access(&self, address: u64, len_bytes: usize, device: i32) -> Result<()> {
        let description = AccessDescription::read_write(device);
        let vmm = self.vmm()?;
        call!(self, vmm, set_access(address, len_bytes, &raw const description, 1), "cuMemSetAccess")
    }
}

/// Streams, events and queued work.
impl Driver {
    pub(crate) fn stream_create(&self) -> Result<usize> {
        let mut stream = 0;
        call!(self, self.core(), stream_create(&raw mut stream, STREAM_NON_BLOCKING), "cuStreamCreate")?;
        Ok(stream)
    }

    pub(crate) fn stream_destroy(&self, stream: usize) -> Result<()> {
        call!(self, self.core(), stream_destroy(stream), "cuStreamDestroy_v2")
    }

    pub(crate) fn stream_synchronize(&self, stream: usize) -> Result<()> {
        call!(self, self.core(), stream_synchronize(stream), "cuStreamSynchronize")
    }

    pub(crate) fn stream_is_idle(&self, stream: usize) -> Result<bool> {
        is_ready(call!(self, self.core(), stream_query(stream), "cuStreamQuery"))
    }

    pub(crate) fn stream_wait(&self, stream: usize, event: usize) -> Result<()> {
        call!(self, self.core(), stream_wait(stream, event, 0), "cuStreamWaitEvent")
    }

    /// Also true for the null stream while a stream captures that it waits for.
    pub(crate) fn stream_is_capturing(&self, stream: usize) -> Result<bool> {
        let mut status = 0;
        match call!(self, self.core(), stream_is_capturing(stream, &raw mut status), "cuStreamIsCapturing") {
            Err(error) if error.code() == Some(STREAM_CAPTURE_IMPLICIT) => Ok(true),
            answer => answer.map(|()| status != 0),
        }
    }

    /// Sets the capture mode of the calling thread; returns the mode before.
    pub(crate) fn exchange_capture_mode(&self, mode: u32) -> Result<u32> {
        let mut mode = mode;
        call!(self, self.core(), exchange_capture_mode(&raw mut mode), "cuThreadExchangeStreamCaptureMode")?;
        Ok(mode)
    }

    /// Makes the stream wait until the word at this address is at least `value`.
    pub(crate) fn stream_wait_value(&self, stream: usize, address: u64, value: u64) -> Result<()> {
        let (words, flags) = (self.words()?, WAIT_VALUE_AT_LEAST);
        call!(self, words, wait(stream, address, value, flags), "cuStreamWaitValue64_v2")
    }

    /// Has the stream write the word at this address.
    pub(crate) fn stream_write_value(&self, stream: usize, address: u64, value: u64) -> Result<()> {
        let (words, flags) = (self.words()?, WRITE_VALUE_DEFAULT);
        call!(self, words, write(stream, address, value, flags), "cuStreamWriteValue64_v2")
    }

    pub(crate) fn event_create(&self, flags: u32) -> Result<usize> {
        let mut event = 0;
        call!(self, self.core(), event_create(&raw mut event, flags), "cuEventCreate")?;
        Ok(event)
    }

    pub(crate) fn event_destroy(&self, event: usize) -> Result<()> {
        call!(self, self.core(), event_destroy(event), "cuEventDestroy_v2")
    }

    pub(crate) fn event_record(&self, event: usize, stream: usize) -> Result<()> {
        call!(self, self.core(), event_record(event, stream), "cuEventRecord")
    }

    pub(crate) fn event_is_done(&self, event: usize) -> Result<bool> {
        is_ready(call!(self, self.core(), event_query(event), "cuEventQuery"))
    }

    pub(crate) fn event_synchronize(&self, event: usize) -> Result<()> {
        call!(self, self.core(), event_synchronize(event), "cuEventSynchronize")
    }

    pub(crate) fn event_handle(&self, event: usize) -> Result<IpcHandle> {
        let mut handle = IpcHandle([0; crate::raw::IPC_HANDLE_LEN_BYTES]);
        call!(self, self.ipc()?, event_handle(&raw mut handle, event), "cuIpcGetEventHandle")?;
        Ok(handle)
    }

    pub(crate) fn open_event(&self, handle: IpcHandle) -> Result<usize> {
        let mut event = 0;
        call!(self, self.ipc()?, open_event(&raw mut event, handle), "cuIpcOpenEventHandle")?;
        Ok(event)
    }

    /// The bytes have been read when this returns. The driver has taken pageable bytes along by then anyway,
    /// but any code may have pinned the memory.
    pub(crate) fn queue_to_device(&self, to: u64, bytes: &[u8], stream: usize) -> Result<()> {
        let from = bytes.as_ptr().cast::<c_void>();
        let _relaxed = Relaxed::begin();
        let queued =
            call!(self, self.core(), queue_to_device(to, from, bytes.len(), stream), "cuMemcpyHtoDAsync_v2");
        // Also after an error: some of the copy may have been queued.
        let waited = self.wait_for_borrow(stream);
        queued.and(waited)
    }

    /// Returns when the bytes are in `bytes`.
    pub(crate) fn queue_to_host(&self, from: u64, bytes: &mut [u8], stream: usize) -> Result<()> {
        let to = bytes.as_mut_ptr().cast::<c_void>();
        let _relaxed = Relaxed::begin();
        let queued =
            call!(self, self.core(), queue_to_host(to, from, bytes.len(), stream), "cuMemcpyDtoHAsync_v2");
        let waited = self.wait_for_borrow(stream);
        queued.and(waited)
    }

    /// Waits until the device is done with memory that the caller has lent to the stream. While a stream
    /// captures, the driver may refuse to wait. That does not end the loan, so this function asks again until
    /// it may wait.
    fn wait_for_borrow(&self, stream: usize) -> Result<()> {
        loop {
            match self.stream_synchronize(stream) {
                Err(error) if error.is_about_capture() => std::thread::park_timeout(TICK),
                answer => return answer,
            }
        }
    }

    pub(crate) fn queue_copy(&self, to: u64, from: u64, len_bytes: usize, stream: usize) -> Result<()> {
        call!(self, self.core(), queue_copy(to, from, len_bytes, stream), "cuMemcpyDtoDAsync_v2")
    }

    /// Returns when the device reads `from` no more.
    pub(crate) fn queue_copy_from_lent(
        &self,
        to: u64,
        from: u64,
        len_bytes: usize,
        stream: usize,
    ) -> Result<()> {
        let _relaxed = Relaxed::begin();
        let queued = self.queue_copy(to, from, len_bytes, stream);
        let waited = self.wait_for_borrow(stream);
        queued.and(waited)
    }

    pub(crate) fn queue_fill(&self, to: u64, byte: u8, len_bytes: usize, stream: usize) -> Result<()> {
        call!(self, self.core(), queue_fill(to, byte, len_bytes, stream), "cuMemsetD8Async")
    }
}

/// Attributes of pools.
impl Driver {
    /// Sets an attribute of the type `int`.
    pub(crate) fn set_pool_attribute(&self, pool: usize, attribute: i32, value: i32) -> Result<()> {
        let (mut value, pools) = (value, self.pools()?);
        let from = (&raw mut value).cast::<c_void>();
        call!(self, pools, set_attribute(pool, attribute, from), "cuMemPoolSetAttribute")
    }
}

/// Sets close-on-exec: the CUDA reference does not say that the driver does. A program that is executed has
/// no use for the descriptor, and would keep the memory.
fn closed_on_exec(fd: OwnedFd) -> OwnedFd {
    // This fails for a descriptor that is not open. The caller learns of that when it uses the descriptor.
    let _ = tensorferry_os::descriptor::close_on_exec(&fd);
    fd
}

fn is_ready(answer: Result<()>) -> Result<bool> {
    match answer {
        Ok(()) => Ok(true),
        Err(error) if error.code() == Some(NOT_READY) => Ok(false),
        Err(error) => Err(error),
    }
}
