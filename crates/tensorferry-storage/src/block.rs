//! A handle on one block: what this process holds.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::BlockId;
use crate::header::SUSPECT;
use crate::heap::Heap;
use crate::place::Place;
use crate::reference::{Grant, Reference};

/// One of this process's handles on a block. Cloning and dropping count privately; only the first and the last
/// handle of a process touch the block's holder word.
pub(crate) struct Block {
    /// INVARIANT: while this handle lives, this member's bit is set in the block's holder word, so the block is
    /// not reused; and its data range is open.
    heap: Heap,
    place: Place,
    len_bytes: usize,
}

impl Block {
    /// Wraps a handle that is counted already. The range is open.
    pub(crate) fn from_counted(heap: Heap, place: Place, len_bytes: usize) -> Self {
        Self { heap, place, len_bytes }
    }

    pub(crate) fn heap(&self) -> &Heap {
        &self.heap
    }

    pub(crate) fn place(&self) -> Place {
        self.place
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    pub(crate) fn id(&self) -> BlockId {
        BlockId(self.place.header_offset_bytes as u64)
    }

    /// The address of the data, aligned to 64 bytes, and its length. The range was opened before this handle was made, so it is always
    /// there; the mapping checks again, because a slice is made of it.
    ///
    /// `None` in a process that was forked from the holder by others than us: nobody holds the block for it.
    pub(crate) fn range(&self) -> Option<(NonNull<u8>, usize)> {
        if !self.heap.is_home() {
            return None;
        }
        Some((self.heap.data().bytes(self.place.data_offset_bytes, self.len_bytes)?, self.len_bytes))
    }

    /// The data as words, the last one perhaps reaching over the end into the block's own padding.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        if !self.heap.is_home() {
            return &[];
        }
        let n_words = self.len_bytes.div_ceil(8);
        self.heap.data().words(self.place.data_offset_bytes, n_words).unwrap_or(&[])
    }

    /// How another process is told about this block.
    pub(crate) fn reference(&self, grant: Grant) -> u64 {
        let generation = self.heap.header(self.place).map_or(0, |header| header.generation());
        Reference { header_offset_bytes: self.place.header_offset_bytes, generation, grant }.pack()
    }

    /// Whether nobody else can reach the block: no other member, no message in flight, no other handle here.
    pub(crate) fn is_sole(&self) -> bool {
        if !self.heap.is_home() {
            return false;
        }
        let me = self.heap.me().bit();
        let Some(header) = self.heap.header(self.place) else { return false };
        // With no other handle here, and no way for one to be counted meanwhile, another process could reach the block
        // only through a holder bit of its own or of a sender.
        let mut holders = 0;
        let is_sole = self.heap.cell(self.place).is_single_and(|| {
            holders = header.holders().load(Ordering::SeqCst);
            holders == me
        });
        if holders & !me == SUSPECT {
            // Perhaps nothing of the dead names it any more; the next time it is known.
            self.heap.inner().ask_for_scan();
        }
        is_sole
    }

    pub(crate) fn tenure(&self) -> u64 {
        self.heap.cell(self.place).tenure()
    }

    pub(crate) fn change_tenure(&self, from: u64, to: u64) -> bool {
        self.heap.cell(self.place).change_tenure(from, to)
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("id", &self.id().0)
            .field("len_bytes", &self.len_bytes)
            .finish_non_exhaustive()
    }
}

impl Clone for Block {
    fn clone(&self) -> Self {
        self.heap.cell(self.place).clone_handle();
        Self { heap: self.heap.clone(), place: self.place, len_bytes: self.len_bytes }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // Not even counted in a process that was forked by others: somebody may have been counting at that moment.
        if self.heap.is_home() {
            self.heap.cell(self.place).release(|| self.heap.let_go(self.place));
        }
    }
}
