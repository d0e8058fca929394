//! Telling whether a domain's bytes have changed.
//!
//! # Safety
//!
//! The file is mapped once more, beside the mapping that lends slices of it. What is mapped here is only
//! read, and only while everybody else stands still.

#![expect(unsafe_code, reason = "maps the domain's file once more, to look at it from outside")]

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{SeekFrom, fstat, seek};
use tensorferry_domain::Layout;
use tensorferry_os::mapping::{PAGE_BYTES, Tables};

const WORDS: usize = PAGE_BYTES / 8;

/// A copy of every byte of a domain's file, held against the file again and again.
///
/// It maps the file once more and only ever reads it. The two words of a ring that are accessed as 32 bits
/// elsewhere are read here as a part of 64: enough for telling that something changed.
#[derive(Debug)]
pub struct SharedBytes {
    file: File,
    map: Tables,
    pages: Vec<Page>,
    n_allocated: i64,
}

#[derive(Debug)]
struct Page {
    offset_bytes: usize,
    copy: Box<[u64; WORDS]>,
}

impl SharedBytes {
    /// Begins with what is there now.
    #[must_use]
    pub fn of(domain: impl AsFd, layout: &Layout) -> Self {
        let fd: OwnedFd = domain.as_fd().try_clone_to_owned().unwrap();
        // SAFETY: the words are only read, at moments at which everybody else stands still (the child is
        // stepped, its other threads and the other members wait), so nothing that has a reference to them is
        // disturbed, and no two sizes of access meet.
        let map = unsafe { Tables::map(&fd, layout.file_len_bytes()) }.unwrap();
        let mut shared = Self { file: fd.into(), map, pages: Vec::new(), n_allocated: 0 };
        shared.look();
        shared
    }

    /// Whether anything has changed since the last look.
    pub fn look(&mut self) -> bool {
        // Whoever touches a page for the first time allocates it, so a page that is not known is seen by the
        // count.
        let n_allocated = fstat(&self.file).unwrap().st_blocks;
        if n_allocated != self.n_allocated {
            self.n_allocated = n_allocated;
            self.find_pages();
        }
        let mut changed = false;
        for page in &mut self.pages {
            let words = self.map.words(page.offset_bytes, WORDS).unwrap();
            if page.differs(words) {
                page.copy_from(words);
                changed = true;
            }
        }
        changed
    }

    /// The word at this offset of the file.
    #[must_use]
    pub fn word(&self, offset_bytes: usize) -> u64 {
        self.map.words(offset_bytes, 1).unwrap()[0].load(Ordering::SeqCst)
    }

    /// Lists the pages that the file has. Reading the others through the mapping would allocate them.
    fn find_pages(&mut self) {
        let mut known = std::mem::take(&mut self.pages).into_iter().peekable();
        let mut at = 0;
        while let Ok(data) = seek(&self.file, SeekFrom::Data(at)) {
            let hole = seek(&self.file, SeekFrom::Hole(data)).unwrap();
            for offset in (data..hole).step_by(PAGE_BYTES) {
                let offset_bytes = usize::try_from(offset).unwrap();
                while known.next_if(|page| page.offset_bytes < offset_bytes).is_some() {}
                // A page that was not there read as zeroes.
                let fresh = || Page { offset_bytes, copy: Box::new([0; WORDS]) };
                self.pages
                    .push(known.next_if(|page| page.offset_bytes == offset_bytes).unwrap_or_else(fresh));
            }
            at = hole;
        }
    }
}

impl Page {
    fn differs(&self, words: &[AtomicU64]) -> bool {
        // Without a branch for each word, because this runs once for each instruction that is stepped.
        let differing =
            |all: u64, (word, copy): (&AtomicU64, &u64)| all | (word.load(Ordering::Relaxed) ^ copy);
        words.iter().zip(self.copy.iter()).fold(0, differing) != 0
    }

    fn copy_from(&mut self, words: &[AtomicU64]) {
        for (copy, word) in self.copy.iter_mut().zip(words) {
            *copy = word.load(Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tensorferry::domain::Domain;
    use tensorferry::storage::Heap;

    #[test]
    fn every_change_is_seen_once() {
        let heap = Heap::create(Domain::builder().address_space_bytes(16 << 20)).unwrap();
        let mut shared = SharedBytes::of(heap.domain(), heap.domain().layout());
        assert!(!shared.look());
        let mut block = heap.allocate(1000).unwrap();
        assert!(shared.look(), "memory was allocated and a header written");
        assert!(!shared.look());
        block.bytes_mut()[999] = 1;
        assert!(shared.look(), "one byte of a block");
        assert!(!shared.look());
    }
}
