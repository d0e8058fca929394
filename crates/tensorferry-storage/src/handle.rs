//! One of this process's handles on a block. It is counted in the block's cell and nowhere else.
//!
//! # Safety
//!
//! A handle is a pointer to its cell. The cell lies in its heap and has a pointer to it. Neither pointer
//! counts a reference. The cell's own count keeps both alive: *while it is above zero, one reference to the
//! heap belongs to the cell*. The first handle (counted when there was none) brings that reference. The last
//! handle (after which there is none) takes it along. The reference covers every other handle too: the count
//! cannot reach zero before that handle itself is gone.
//!
//! The heap of [`Heap::current`] is kept by a static that is never dropped, so its cells need no reference.
//! Once a heap is the current one, it stays so. A first handle that sees this brings no reference. By the
//! time the count reaches zero, that first handle is gone too, and the thread that drops the last handle has
//! seen it go: all changes of the count except a clone's acquire and release, and a clone's keeps that order.
//! So the last handle sees the same and takes no reference along. A first handle may also bring a reference
//! before its heap becomes the current one. The last handle may then leave that reference in the cell, where
//! it keeps a heap that is kept anyway.
//!
//! A cell also has a pointer to the header of its block, which lies in the memory that the heap keeps mapped.
#![expect(unsafe_code, reason = "a handle that counts its heap too would count twice for every clone")]

use std::hint::cold_path;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::cell::{Allocation, Cell, CellWords, Transition};
use crate::geometry::Place;
use crate::header::{Header, HeaderWords};
use crate::heap::Heap;

/// A handle on a block. Clones and drops are counted privately. Only the first and the last handle of a
/// process touch the block's holder word.
pub(crate) struct BlockHandle {
    /// INVARIANT: `self` is counted in these words. While it is, their heap is kept (see the top of the
    /// file).
    words: NonNull<CellWords>,
}

const _: () = {
    const fn is_for_all_threads<T: Send + Sync>() {}
    is_for_all_threads::<CellWords>();
};

// SAFETY: any thread may use the words of a cell: `CellWords` is `Send` and `Sync` (asserted above),
// including the heap that the last handle may drop.
unsafe impl Send for BlockHandle {}
// SAFETY: as above.
unsafe impl Sync for BlockHandle {}

/// Two handles on one block that were counted in one step, which costs as much as counting one.
pub(crate) struct HandlePair {
    /// INVARIANT: counted twice: for itself, and for the other handle, which goes in `drop` or in `split`.
    one: BlockHandle,
}

impl HandlePair {
    /// As [`BlockHandle::on`].
    #[inline]
    pub(crate) fn on<E>(cell: Cell<'_>, first: impl FnOnce() -> Result<Allocation, E>) -> Result<Self, E> {
        count(cell, 2, first)?;
        Ok(Self { one: BlockHandle { words: NonNull::from(cell.words()) } })
    }

    #[inline]
    pub(crate) fn split(self) -> (BlockHandle, BlockHandle) {
        let words = ManuallyDrop::new(self).one.words;
        (BlockHandle { words }, BlockHandle { words })
    }
}

impl Drop for HandlePair {
    fn drop(&mut self) {
        drop(BlockHandle { words: self.one.words });
    }
}

/// Counts `n_handles` more handles. If they are the first, the cell gets its reference to the heap.
#[inline]
fn count<E>(cell: Cell<'_>, n_handles: u32, first: impl FnOnce() -> Result<Allocation, E>) -> Result<(), E> {
    if cell.acquire(n_handles, first)? == Transition::FirstOrLast && !cell.heap().lasts_forever() {
        // The cell's reference from now on. A handle that another thread counts meanwhile relies on it only
        // once these handles are gone. That is after this function has returned, and until then the caller
        // borrows the heap.
        let _of_the_cell = ManuallyDrop::new(cell.heap().clone());
    }
    Ok(())
}

impl BlockHandle {
    /// Counts one more handle on the block of this cell. `first` is as in [`Cell::acquire`].
    #[inline]
    pub(crate) fn on<E>(cell: Cell<'_>, first: impl FnOnce() -> Result<Allocation, E>) -> Result<Self, E> {
        count(cell, 1, first)?;
        Ok(Self { words: NonNull::from(cell.words()) })
    }

    /// As [`BlockHandle::on`], for a block that was free. Returns `None` if this process holds the block
    /// already, which happens only if a member writes what it must not.
    pub(crate) fn alone(cell: Cell<'_>, first: impl FnOnce() -> Allocation) -> Option<Self> {
        let mut is_first = false;
        let handle = Self::on(cell, || {
            is_first = true;
            Ok::<_, std::convert::Infallible>(first())
        });
        let Ok(handle) = handle;
        is_first.then_some(handle)
    }

    #[inline]
    pub(crate) fn heap(&self) -> &Heap {
        self.cell().heap()
    }

    #[inline]
    pub(crate) fn cell(&self) -> Cell<'_> {
        // SAFETY: the words lie in the heap's table of cells. Nothing is removed from that table before the
        // heap ends, and the heap lives while `self` is counted, which is at least as long as this borrow of
        // `self`. The words are atomics and a pointer that does not change, so nobody has exclusive access to
        // them.
        Cell::new(unsafe { self.words.as_ref() })
    }
}

/// The heap that a cell lies in. The heap exists as long as the cell does.
#[derive(Debug)]
pub(crate) struct CellHeap(ManuallyDrop<Heap>);

impl CellHeap {
    /// # Safety
    /// The value must be kept inside `heap` itself, so that it goes when the heap goes.
    unsafe fn of(heap: &Heap) -> Self {
        Self(second_pointer(heap))
    }

    #[inline]
    pub(crate) fn get(&self) -> &Heap {
        &self.0
    }
}

/// The header of the block of a cell, once it was found: to find it and check that its memory is open takes
/// 30 instructions, and is done for the first handle and the last one.
#[derive(Debug, Default)]
pub(crate) struct CellHeader {
    /// INVARIANT: null, or from a reference to the header's words in the data area of the cell's own heap.
    words: AtomicPtr<HeaderWords>,
}

impl CellHeader {
    /// A cell stands for one line of the data area, so whoever calls this twice stores the same pointer.
    ///
    /// # Safety
    /// The header must lie in the heap that this value lies in.
    unsafe fn set(&self, header: Header<'_>) {
        self.words.store(std::ptr::from_ref(header.words()).cast_mut(), Ordering::Release);
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<Header<'_>> {
        let words = self.words.load(Ordering::Acquire);
        // SAFETY: `as_ref` needs a null pointer, or one to words that may be shared for as long as `self` is
        // borrowed. By the invariant it is null, or came from a reference to words of the data area of the
        // heap that `self` lies in, which are atomics. That heap keeps the mapping of its domain, and while
        // the mapping lives the words stay where they are, and open: what was opened is never closed
        // (`Reservation::open`).
        unsafe { words.as_ref() }.map(Header::new)
    }
}

/// Returns the cell of the block at this place, or `None` for a place outside the domain.
pub(crate) fn cell_at(heap: &Heap, place: Place) -> Option<Cell<'_>> {
    // SAFETY: the value goes into the table of this very heap, and nothing is ever taken out of that table.
    let cell = heap.inner().cells.cell(place, || unsafe { CellHeap::of(heap) })?;
    if cell.header_place().get().is_none()
        && let Some(header) = heap.header(place.header_offset_bytes)
    {
        cold_path();
        // SAFETY: the cell was just found in this heap's table, and the header in its data area.
        unsafe { cell.header_place().set(header) };
    }
    Some(cell)
}

/// Makes a second pointer to the heap, which counts no reference. It may be used as long as the heap exists.
fn second_pointer(heap: &Heap) -> ManuallyDrop<Heap> {
    let pointer = std::ptr::from_ref(heap).cast::<ManuallyDrop<Heap>>();
    // SAFETY: the pointer comes from a reference, so it is valid and aligned, and `ManuallyDrop<Heap>` has
    // the layout of `Heap`. The copy is sound: a `Heap` is one counted pointer, which may lie in two places
    // as long as only one of the two is ever dropped.
    unsafe { pointer.read() }
}

impl Clone for BlockHandle {
    #[inline]
    fn clone(&self) -> Self {
        self.cell().clone_handle();
        Self { words: self.words }
    }
}

impl Drop for BlockHandle {
    #[inline]
    fn drop(&mut self) {
        // In a child of a fork(2) this changes a private copy of the count. One that is not this library's
        // uses it for nothing; in one of this library's, `Heap::rejoin` holds what is counted.
        if !self.cell().release_beside_others() {
            // SAFETY: `self` is being dropped, was not counted down, and is not used after this.
            unsafe { self.drop_alone() };
        }
    }
}

impl BlockHandle {
    /// Counts this handle down, which is the only one or was a moment ago.
    ///
    /// # Safety
    /// It was not counted down before, and is not used any more.
    #[inline(never)]
    unsafe fn drop_alone(&mut self) {
        // Such a child waits for no busy cell: the thread that was counting at the moment of the fork does
        // not exist in it.
        if !self.heap().is_owning_process() {
            return;
        }
        let mut heap = second_pointer(self.heap());
        let cell = self.cell();
        let released = cell.release(|| heap.let_go(cell));
        if released == Transition::FirstOrLast && !heap.lasts_forever() {
            // SAFETY: neither `self` nor `heap` is used after this. The reference that is dropped is the
            // cell's, because this call has brought the cell's count to zero. The cell has one: the handle
            // that was counted when there was none brought it, because the heap was not the current one then
            // either. A handle that is counted after this call has brought the count to zero finds none and
            // brings another reference, so this one is dropped once.
            unsafe { ManuallyDrop::drop(&mut heap) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier, Weak};
    use std::time::{Duration, Instant};

    use tensorferry_domain::Domain;

    use super::*;
    use crate::reference::{GENERATION_MASK, Grant, Reference};

    fn heap() -> Heap {
        Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap()
    }

    /// Whether this comes true: the service thread has heap and domain for moments.
    fn comes_true(check: impl Fn() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !check() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    fn ends(domain: &Weak<Domain>) -> bool {
        comes_true(|| domain.upgrade().is_none())
    }

    #[test]
    fn handles_keep_their_heap_and_the_last_one_ends_it() {
        let heap = heap();
        let domain = Arc::downgrade(heap.domain());
        let block = heap.allocate_block(100).unwrap();
        let clones = [block.clone(), block.clone()];
        drop((heap, block));
        assert!(domain.upgrade().is_some());
        assert_eq!(clones[1].words().len(), 13);
        let [first, second] = clones;
        drop(first);
        assert!(domain.upgrade().is_some());
        drop(second);
        assert!(ends(&domain));
    }

    #[test]
    fn a_cell_leads_to_the_header_of_its_block() {
        let heap = heap();
        for len_bytes in [1, 5_000, 3 << 20] {
            let block = heap.allocate_block(len_bytes).unwrap();
            let (found, at) =
                (block.handle().cell().header_place().get().unwrap(), block.header_offset_bytes());
            assert!(std::ptr::eq(found.words(), heap.header(at).unwrap().words()));
            assert_eq!(found.len_bytes(), len_bytes as u64);
        }
    }

    #[test]
    fn two_handles_that_were_counted_at_once_are_given_back_as_two() {
        let heap = heap();
        let block = heap.allocate_block(100).unwrap();
        let named = Reference::unpack(block.reference(Grant::Frozen)).unwrap();
        let (one, other) = heap.hold_twice(named).unwrap().split();
        drop(one);
        assert!(!block.is_sole());
        drop(other);
        assert!(block.is_sole());
        // Nor is anything left of what names another use of the block.
        let stale = Reference { generation: (named.generation + 1) & GENERATION_MASK, ..named };
        assert!(heap.hold_twice(stale).is_err());
        assert!(heap.hold(stale).is_err());
        assert!(block.is_sole());
    }

    #[test]
    fn the_current_heap_needs_no_references_and_loses_none() {
        let heap = heap();
        let has = |n_references| comes_true(|| heap.n_references() == n_references);
        let [early, late] = [(); 2].map(|()| heap.allocate_block(100).unwrap());
        assert!(has(3), "one for each block");
        drop(early);
        assert!(has(2));
        heap.make_current().unwrap();
        assert!(has(3));
        let after = heap.allocate_block(100).unwrap();
        let clone = after.clone();
        assert!(has(3), "none for a block of the current heap");
        drop((after, clone));
        drop(late);
        assert!(has(3), "what a block brought before stays");
        assert_eq!(Heap::current().unwrap().stats().own.live_blocks, 0);
    }

    #[test]
    fn a_heap_ends_once_whoever_was_last_among_threads() {
        for _ in 0..200 {
            let heap = heap();
            let domain = Arc::downgrade(heap.domain());
            let block = heap.allocate_block(64).unwrap();
            let start = Barrier::new(3);
            std::thread::scope(|scope| {
                for handle in [block.clone(), block.clone(), block] {
                    let start = &start;
                    scope.spawn(move || {
                        start.wait();
                        drop(handle.clone());
                        drop(handle);
                    });
                }
                drop(heap);
            });
            assert!(ends(&domain));
        }
    }
}
