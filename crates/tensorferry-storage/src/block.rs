//! A block that this process holds, and what can be done with it.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::BlockId;
use crate::handle::BlockHandle;
use crate::header::{Header, SUSPECT};
use crate::heap::Heap;
use crate::reference::{Grant, Reference};

/// One of this process's handles on a block.
#[derive(Clone)]
pub(crate) struct Block {
    /// INVARIANT: while this handle lives, this member's bit is set in the block's holder word, so the block
    /// is not reused; and its data range is open. Who lends the data looks once more whether it is: the
    /// length stands in shared memory.
    handle: BlockHandle,
}

/// Who can reach a block, apart from one handle on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holding {
    /// Nobody.
    Sole,
    /// Perhaps the reader of a message of a dead process.
    Suspect,
    /// Somebody.
    Shared,
}

impl Block {
    /// Wraps a handle. Its range is open.
    #[inline]
    pub(crate) fn new(handle: BlockHandle) -> Self {
        Self { handle }
    }

    #[inline]
    pub(crate) fn heap(&self) -> &Heap {
        self.handle.heap()
    }

    #[cfg(test)]
    pub(crate) fn handle(&self) -> &BlockHandle {
        &self.handle
    }

    /// Where its header lies, as an offset of the data area.
    #[inline]
    pub(crate) fn header_offset_bytes(&self) -> usize {
        self.handle.cell().header_offset_bytes()
    }

    #[inline]
    pub(crate) fn len_bytes(&self) -> usize {
        self.handle.cell().len_bytes()
    }

    #[inline]
    pub(crate) fn id(&self) -> BlockId {
        BlockId(self.header_offset_bytes() as u64)
    }

    /// Whether both are the same block of the same domain.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.id() == other.id() && self.heap().is_same_domain(other.heap())
    }

    /// Where the data begins, as an offset of the data area.
    #[cfg(test)]
    pub(crate) fn data_offset_bytes(&self) -> usize {
        self.handle.cell().data_offset_bytes()
    }

    #[inline]
    pub(crate) fn header(&self) -> Option<Header<'_>> {
        self.handle.cell().header()
    }

    /// The address of the data, aligned to 64 bytes, and its length in bytes. The range was opened before
    /// this handle was made, so it is always there. The mapping checks again, because a slice is made of it.
    ///
    /// `None` in a child of a fork(2) that is not this library's: no holder bit stands for that process.
    #[inline]
    pub(crate) fn range(&self) -> Option<(NonNull<u8>, usize)> {
        let (heap, cell) = (self.heap(), self.handle.cell());
        if !heap.is_owning_process() {
            return None;
        }
        Some((heap.data().bytes(cell.data_offset_bytes(), cell.len_bytes())?, cell.len_bytes()))
    }

    /// The data as words. The last word may reach beyond the length, into the block's own padding.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        if self.heap().is_owning_process() { self.words_of_owner() } else { &[] }
    }

    /// As [`Block::words`]; the caller has checked that this is the process that holds the block.
    #[inline]
    pub(crate) fn words_of_owner(&self) -> &[AtomicU64] {
        let cell = self.handle.cell();
        let n_words = cell.len_bytes().div_ceil(8);
        self.heap().data().words(cell.data_offset_bytes(), n_words).unwrap_or(&[])
    }

    /// As [`Block::words_of_owner`], with the 32-bit words for futexes that lie in it from word `at` on.
    #[inline]
    pub(crate) fn words_with_futexes(
        &self,
        at: usize,
        n_words32: usize,
    ) -> Option<(&[AtomicU64], &[AtomicU32])> {
        let cell = self.handle.cell();
        let n_words = cell.len_bytes().div_ceil(8);
        self.heap().data().words_with_words32(cell.data_offset_bytes(), n_words, at, n_words32)
    }

    /// The reference by which a message names this block.
    #[inline]
    pub(crate) fn reference(&self, grant: Grant) -> u64 {
        let cell = self.handle.cell();
        Reference { header_offset_bytes: cell.header_offset_bytes(), generation: cell.generation(), grant }
            .pack()
    }

    /// Whether nothing else can reach the block: no other member, no message in flight, no other handle here.
    pub(crate) fn is_sole(&self) -> bool {
        let holding = self.holding();
        if holding == Holding::Suspect {
            // Perhaps no message of the dead names it any more. A scan finds out, and the next call has the
            // answer.
            self.heap().inner().ask_for_scan();
        }
        holding == Holding::Sole
    }

    /// As [`Block::is_sole`], and asks for no scan.
    pub(crate) fn holding(&self) -> Holding {
        if !self.heap().is_owning_process() {
            return Holding::Shared;
        }
        let me = self.heap().me().bit();
        let Some(header) = self.header() else { return Holding::Shared };
        // With no other handle here, and no way for one to be counted meanwhile, another process could reach
        // the block only through a holder bit of its own or of a sender.
        let mut holders = 0;
        let is_sole = self.handle.cell().is_single_and(|| {
            holders = header.holders().load(Ordering::SeqCst);
            holders == me
        });
        match holders & !me {
            _ if is_sole => Holding::Sole,
            SUSPECT => Holding::Suspect,
            _ => Holding::Shared,
        }
    }

    /// Whether a living process has it, apart from this handle.
    pub(crate) fn is_held_by_others(&self) -> bool {
        let me = self.heap().me().bit();
        let is_sole = |header: Header<'_>| {
            let others = || header.holders().load(Ordering::SeqCst) & !(me | SUSPECT);
            self.handle.cell().is_single_and(|| others() == 0)
        };
        !self.header().is_some_and(is_sole)
    }

    /// Whether there is one other handle in this process. This is only a hint.
    pub(crate) fn looks_like_one_of_two(&self) -> bool {
        self.handle.cell().n_handles() == 2
    }

    /// Whether there are more than two handles in this process. This is only a hint.
    #[inline]
    pub(crate) fn looks_kept(&self) -> bool {
        self.handle.cell().n_handles() > 2
    }

    /// Announces that this handle will be dropped soon. If it is the only one here, that changes the header,
    /// so its line is prefetched. With other handles the line stays where it is: perhaps a receiver is about
    /// to write it.
    #[inline]
    pub(crate) fn expect_drop(&self) {
        if self.handle.cell().n_handles() == 1
            && let Some(header) = self.header()
        {
            header.prefetch();
        }
    }

    pub(crate) fn ownership_epoch(&self) -> u64 {
        self.handle.cell().ownership_epoch()
    }

    pub(crate) fn change_ownership_epoch(&self, from: u64, to: u64) -> bool {
        self.handle.cell().change_ownership_epoch(from, to)
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("id", &self.id().0)
            .field("len_bytes", &self.len_bytes())
            .finish_non_exhaustive()
    }
}
