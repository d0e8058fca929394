//! The three ways to hold the bytes of a block, as types.
//!
//! # Safety
//!
//! Slices into shared memory are lent in this file and nowhere else. What makes them sound is a protocol that
//! every member follows, because every member runs this library (docs/SAFETY.md says what is promised against
//! a member that does not):
//!
//! - An [`ExclusiveBlock`] is made in three ways only: for a fresh block that no other process or handle
//!   knows; for a block of kind `Plain` whose only handle in the whole domain was consumed; or from a
//!   message that granted it, which a message does once. (Sweeps write into blocks of other kinds.) Its bytes
//!   are lent through `&mut self` alone. Sending it ends its *ownership epoch* while it is borrowed for
//!   serialisation. A handle that is still reachable afterwards, through an `Arc` for example, lends an empty
//!   slice.
//! - A [`FrozenBlock`] is made only from an exclusive one that was consumed, or from a message that granted
//!   it frozen. While one exists anywhere, the block has no exclusive and no shared handle, and nobody
//!   writes. The bytes of such a block are also lent on behalf of a [`Bundle`](crate::Bundle) that names it
//!   frozen: a bundle is made from frozen handles, which its maker keeps until no process holds the bundle
//!   any more, and names the block from then on, so that no sweep frees it meanwhile.
//! - A [`SharedBlock`] lends atomic words and never a slice of bytes. That of a monitor, whose futexes are
//!   words of another size, is lent to nobody outside this crate.
//!
//! The functions that make these types from a [`Block`] are safe and private to this crate: each caller has
//! one of the reasons above.
#![expect(unsafe_code, reason = "lending slices of shared memory rests on the protocol described above")]
#![expect(clippy::disallowed_methods, reason = "this is the one file that makes slices of shared memory")]

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tensorferry_domain::{Domain, Memory};

use crate::block::Block;
use crate::class::SLAB_MAX_BYTES;
use crate::handle::HandlePair;
use crate::header::Kind;
use crate::reference::{Grant, Reference};
use crate::{BlockId, StorageError};

/// Takes the right to the memory of a domain that was just made or joined, for the heap of this process.
pub(crate) fn memory_of(domain: Arc<Domain>) -> Memory {
    // SAFETY: a heap makes or joins its domain itself and calls this once, so there is one `Memory` for this
    // `Domain`. This crate is the implementation of docs/WIRE.md, and `wire_tests` holds it to that.
    unsafe { Memory::of(domain) }
}

/// The only right to a block's bytes in the whole domain. The bytes are aligned to 64 bytes.
///
/// Both [`bytes`](Self::bytes) and [`bytes_mut`](Self::bytes_mut) take `&mut self`. `serde` sees only a
/// shared reference to what it serialises, so no slice can be alive while an exclusive block is sent. That
/// makes sending it sound.
#[derive(Debug)]
pub struct ExclusiveBlock {
    block: Option<Block>,
    ownership_epoch: u64,
}

/// Bytes that nobody writes any more. A clone adds one to a private count.
#[derive(Clone, Debug)]
pub struct FrozenBlock {
    block: Option<Block>,
}

/// Bytes that several processes read and write on purpose, as atomic words.
#[derive(Clone, Debug)]
pub struct SharedBlock {
    block: Option<Block>,
}

impl ExclusiveBlock {
    /// A block of no bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self { block: None, ownership_epoch: 0 }
    }

    /// `block` is out of reach of every other process and of every other handle of this one, or a message
    /// granted it.
    pub(crate) fn new(block: Block) -> Self {
        let ownership_epoch = block.ownership_epoch();
        Self { block: Some(block), ownership_epoch }
    }

    /// The block, unless its ownership epoch has ended.
    fn held(&self) -> Option<&Block> {
        self.block.as_ref().filter(|block| block.ownership_epoch() == self.ownership_epoch)
    }

    fn into_held(self) -> Option<Block> {
        let ownership_epoch = self.ownership_epoch;
        self.block.filter(|block| block.ownership_epoch() == ownership_epoch)
    }

    /// The length in bytes; 0 once the block was sent away.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.held().map_or(0, Block::len_bytes)
    }

    /// Whether the block was sent away while something still refers to this handle.
    #[must_use]
    pub fn is_moved(&self) -> bool {
        self.block.is_some() && self.held().is_none()
    }

    /// Whether this process can reach the bytes: they were not sent away, and it is no fork of a member.
    #[must_use]
    pub fn is_accessible(&self) -> bool {
        self.block.is_none() || self.held().and_then(Block::range).is_some()
    }

    /// Which block it is.
    #[must_use]
    pub fn id(&self) -> BlockId {
        self.held().map_or_else(BlockId::default, Block::id)
    }

    /// The bytes; empty once the block was sent away.
    pub fn bytes(&mut self) -> &[u8] {
        self.bytes_mut()
    }

    /// The bytes, to write; empty once the block was sent away.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let Some((data, len_bytes)) = self.held().and_then(Block::range) else { return &mut [] };
        // SAFETY: `from_raw_parts_mut` needs memory that is valid for reads and writes, aligned and
        // initialised, and that nobody else touches while the slice lives:
        // - the range was just checked to be mapped and open, and stays so while the block lives; `u8` needs
        //   no alignment, and the kernel's zeroes are initialised bytes;
        // - nobody else has a right to the bytes. The ownership epoch is still this handle's (just checked).
        //   In this process only `claim` ends it, which borrows `self`, and the slice keeps `self` mutably
        //   borrowed. A child of a fork ends its copy before it runs the user's code (docs/SAFETY.md,
        //   "Fork").
        unsafe { std::slice::from_raw_parts_mut(data.as_ptr(), len_bytes) }
    }

    /// Gives up writing: from now on the block can only be read, by any number of holders.
    #[must_use]
    pub fn freeze(self) -> FrozenBlock {
        FrozenBlock { block: self.into_held() }
    }

    /// Gives up being the only holder: from now on any number of holders read and write the block.
    #[must_use]
    pub fn share(self) -> SharedBlock {
        SharedBlock { block: self.into_held() }
    }

    /// Ends the ownership epoch, so that the block can be granted to another process. Returns `None` when the
    /// epoch has ended already.
    pub(crate) fn claim(&self) -> Option<Claim> {
        let block = self.block.as_ref()?;
        let claimed = block.change_ownership_epoch(self.ownership_epoch, after(self.ownership_epoch));
        claimed.then(|| Claim { block: block.clone(), ownership_epoch: self.ownership_epoch })
    }
}

/// The exclusive right to a block on its way out of the process.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) block: Block,
    /// The epoch that ended.
    ownership_epoch: u64,
}

/// The ownership epoch after this one.
const fn after(ownership_epoch: u64) -> u64 {
    ownership_epoch.wrapping_add(1)
}

impl Claim {
    /// The bytes of the block; an empty slice where this process may not read them.
    pub(crate) fn bytes(&self) -> &[u8] {
        // In a process that was forked meanwhile the epoch has moved on: the claim is its parent's.
        let is_ours = self.block.ownership_epoch() == after(self.ownership_epoch);
        let Some((data, len_bytes)) = self.block.range().filter(|_| is_ours) else { return &[] };
        // SAFETY: `from_raw_parts` needs memory that is valid for reads and initialised, and that nobody
        // writes while the slice lives. The range was just checked to be mapped and open, and stays so while
        // the block lives. The handle that was claimed lends no bytes any more, since the claim has ended its
        // ownership epoch, which took a borrow of it that no slice outlives; there is no other handle on an
        // exclusive block, and no other process has it before the claim is sent: a child of a fork, in which
        // the block is still its parent's, was just ruled out. To give it back, or to send it, takes the
        // claim, which the slice borrows.
        unsafe { std::slice::from_raw_parts(data.as_ptr(), len_bytes) }
    }

    /// Gives the right back to the handle that it came from, because the message was not sent.
    pub(crate) fn give_back(self) {
        self.block.change_ownership_epoch(after(self.ownership_epoch), self.ownership_epoch);
    }
}

impl FrozenBlock {
    /// A block of no bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self { block: None }
    }

    /// `block` was granted frozen, by a message.
    pub(crate) fn new(block: Block) -> Self {
        Self { block: Some(block) }
    }

    /// The heap that the block lies in; `None` for an empty block.
    #[must_use]
    #[inline]
    pub fn heap(&self) -> Option<&crate::Heap> {
        self.block.as_ref().map(Block::heap)
    }

    pub(crate) fn block(&self) -> Option<&Block> {
        self.block.as_ref()
    }

    /// The length in bytes.
    #[must_use]
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.block.as_ref().map_or(0, Block::len_bytes)
    }

    /// Which block it is.
    #[must_use]
    #[inline]
    pub fn id(&self) -> BlockId {
        self.block.as_ref().map_or_else(BlockId::default, Block::id)
    }

    /// The bytes.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let Some((data, len_bytes)) = self.block.as_ref().and_then(Block::range) else { return &[] };
        // SAFETY: `from_raw_parts` needs memory that is valid for reads and initialised, and that nobody
        // writes while the slice lives. The range was just checked to be mapped and open, and stays so while
        // the block lives. Nobody writes frozen bytes while a frozen handle exists (see the top of the file),
        // and `self` is one.
        unsafe { std::slice::from_raw_parts(data.as_ptr(), len_bytes) }
    }

    /// Whether both are the same block of the same domain. An empty block equals no other, not even another
    /// empty one.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.block.as_ref().zip(other.block.as_ref()).is_some_and(|(one, two)| one.is_same(two))
    }

    /// Turns into an exclusive block if there is no other holder: no other process, no message in flight, no
    /// clone here. A process that sent the block holds it until it has seen that the message was taken, which
    /// may take a tenth of a second.
    ///
    /// # Errors
    /// `self`, when there is another holder.
    pub fn try_into_exclusive(self) -> Result<ExclusiveBlock, Self> {
        try_into_exclusive(self.block).map_err(|block| Self { block })
    }
}

/// The bytes of the block that a bundle names by `word`; `None` if it does not name a frozen block. `bundle`
/// is the block in which the bundle lies, and `word` stands in its table.
pub(crate) fn lend_named(bundle: &Block, word: u64) -> Result<Option<&[u8]>, StorageError> {
    let Some(reference) = Reference::unpack(word).filter(|named| named.grant == Grant::Frozen) else {
        return Ok(None);
    };
    let (data, len_bytes) = bundle.heap().find_named(reference).map_err(|error| *error)?;
    // SAFETY: as in `FrozenBlock::bytes`. The range was just checked to be mapped and open, and is never
    // closed again while the heap lives, which `bundle` keeps. Nobody writes the bytes of a frozen block
    // while a frozen handle on it exists in any process; the maker of the bundle has one, or it is dead and
    // the block is suspect, for as long as this process holds the bundle, which `bundle` does (see the top of
    // the file). The slice borrows `bundle`.
    Ok(Some(unsafe { std::slice::from_raw_parts(data.as_ptr(), len_bytes) }))
}

/// A block to read, as it comes out of a message: two handles that were counted at once.
pub struct OfferedBlock {
    pair: HandlePair,
}

impl OfferedBlock {
    /// The block was granted frozen, by a message.
    pub(crate) fn new(pair: HandlePair) -> Self {
        Self { pair }
    }

    #[inline]
    pub(crate) fn split(self) -> (FrozenBlock, FrozenBlock) {
        let (one, other) = self.pair.split();
        (FrozenBlock::new(Block::new(one)), FrozenBlock::new(Block::new(other)))
    }
}

impl fmt::Debug for OfferedBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OfferedBlock").finish_non_exhaustive()
    }
}

impl SharedBlock {
    /// A block of no bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self { block: None }
    }

    /// `block` was granted shared, by a message.
    pub(crate) fn new(block: Block) -> Self {
        Self { block: Some(block) }
    }

    pub(crate) fn block(&self) -> Option<&Block> {
        self.block.as_ref()
    }

    /// The length in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> usize {
        self.block.as_ref().map_or(0, Block::len_bytes)
    }

    /// Which block it is.
    #[must_use]
    pub fn id(&self) -> BlockId {
        self.block.as_ref().map_or_else(BlockId::default, Block::id)
    }

    /// Whether both are the same block of the same domain. An empty block equals no other, not even another
    /// empty one.
    #[must_use]
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.block.as_ref().zip(other.block.as_ref()).is_some_and(|(one, two)| one.is_same(two))
    }

    /// The heap that the block lies in; `None` for an empty block.
    #[must_use]
    pub fn heap(&self) -> Option<&crate::Heap> {
        self.block.as_ref().map(Block::heap)
    }

    /// The name under which a descriptor that belongs to the block is stored ([`Domain::store_fd`]). No other
    /// block of the domain has this name, or had it recently.
    #[must_use]
    pub fn name(&self) -> u64 {
        self.block.as_ref().map_or(0, |block| block.reference(Grant::Shared))
    }

    /// Whether there is no other holder: no other process, no message in flight, no clone here.
    #[must_use]
    pub fn is_sole(&self) -> bool {
        self.block.as_ref().is_none_or(is_sole)
    }

    /// Whether nothing else lies in the pages of its memory. This is so for every block that is too long for
    /// a slab.
    #[must_use]
    pub fn has_own_pages(&self) -> bool {
        self.len_bytes() > SLAB_MAX_BYTES
    }

    /// The bytes as 64-bit words; `len_bytes` is rounded up. Every access to a shared block goes through
    /// these words, because accesses of different sizes to the same memory may not race. A smaller element is
    /// shifted and masked, and storing one is a compare-and-swap.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        self.block.as_ref().map_or(&[], Block::words)
    }

    /// Turns into an exclusive block if there is no other holder.
    ///
    /// # Errors
    /// `self`, when there is another holder.
    pub fn try_into_exclusive(self) -> Result<ExclusiveBlock, Self> {
        try_into_exclusive(self.block).map_err(|block| Self { block })
    }
}

/// The block as an exclusive one if this is its only handle, and it has bytes; otherwise the block as it was.
fn try_into_exclusive(block: Option<Block>) -> Result<ExclusiveBlock, Option<Block>> {
    match block {
        None => Ok(ExclusiveBlock::empty()),
        Some(block) if is_plain(&block) && is_sole(&block) => Ok(ExclusiveBlock::new(block)),
        block => Err(block),
    }
}

/// Whether the block has bytes. Sweeps write into others, a lock for example, as long as anybody holds them.
fn is_plain(block: &Block) -> bool {
    block.header().is_some_and(|header| header.kind() == Kind::Plain)
}

/// Whether this is the only handle on the block in the whole domain. If other handles seem to exist, lets go
/// of the pins of messages that were taken, and looks again.
fn is_sole(block: &Block) -> bool {
    block.is_sole() || {
        block.heap().inner().retire_kept();
        block.is_sole()
    }
}
