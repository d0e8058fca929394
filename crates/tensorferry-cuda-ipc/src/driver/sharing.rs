//! Driver functions for the strategies legacy and pool, and for memory that other libraries allocated.
//!
//! # Safety
//! As in the file above. Out-pointers point to locals of the type that the function writes, or a larger one
//! where the type depends on the attribute. The driver checks handles, addresses and descriptors. Host memory
//! of a copy is a slice of atomic words, whose length was checked. It is borrowed until the copy is done, or
//! kept until then by an `Upload`, or until the process ends where that cannot be known. The last of the
//! copies over the memory unpins it.
#![expect(unsafe_code, reason = "calls the functions of the driver")]

use std::ffi::c_void;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU64;

use super::{Driver, closed_on_exec};
use crate::error::{CudaError, Result};
use crate::page_locked::PageLocked;
use crate::pinning::Pinned;
use crate::raw::{
    AccessDescription, DEVICE_MAP, INVALID_VALUE, IPC_HANDLE_LEN_BYTES, IpcHandle, LAZY_ENABLE_PEER_ACCESS,
    NOT_SUPPORTED, PEER_ACCESS_ALREADY_ENABLED, PORTABLE, POSIX_FILE_DESCRIPTOR, PoolProperties,
};
use crate::stream::Stream;
use crate::upload::{self, Upload};

/// Memory functions that every driver has.
impl Driver {
    /// Allocates in the current context.
    pub(crate) fn allocate(&self, len_bytes: usize) -> Result<u64> {
        let mut address = 0;
        call!(self, self.core(), allocate(&raw mut address, len_bytes), "cuMemAlloc_v2")?;
        Ok(address)
    }

    pub(crate) fn free(&self, address: u64) -> Result<()> {
        call!(self, self.core(), free(address), "cuMemFree_v2")
    }

    /// The first address of the allocation around `address`, and its length in bytes.
    pub(crate) fn address_range(&self, address: u64) -> Result<(u64, usize)> {
        let (mut base, mut len_bytes) = (0, 0);
        call!(
            self,
            self.core(),
            address_range(&raw mut base, &raw mut len_bytes, address),
            "cuMemGetAddressRange_v2"
        )?;
        Ok((base, len_bytes))
    }

    /// Reads a pointer attribute that is a number, a truth value or a handle.
    pub(crate) fn pointer_attribute(&self, attribute: i32, address: u64) -> Result<u64> {
        // Attributes differ in width. None that is asked for here is wider, and this machine is
        // little-endian.
        let mut value = 0_u64;
        let to = (&raw mut value).cast::<c_void>();
        call!(self, self.core(), pointer_attribute(to, attribute, address), "cuPointerGetAttribute")?;
        Ok(value)
    }

    /// Whether it is an address of `cuMemMap`, which cannot be freed by its address.
    pub(crate) fn is_mapped(&self, address: u64) -> Result<bool> {
        let Ok(vmm) = self.vmm() else { return Ok(false) };
        let at = ptr::without_provenance_mut::<c_void>(usize::try_from(address).unwrap_or(usize::MAX));
        let mut handle = 0;
        match call!(self, vmm, retain(&raw mut handle, at), "cuMemRetainAllocationHandle") {
            Ok(()) => self.release(handle).map(|()| true),
            // The driver's answer for every other address.
            Err(error) if matches!(error.code(), Some(INVALID_VALUE | NOT_SUPPORTED)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Lets the current context reach memory that is allocated in the context `peer`.
    pub(crate) fn enable_peer_access(&self, peer: usize) -> Result<()> {
        match call!(self, self.core(), enable_peer_access(peer, 0), "cuCtxEnablePeerAccess") {
            Err(error) if error.code() == Some(PEER_ACCESS_ALREADY_ENABLED) => Ok(()),
            answer => answer,
        }
    }
}

/// Copies between a device and shared memory of the host, which may be pinned. If others write the words
/// meanwhile, the copy may be torn, as with any [`AtomicU64`] that is written in halves. Nothing worse
/// happens.
impl Driver {
    /// Copies `len_bytes` into the host's memory, and waits until they are there.
    pub(crate) fn copy_to_shared(
        &self,
        to: Pinned<'_>,
        from: u64,
        len_bytes: usize,
        stream: usize,
    ) -> Result<()> {
        let host = pointer_to(to.words(), len_bytes)?;
        let queued =
            call!(self, self.core(), queue_to_host(host, from, len_bytes, stream), "cuMemcpyDtoHAsync_v2");
        self.finish(to, queued, stream)
    }

    /// Copies `len_bytes` out of the host's memory, and waits until they are on the device.
    pub(crate) fn copy_from_shared(
        &self,
        to: u64,
        from: Pinned<'_>,
        len_bytes: usize,
        stream: usize,
    ) -> Result<()> {
        let host = pointer_to(from.words(), len_bytes)?;
        let queued =
            call!(self, self.core(), queue_to_device(to, host, len_bytes, stream), "cuMemcpyHtoDAsync_v2");
        self.finish(from, queued, stream)
    }

    /// Queues a copy of the first `len_bytes` of page-locked memory, which stays locked until it is done.
    pub(crate) fn queue_from_page_locked(
        &self,
        to: u64,
        from: PageLocked,
        len_bytes: usize,
        stream: &Stream,
    ) -> Result<Upload> {
        let host = match pointer_to(from.words(), len_bytes) {
            Ok(host) => host,
            Err(error) => {
                upload::give_back(from);
                return Err(error);
            }
        };
        let handle = stream.handle();
        let queued =
            call!(self, self.core(), queue_to_device(to, host, len_bytes, handle), "cuMemcpyHtoDAsync_v2");
        // Also after an error: some of the copy may have been queued.
        let upload = Upload::begun(stream, from)?;
        match queued {
            Ok(()) => Ok(upload),
            Err(error) => {
                upload::keep(upload);
                Err(error)
            }
        }
    }

    fn finish(&self, host: Pinned<'_>, queued: Result<()>, stream: usize) -> Result<()> {
        let waited = self.stream_synchronize(stream);
        if waited.is_err() {
            // Also if the error says that the context broke, or that the copy was not queued: it may be the
            // error of an earlier call.
            host.abandon();
        }
        queued.and(waited)
    }

    /// Pins the words, for the devices of all contexts.
    pub(crate) fn pin(&self, words: &[AtomicU64]) -> Result<()> {
        self.register(words, PORTABLE)
    }

    /// Pins words that streams of all contexts wait for or write; returns the address of the first for them.
    pub(crate) fn pin_for_streams(&self, words: &[AtomicU64]) -> Result<u64> {
        self.register(words, PORTABLE | DEVICE_MAP)?;
        let (mut address, host) = (0, pointer_to(words, 0)?);
        let found = self.words().and_then(|table| {
            call!(self, table, device_pointer(&raw mut address, host, 0), "cuMemHostGetDevicePointer_v2")
        });
        if let Err(error) = found {
            // No device uses it. If unpinning fails, the memory stays pinned, which does no harm.
            let _ = self.unpin(words);
            return Err(error);
        }
        Ok(address)
    }

    fn register(&self, words: &[AtomicU64], flags: u32) -> Result<()> {
        let len_bytes = size_of_val(words);
        let host = pointer_to(words, len_bytes)?;
        call!(self, self.core(), host_register(host, len_bytes, flags), "cuMemHostRegister_v2")
    }

    /// Unpins what was pinned.
    pub(crate) fn unpin(&self, words: &[AtomicU64]) -> Result<()> {
        let host = pointer_to(words, 0)?;
        call!(self, self.core(), host_unregister(host), "cuMemHostUnregister")
    }
}

/// A pointer to the first word, if `len_bytes` fit into the words. Atomics may be written through a shared
/// reference.
fn pointer_to(words: &[AtomicU64], len_bytes: usize) -> Result<*mut c_void> {
    let mapping_len_bytes = size_of_val(words);
    if len_bytes > mapping_len_bytes {
        return Err(CudaError::OutOfRange { offset_bytes: 0, len_bytes, mapping_len_bytes });
    }
    Ok(words.as_ptr().cast_mut().cast())
}

/// Legacy IPC.
impl Driver {
    pub(crate) fn memory_handle(&self, address: u64) -> Result<IpcHandle> {
        let mut handle = IpcHandle([0; IPC_HANDLE_LEN_BYTES]);
        call!(self, self.ipc()?, memory_handle(&raw mut handle, address), "cuIpcGetMemHandle")?;
        Ok(handle)
    }

    pub(crate) fn open_memory(&self, handle: IpcHandle) -> Result<u64> {
        let (mut address, flags) = (0, LAZY_ENABLE_PEER_ACCESS);
        call!(self, self.ipc()?, open_memory(&raw mut address, handle, flags), "cuIpcOpenMemHandle_v2")?;
        Ok(address)
    }

    pub(crate) fn close_memory(&self, address: u64) -> Result<()> {
        call!(self, self.ipc()?, close_memory(address), "cuIpcCloseMemHandle")
    }
}

/// Memory pools.
impl Driver {
    pub(crate) fn pool_create(&self, device: i32) -> Result<usize> {
        let properties = PoolProperties::exportable(device);
        let (mut pool, pools) = (0, self.pools()?);
        call!(self, pools, create(&raw mut pool, &raw const properties), "cuMemPoolCreate")?;
        Ok(pool)
    }

    pub(crate) fn pool_destroy(&self, pool: usize) -> Result<()> {
        call!(self, self.pools()?, destroy(pool), "cuMemPoolDestroy")
    }

    pub(crate) fn pool_make_current(&self, device: i32, pool: usize) -> Result<()> {
        call!(self, self.pools()?, make_current(device, pool), "cuDeviceSetMemPool")
    }

    pub(crate) fn pool_allocate(&self, pool: usize, len_bytes: usize, stream: usize) -> Result<u64> {
        let (mut address, pools) = (0, self.pools()?);
        call!(self, pools, allocate(&raw mut address, len_bytes, pool, stream), "cuMemAllocFromPoolAsync")?;
        Ok(address)
    }

    pub(crate) fn pool_free(&self, address: u64, stream: usize) -> Result<()> {
        call!(self, self.pools()?, free(address, stream), "cuMemFreeAsync")
    }

    pub(crate) fn pool_grant(&self, pool: usize, device: i32) -> Result<()> {
        let (description, pools) = (AccessDescription::read_write(device), self.pools()?);
        call!(self, pools, set_access(pool, &raw const description, 1), "cuMemPoolSetAccess")
    }

    pub(crate) fn pool_export(&self, pool: usize) -> Result<OwnedFd> {
        let (mut fd, pools, kind) = (-1_i32, self.pools()?, POSIX_FILE_DESCRIPTOR);
        let to = (&raw mut fd).cast::<c_void>();
        call!(self, pools, export(to, pool, kind, 0), "cuMemPoolExportToShareableHandle")?;
        // SAFETY: from_raw_fd requires an open descriptor with no other owner: the driver has just made it
        // for the caller.
        Ok(closed_on_exec(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The caller keeps the descriptor.
    pub(crate) fn pool_import(&self, fd: BorrowedFd<'_>) -> Result<usize> {
        let number = usize::try_from(fd.as_raw_fd()).unwrap_or(usize::MAX);
        let os_handle = ptr::without_provenance_mut::<c_void>(number);
        let (mut pool, pools, kind) = (0, self.pools()?, POSIX_FILE_DESCRIPTOR);
        call!(self, pools, import(&raw mut pool, os_handle, kind, 0), "cuMemPoolImportFromShareableHandle")?;
        Ok(pool)
    }

    pub(crate) fn pointer_export(&self, address: u64) -> Result<IpcHandle> {
        let (mut data, pools) = (IpcHandle([0; IPC_HANDLE_LEN_BYTES]), self.pools()?);
        call!(self, pools, pointer_export(&raw mut data, address), "cuMemPoolExportPointer")?;
        Ok(data)
    }

    pub(crate) fn pointer_import(&self, pool: usize, data: IpcHandle) -> Result<u64> {
        let (mut address, mut data, pools) = (0, data, self.pools()?);
        let from = &raw mut data;
        call!(self, pools, pointer_import(&raw mut address, pool, from), "cuMemPoolImportPointer")?;
        Ok(address)
    }
}
