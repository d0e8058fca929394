//! Shared mappings, seen as atomic words and as raw bytes, never as plain references.
//!
//! There are two kinds. [`Tables`] is small and open from end to end. [`Reservation`] is the address space of
//! a whole sparse file. It starts closed (`PROT_NONE`), and each *granule* of it is opened from its low end
//! as memory comes into use. So `mlockall`, a core dump or a stray pointer never touches the holes.
//!
//! # Safety
//!
//! Other processes write this memory while this one reads it. The module therefore lends only two things:
//! `&[AtomicU64]` and `&[AtomicU32]`, for which concurrent writes are defined, and pointers, which promise
//! nothing. Every range is checked to be inside the mapping and, for a reservation, inside its open part. A
//! mapping lives as long as its owner and is never moved. The files behind it are sealed against shrinking
//! (or named files, whose truncation by the same user is outside the contract), so a load cannot reach beyond
//! the end of the file. This module cannot know what else is done with the same file. So mapping it is
//! `unsafe`, and the caller answers for it.
#![expect(
    unsafe_code,
    reason = "mapping memory and lending atomic words of it cannot be expressed otherwise"
)]

use std::hint::cold_path;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use nix::unistd::{SysconfVar, sysconf};
use rustix::mm::{Advice, MprotectFlags};

use crate::address_space::{map_anywhere, map_below};
use crate::{Error, Result};

/// The page size that all alignment here is based on. x86-64 and the common aarch64 kernels use 4 KiB. Where
/// a kernel's pages are larger, [`Reservation::map`] says so.
pub const PAGE_BYTES: usize = 4096;

/// The size of this kernel's pages, in bytes.
#[must_use]
pub fn page_bytes() -> usize {
    // rustix would look for the vDSO to answer, which valgrind takes away.
    let size = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().and_then(|size| usize::try_from(size).ok());
    // sysconf(3): always known.
    size.unwrap_or(PAGE_BYTES)
}

/// Fails where the kernel's pages, of `page_bytes`, are others than those that everything here is aligned to.
fn check_pages(page_bytes: usize) -> Result<()> {
    if page_bytes == PAGE_BYTES {
        return Ok(());
    }
    let what = format!("this kernel has pages of {page_bytes} bytes, and only {PAGE_BYTES} are supported");
    Err(Error::new(what, rustix::io::Errno::OPNOTSUPP))
}

/// The size of a large page: the base of a [`Reservation`] is aligned to it.
pub const LARGE_PAGE_BYTES: usize = 2 << 20;

/// How many shared mappings this process has.
static N_SHARED: AtomicUsize = AtomicUsize::new(0);

/// Whether this process has memory that others may write meanwhile ([`Tables`], a [`Reservation`]). A process
/// that is forked from it has the same.
#[must_use]
pub fn has_shared_memory() -> bool {
    N_SHARED.load(Ordering::SeqCst) > 0
}

/// A shared mapping is counted for as long as this lives.
#[derive(Debug)]
struct Counted(());

impl Counted {
    fn new() -> Self {
        N_SHARED.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        N_SHARED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A small shared mapping, open for reading and writing from end to end.
#[derive(Debug)]
pub struct Tables {
    map: MmapRaw,
    #[expect(dead_code, reason = "counts until it is dropped")]
    counted: Counted,
}

impl Tables {
    /// Maps the first `len_bytes` of the file.
    ///
    /// # Safety
    /// While the mapping lives, every word of it that is lent here ([`Self::words`], [`Self::words32`]) is
    /// - of one size: accessed as 32 or as 64 bits, never as both at the same time;
    /// - not plain memory at that time: no `&[u8]`, `&mut [u8]` or other reference without atomics covers it,
    ///   in this process or in another.
    ///
    /// # Errors
    /// The kernel's error of mmap(2).
    pub unsafe fn map(fd: impl AsFd, len_bytes: usize) -> Result<Self> {
        let fd = fd.as_fd();
        let map = MmapOptions::new()
            .len(len_bytes)
            .map_raw(fd.as_raw_fd())
            .map_err(|e| Error::new(format!("mmap of {len_bytes} bytes of tables"), e))?;
        Ok(Self { map, counted: Counted::new() })
    }

    /// The length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.map.len()
    }

    /// Lends `n_words` 64-bit words from `offset_bytes`; `None` unless the range is aligned and inside.
    #[must_use]
    pub fn words(&self, offset_bytes: usize, n_words: usize) -> Option<&[AtomicU64]> {
        check(offset_bytes, n_words.checked_mul(8)?, 8, self.map.len())?;
        let first = self.map.as_mut_ptr().wrapping_add(offset_bytes);
        // SAFETY: `from_raw_parts` needs memory that is valid for reads of n_words words while `self` is
        // borrowed. The range was checked to be inside the mapping, which lives in `self`. The pointer is not
        // null and is 8-aligned, because the mapping starts at a page and the offset was checked. The caller
        // of `map` has promised that the words are accessed as 64 bits and are not plain memory. Atomics
        // allow writers elsewhere, and every bit pattern is a valid u64.
        Some(unsafe { words_at(first, n_words) })
    }

    /// Lends `n_words` 32-bit words from `offset_bytes`, for futexes; `None` unless the range is aligned and
    /// inside.
    #[must_use]
    pub fn words32(&self, offset_bytes: usize, n_words: usize) -> Option<&[AtomicU32]> {
        check(offset_bytes, n_words.checked_mul(4)?, 4, self.map.len())?;
        let first = self.map.as_mut_ptr().wrapping_add(offset_bytes);
        // SAFETY: as in `words`, with 4-byte alignment checked.
        Some(unsafe { words32_at(first, n_words) })
    }
}

/// Words of this process alone, zero at first. They are a mapping of their own, so that a page of them is
/// touched only with one of its words. An allocator may write all of a large allocation instead.
#[derive(Debug)]
struct ZeroedWords {
    /// INVARIANT: at least `n_words` words long, and written as atomic words only.
    map: MmapRaw,
    n_words: usize,
}

impl ZeroedWords {
    fn new(n_words: usize) -> Result<Self> {
        let len_bytes = n_words.saturating_mul(8).max(8);
        let map = MmapOptions::new()
            .len(len_bytes)
            .map_anon()
            .map_err(|e| Error::new(format!("mmap of {len_bytes} bytes of memory"), e))?;
        Ok(Self { map: map.into(), n_words })
    }

    fn address(&self) -> usize {
        self.map.as_ptr().addr()
    }

    #[inline]
    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is private to this process and lives in `self`; it is not null and starts at a
        // page, so it is 8-aligned. It has room for `n_words` words, and nothing accesses them but through
        // slices like this one.
        unsafe { words_at(self.map.as_mut_ptr(), self.n_words) }
    }
}

/// The address space of a whole file, opened granule by granule.
#[derive(Debug)]
pub struct Reservation {
    /// INVARIANT: start of a mapping of `len_bytes` bytes that is unmapped only by Drop.
    base: NonNull<u8>,
    len_bytes: usize,
    /// A power of two, so that finding a granule is a shift.
    granule_bytes: usize,
    granule_shift: u32,
    /// INVARIANT: entry `g` is `n` only after the first `n` bytes of granule `g` were made readable and
    /// writable; entries never fall.
    open_bytes: ZeroedWords,
    opening: Mutex<()>,
    #[expect(dead_code, reason = "counts until it is dropped")]
    counted: Counted,
}

// SAFETY: a mapping belongs to the process, not to a thread. Every access through `&self` is atomic, or goes
// through a pointer whose use is the caller's own promise.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Maps `len_bytes` of the file from `file_offset_bytes`, closed, at an address aligned to 2 MiB.
    ///
    /// `granule_bytes` is a power of two of at least a page (EINVAL of ours if not). The mapping is left out
    /// of core dumps. It costs address space (`RLIMIT_AS`) but no memory.
    ///
    /// A descriptor alone gives no right to the bytes of its file, for example a domain's, so this is unsafe:
    ///
    /// ```compile_fail,E0133
    /// # fn forge(fd: std::os::fd::BorrowedFd<'_>) {
    /// tensorferry_os::mapping::Reservation::map(fd, 0, 1 << 30, 4 << 20);
    /// # }
    /// ```
    ///
    /// # Safety
    /// While the mapping lives, every word of it that is lent here ([`Self::words`],
    /// [`Self::words_with_words32`]) is
    /// - of one size: accessed as 32 or as 64 bits, never as both at the same time;
    /// - not plain memory at that time: no `&[u8]`, `&mut [u8]` or other reference without atomics covers it,
    ///   in this process or in another.
    ///
    /// # Errors
    /// The kernel's error of mmap(2); ENOMEM when there is not enough address space.
    pub unsafe fn map(
        fd: impl AsFd,
        file_offset_bytes: u64,
        len_bytes: usize,
        granule_bytes: usize,
    ) -> Result<Self> {
        check_pages(page_bytes())?;
        if !granule_bytes.is_power_of_two() || granule_bytes < PAGE_BYTES {
            return Err(Error::new(format!("granules of {granule_bytes} bytes"), rustix::io::Errno::INVAL));
        }
        let granule_shift = granule_bytes.trailing_zeros();
        let describe = |e| Error::new(format!("mmap of {len_bytes} bytes of address space"), e);
        let open_bytes = ZeroedWords::new(len_bytes.div_ceil(granule_bytes))?;
        let fd = fd.as_fd();
        // The kernel places a new mapping below the last one, so there is probably room.
        let mapped = match map_below(open_bytes.address(), len_bytes, fd, file_offset_bytes) {
            Some(mapped) => mapped,
            None => map_anywhere(len_bytes, fd, file_offset_bytes).map_err(describe)?,
        };
        // Advice only: if the kernel refuses it, core dumps become larger.
        // SAFETY: MADV_DONTDUMP changes neither contents nor protection.
        let _ = unsafe { rustix::mm::madvise(mapped, len_bytes, Advice::LinuxDontDump) };
        let base = NonNull::new(mapped.cast::<u8>()).ok_or_else(|| describe(rustix::io::Errno::NOMEM))?;
        let counted = Counted::new();
        Ok(Self {
            base,
            len_bytes,
            granule_bytes,
            granule_shift,
            open_bytes,
            opening: Mutex::new(()),
            counted,
        })
    }

    /// The length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Opens the first `end_bytes` of granule `granule`, rounded up to pages. If they are open already, this
    /// costs no system call.
    ///
    /// # Errors
    /// The kernel's error of mprotect(2): ENOMEM when `vm.max_map_count` is reached; EINVAL of ours when the
    /// granule or the end lie outside.
    #[inline]
    pub fn open(&self, granule: usize, end_bytes: usize) -> Result<()> {
        let end = end_bytes.next_multiple_of(PAGE_BYTES);
        let outside = || {
            Error::new(format!("opening {end_bytes} bytes of granule {granule}"), rustix::io::Errno::INVAL)
        };
        let open = self.open_bytes.words().get(granule).ok_or_else(outside)?;
        if end as u64 <= open.load(Ordering::Acquire) {
            return Ok(());
        }
        let offset = granule * self.granule_bytes;
        if end > self.granule_bytes || offset + end > self.len_bytes {
            return Err(outside());
        }
        let _one_at_a_time = self.opening.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // It was an `end` before, so it fits.
        let begin = usize::try_from(open.load(Ordering::Acquire)).unwrap_or(end);
        if end <= begin {
            return Ok(());
        }
        let start = self.base.as_ptr().wrapping_add(offset + begin);
        // SAFETY: the range is inside our own mapping (checked above), and the call only adds access.
        unsafe {
            rustix::mm::mprotect(start.cast(), end - begin, MprotectFlags::READ | MprotectFlags::WRITE)
        }
        .map_err(|e| Error::new(format!("mprotect of {} bytes", end - begin), e))?;
        open.store(end as u64, Ordering::Release);
        Ok(())
    }

    /// Whether the whole range is open.
    #[must_use]
    #[inline]
    pub fn is_open(&self, offset_bytes: usize, len_bytes: usize) -> bool {
        let Some(end) = offset_bytes.checked_add(len_bytes) else { return false };
        if end > self.len_bytes {
            cold_path();
            return false;
        }
        let (granule, start) = (offset_bytes >> self.granule_shift, offset_bytes & (self.granule_bytes - 1));
        let until = start + len_bytes;
        if until > self.granule_bytes {
            // Nearly always the range lies in one granule.
            cold_path();
            return self.is_open_across(offset_bytes, end);
        }
        self.is_open_until(granule, until)
    }

    #[inline]
    fn is_open_until(&self, granule: usize, until: usize) -> bool {
        self.open_bytes.words().get(granule).is_some_and(|open| open.load(Ordering::Acquire) >= until as u64)
    }

    /// For a range inside the reservation.
    fn is_open_across(&self, offset_bytes: usize, end: usize) -> bool {
        let mut at = offset_bytes;
        while at < end {
            let (granule, start) = (at >> self.granule_shift, at & (self.granule_bytes - 1));
            let until = (start + (end - at)).min(self.granule_bytes);
            if !self.is_open_until(granule, until) {
                return false;
            }
            at += until - start;
        }
        true
    }

    /// Lends `n_words` 64-bit words from `offset_bytes`; `None` unless the range is aligned, inside and open.
    #[must_use]
    #[inline]
    pub fn words(&self, offset_bytes: usize, n_words: usize) -> Option<&[AtomicU64]> {
        let first = self.bytes(offset_bytes, n_words.checked_mul(8)?)?;
        (offset_bytes.is_multiple_of(8)).then_some(())?;
        // SAFETY: the range is inside the mapping and open (checked by `bytes`), and stays so while `self`
        // lives, because ranges are never closed again. The pointer is not null, and 8-aligned because base
        // and offset are. The caller of `map` has promised that the words are accessed as 64 bits and are not
        // plain memory.
        Some(unsafe { words_at(first.as_ptr(), n_words) })
    }

    /// Lends `n_words` 64-bit words from `offset_bytes`, and `n_words32` 32-bit words for futexes, which lie
    /// in those from word `at` on. `None` unless the range is aligned, inside and open, and has room for the
    /// 32-bit words. The caller uses no word in both ways.
    #[must_use]
    #[inline]
    pub fn words_with_words32(
        &self,
        offset_bytes: usize,
        n_words: usize,
        at: usize,
        n_words32: usize,
    ) -> Option<(&[AtomicU64], &[AtomicU32])> {
        let words = self.words(offset_bytes, n_words)?;
        let first = words.get(at..)?.get(..n_words32.div_ceil(2))?.as_ptr();
        // SAFETY: the pointer is that of a slice of 64-bit words which has room for `n_words32` (just taken).
        // So it is not null, is 4-aligned, and what it points to stays readable and writable while `self`
        // lives. The caller of `map` has promised that each word is accessed in one size at a time.
        Some((words, unsafe { words32_at(first.cast_mut().cast(), n_words32) }))
    }

    /// The address of a range; `None` unless it is inside and open. Any use of the address is the caller's
    /// promise.
    #[must_use]
    #[inline]
    pub fn bytes(&self, offset_bytes: usize, len_bytes: usize) -> Option<NonNull<u8>> {
        if !self.is_open(offset_bytes, len_bytes) {
            cold_path();
            return None;
        }
        NonNull::new(self.base.as_ptr().wrapping_add(offset_bytes))
    }

    /// Makes the pages of an open range present and writable now, so that running out of memory is an error
    /// here and not a SIGBUS later (`MADV_POPULATE_WRITE`, Linux 5.14). The range is extended to whole pages.
    ///
    /// # Errors
    /// ENOMEM or ENOSPC when there is no memory; EINVAL on a kernel without the call, or for a range that is
    /// closed.
    pub fn populate(&self, offset_bytes: usize, len_bytes: usize) -> Result<()> {
        let describe = |e| Error::new(format!("madvise(MADV_POPULATE_WRITE) of {len_bytes} bytes"), e);
        let start = offset_bytes - offset_bytes % PAGE_BYTES;
        let end = (offset_bytes + len_bytes).next_multiple_of(PAGE_BYTES);
        let first = self.bytes(start, end - start).ok_or_else(|| describe(rustix::io::Errno::INVAL))?;
        loop {
            // SAFETY: populating an open range of our own shared mapping changes no contents.
            let done = unsafe {
                rustix::mm::madvise(first.as_ptr().cast(), end - start, Advice::LinuxPopulateWrite)
            };
            match done {
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                other => return other.map_err(describe),
            }
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours alone, and no borrow of it outlives `self`.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len_bytes) };
    }
}

/// `None` unless `offset..offset+len` lies in `0..bound` and the offset is a multiple of `align`.
fn check(offset_bytes: usize, len_bytes: usize, align: usize, bound_bytes: usize) -> Option<()> {
    let end = offset_bytes.checked_add(len_bytes)?;
    (offset_bytes.is_multiple_of(align) && end <= bound_bytes).then_some(())
}

/// # Safety
/// - `first` is not null, is 8-aligned, and `n_words` words from it stay readable and writable for `'a`;
/// - while `'a` lasts, every process accesses them only as atomic 64-bit words.
#[expect(clippy::disallowed_methods, reason = "a slice of atomics is the one slice that others may write")]
unsafe fn words_at<'a>(first: *mut u8, n_words: usize) -> &'a [AtomicU64] {
    // SAFETY: the caller's promise; AtomicU64 has the layout of u64.
    unsafe { std::slice::from_raw_parts(first.cast::<AtomicU64>(), n_words) }
}

/// # Safety
/// As [`words_at`], for 4-aligned 32-bit words.
#[expect(clippy::disallowed_methods, reason = "a slice of atomics is the one slice that others may write")]
unsafe fn words32_at<'a>(first: *mut u8, n_words: usize) -> &'a [AtomicU32] {
    // SAFETY: the caller's promise; AtomicU32 has the layout of u32.
    unsafe { std::slice::from_raw_parts(first.cast::<AtomicU32>(), n_words) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfd;

    const MIB: usize = 1 << 20;

    #[test]
    fn pages_of_another_size_are_an_error_that_says_so() {
        check_pages(page_bytes()).unwrap();
        assert!(check_pages(16_384).unwrap_err().to_string().contains("pages of 16384 bytes"));
    }

    fn tables(fd: impl AsFd, len_bytes: usize) -> Tables {
        // SAFETY: these tests map files of their own, and borrow words of 64 bits only.
        unsafe { Tables::map(fd, len_bytes) }.unwrap()
    }

    fn reservation(fd: impl AsFd) -> Reservation {
        // SAFETY: as above.
        unsafe { Reservation::map(fd, 0, 64 * MIB, 4 * MIB) }.unwrap()
    }

    #[test]
    fn two_mappings_of_one_file_show_the_same_words() {
        let fd = memfd::create_sealed("test", 1 << 16).unwrap();
        let (a, b) = (tables(&fd, 1 << 16), tables(&fd, 1 << 16));
        a.words(64, 1).unwrap()[0].store(42, Ordering::Release);
        assert_eq!(b.words(64, 1).unwrap()[0].load(Ordering::Acquire), 42);
        assert!(a.words(60, 1).is_none(), "unaligned");
        assert!(a.words(1 << 16, 1).is_none(), "outside");
        assert!(a.words(usize::MAX - 7, 2).is_none(), "overflow");
    }

    #[test]
    fn a_reservation_lends_only_what_is_open() {
        let fd = memfd::create_sealed("test", 64 << 20).unwrap();
        let map = reservation(&fd);
        assert!(map.words(0, 1).is_none());
        map.open(1, 10_000).unwrap();
        assert!(map.words(4 * MIB, 12_288 / 8).is_some(), "rounded up to pages");
        assert!(map.words(4 * MIB, 12_288 / 8 + 1).is_none());
        assert!(map.words(4 * MIB - 8, 2).is_none(), "granule 0 is closed");
        map.open(2, 4096).unwrap();
        assert!(!map.is_open(8 * MIB - 8, 16), "the rest of granule 1 is closed");
        assert!(map.open(16, 1).is_err(), "outside");
        assert!(map.open(0, 4 * MIB + 1).is_err(), "longer than a granule");
        assert_eq!(memfd::allocated_bytes(&fd).unwrap(), 0, "opening allocates nothing");
        map.populate(4 * MIB, 5000).unwrap();
        assert_eq!(memfd::allocated_bytes(&fd).unwrap(), 8192);
    }

    #[test]
    fn words_for_futexes_lie_in_the_others() {
        let fd = memfd::create_sealed("test", 64 << 20).unwrap();
        let map = reservation(&fd);
        assert!(map.words_with_words32(0, 8, 2, 3).is_none(), "closed");
        map.open(0, 4096).unwrap();
        let (words, futexes) = map.words_with_words32(64, 8, 2, 3).unwrap();
        assert_eq!((words.len(), futexes.len()), (8, 3));
        assert_eq!(std::ptr::from_ref(&words[2]).addr(), std::ptr::from_ref(&futexes[0]).addr());
        for (at, n_words32, is_lent) in [(7, 2, true), (7, 3, false), (8, 0, true), (9, 0, false)] {
            assert_eq!(map.words_with_words32(64, 8, at, n_words32).is_some(), is_lent, "{at}, {n_words32}");
        }
        assert!(map.words_with_words32(64, 8, 0, usize::MAX).is_none());
    }

    #[test]
    fn a_range_over_several_granules_needs_all_of_them_open() {
        let fd = memfd::create_sealed("test", 64 << 20).unwrap();
        let map = reservation(&fd);
        for granule in 0..3 {
            map.open(granule, 4 * MIB).unwrap();
        }
        assert!(map.bytes(MIB, 11 * MIB).is_some());
        assert!(map.bytes(MIB, 12 * MIB).is_none());
    }
}
