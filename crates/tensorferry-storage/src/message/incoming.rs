//! What a message has brought.

use std::hint::cold_path;

use smallvec::SmallVec;

use crate::StorageError;
use crate::access::{ExclusiveBlock, FrozenBlock, OfferedBlock, SharedBlock};
use crate::attachments::Attachment;
use crate::block::Block;
use crate::bundle::Bundle;
use crate::header::Kind;
use crate::heap::Heap;
use crate::monitor::ReceivedMonitor;
use crate::payload::Payload;
use crate::reference::{Grant, Reference};

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
const _: () = assert!(size_of::<IncomingHandle>() == 16);

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

/// The handles of one message. Few messages have more than two.
pub type IncomingHandles = SmallVec<[IncomingHandle; 2]>;

/// A message that was taken: private bytes, and handles that this process holds.
#[derive(Debug, Default)]
pub struct IncomingMessage {
    /// The payload.
    pub payload: Payload,
    /// The handles, in the order in which they were given.
    pub handles: IncomingHandles,
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
#[inline(always)]
pub(crate) fn accept(
    heap: &Heap,
    word: u64,
    handles: &mut IncomingHandles,
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
    handles: &mut IncomingHandles,
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
        Grant::Exclusive => {
            let block = heap.hold(reference)?;
            if block.header().is_none_or(|header| header.kind() != Kind::Plain) {
                return Err(bad("the block is not one to have alone"));
            }
            IncomingHandle::exclusive(ExclusiveBlock::new(block))
        }
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
