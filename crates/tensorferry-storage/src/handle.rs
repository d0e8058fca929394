//! One of this process's handles on a block, counted in the block's cell and nowhere else.
//!
//! # Safety
//!
//! A handle is a pointer to its cell, and the cell has one to the heap, which it lies in; neither counts. What keeps both is the
//! cell's own count: *while it is above zero, one reference to the heap belongs to the cell*. The handle that was counted
//! when there was none brought that reference, and the handle after which there is none takes it along. Every other handle
//! is covered by it: the count cannot come to zero before that handle itself is gone.
//!
//! The heap of [`Heap::current`] is kept by a static that is never dropped, and needs no such references. Once a heap is
//! that one it stays so. The handle that was counted when there was none brings no reference if it sees that; by the time the
//! count comes to zero that handle is gone too, and whoever leaves it at zero has seen its going (all changes of the count
//! but a clone's acquire and release, and a clone's keeps that order), so it sees the same and takes none along. A handle that
//! brought a reference before may leave it there, where it keeps what is kept anyway.
#![expect(unsafe_code, reason = "a handle that counts its heap too would count twice for every clone")]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::cell_table::{Allocation, Cell, CellWords, Transition};
use crate::heap::Heap;
use crate::place::Place;

/// A handle. Cloning and dropping count privately; only the first and the last handle of a process touch the block's
/// holder word.
pub(crate) struct BlockHandle {
    /// INVARIANT: `self` is counted there; as the top of the file says, their heap is kept as long as it is.
    words: NonNull<CellWords>,
}

const _: () = {
    const fn is_for_all_threads<T: Send + Sync>() {}
    is_for_all_threads::<CellWords>();
};

// SAFETY: the words of a cell may be used by any thread (asserted above).
unsafe impl Send for BlockHandle {}
// SAFETY: as above.
unsafe impl Sync for BlockHandle {}

/// HandlePair handles on one block that were counted at once, which costs as much as one.
pub(crate) struct HandlePair {
    /// INVARIANT: as [`BlockHandle::words`], counted twice.
    words: NonNull<CellWords>,
}

impl HandlePair {
    /// As [`BlockHandle::on`].
    #[inline]
    pub(crate) fn on<E>(cell: Cell<'_>, first: impl FnOnce() -> Result<Allocation, E>) -> Result<Self, E> {
        count(cell, 2, first)?;
        Ok(Self { words: NonNull::from(cell.words()) })
    }

    #[inline]
    pub(crate) fn split(self) -> (BlockHandle, BlockHandle) {
        let words = ManuallyDrop::new(self).words;
        (BlockHandle { words }, BlockHandle { words })
    }
}

impl Drop for HandlePair {
    fn drop(&mut self) {
        drop([BlockHandle { words: self.words }, BlockHandle { words: self.words }]);
    }
}

/// CellTable so many handles more, and has the cell keep its heap if they are the first.
#[inline]
fn count<E>(cell: Cell<'_>, n_handles: u32, first: impl FnOnce() -> Result<Allocation, E>) -> Result<(), E> {
    if cell.acquire(n_handles, first)? == Transition::FirstOrLast && !cell.heap().lasts_forever() {
        // The reference that is the cell's from now on. Whoever else is counted meanwhile relies on it only once these
        // handles are gone, and the caller has one until then.
        let _of_the_cell = ManuallyDrop::new(cell.heap().clone());
    }
    Ok(())
}

impl BlockHandle {
    /// One more handle on the block of this cell. `first` is as in [`Cell::acquire`].
    #[inline]
    pub(crate) fn on<E>(cell: Cell<'_>, first: impl FnOnce() -> Result<Allocation, E>) -> Result<Self, E> {
        count(cell, 1, first)?;
        Ok(Self { words: NonNull::from(cell.words()) })
    }

    /// As [`BlockHandle::on`], for a block that nobody holds; `None` if this process does. Only a member that writes what it must
    /// not has one allocated that is held.
    pub(crate) fn alone(cell: Cell<'_>, first: impl FnOnce() -> Allocation) -> Option<Self> {
        let mut is_first = false;
        let handle = Self::on(cell, || {
            is_first = true;
            Ok::<_, std::convert::Infallible>(first())
        });
        let Ok(handle) = handle;
        is_first.then_some(handle)
    }

    pub(crate) fn heap(&self) -> &Heap {
        self.cell().heap()
    }

    pub(crate) fn cell(&self) -> Cell<'_> {
        // SAFETY: the words lie in the heap's table of cells, of which nothing is taken away before the heap ends, and the
        // heap lives as long as `self` is counted, which the lifetime of the borrow does not exceed. They are atomics
        // and a pointer that does not change, so nobody has them exclusively.
        Cell::new(unsafe { self.words.as_ref() })
    }
}

/// The heap that a cell lies in, which is there as long as the cell is.
#[derive(Debug)]
pub(crate) struct CellHeap(ManuallyDrop<Heap>);

impl CellHeap {
    /// # Safety
    /// It is kept by what the heap itself keeps, and goes with it.
    unsafe fn of(heap: &Heap) -> Self {
        Self(second_pointer(heap))
    }

    #[inline]
    pub(crate) fn get(&self) -> &Heap {
        &self.0
    }
}

/// The cell of the block at this place; `None` for a place outside of the domain.
pub(crate) fn cell_at(heap: &Heap, place: Place) -> Option<Cell<'_>> {
    // SAFETY: it is put into the table of this very heap, which nothing is taken out of.
    heap.inner().cells.cell(place, || unsafe { CellHeap::of(heap) })
}

/// A second pointer to the heap, which counts nothing. Whoever has it may use it as long as the heap is there.
fn second_pointer(heap: &Heap) -> ManuallyDrop<Heap> {
    let pointer = std::ptr::from_ref(heap).cast::<ManuallyDrop<Heap>>();
    // SAFETY: the pointer comes from a reference, and `ManuallyDrop<Heap>` has the layout of `Heap`, which may lie in two
    // places: it is a pointer, and only one of the two is ever dropped.
    unsafe { pointer.read() }
}

impl Clone for BlockHandle {
    fn clone(&self) -> Self {
        self.cell().clone_handle();
        Self { words: self.words }
    }
}

impl Drop for BlockHandle {
    fn drop(&mut self) {
        // In a process that was forked by others this counts in a copy, for nobody.
        if self.cell().release_beside_others() {
            return;
        }
        // Nobody is waited for there: somebody may have been counting at the moment of the fork.
        if !self.heap().is_owning_process() {
            return;
        }
        let mut heap = second_pointer(self.heap());
        let cell = self.cell();
        let released = cell.release(|| cell.place().into_iter().for_each(|place| heap.let_go(place)));
        if released == Transition::FirstOrLast && !heap.lasts_forever() {
            // SAFETY: nothing of `self` or `heap` is used after this. The reference is the cell's, whose count has come to zero by
            // us: the handle that was counted when there was none brought it, because the heap did not last forever then either.
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
    fn two_handles_that_were_counted_at_once_are_given_back_as_two() {
        let heap = heap();
        let block = heap.allocate_block(100).unwrap();
        let named = Reference::unpack(block.reference(Grant::Frozen)).unwrap();
        let (one, other) = heap.hold_twice(named).unwrap();
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
