//! Prefetching a block that a message names, before the message is taken.

use super::Heap;
use crate::atomic::{prefetch_address_to_read, prefetch_address_to_write};
use crate::class::LINE_BYTES;
use crate::reference::{GENERATION_MASK, Reference};

/// How many lines of the data are asked for. The processor's own prefetcher goes on from there.
const MAX_LINES: usize = 8;

impl Heap {
    /// Starts to bring the header and the first lines of the data of the block that this reference names to
    /// this processor. Returns whether there was something to bring: not if the block is the one that this
    /// process had here last, nor if this process knows nothing about it.
    ///
    /// The reference may be anything. The addresses are looked up in what this process knows and checked, and
    /// prefetching an address that is wrong changes nothing.
    #[inline]
    pub(crate) fn prefetch_fresh(&self, word: u64) -> bool {
        let Some(reference) = Reference::unpack(word) else { return false };
        let Some(cell) = self.inner().cells.known(reference.header_offset_bytes) else { return false };
        if cell.generation() & GENERATION_MASK == reference.generation {
            return false;
        }
        if let Some(header) = self.data().bytes(reference.header_offset_bytes, LINE_BYTES) {
            prefetch_address_to_write(header.addr().get());
        }
        // Blocks in one place have one size, so the length is about that of the last one here.
        let n_lines = cell.len_bytes().div_ceil(LINE_BYTES).min(MAX_LINES);
        if let Some(data) = self.data().bytes(cell.data_offset_bytes(), n_lines * LINE_BYTES) {
            (0..n_lines).for_each(|line| prefetch_address_to_read(data.addr().get() + line * LINE_BYTES));
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use tensorferry_domain::Domain;

    use super::*;
    use crate::reference::Grant;

    #[test]
    fn what_was_here_last_is_not_asked_for_and_what_nobody_knows_neither() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let block = heap.allocate_block(100).unwrap();
        let word = block.reference(Grant::Frozen);
        let named = Reference::unpack(word).unwrap();
        assert!(!heap.prefetch_fresh(word));
        let later = Reference { generation: (named.generation + 1) & GENERATION_MASK, ..named };
        assert!(heap.prefetch_fresh(later.pack()));
        let elsewhere = Reference { header_offset_bytes: 32 << 20, ..later };
        assert!(!heap.prefetch_fresh(elsewhere.pack()));
        for garbage in [0, u64::MAX, 0x1234_5678_9abc_def1] {
            assert!(!heap.prefetch_fresh(garbage));
        }
    }
}
