//! How often this process holds each block: private, so that clones and drops inside a process touch no shared
//! memory. Only the first hold and the last drop do.
//!
//! A cell belongs to a header line, found by two loads. Its word is `tenure:32 | busy:1 | count:31`. While the
//! shared bit is being set or cleared the cell is *busy*, and whoever else comes waits for those few
//! instructions; otherwise the drop of the last handle could clear the bit under a handle that just arrived.
//!
//! The *tenure* counts how often the exclusive right to the block left this process through a message, so that
//! an alias of the sent handle can see that it has lost its bytes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tensorferry_os::mapping::PAGE_BYTES;

use crate::class::LINE_BYTES;

const BUSY: u64 = 1 << 31;
const COUNT: u64 = BUSY - 1;
const TENURE_SHIFT: u32 = 32;
const CELLS_PER_PAGE: usize = PAGE_BYTES / LINE_BYTES;

/// The cells of one page of headers.
type Page = Box<[AtomicU64; CELLS_PER_PAGE]>;
/// The pages of one extent, each made when it is first needed.
type Pages = Box<[OnceLock<Page>]>;

/// The cells of all blocks of one domain that this process has ever held.
#[derive(Debug)]
pub(crate) struct Counts {
    extents: Box<[OnceLock<Pages>]>,
    pages_per_extent: usize,
    extent_shift: u32,
    /// Where an offset outside of the domain would lead; no caller has one.
    nowhere: AtomicU64,
}

/// The cell of one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<'a> {
    word: &'a AtomicU64,
}

impl Counts {
    pub(crate) fn new(n_extents: usize, extent_len_bytes: usize) -> Self {
        Self {
            extents: (0..n_extents).map(|_| OnceLock::new()).collect(),
            pages_per_extent: extent_len_bytes / PAGE_BYTES,
            extent_shift: extent_len_bytes.trailing_zeros(),
            nowhere: AtomicU64::new(0),
        }
    }

    /// The cell of the block whose header is at this offset of the data area.
    pub(crate) fn cell(&self, header_offset_bytes: usize) -> Cell<'_> {
        let extent = header_offset_bytes >> self.extent_shift;
        let page = (header_offset_bytes / PAGE_BYTES) & (self.pages_per_extent - 1);
        let line = (header_offset_bytes / LINE_BYTES) & (CELLS_PER_PAGE - 1);
        let word = self
            .extents
            .get(extent)
            .map(|pages| pages.get_or_init(|| (0..self.pages_per_extent).map(|_| OnceLock::new()).collect()))
            .and_then(|pages| pages.get(page))
            .map(|page| page.get_or_init(|| Box::new([const { AtomicU64::new(0) }; CELLS_PER_PAGE])))
            .and_then(|cells| cells.get(line))
            .unwrap_or(&self.nowhere);
        Cell { word }
    }
}

impl Cell<'_> {
    /// Counts one more handle. `first` runs when there was none, and says whether the block may be held; its
    /// error is passed on and nothing is counted.
    pub(crate) fn acquire<E>(&self, first: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        loop {
            let seen = self.settled();
            if seen & COUNT > 0 {
                if self.replace(seen, seen + 1) {
                    return Ok(());
                }
            } else if self.replace(seen, seen | BUSY) {
                let outcome = first();
                let count = u64::from(outcome.is_ok());
                self.word.store(seen + count, Ordering::Release);
                return outcome;
            }
        }
    }

    /// Counts one more handle beside one that exists.
    pub(crate) fn clone_handle(&self) {
        let seen = self.word.fetch_add(1, Ordering::Relaxed);
        if seen & COUNT > COUNT / 2 {
            // As in `Arc`: so many handles were forgotten that the next would make the count lie.
            std::process::abort();
        }
    }

    /// Counts one handle less. `last` runs when none is left.
    pub(crate) fn release(&self, last: impl FnOnce()) {
        loop {
            let seen = self.settled();
            match seen & COUNT {
                // A handle that was never counted: nothing to undo.
                0 => return,
                1 => {
                    if self.replace(seen, (seen - 1) | BUSY) {
                        last();
                        self.word.store(seen - 1, Ordering::Release);
                        return;
                    }
                }
                _ => {
                    if self.replace(seen, seen - 1) {
                        return;
                    }
                }
            }
        }
    }

    /// Whether there is exactly one handle in this process and `check` holds. While it is checked no other handle can
    /// be counted, so the two answers belong to one moment.
    pub(crate) fn is_single_and(&self, check: impl FnOnce() -> bool) -> bool {
        let seen = self.settled();
        if seen & COUNT != 1 || !self.replace(seen, seen | BUSY) {
            // Somebody else counted in the meantime, so there was another handle.
            return false;
        }
        let holds = check();
        self.word.store(seen, Ordering::Release);
        holds
    }

    /// Which tenure of the exclusive right this is.
    pub(crate) fn tenure(&self) -> u32 {
        let bytes = self.word.load(Ordering::Acquire).to_le_bytes();
        u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]])
    }

    /// Ends tenure `from`, or takes an end back: moves it to `to` if it is still `from`.
    pub(crate) fn change_tenure(&self, from: u32, to: u32) -> bool {
        loop {
            let seen = self.settled();
            if seen >> TENURE_SHIFT != u64::from(from) {
                return false;
            }
            if self.replace(seen, seen & (COUNT | BUSY) | u64::from(to) << TENURE_SHIFT) {
                return true;
            }
        }
    }

    /// The word once it is not busy.
    fn settled(&self) -> u64 {
        let mut looks = 0_u32;
        loop {
            let seen = self.word.load(Ordering::Acquire);
            if seen & BUSY == 0 {
                return seen;
            }
            looks += 1;
            if looks < 64 {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
    }

    fn replace(&self, from: u64, to: u64) -> bool {
        self.word.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicI64;

    fn ok() -> Result<(), ()> {
        Ok(())
    }

    #[test]
    fn only_the_first_and_the_last_handle_are_told() {
        let counts = Counts::new(2, 4 << 20);
        let cell = counts.cell((4 << 20) + 128);
        let (mut firsts, mut lasts) = (0, 0);
        for _ in 0..3 {
            cell.acquire(|| {
                firsts += 1;
                ok()
            })
            .unwrap();
        }
        cell.clone_handle();
        for _ in 0..4 {
            cell.release(|| lasts += 1);
        }
        assert_eq!((firsts, lasts), (1, 1));
        assert_eq!(cell.acquire(|| Err(7)), Err(7));
        assert_eq!(counts.cell((4 << 20) + 128).word.load(Ordering::Relaxed), 0, "a refusal counts nothing");
        assert!(!std::ptr::eq(counts.cell(128).word, cell.word));
    }

    #[test]
    fn a_tenure_ends_once() {
        let counts = Counts::new(1, 4 << 20);
        let cell = counts.cell(64);
        cell.acquire(ok).unwrap();
        let tenure = cell.tenure();
        assert!(cell.change_tenure(tenure, tenure + 1));
        assert!(!cell.change_tenure(tenure, tenure + 1), "somebody else was first");
        assert!(cell.is_single_and(|| true));
        assert!(!cell.is_single_and(|| false));
        cell.clone_handle();
        assert!(!cell.is_single_and(|| true));
    }

    #[test]
    fn first_and_last_alternate_under_contention() {
        let counts = Counts::new(1, 4 << 20);
        let (cell, held) = (counts.cell(64), AtomicI64::new(0));
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        cell.acquire(|| {
                            assert_eq!(held.fetch_add(1, Ordering::SeqCst), 0);
                            ok()
                        })
                        .unwrap();
                        assert_eq!(held.load(Ordering::SeqCst), 1);
                        cell.release(|| assert_eq!(held.fetch_sub(1, Ordering::SeqCst), 1));
                    }
                });
            }
        });
        assert_eq!(held.load(Ordering::SeqCst), 0);
    }
}
