//! Address space: mapped files, reserved ranges, and the shared words in them.
//!
//! # Safety
//! A mapping belongs to its [`Mapping`], and only its drop unmaps it. Files are placed only over addresses of
//! the mapping itself. Only words are lent from it, and only as atomics, because other processes write them.
#![expect(unsafe_code, reason = "maps memory, and lends atomic words of it")]

use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::mm::{MapFlags, ProtFlags};

use crate::memory_file::MemoryFile;
use crate::{Answer, Status};

/// A range of address space that belongs to this value.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// INVARIANT: `len_bytes` from here are mapped until the drop.
    address: usize,
    len_bytes: usize,
    /// Whether the whole range was mapped for reading and writing, and stays so.
    is_open: bool,
}

impl Mapping {
    /// Maps a range of a file for reading and writing. `offset_bytes` and `len_bytes` are multiples of the
    /// page size.
    pub(crate) fn of_file(file: &MemoryFile, offset_bytes: usize, len_bytes: usize) -> Answer<Self> {
        let (flags, open) = (MapFlags::SHARED, ProtFlags::READ | ProtFlags::WRITE);
        let offset = u64::try_from(offset_bytes).map_err(|_| Status::INVALID_VALUE)?;
        // SAFETY: mmap requires that no memory in use is replaced: no address is asked for.
        let address = unsafe { rustix::mm::mmap(ptr::null_mut(), len_bytes, open, flags, file, offset) };
        let address = address.map_err(|_| Status::MAP_FAILED)?.addr();
        Ok(Self { address, len_bytes, is_open: true })
    }

    /// Maps private memory.
    pub(crate) fn private(len_bytes: usize) -> Answer<Self> {
        let open = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: mmap requires that no memory in use is replaced: no address is asked for.
        let address =
            unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len_bytes, open, MapFlags::PRIVATE) };
        Ok(Self { address: address?.addr(), len_bytes, is_open: true })
    }

    /// Reserves addresses without memory, beginning at a multiple of `align_bytes`.
    pub(crate) fn reserve(len_bytes: usize, align_bytes: usize) -> Answer<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let wide = len_bytes.checked_add(align_bytes).ok_or(Status::OUT_OF_MEMORY)?;
        // SAFETY: mmap requires that no memory in use is replaced: no address is asked for.
        let address = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), wide, ProtFlags::empty(), flags) };
        let begin = address.map_err(|_| Status::OUT_OF_MEMORY)?.addr();
        let address = begin.next_multiple_of(align_bytes);
        // The excess on both sides goes back.
        unmap(begin, address - begin);
        unmap(address + len_bytes, begin + wide - (address + len_bytes));
        Ok(Self { address, len_bytes, is_open: false })
    }

    /// Maps a file at `offset_bytes` of a reservation, for reading and writing.
    pub(crate) fn place(&self, offset_bytes: usize, len_bytes: usize, file: &MemoryFile) -> Answer {
        let address = self.inside(offset_bytes, len_bytes)?;
        let (flags, open) = (MapFlags::SHARED | MapFlags::FIXED, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: mmap with MAP_FIXED replaces the pages in the range: the range was checked to be inside
        // this mapping, and no reference into a reservation is ever lent.
        let placed = unsafe { rustix::mm::mmap(address, len_bytes, open, flags, file, 0) };
        placed.map(|_| ()).map_err(|_| Status::MAP_FAILED)
    }

    /// Makes a range of a reservation empty again.
    pub(crate) fn clear(&self, offset_bytes: usize, len_bytes: usize) -> Answer {
        let address = self.inside(offset_bytes, len_bytes)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: as in `place`.
        let cleared = unsafe { rustix::mm::mmap_anonymous(address, len_bytes, ProtFlags::empty(), flags) };
        cleared.map(|_| ()).map_err(|_| Status::MAP_FAILED)
    }

    fn inside(&self, offset_bytes: usize, len_bytes: usize) -> Answer<*mut core::ffi::c_void> {
        let end = offset_bytes.checked_add(len_bytes).ok_or(Status::INVALID_VALUE)?;
        if self.is_open || end > self.len_bytes {
            return Err(Status::INVALID_VALUE);
        }
        Ok(ptr::with_exposed_provenance_mut(self.address + offset_bytes))
    }

    pub(crate) fn address(&self) -> u64 {
        self.address as u64
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The 64-bit word with this index.
    pub(crate) fn word(&self, index: usize) -> Answer<&AtomicU64> {
        if !self.is_open || index >= self.len_bytes / 8 {
            return Err(Status::INVALID_VALUE);
        }
        let word = ptr::with_exposed_provenance_mut(self.address + index * 8);
        // SAFETY: from_ptr requires an aligned pointer to memory that is valid while the reference lives and
        // is only accessed atomically: the index was checked, mappings begin at pages, `self` is borrowed,
        // and all words are atomics.
        Ok(unsafe { AtomicU64::from_ptr(word) })
    }

    /// The 32-bit word with this index, for waiting. It is never used as half of a 64-bit word.
    pub(crate) fn half_word(&self, index: usize) -> Answer<&AtomicU32> {
        if !self.is_open || index >= self.len_bytes / 4 {
            return Err(Status::INVALID_VALUE);
        }
        let word = ptr::with_exposed_provenance_mut(self.address + index * 4);
        // SAFETY: as in `word`.
        Ok(unsafe { AtomicU32::from_ptr(word) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.address, self.len_bytes);
    }
}

fn unmap(address: usize, len_bytes: usize) {
    if len_bytes > 0 {
        // SAFETY: munmap requires that nothing uses the range any more: callers give ranges of a mapping that
        // they own and of which nothing is borrowed. An error would mean that nothing was unmapped.
        let _ = unsafe { rustix::mm::munmap(ptr::with_exposed_provenance_mut(address), len_bytes) };
    }
}
