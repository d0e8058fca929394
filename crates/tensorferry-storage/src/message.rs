//! Outgoing and incoming messages: a payload of bytes beside a table of handles.
//!
//! A message names its blocks in a table that every member can read, never only inside serialised bytes. The
//! same table stands in a slot, in the block of a message that is too long for its slot, and in a parcel.

mod incoming;
mod outgoing;

use std::sync::atomic::{AtomicU64, Ordering};

use crate::StorageError;
use crate::block::Block;
use crate::header::Kind;
use crate::heap::Heap;

pub(crate) use incoming::accept;
pub use incoming::{IncomingHandle, IncomingHandles, IncomingMessage};
pub(crate) use outgoing::Outgoing;
pub use outgoing::{Contents, OutgoingHandle, OutgoingHandles};

/// The most handles of one message. A sender with more gets an error, and a receiver treats a table with more
/// as garbage.
pub const MAX_HANDLES: usize = 65_535;

/// Word indexes in the block of a message that did not fit into a slot, or in a parcel's block.
pub(crate) mod table {
    pub(crate) const N_REFERENCES: usize = 0;
    pub(crate) const PAYLOAD_LEN_BYTES: usize = 1;
    /// The references, then the payload.
    pub(crate) const ROOM: usize = 2;
}

/// Writes a long message into a block of its own.
pub(crate) fn spill(
    heap: &Heap,
    kind: Kind,
    payload: &[u8],
    handles: &[OutgoingHandle],
) -> Result<Block, StorageError> {
    let n_words = table::ROOM + handles.len() + payload.len().div_ceil(8);
    let block = heap.allocate_block(n_words * 8)?;
    let (head, rest) = block.words().split_at(table::ROOM.min(block.words().len()));
    for (index, value) in
        [(table::N_REFERENCES, handles.len() as u64), (table::PAYLOAD_LEN_BYTES, payload.len() as u64)]
    {
        if let Some(word) = head.get(index) {
            word.store(value, Ordering::Relaxed);
        }
    }
    let (references, words) = rest.split_at(handles.len().min(rest.len()));
    for (word, handle) in references.iter().zip(handles) {
        word.store(handle.reference(), Ordering::Relaxed);
    }
    store_payload(words, payload);
    if let Some(header) = block.header() {
        header.set_kind(kind);
    }
    Ok(block)
}

/// Reads a message from its own block: a private copy of the payload, and every handle held.
pub(crate) fn unspill(
    heap: &Heap,
    block: &Block,
    message: &mut IncomingMessage,
) -> Result<(), Box<StorageError>> {
    let bad = |what| Box::new(StorageError::BadReference { reference: block.id().0, what });
    let (references, payload_len, payload) =
        table_of(block).ok_or_else(|| bad("its table is longer than its block"))?;
    message.handles.reserve_exact(references.len());
    for word in references {
        if accept(heap, word.load(Ordering::Relaxed), &mut message.handles)?.is_some() {
            return Err(bad("a message inside a message"));
        }
    }
    fill_payload(message, payload, payload_len);
    Ok(())
}

/// Copies `payload_len_bytes` bytes out of shared words into the message.
#[inline(always)]
pub(crate) fn fill_payload(message: &mut IncomingMessage, words: Words<'_>, payload_len_bytes: usize) {
    let words = words.iter().map(|word| word.load(Ordering::Relaxed).to_le_bytes());
    message.payload.fill(payload_len_bytes, words);
}

pub(crate) type Words<'a> = &'a [AtomicU64];

/// The parts of a message in its own block: the references, the length of the payload in bytes, the words of
/// the payload. `None` when the numbers do not fit the block.
pub(crate) fn table_of(block: &Block) -> Option<(Words<'_>, usize, Words<'_>)> {
    let words = block.words();
    let number = |index: usize| usize::try_from(words.get(index)?.load(Ordering::Relaxed)).ok();
    let (n_handles, payload_len) = (number(table::N_REFERENCES)?, number(table::PAYLOAD_LEN_BYTES)?);
    if n_handles > MAX_HANDLES {
        return None;
    }
    let payload_at = table::ROOM.checked_add(n_handles)?;
    let payload_end = payload_at.checked_add(payload_len.div_ceil(8))?;
    Some((words.get(table::ROOM..payload_at)?, payload_len, words.get(payload_at..payload_end)?))
}

/// The references in a message's own block, as a scan after a death reads them.
pub(crate) fn references_in(block: &Block) -> Vec<u64> {
    let load = |word: &AtomicU64| word.load(Ordering::Acquire);
    table_of(block).map(|(references, ..)| references.iter().map(load).collect()).unwrap_or_default()
}

/// Writes the payload into as many words as it needs; the last one is padded with zeroes.
#[inline]
pub(crate) fn store_payload(words: Words<'_>, payload: &[u8]) {
    let (whole, rest) = payload.as_chunks::<8>();
    for (word, chunk) in words.iter().zip(whole) {
        word.store(u64::from_le_bytes(*chunk), Ordering::Relaxed);
    }
    if let Some(word) = words.get(whole.len())
        && !rest.is_empty()
    {
        let last = match payload.last_chunk::<8>() {
            // Faster than byte by byte: load the last eight bytes and shift out those before the rest.
            Some(end) => u64::from_le_bytes(*end) >> (64 - 8 * rest.len()),
            None => rest.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        word.store(last, Ordering::Relaxed);
    }
}

/// Checks that a table has room for this many handles.
///
/// # Errors
/// [`StorageError::TooManyBlocks`].
pub(crate) fn check_n_handles(handles: &[OutgoingHandle]) -> Result<(), StorageError> {
    match handles.len() {
        ..=MAX_HANDLES => Ok(()),
        n_blocks => Err(StorageError::TooManyBlocks { n_blocks, limit: MAX_HANDLES }),
    }
}

/// Whether every handle belongs to this domain.
#[inline(always)]
pub(crate) fn all_in_domain(heap: &Heap, handles: &[OutgoingHandle]) -> bool {
    let is_ours = |handle: &OutgoingHandle| handle.heap().is_some_and(|theirs| theirs.is_same_domain(heap));
    match handles {
        // The usual case, without a loop.
        [one] => is_ours(one),
        all => all.iter().all(is_ours),
    }
}

/// Gives exclusive blocks back to where they came from.
pub(crate) fn take_back(handles: OutgoingHandles) {
    handles.into_iter().for_each(OutgoingHandle::take_back);
}

#[cfg(test)]
mod tests {
    use tensorferry_domain::Domain;

    use super::*;
    use crate::{Consumers, Deadline, Ring};

    #[test]
    fn a_fork_leaves_the_parent_what_is_exclusive_in_a_message_that_was_not_read() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = Ring::create(&heap, 1, 0).unwrap();
        let block = heap.allocate(8).unwrap();
        ring.put(b"", OutgoingHandle::exclusive(&block).into_iter().collect(), Deadline::Now).unwrap();
        let mut message = ring.take(Consumers::Multi, Deadline::Now).unwrap();
        // What a process that was forked does with its copies.
        heap.inner().cells.revoke_all_exclusive();
        let mut copy = message.handles[0].take_exclusive().unwrap();
        assert!(copy.is_moved());
        assert_eq!(copy.bytes(), []);
    }
}
