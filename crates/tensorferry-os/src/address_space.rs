//! Finding address space for a file that is mapped as a whole, closed.
//!
//! # Safety
//!
//! Nothing is read or written through these mappings here. What the caller does with them is its own promise.
#![expect(unsafe_code, reason = "mapping memory cannot be expressed otherwise")]

use std::ffi::c_void;
use std::os::fd::BorrowedFd;

use rustix::mm::{MapFlags, ProtFlags};

use crate::mapping::LARGE_PAGE_BYTES;

/// Maps a file closed at the first address below `near` that is aligned to a large page, if the kernel has
/// nothing there. That is one system call, where [`map_anywhere`] needs up to four and has a mapping of this
/// length taken apart again.
pub(crate) fn map_below(
    near: usize,
    len_bytes: usize,
    fd: BorrowedFd<'_>,
    file_offset_bytes: u64,
) -> Option<*mut c_void> {
    let wanted = near.checked_sub(len_bytes)? & !(LARGE_PAGE_BYTES - 1);
    // SAFETY: without MAP_FIXED the address is a wish. The kernel replaces no memory of this process.
    let mapped = unsafe {
        rustix::mm::mmap(
            std::ptr::without_provenance_mut(wanted),
            len_bytes,
            ProtFlags::empty(),
            MapFlags::SHARED | MapFlags::NORESERVE,
            fd,
            file_offset_bytes,
        )
    }
    .ok()?;
    if mapped.addr().is_multiple_of(LARGE_PAGE_BYTES) {
        return Some(mapped);
    }
    // SAFETY: this is the mapping that was just made, and nothing uses it.
    let _ = unsafe { rustix::mm::munmap(mapped, len_bytes) };
    None
}

/// Maps a file closed where the kernel has room for it and for its alignment to a large page.
pub(crate) fn map_anywhere(
    len_bytes: usize,
    fd: BorrowedFd<'_>,
    file_offset_bytes: u64,
) -> rustix::io::Result<*mut c_void> {
    let whole = len_bytes.saturating_add(LARGE_PAGE_BYTES);
    // SAFETY: an anonymous private mapping at an address of the kernel's choice replaces no memory of this
    // process.
    let outer = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            whole,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }?;
    let slack = outer.cast::<u8>().align_offset(LARGE_PAGE_BYTES);
    let start = outer.cast::<u8>().wrapping_add(slack);
    // SAFETY: MAP_FIXED replaces only pages of `outer`, which is ours, unused and large enough:
    // slack < LARGE_PAGE_BYTES, so start + len_bytes <= outer + whole.
    let inner = unsafe {
        rustix::mm::mmap(
            start.cast(),
            len_bytes,
            ProtFlags::empty(),
            MapFlags::SHARED | MapFlags::FIXED | MapFlags::NORESERVE,
            fd,
            file_offset_bytes,
        )
    };
    let unmap = |from: *mut u8, len: usize| {
        if len > 0 {
            // SAFETY: the range is a part of `outer` outside of the file's mapping, and nothing uses it.
            let _ = unsafe { rustix::mm::munmap(from.cast(), len) };
        }
    };
    match inner {
        Ok(mapped) => {
            unmap(outer.cast(), slack);
            unmap(start.wrapping_add(len_bytes), whole - slack - len_bytes);
            Ok(mapped)
        }
        Err(error) => {
            // The middle is left as it is: the kernel may have taken it away before it failed, and another
            // thread may have mapped something there since.
            unmap(outer.cast(), slack);
            unmap(start.wrapping_add(len_bytes), whole - slack - len_bytes);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::memfd;

    const LEN_BYTES: usize = 2 * LARGE_PAGE_BYTES;

    /// How many mappings of the file with this name there are.
    fn n_mappings(name: &str) -> usize {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains(name)).count()
    }

    #[test]
    fn a_file_is_mapped_in_line_or_not_at_all() {
        let name = "address-space-test";
        let file = memfd::create_sealed(name, LEN_BYTES as u64).unwrap();
        let first = map_anywhere(LEN_BYTES, file.as_fd(), 0).unwrap();
        assert!(first.addr().is_multiple_of(LARGE_PAGE_BYTES));
        assert_eq!(n_mappings(name), 1);
        let mut all = vec![first];
        // The place is taken: the kernel has another one, which may not be in line.
        for near in [first.addr() + LEN_BYTES, first.addr() + LEN_BYTES + 4096] {
            let mapped = map_below(near, LEN_BYTES, file.as_fd(), 0);
            assert!(mapped.is_none_or(|mapped| mapped.addr().is_multiple_of(LARGE_PAGE_BYTES)));
            all.extend(mapped);
            all.iter().for_each(|at| assert!(all.iter().filter(|other| *other == at).count() == 1));
            assert!(n_mappings(name) <= all.len(), "what is not in line is given back");
        }
        assert!(map_below(4096, LEN_BYTES, file.as_fd(), 0).is_none(), "there is nothing below");
        for mapped in all {
            // SAFETY: it was made above, and nothing uses it.
            unsafe { rustix::mm::munmap(mapped, LEN_BYTES) }.unwrap();
        }
        assert_eq!(n_mappings(name), 0);
    }
}
