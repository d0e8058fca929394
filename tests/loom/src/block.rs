//! A stand-in for a handle on a block.

use std::sync::Arc;

use crate::atomic::{AtomicU32, AtomicU64};
use crate::header::Header;
use crate::heap::{Heap, Place, RING};
use crate::reference::BlockId;

/// This process's handles on one block together: the last one lets go of it.
#[derive(Debug)]
struct Held {
    heap: Heap,
    index: usize,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.heap.let_go(self.index);
    }
}

/// One handle.
#[derive(Clone, Debug)]
pub(crate) struct Block {
    heap: Heap,
    place: Place,
    /// `None` for the ring, which everybody holds all the time.
    _held: Option<Arc<Held>>,
}

impl Block {
    pub(crate) fn of_ring(heap: &Heap) -> Self {
        Self { heap: heap.clone(), place: RING, _held: None }
    }

    /// A hold whose bit is set.
    pub(crate) fn counted(heap: &Heap, index: usize) -> Self {
        let held = Arc::new(Held { heap: heap.clone(), index });
        let place = Place { index };
        Self { heap: heap.clone(), place, _held: Some(held) }
    }

    pub(crate) fn heap(&self) -> &Heap {
        &self.heap
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    pub(crate) fn header(&self) -> Option<Header<'_>> {
        self.heap.header(self.place)
    }

    pub(crate) fn id(&self) -> BlockId {
        BlockId(self.place.index as u64)
    }

    /// Those of the ring: nobody asks for others.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.words_of_owner()
    }

    pub(crate) fn words_of_owner(&self) -> &[AtomicU64] {
        self.heap.world().ring()
    }

    /// With the first one and the last one of those that a ring asks for.
    pub(crate) fn words_with_futexes(&self, _at: usize, _n: usize) -> Option<(&[AtomicU64], &[AtomicU32])> {
        let world = self.heap.world();
        Some((world.ring(), world.futexes()))
    }
}
