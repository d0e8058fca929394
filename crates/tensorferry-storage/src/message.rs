//! Outgoing and incoming messages: a payload of bytes beside a table of handles.
//!
//! A message names its blocks in a table that every member can read, never only inside serialised bytes. The
//! same table stands in a slot, in the block of a message that is too long for its slot, and in a parcel.

use std::hint::cold_path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::access::{Claim, ExclusiveBlock, FrozenBlock, OfferedBlock, SharedBlock};
use crate::attachments::Attachment;
use crate::block::Block;
use crate::bundle::Bundle;
use crate::header::Kind;
use crate::heap::Heap;
use crate::monitor::{Monitor, ReceivedMonitor};
use crate::payload::Payload;
use crate::reference::{Grant, Reference};
use crate::{BlockId, StorageError};

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

/// One handle of an outgoing message.
#[derive(Debug)]
pub struct OutgoingHandle(pub(crate) Outgoing);

#[derive(Debug)]
pub(crate) enum Outgoing {
    Frozen(FrozenBlock),
    Shared(SharedBlock),
    Exclusive(Box<Claim>),
    Ring(Box<Attachment>),
    SoleRing(Box<SoleRing>),
    Bundle(Bundle),
    Spill(Block),
}

/// A ring's end that only one holder may have. Boxed, so that `Outgoing` stays small: handles are moved
/// often, and hardly any is one of these.
#[derive(Debug)]
pub(crate) struct SoleRing {
    attachment: Attachment,
    /// Set once the end was given away.
    moved: Arc<AtomicBool>,
}

impl OutgoingHandle {
    /// Lets the receiver read the block. `None` for an empty block, which needs no handle.
    #[must_use]
    #[inline]
    pub fn frozen(block: &FrozenBlock) -> Option<Self> {
        block.block()?;
        Some(Self(Outgoing::Frozen(block.clone())))
    }

    /// Lets the receiver read and write the block too. `None` for an empty block.
    #[must_use]
    pub fn shared(block: &SharedBlock) -> Option<Self> {
        block.block()?;
        Some(Self(Outgoing::Shared(block.clone())))
    }

    /// Lets the receiver use a monitor.
    #[must_use]
    pub fn monitor(monitor: &Monitor) -> Self {
        Self(Outgoing::Shared(monitor.block().clone()))
    }

    /// Gives the block away: from now on `block` is empty, unless [`OutgoingHandle::take_back`] is called.
    /// `None` when it is empty already.
    #[must_use]
    pub fn exclusive(block: &ExclusiveBlock) -> Option<Self> {
        Some(Self(Outgoing::Exclusive(Box::new(block.claim()?))))
    }

    /// Lets the receiver use a ring in the role of this attachment.
    #[must_use]
    pub fn ring(attachment: &Attachment) -> Self {
        Self(Outgoing::Ring(Box::new(attachment.in_transit())))
    }

    /// As [`OutgoingHandle::ring`], for an end that only one holder may have. `moved` becomes true, and false
    /// again if [`OutgoingHandle::take_back`] is called. `None` when `moved` is true already.
    #[must_use]
    pub fn sole_ring(attachment: &Attachment, moved: &Arc<AtomicBool>) -> Option<Self> {
        let first = !moved.swap(true, Ordering::SeqCst);
        let end = || SoleRing { attachment: attachment.in_transit(), moved: Arc::clone(moved) };
        first.then(|| Self(Outgoing::SoleRing(Box::new(end()))))
    }

    /// Lets the receiver use a bundle.
    #[must_use]
    pub fn bundle(bundle: &Bundle) -> Self {
        Self(Outgoing::Bundle(bundle.clone()))
    }

    /// Which block it is.
    #[must_use]
    #[inline]
    pub fn id(&self) -> BlockId {
        self.block().map_or_else(BlockId::default, Block::id)
    }

    /// Whether both grant the same on the same block, so that one entry serves for both.
    #[must_use]
    pub fn is_equivalent_to(&self, other: &Self) -> bool {
        // Most handles differ in their block already, which needs no look at shared memory.
        self.block().zip(other.block()).is_some_and(|(one, two)| {
            one.id() == two.id()
                && self.reference() == other.reference()
                && one.heap().me() == two.heap().me()
                && one.heap().is_same_domain(two.heap())
        })
    }

    /// A handle that grants the same, for another message. `None` for what only one receiver can have
    /// ([`OutgoingHandle::is_exclusive`]).
    #[must_use]
    pub fn try_clone(&self) -> Option<Self> {
        Some(Self(match &self.0 {
            Outgoing::Frozen(block) => Outgoing::Frozen(block.clone()),
            Outgoing::Shared(block) => Outgoing::Shared(block.clone()),
            Outgoing::Ring(attachment) => Outgoing::Ring(Box::new(attachment.in_transit())),
            Outgoing::Bundle(bundle) => Outgoing::Bundle(bundle.clone()),
            Outgoing::Spill(block) => Outgoing::Spill(block.clone()),
            Outgoing::Exclusive(_) | Outgoing::SoleRing(_) => return None,
        }))
    }

    /// Gives an exclusive block or a sole end back to where it came from, because the message is not sent.
    pub fn take_back(self) {
        match self.0 {
            Outgoing::Exclusive(claim) => claim.give_back(),
            Outgoing::SoleRing(end) => end.moved.store(false, Ordering::SeqCst),
            Outgoing::Frozen(_)
            | Outgoing::Shared(_)
            | Outgoing::Ring(_)
            | Outgoing::Bundle(_)
            | Outgoing::Spill(_) => {}
        }
    }

    /// What it stands for, for those who copy it to where no handle reaches: to another machine, or a file.
    #[must_use]
    pub fn contents(&self) -> Contents<'_> {
        match &self.0 {
            Outgoing::Frozen(block) => Contents::Frozen(block.bytes()),
            Outgoing::Exclusive(claim) => Contents::Exclusive(claim.bytes()),
            Outgoing::Bundle(bundle) => Contents::Bundle(bundle),
            Outgoing::Shared(_) => Contents::Shared,
            Outgoing::Ring(_) | Outgoing::SoleRing(_) => Contents::Ring,
            Outgoing::Spill(_) => Contents::Frozen(&[]),
        }
    }

    /// Whether only the receiver has it once the message is sent.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        matches!(self.0, Outgoing::Exclusive(_) | Outgoing::SoleRing(..))
    }

    /// The heap that the block lies in.
    #[must_use]
    pub fn heap(&self) -> Option<&Heap> {
        self.block().map(Block::heap)
    }

    /// Announces that the handle will be dropped soon, so that the block's header can be prefetched.
    pub(crate) fn expect_drop(&self) {
        if let Some(block) = self.block() {
            block.expect_drop();
        }
    }

    /// How much memory the handle keeps, in bytes. `usize::MAX` for what may stand for much more than itself:
    /// a ring, a bundle, or a shared block, as that of a device tensor.
    pub(crate) fn kept_bytes(&self) -> usize {
        match &self.0 {
            Outgoing::Frozen(_) | Outgoing::Exclusive(_) | Outgoing::Spill(_) => {
                self.block().map_or(0, Block::len_bytes)
            }
            Outgoing::Shared(_) | Outgoing::Ring(_) | Outgoing::SoleRing(..) | Outgoing::Bundle(_) => {
                usize::MAX
            }
        }
    }

    /// Whether this process most likely keeps the block anyway, beside the value that is being sent.
    pub(crate) fn looks_kept(&self) -> bool {
        matches!(self.0, Outgoing::Frozen(_)) && self.block().is_some_and(Block::looks_kept)
    }

    #[inline]
    fn block(&self) -> Option<&Block> {
        // Most handles are frozen blocks: no table of jumps for them.
        if let Outgoing::Frozen(block) = &self.0 { block.block() } else { self.other_block() }
    }

    fn other_block(&self) -> Option<&Block> {
        match &self.0 {
            Outgoing::Frozen(block) => block.block(),
            Outgoing::Shared(block) => block.block(),
            Outgoing::Exclusive(claim) => Some(&claim.block),
            Outgoing::Ring(attachment) => Some(attachment.block()),
            Outgoing::SoleRing(end) => Some(end.attachment.block()),
            Outgoing::Bundle(bundle) => bundle.block(),
            Outgoing::Spill(block) => Some(block),
        }
    }

    #[inline]
    pub(crate) fn reference(&self) -> u64 {
        if let Outgoing::Frozen(block) = &self.0
            && let Some(block) = block.block()
        {
            return block.reference(Grant::Frozen);
        }
        self.other_reference()
    }

    fn other_reference(&self) -> u64 {
        let grant = match &self.0 {
            Outgoing::Frozen(_) => Grant::Frozen,
            Outgoing::Shared(_) => Grant::Shared,
            Outgoing::Exclusive(_) => Grant::Exclusive,
            Outgoing::Ring(attachment) => Grant::Ring(attachment.role()),
            Outgoing::SoleRing(end) => Grant::Ring(end.attachment.role()),
            Outgoing::Bundle(_) => Grant::Bundle,
            Outgoing::Spill(_) => Grant::Message,
        };
        self.block().map_or(0, |block| block.reference(grant))
    }
}

/// What a handle stands for.
#[derive(Debug)]
#[non_exhaustive]
pub enum Contents<'a> {
    /// The bytes of a block that nobody writes. None where this process may not read them.
    Frozen(&'a [u8]),
    /// The bytes of a block that only the message has. None where this process may not read them.
    Exclusive(&'a [u8]),
    /// A bundle.
    Bundle(&'a Bundle),
    /// A block that others may be writing: there is no slice of it.
    Shared,
    /// A ring, which is not its bytes.
    Ring,
}

/// The handles of one message. Few messages have more than two.
pub type OutgoingHandles = SmallVec<[OutgoingHandle; 2]>;

/// One handle of a message that was taken. Each kind is one pointer, so that a handle is moved in two
/// registers.
#[derive(Debug)]
#[non_exhaustive]
pub enum IncomingHandle {
    /// A block to read, of which no handle was taken yet.
    Offered(OfferedBlock),
    /// A block to read.
    Frozen(FrozenBlock),
    /// A block to read and write.
    Shared(SharedBlock),
    /// A monitor.
    Monitor(ReceivedMonitor),
    /// A block that only the receiver has; `None` once it was taken out.
    Exclusive(Option<Box<ExclusiveBlock>>),
    /// A ring, attached in the role that was granted.
    Ring(Box<Attachment>),
    /// A bundle.
    Bundle(Bundle),
}

/// More would not be moved in registers.
const _: () = assert!(size_of::<OutgoingHandle>() == 16 && size_of::<IncomingHandle>() == 16);

impl IncomingHandle {
    /// A block that only the receiver has, of a message that did not come through a ring.
    #[must_use]
    pub fn exclusive(block: ExclusiveBlock) -> Self {
        Self::Exclusive(Some(Box::new(block)))
    }

    /// One more handle on a block to read; `None` for what is none. It can be taken any number of times.
    ///
    /// Each view of a tensor's storage takes one, and usually there is one view. So the first one is counted
    /// together with the message's own.
    #[inline]
    pub fn take_frozen(&mut self) -> Option<FrozenBlock> {
        match self {
            Self::Offered(_) => self.take_first(),
            Self::Frozen(block) => Some(block.clone()),
            _ => None,
        }
    }

    #[inline]
    fn take_first(&mut self) -> Option<FrozenBlock> {
        let nothing = Self::Frozen(FrozenBlock::empty());
        let Self::Offered(offered) = std::mem::replace(self, nothing) else { return None };
        let (own, first) = offered.split();
        *self = Self::Frozen(own);
        Some(first)
    }

    /// The block that only the receiver has. It can be taken once; `None` afterwards, and for what is none.
    pub fn take_exclusive(&mut self) -> Option<ExclusiveBlock> {
        match self {
            Self::Exclusive(block) => block.take().map(|block| *block),
            _ => None,
        }
    }
}

/// A message that was taken: private bytes, and handles that this process holds.
#[derive(Debug, Default)]
pub struct IncomingMessage {
    /// The payload.
    pub payload: Payload,
    /// The handles, in the order in which they were given.
    pub handles: SmallVec<[IncomingHandle; 2]>,
}

impl IncomingMessage {
    /// Empties the message, so that it can be filled again.
    pub(crate) fn clear(&mut self) {
        self.payload.clear();
        if !self.handles.is_empty() {
            cold_path();
            self.handles.clear();
        }
    }
}

/// Holds what one reference of a message grants, and appends it to `handles`. For a reference to the block
/// that the message itself lies in, returns that block instead.
#[inline]
pub(crate) fn accept(
    heap: &Heap,
    word: u64,
    handles: &mut SmallVec<[IncomingHandle; 2]>,
) -> Result<Option<Block>, Box<StorageError>> {
    if let Some(reference) = Reference::unpack_frozen(word) {
        handles.push(IncomingHandle::Offered(OfferedBlock::new(heap.hold_twice(reference)?)));
        return Ok(None);
    }
    accept_other(heap, word, handles)
}

/// As [`accept`]. Apart from it, because most references are to frozen blocks.
#[inline(never)]
fn accept_other(
    heap: &Heap,
    word: u64,
    handles: &mut SmallVec<[IncomingHandle; 2]>,
) -> Result<Option<Block>, Box<StorageError>> {
    let bad = |what| Box::new(StorageError::BadReference { reference: word, what });
    let reference = Reference::unpack(word).ok_or_else(|| bad("it grants nothing that is known"))?;
    handles.push(match reference.grant {
        // `accept` does not come here with one.
        Grant::Frozen => return accept(heap, word, handles),
        Grant::Shared => {
            let block = heap.hold(reference)?;
            let kind = block.header().map(|header| header.kind());
            let shared = SharedBlock::new(block);
            match kind {
                Some(Kind::Plain) => IncomingHandle::Shared(shared),
                Some(Kind::Monitor) => IncomingHandle::Monitor(ReceivedMonitor::new(shared)),
                _ => return Err(bad("the block is not one to share")),
            }
        }
        Grant::Exclusive => IncomingHandle::exclusive(ExclusiveBlock::new(heap.hold(reference)?)),
        Grant::Ring(role) => {
            let block = heap.hold(reference)?;
            if block.header().is_none_or(|header| header.kind() != Kind::Ring) {
                return Err(bad("the block is no ring"));
            }
            IncomingHandle::Ring(Box::new(Attachment::new(block, role)))
        }
        Grant::Bundle => {
            let block = heap.hold(reference)?;
            if block.header().is_none_or(|header| header.kind() != Kind::Bundle) {
                return Err(bad("the block is no bundle"));
            }
            IncomingHandle::Bundle(Bundle::received(block))
        }
        Grant::Message => {
            let block = heap.hold(reference)?;
            if block.header().is_none_or(|header| header.kind() != Kind::Message) {
                return Err(bad("the block is no message"));
            }
            return Ok(Some(block));
        }
    });
    Ok(None)
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
