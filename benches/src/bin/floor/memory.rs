//! One shared mapping and what is lent of it.
//!
//! # Safety
//!
//! Slices of shared memory are safe to use only while nobody writes them. Here two processes of one program
//! pass each buffer to and fro through a ring: whoever took its number out of a ring has it alone until it
//! puts the number into the other. This program measures what is possible at best and checks nothing; it is
//! no library.
#![expect(unsafe_code, reason = "the limit is measured without any layer in between")]
#![expect(clippy::disallowed_methods, reason = "a slice of shared memory is what is measured")]

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU32, AtomicU64};

use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::MemfdFlags;

/// Memory that both processes map.
pub(crate) struct Shared {
    file: File,
    map: MmapRaw,
}

impl Shared {
    /// New memory, every page of it present.
    pub(crate) fn create(len_bytes: usize) -> anyhow::Result<Self> {
        let file = File::from(rustix::fs::memfd_create("floor", MemfdFlags::CLOEXEC)?);
        file.set_len(len_bytes as u64)?;
        Self::over(file, len_bytes)
    }

    /// The memory of the other process.
    pub(crate) fn open(path: &str, len_bytes: usize) -> anyhow::Result<Self> {
        Self::over(File::options().read(true).write(true).open(path)?, len_bytes)
    }

    fn over(file: File, len_bytes: usize) -> anyhow::Result<Self> {
        let map = MmapOptions::new().len(len_bytes).populate().map_raw(file.as_raw_fd())?;
        Ok(Self { file, map })
    }

    /// A second mapping of the same memory.
    pub(crate) fn again(&self) -> anyhow::Result<Self> {
        Self::over(self.file.try_clone()?, self.map.len())
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    fn at(&self, offset_bytes: usize, len_bytes: usize) -> *mut u8 {
        assert!(
            offset_bytes.is_multiple_of(64) && offset_bytes + len_bytes <= self.map.len(),
            "{len_bytes} bytes at {offset_bytes} do not lie in the mapping"
        );
        self.map.as_mut_ptr().wrapping_add(offset_bytes)
    }

    pub(crate) fn words(&self, offset_bytes: usize, n_words: usize) -> &[AtomicU64] {
        let first = self.at(offset_bytes, n_words * 8).cast::<AtomicU64>();
        // SAFETY: the range lies in the mapping and is aligned (checked), the mapping lives as long as
        // `self`, and atomics may be written by others.
        unsafe { std::slice::from_raw_parts(first, n_words) }
    }

    pub(crate) fn word32(&self, offset_bytes: usize) -> &AtomicU32 {
        let first = self.at(offset_bytes, 4).cast::<u32>();
        // SAFETY: as in `words`.
        unsafe { AtomicU32::from_ptr(first) }
    }

    /// The buffer at this offset, for whoever has its number.
    pub(crate) fn elements(&self, offset_bytes: usize, n_elements: usize) -> &[f32] {
        let first = self.at(offset_bytes, n_elements * 4).cast::<f32>();
        // SAFETY: the range lies in the mapping and is aligned (checked); the other process does not write a
        // buffer whose number it does not have (the top of the file).
        unsafe { std::slice::from_raw_parts(first, n_elements) }
    }

    /// As [`Shared::elements`], to write.
    pub(crate) fn elements_mut(&mut self, offset_bytes: usize, n_elements: usize) -> &mut [f32] {
        let first = self.at(offset_bytes, n_elements * 4).cast::<f32>();
        // SAFETY: as in `elements`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(first, n_elements) }
    }
}
