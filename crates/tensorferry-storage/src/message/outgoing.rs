//! The handles of an outgoing message.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::BlockId;
use crate::access::{Claim, ExclusiveBlock, FrozenBlock, SharedBlock};
use crate::attachments::Attachment;
use crate::block::Block;
use crate::bundle::Bundle;
use crate::heap::Heap;
use crate::monitor::Monitor;
use crate::reference::Grant;

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

/// More would not be moved in registers.
const _: () = assert!(size_of::<OutgoingHandle>() == 16);

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
