//! Tells the process that made a value from those that are forked from it.
//!
//! The kernel fills the detector's page with zeroes in a forked child (`MADV_WIPEONFORK`, madvise(2), Linux
//! 4.14), whichever code forked, by any call. So the check costs one load of a cache line that is never
//! written, where getpid(2) would be a system call.
//!
//! # Safety
//! One private page, mapped by `new`, unmapped by Drop, and lent as one atomic word.
#![expect(unsafe_code, reason = "maps a page and reads a word of it")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::mapping::PAGE_BYTES;
use crate::{Error, Result};

/// Says whether this process made it, or adopted it after a fork.
#[derive(Debug)]
pub struct ForkDetector {
    /// INVARIANT: a private page of this process, aligned to a page, unmapped by Drop alone.
    page: NonNull<AtomicU32>,
}

// SAFETY: the page belongs to the process and not to a thread, and all access to it is atomic.
unsafe impl Send for ForkDetector {}
// SAFETY: as above.
unsafe impl Sync for ForkDetector {}

impl ForkDetector {
    /// Makes a detector that this process owns.
    ///
    /// # Errors
    /// ENOMEM from mmap(2); EINVAL from madvise(2) on a kernel before 4.14.
    pub fn new() -> Result<Self> {
        // SAFETY: an anonymous private mapping at an address of the kernel's choice replaces no memory of
        // this process.
        let page = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                PAGE_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let page = page.map_err(|e| Error::new("mmap of a page", e))?;
        let out_of_memory = || Error::new("mmap of a page", rustix::io::Errno::NOMEM);
        let detector = Self { page: NonNull::new(page.cast()).ok_or_else(out_of_memory)? };
        // SAFETY: the whole page is ours and private. The advice changes only the content of a child's own
        // copy of it.
        unsafe { rustix::mm::madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) }
            .map_err(|e| Error::new("madvise(MADV_WIPEONFORK)", e))?;
        detector.adopt();
        Ok(detector)
    }

    /// Whether this process made or adopted the detector.
    #[must_use]
    #[inline]
    pub fn is_owner(&self) -> bool {
        self.word().load(Ordering::Relaxed) != 0
    }

    /// Makes this process the owner of its own copy.
    pub fn adopt(&self) {
        self.word().store(1, Ordering::Relaxed);
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the page is mapped, readable, writable and aligned as long as `self` lives. Its first bytes
        // are accessed only through this function, and any bit pattern is a u32.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for ForkDetector {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and no borrow of it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.page.as_ptr().cast(), PAGE_BYTES) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maker_is_the_owner() {
        assert!(ForkDetector::new().unwrap().is_owner());
    }
}
