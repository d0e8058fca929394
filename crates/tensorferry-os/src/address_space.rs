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
/// nothing there. That is one system call, where [`map_anywhere`] needs three.
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

/// How often a place may be taken by another thread between being found and being used.
const MAX_TRIES: usize = 64;

/// Maps a file closed where the kernel has room for it and for its alignment to a large page.
///
/// The kernel finds the place: a mapping with room for the alignment too, which is given back at once.
/// Another thread may map something there before the file is; then the next place is tried.
pub(crate) fn map_anywhere(
    len_bytes: usize,
    fd: BorrowedFd<'_>,
    file_offset_bytes: u64,
) -> rustix::io::Result<*mut c_void> {
    for _ in 0..MAX_TRIES {
        let wanted = find_place(len_bytes.saturating_add(LARGE_PAGE_BYTES))?;
        // SAFETY: MAP_FIXED_NOREPLACE replaces no memory of this process: it fails where there is some.
        let mapped = unsafe {
            rustix::mm::mmap(
                std::ptr::without_provenance_mut(wanted),
                len_bytes,
                ProtFlags::empty(),
                MapFlags::SHARED | MapFlags::FIXED_NOREPLACE | MapFlags::NORESERVE,
                fd,
                file_offset_bytes,
            )
        };
        match mapped {
            Ok(at) if at.addr() == wanted => return Ok(at),
            Ok(elsewhere) => {
                // What takes the flag for a wish, as a tool that runs this program may.
                // SAFETY: this is the mapping that was just made, and nothing uses it.
                let _ = unsafe { rustix::mm::munmap(elsewhere, len_bytes) };
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    Err(rustix::io::Errno::EXIST)
}

/// The first address in a free range of `len_bytes` that is aligned to a large page.
fn find_place(len_bytes: usize) -> rustix::io::Result<usize> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice replaces no memory of this
    // process.
    let outer = unsafe {
        rustix::mm::mmap_anonymous(
            std::ptr::null_mut(),
            len_bytes,
            ProtFlags::empty(),
            MapFlags::PRIVATE | MapFlags::NORESERVE,
        )
    }?;
    // SAFETY: this is the mapping that was just made, and nothing uses it.
    unsafe { rustix::mm::munmap(outer, len_bytes) }?;
    Ok(outer.addr().next_multiple_of(LARGE_PAGE_BYTES))
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
