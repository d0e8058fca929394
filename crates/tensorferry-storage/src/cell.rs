//! How many handles this process has on each block. The counts are private: clones and drops inside a process
//! touch no shared memory, except for the first handle and the last one.
//!
//! A cell's count is `busy:1 | count:31`. The cell is *busy* while a thread sets or clears this member's
//! holder bit, or asks whether a handle is the only one. Other threads wait for those few instructions.
//! Otherwise the drop of the last handle could clear the bit under a handle that another thread has just
//! counted. Only a clone does not wait: the handle that it is made from is counted, so meanwhile no first
//! handle can come and no last handle can go.
//!
//! The *ownership epoch* counts how often the exclusive right to the block left this process in a message. An
//! alias of the handle that was sent compares epochs, and so sees that it has lost its bytes. The epoch has
//! 64 bits, so it never wraps. If it did, an alias that was kept for that many sends would get its bytes back
//! beside their new owner.

use std::hint::cold_path;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::class::Class;
use crate::geometry::{Address, Place};
use crate::handle::{CellHeader, CellHeap};
use crate::header::Header;
use crate::heap::Heap;

const BUSY: u32 = 1 << 31;
const COUNT: u32 = BUSY - 1;
/// The process aborts above this count, as `Arc` does: that many forgotten handles would overflow the count.
const MAX_COUNT: u32 = COUNT / 2;

/// What this process knows about one block.
#[derive(Debug)]
pub(crate) struct CellWords {
    heap: CellHeap,
    header: CellHeader,
    count: AtomicU32,
    /// See [`Allocation`].
    generation: AtomicU32,
    ownership_epoch: AtomicU64,
    header_offset_bytes: AtomicUsize,
    data_offset_bytes: AtomicUsize,
    /// `extent:32 | line:16 | index:8 | class + 1:8`; 0 while the place is not known.
    span: AtomicU64,
    /// See [`Allocation`].
    len_bytes: AtomicUsize,
}

impl CellWords {
    pub(crate) fn new(heap: CellHeap) -> Self {
        Self {
            heap,
            header: CellHeader::default(),
            count: AtomicU32::new(0),
            generation: AtomicU32::new(0),
            ownership_epoch: AtomicU64::new(0),
            header_offset_bytes: AtomicUsize::new(0),
            data_offset_bytes: AtomicUsize::new(0),
            span: AtomicU64::new(0),
            len_bytes: AtomicUsize::new(0),
        }
    }

    /// Whether this process has handles on the block.
    pub(crate) fn is_held(&self) -> bool {
        self.count.load(Ordering::SeqCst) & COUNT > 0
    }

    /// Ends the exclusive rights of all handles that exist.
    pub(crate) fn revoke_exclusive(&self) {
        self.ownership_epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether the place of the block was stored.
    #[inline]
    pub(crate) fn has_place(&self) -> bool {
        self.span.load(Ordering::Acquire) != 0
    }
}

/// What a block is from its allocation until its last holder lets go. A cell that counts no handle holds no
/// meaningful values. The cell has a copy of what the header says, so that a process that sends a block again
/// and again does not read the header, which the receivers write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) len_bytes: usize,
    pub(crate) generation: u32,
}

/// The cell of one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cell<'a> {
    words: &'a CellWords,
}

/// What counting a handle, or giving it back, did to the number of them in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// There was none before, or there is none now.
    FirstOrLast,
    /// There are others.
    Other,
}

impl<'a> Cell<'a> {
    /// The cell with these words.
    #[inline]
    pub(crate) fn new(words: &'a CellWords) -> Self {
        Self { words }
    }

    #[inline]
    pub(crate) fn words(self) -> &'a CellWords {
        self.words
    }

    /// The heap that the cell lies in.
    #[inline]
    pub(crate) fn heap(self) -> &'a Heap {
        self.words.heap.get()
    }

    /// The header of the block; `None` while its memory is closed.
    #[inline]
    pub(crate) fn header(self) -> Option<Header<'a>> {
        self.words.header.get().or_else(|| self.heap().header(self.header_offset_bytes()))
    }

    /// Where the header is remembered.
    #[inline]
    pub(crate) fn header_place(self) -> &'a CellHeader {
        &self.words.header
    }

    /// Stores the place. Every caller stores the same values, as long as all members are honest. A dishonest
    /// member can only make the cell lead to another place inside the memory that is open.
    pub(crate) fn store_place(&self, place: Place) {
        self.words.header_offset_bytes.store(place.header_offset_bytes, Ordering::Relaxed);
        self.words.data_offset_bytes.store(place.data_offset_bytes, Ordering::Relaxed);
        let class = place.class.index() as u64 + 1;
        let index = place.address.index() as u64;
        let line = place.address.line() as u64;
        let span = (place.address.extent() as u64) << 32 | line << 16 | index << 8 | class;
        self.words.span.store(span, Ordering::Release);
    }

    /// Returns `None` for a cell whose place was never stored. No caller has such a cell.
    #[inline]
    pub(crate) fn place(&self) -> Option<Place> {
        let span = self.words.span.load(Ordering::Relaxed);
        let [class, index, line @ .., e0, e1, e2, e3] = span.to_le_bytes();
        let extent = usize::try_from(u32::from_le_bytes([e0, e1, e2, e3])).ok()?;
        Some(Place {
            header_offset_bytes: self.words.header_offset_bytes.load(Ordering::Relaxed),
            data_offset_bytes: self.words.data_offset_bytes.load(Ordering::Relaxed),
            address: Address::new(extent, u16::from_le_bytes(line).into(), index.into()),
            class: Class::from_index(usize::from(class).checked_sub(1)?)?,
        })
    }

    #[inline]
    pub(crate) fn header_offset_bytes(&self) -> usize {
        self.words.header_offset_bytes.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn data_offset_bytes(&self) -> usize {
        self.words.data_offset_bytes.load(Ordering::Relaxed)
    }

    /// The length of the block in bytes. The caller has a handle on the block, or begins to hold it: then it
    /// is what another block had that was held here, or 0.
    #[inline]
    pub(crate) fn len_bytes(&self) -> usize {
        self.words.len_bytes.load(Ordering::Relaxed)
    }

    /// The generation of the block. The caller has a handle on the block.
    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        self.words.generation.load(Ordering::Relaxed)
    }

    /// Counts `n_handles` more handles. If there was none, `first` runs: it returns what the block is, or an
    /// error if the block may not be held. That error is returned, and nothing is counted.
    #[inline]
    pub(crate) fn acquire<E>(
        &self,
        n_handles: u32,
        first: impl FnOnce() -> Result<Allocation, E>,
    ) -> Result<Transition, E> {
        loop {
            let seen = self.count_when_idle();
            if seen & COUNT > 0 {
                abort_on_too_many(seen);
                if self.replace(seen, seen + n_handles) {
                    return Ok(Transition::Other);
                }
            } else if self.replace(seen, seen | BUSY) {
                let outcome = first();
                let mut count = 0;
                if let Ok(Allocation { len_bytes, generation }) = outcome {
                    self.words.len_bytes.store(len_bytes, Ordering::Relaxed);
                    self.words.generation.store(generation, Ordering::Relaxed);
                    count = n_handles;
                }
                self.words.count.store(seen + count, Ordering::Release);
                return outcome.map(|_| Transition::FirstOrLast);
            }
        }
    }

    /// Counts one more handle. The caller has one already.
    #[inline]
    pub(crate) fn clone_handle(&self) {
        abort_on_too_many(self.words.count.fetch_add(1, Ordering::Relaxed));
    }

    /// Counts one handle less if there are others. The caller then has nothing more to do. Returns false if
    /// this handle is the only one, or if another thread is changing the count.
    #[inline]
    pub(crate) fn release_beside_others(&self) -> bool {
        let seen = self.words.count.load(Ordering::Relaxed);
        seen & BUSY == 0 && seen & COUNT > 1 && self.replace(seen, seen - 1)
    }

    /// Counts one handle less. `last` runs when none is left.
    pub(crate) fn release(&self, last: impl FnOnce()) -> Transition {
        loop {
            let seen = self.count_when_idle();
            match seen & COUNT {
                // A handle that was never counted: nothing to undo.
                0 => return Transition::Other,
                1 => {
                    if self.replace(seen, (seen - 1) | BUSY) {
                        last();
                        self.words.count.store(seen - 1, Ordering::Release);
                        return Transition::FirstOrLast;
                    }
                }
                _ => {
                    if self.replace(seen, seen - 1) {
                        return Transition::Other;
                    }
                }
            }
        }
    }

    /// How many handles there were a moment ago. This is only a hint: other threads count and drop handles
    /// meanwhile.
    #[inline]
    pub(crate) fn n_handles(&self) -> u32 {
        self.words.count.load(Ordering::Relaxed) & COUNT
    }

    /// Whether there is exactly one handle in this process and `check` holds. While `check` runs, no handle
    /// can be counted except a clone of that one. A caller that has that handle to itself therefore gets both
    /// answers for the same moment.
    pub(crate) fn is_single_and(&self, check: impl FnOnce() -> bool) -> bool {
        let seen = self.count_when_idle();
        if seen & COUNT != 1 || !self.replace(seen, seen | BUSY) {
            // Another thread changed the count meanwhile, so there was another handle.
            return false;
        }
        let holds = check();
        // Only the busy bit is cleared: the thread that has the handle may have cloned it meanwhile, because
        // a clone does not wait.
        self.words.count.fetch_and(!BUSY, Ordering::Release);
        holds
    }

    /// The current ownership epoch.
    #[inline]
    pub(crate) fn ownership_epoch(&self) -> u64 {
        self.words.ownership_epoch.load(Ordering::Acquire)
    }

    /// Moves the ownership epoch from `from` to `to`, to end it or to take its end back. Returns false, and
    /// changes nothing, if the epoch is not `from`.
    pub(crate) fn change_ownership_epoch(&self, from: u64, to: u64) -> bool {
        self.words.ownership_epoch.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Waits until the cell is not busy, and returns its count.
    #[inline]
    fn count_when_idle(&self) -> u32 {
        let seen = self.words.count.load(Ordering::Acquire);
        if seen & BUSY == 0 { seen } else { self.wait_while_busy() }
    }

    #[cold]
    fn wait_while_busy(&self) -> u32 {
        let mut looks = 0_u32;
        loop {
            let seen = self.words.count.load(Ordering::Acquire);
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

    #[inline]
    fn replace(&self, from: u32, to: u32) -> bool {
        self.words.count.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

#[inline]
fn abort_on_too_many(count: u32) {
    if count & COUNT > MAX_COUNT {
        cold_path();
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicI64;

    use tensorferry_domain::Domain;

    use super::*;
    use crate::handle::cell_at;

    fn ok() -> Result<Allocation, ()> {
        Ok(Allocation { len_bytes: 50, generation: 7 })
    }

    fn place(header_offset_bytes: usize) -> Place {
        Place {
            header_offset_bytes,
            data_offset_bytes: 2 * header_offset_bytes,
            address: Address::new(header_offset_bytes >> 22, 3, 4),
            class: Class::holding(header_offset_bytes).unwrap(),
        }
    }

    fn heap() -> Heap {
        Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap()
    }

    fn cell_of(heap: &Heap, header_offset_bytes: usize) -> Cell<'_> {
        cell_at(heap, place(header_offset_bytes)).unwrap()
    }

    #[test]
    fn a_cell_knows_its_place_and_what_was_never_held_has_none() {
        let heap = heap();
        assert!(heap.inner().cells.known(64).is_none());
        let made = cell_of(&heap, 64);
        let known = heap.inner().cells.known(64).unwrap();
        assert!(std::ptr::eq(known.words, made.words));
        assert_eq!(known.place(), Some(place(64)));
        assert!(heap.inner().cells.known(128).is_none(), "on the same page");
        assert!(heap.inner().cells.known(usize::MAX).is_none());
        assert!(cell_at(&heap, place(1 << 40)).is_none(), "beyond the domain");
        made.acquire(1, ok).unwrap();
        assert_eq!((known.len_bytes(), known.generation()), (50, 7));
    }

    #[test]
    fn only_the_first_and_the_last_handle_are_told() {
        let heap = heap();
        let cell = cell_of(&heap, (4 << 20) + 128);
        let (mut firsts, mut lasts) = (0, 0);
        for _ in 0..3 {
            cell.acquire(1, || {
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
        assert_eq!(cell.acquire(1, || Err(7)), Err(7));
        assert_eq!(
            cell_of(&heap, (4 << 20) + 128).words.count.load(Ordering::Relaxed),
            0,
            "a refusal counts nothing"
        );
        assert!(!std::ptr::eq(cell_of(&heap, 128).words, cell.words));
    }

    #[test]
    fn an_ownership_epoch_ends_once() {
        let heap = heap();
        let cell = cell_of(&heap, 64);
        cell.acquire(1, ok).unwrap();
        let ownership_epoch = cell.ownership_epoch();
        assert!(cell.change_ownership_epoch(ownership_epoch, ownership_epoch + 1));
        assert!(
            !cell.change_ownership_epoch(ownership_epoch, ownership_epoch + 1),
            "somebody else was first"
        );
        assert!(cell.is_single_and(|| true));
        assert!(!cell.is_single_and(|| false));
        cell.clone_handle();
        assert!(!cell.is_single_and(|| true));
    }

    #[test]
    fn a_clone_that_is_made_while_somebody_asks_is_counted() {
        let heap = heap();
        let cell = cell_of(&heap, 64);
        cell.acquire(1, ok).unwrap();
        let was_sole = cell.is_single_and(|| {
            cell.clone_handle();
            true
        });
        assert!(was_sole);
        let mut n_lasts = 0;
        assert_eq!(cell.release(|| n_lasts += 1), Transition::Other);
        assert_eq!(cell.release(|| n_lasts += 1), Transition::FirstOrLast);
        assert_eq!(n_lasts, 1);
    }

    #[test]
    fn an_ownership_epoch_does_not_wrap() {
        let heap = heap();
        let cell = cell_of(&heap, 64);
        let kept = cell.ownership_epoch();
        assert!(cell.change_ownership_epoch(kept, kept + u64::from(u32::MAX)));
        assert!(cell.change_ownership_epoch(kept + u64::from(u32::MAX), kept + (1 << 32)));
        assert_ne!(cell.ownership_epoch(), kept);
    }

    #[test]
    fn first_and_last_alternate_under_contention() {
        let heap = heap();
        let (cell, held) = (cell_of(&heap, 64), AtomicI64::new(0));
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..20_000 {
                        cell.acquire(1, || {
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
