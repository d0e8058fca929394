//! Bundles: a block that names many others. It travels as one handle, however many there are.
//!
//! Whoever holds the bundle's block may read what it names, without holding any of it. The process that made
//! the bundle holds all of it until nobody else holds the bundle's block any more; it keeps a handle of its
//! own on that block, and looks at the holders from time to time. If that process dies, the blocks are
//! suspect, and a scan finds them named by a bundle that somebody holds (`sweep.rs`). So to receive a bundle
//! of a thousand tensors changes one header and not a thousand.
//!
//! A bundle names frozen and shared blocks only. It names no other bundle: a scan reads all bundles in one
//! pass, after the rings, and would not see that a process takes one bundle out of another meanwhile.
//! (`tests/model/tests/model/bundling.rs` explores all of this.)

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::access::lend_named;
use crate::block::{Block, Holding};
use crate::header::Kind;
use crate::heap::Heap;
use crate::message::{
    IncomingHandle, IncomingMessage, Outgoing, OutgoingHandle, OutgoingHandles, Words, accept, all_in_domain,
    check_n_handles, fill_payload, spill, table_of, take_back,
};
use crate::payload::Payload;
use crate::{BlockId, FrozenBlock, SharedBlock, StorageError};

/// One handle on a bundle. A clone adds one to a private count.
///
/// The blocks of the bundle live as long as any process has a handle on it. A block that was taken out of it
/// ([`Bundle::frozen`], [`Bundle::shared`]) lives by itself.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// Empty only while this is being dropped.
    block: Option<Block>,
}

impl Bundle {
    /// Makes a bundle of these blocks, with a payload that says what they are. The order of the handles
    /// stays.
    ///
    /// # Errors
    /// [`StorageError::Domain`] when there is no memory for it, [`StorageError::TooManyBlocks`] for more than
    /// 65,535 handles, [`StorageError::NotForBundles`] for a handle that is not frozen and not shared,
    /// [`StorageError::ForeignDomain`] for a block of another domain. What the handles would have given away
    /// is given back to where it came from.
    pub fn pack(heap: &Heap, payload: &[u8], handles: OutgoingHandles) -> Result<Self, StorageError> {
        match Self::spilled(heap, payload, &handles) {
            Ok(block) => {
                let inner = heap.inner();
                inner.bundles.keep(block.clone(), handles);
                // The service thread has to check whether others still have it.
                inner.memory.ensure_service_started();
                Ok(Self { block: Some(block) })
            }
            Err(error) => {
                take_back(handles);
                Err(error)
            }
        }
    }

    fn spilled(heap: &Heap, payload: &[u8], handles: &OutgoingHandles) -> Result<Block, StorageError> {
        heap.check_owning_process()?;
        check_n_handles(handles)?;
        let fits = |handle: &OutgoingHandle| matches!(handle.0, Outgoing::Frozen(_) | Outgoing::Shared(_));
        if !handles.iter().all(fits) {
            return Err(StorageError::NotForBundles);
        }
        if !all_in_domain(heap, handles) {
            return Err(StorageError::ForeignDomain);
        }
        spill(heap, Kind::Bundle, payload, handles)
    }

    /// The bundle that lies in this block, which was granted by a message.
    pub(crate) fn received(block: Block) -> Self {
        Self { block: Some(block) }
    }

    pub(crate) fn block(&self) -> Option<&Block> {
        self.block.as_ref()
    }

    /// Which block the bundle itself lies in.
    #[must_use]
    pub fn id(&self) -> BlockId {
        self.block().map_or_else(BlockId::default, Block::id)
    }

    /// The heap that it lies in.
    #[must_use]
    pub fn heap(&self) -> Option<&Heap> {
        self.block().map(Block::heap)
    }

    /// How many blocks it has. 0 in a process that was forked by other means than this library's.
    #[must_use]
    pub fn n_blocks(&self) -> usize {
        self.table().map_or(0, |(references, ..)| references.len())
    }

    /// The length of the payload in bytes.
    #[must_use]
    pub fn payload_len_bytes(&self) -> usize {
        self.table().map_or(0, |(_, len_bytes, _)| len_bytes)
    }

    /// The first words of the payload, little-endian; zeroes where it is shorter.
    #[must_use]
    pub fn payload_head<const N: usize>(&self) -> [u64; N] {
        let words = self.table().map_or(&[][..], |(.., words)| words);
        std::array::from_fn(|at| words.get(at).map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    /// A private copy of the payload. The bytes may be anything: decode them as untrusted input.
    #[must_use]
    pub fn payload(&self) -> Payload {
        let mut message = IncomingMessage::default();
        if let Some((_, len_bytes, words)) = self.table() {
            fill_payload(&mut message, words, len_bytes);
        }
        message.payload
    }

    /// A handle on the frozen block with this number, which outlives the bundle.
    ///
    /// # Errors
    /// [`StorageError::NotInBundle`] when there is no such block, or it is not frozen; [`StorageError`] when
    /// the bundle was damaged or the kernel does not let this process read the memory.
    pub fn frozen(&self, index: usize) -> Result<FrozenBlock, StorageError> {
        let block = self.hold(index)?.and_then(|mut handle| handle.take_frozen());
        block.ok_or_else(|| self.lacks(index, "frozen block"))
    }

    /// A handle on the shared block with this number, which outlives the bundle.
    ///
    /// # Errors
    /// As [`Bundle::frozen`].
    pub fn shared(&self, index: usize) -> Result<SharedBlock, StorageError> {
        match self.hold(index)? {
            Some(IncomingHandle::Shared(block)) => Ok(block),
            _ => Err(self.lacks(index, "shared block")),
        }
    }

    /// The bytes of the frozen block with this number. Takes no handle on the block, and changes nothing in
    /// shared memory.
    ///
    /// # Errors
    /// As [`Bundle::frozen`].
    pub fn bytes(&self, index: usize) -> Result<&[u8], StorageError> {
        self.blocks().bytes(index)
    }

    /// The blocks, to read many of them.
    #[must_use]
    pub fn blocks(&self) -> BundleBlocks<'_> {
        BundleBlocks { bundle: self, references: self.table().map_or(&[], |(references, ..)| references) }
    }

    fn hold(&self, index: usize) -> Result<Option<IncomingHandle>, StorageError> {
        let (Some(heap), Some(word)) = (self.heap(), self.reference(index)) else { return Ok(None) };
        let mut handles = SmallVec::new();
        accept(heap, word, &mut handles).map_err(|error| *error)?;
        Ok(handles.pop())
    }

    fn reference(&self, index: usize) -> Option<u64> {
        let (references, ..) = self.table()?;
        references.get(index).map(|word: &AtomicU64| word.load(Ordering::Relaxed))
    }

    fn table(&self) -> Option<(Words<'_>, usize, Words<'_>)> {
        table_of(self.block()?)
    }

    fn lacks(&self, index: usize, wanted: &'static str) -> StorageError {
        StorageError::NotInBundle { index, wanted, n_blocks: self.n_blocks() }
    }
}

/// The blocks of a bundle, whose table was looked up once.
#[derive(Clone, Copy, Debug)]
pub struct BundleBlocks<'a> {
    bundle: &'a Bundle,
    references: Words<'a>,
}

impl<'a> BundleBlocks<'a> {
    /// As [`Bundle::bytes`].
    ///
    /// # Errors
    /// As there.
    pub fn bytes(self, index: usize) -> Result<&'a [u8], StorageError> {
        let lacks = || self.bundle.lacks(index, "frozen block");
        let (Some(block), Some(word)) = (self.bundle.block(), self.references.get(index)) else {
            return Err(lacks());
        };
        // The words were lent before. In a child of a fork(2) that is not this library's they are not to be
        // read: no holder bit stands for that process.
        block.heap().check_owning_process()?;
        lend_named(block, word.load(Ordering::Relaxed))?.ok_or_else(lacks)
    }
}

impl Drop for Bundle {
    fn drop(&mut self) {
        let Some(block) = self.block.take() else { return };
        // Apart from the keeper's own handle, only other processes can still have the bundle.
        let may_be_over = block.looks_like_one_of_two() && block.heap().is_owning_process();
        let of = may_be_over.then(|| (block.heap().clone(), block.id()));
        drop(block);
        if let Some((heap, id)) = of {
            heap.inner().bundles.retire_one(id);
        }
    }
}

/// The number of bundles at which an allocation looks.
const LOOKS: usize = 16;

/// The bundles that this process has made, with handles on all that they name.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    kept: Mutex<Keeping>,
}

#[derive(Debug, Default)]
struct Keeping {
    bundles: HashMap<BlockId, Kept>,
    /// All of them, and some that are gone or stand here twice, in the order in which they are looked at.
    /// Never many more than there are.
    turns: VecDeque<BlockId>,
}

impl Keeping {
    fn renew_turns(&mut self) {
        self.turns.clear();
        self.turns.extend(self.bundles.keys());
    }
}

#[derive(Debug)]
struct Kept {
    /// Declared first, so that the bundle goes before what it names.
    bundle: Block,
    _handles: OutgoingHandles,
}

impl Kept {
    fn is_over(&self) -> bool {
        self.bundle.holding() == Holding::Sole
    }
}

impl Bundles {
    fn keep(&self, bundle: Block, handles: OutgoingHandles) {
        let mut kept = self.kept();
        let id = bundle.id();
        kept.bundles.insert(id, Kept { bundle, _handles: handles });
        kept.turns.push_back(id);
        if kept.turns.len() > 2 * kept.bundles.len() + LOOKS {
            kept.renew_turns();
        }
    }

    pub(crate) fn any(&self) -> bool {
        !self.kept().bundles.is_empty()
    }

    /// Lets go of the bundles that nobody else has. Looks at all of them.
    pub(crate) fn retire(&self) {
        let mut kept = self.kept();
        let over: Vec<_> = kept.bundles.extract_if(|_, kept| kept.is_over()).collect();
        kept.renew_turns();
        drop(kept);
        // Dropping a block may need the arena, so not under the lock.
        drop(over);
    }

    /// As [`Bundles::retire`], but looks only at a few, each time at others. For an allocation, whose time
    /// must not grow with the number of bundles that others hold.
    pub(crate) fn retire_some(&self) {
        let mut kept = self.kept();
        let mut over = Vec::new();
        for _ in 0..LOOKS.min(kept.turns.len()) {
            let Some(id) = kept.turns.pop_front() else { break };
            match kept.bundles.get(&id).map(Kept::is_over) {
                Some(true) => over.extend(kept.bundles.remove(&id)),
                Some(false) => kept.turns.push_back(id),
                None => {}
            }
        }
        drop(kept);
        drop(over);
    }

    /// As [`Bundles::retire`], but looks only at this one.
    fn retire_one(&self, id: BlockId) {
        let mut kept = self.kept();
        let is_over = kept.bundles.get(&id).is_some_and(Kept::is_over);
        let over = if is_over { kept.bundles.remove(&id) } else { None };
        drop(kept);
        drop(over);
    }

    /// Whether one of them is suspect and nobody else has it: only a scan can tell whether a message of a
    /// dead process still names it.
    pub(crate) fn any_suspect(&self) -> bool {
        self.kept().bundles.values().any(|kept| kept.bundle.holding() == Holding::Suspect)
    }

    /// In a process that was forked: takes everything, to be dropped here. The bundles are the parent's to
    /// keep; this process holds those that it has handles on, as any other does.
    pub(crate) fn take_all(&self) -> impl Sized + use<> {
        std::mem::take(&mut *self.kept())
    }

    fn kept(&self) -> MutexGuard<'_, Keeping> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tensorferry_domain::Domain;

    use super::*;

    #[test]
    fn bundles_that_come_and_go_leave_no_turns() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let kept = || Bundle::pack(&heap, b"", OutgoingHandles::new()).unwrap();
        // The service thread waits meanwhile.
        let _one_at_a_time = heap.inner().collecting.lock().unwrap();
        for _ in 0..1_000 {
            drop(kept());
        }
        let n_turns = || heap.inner().bundles.kept().turns.len();
        assert!(n_turns() <= 2 + LOOKS, "{}", n_turns());
        let _stays = kept();
        heap.inner().bundles.retire();
        assert_eq!(n_turns(), 1);
    }
}
