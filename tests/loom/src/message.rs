//! A stand-in for messages: bytes, and blocks that are named by their numbers.

use smallvec::SmallVec;

use crate::StorageError;
use crate::atomic::{AtomicU64, Ordering};
use crate::attachments::Attachment;
use crate::block::Block;
use crate::header::Kind;
use crate::heap::Heap;

pub(crate) const MAX_HANDLES: usize = 4;

/// What came.
#[derive(Debug, Default)]
pub(crate) struct IncomingMessage {
    pub(crate) payload: SmallVec<[u8; 16]>,
    pub(crate) handles: Vec<IncomingHandle>,
}

impl IncomingMessage {
    pub(crate) fn clear(&mut self) {
        self.payload.clear();
        self.handles.clear();
    }
}

/// A block that came along.
#[derive(Debug)]
#[allow(dead_code, reason = "only frozen blocks are sent")]
pub(crate) enum IncomingHandle {
    Offered(Block),
    Frozen(Block),
    Shared(Block),
    Monitor(ReceivedMonitor),
    Exclusive(Block),
    Ring(Attachment),
    Bundle(Block),
}

/// None comes.
#[derive(Debug)]
pub(crate) struct ReceivedMonitor(Block);

impl ReceivedMonitor {
    pub(crate) fn block(&self) -> &Block {
        &self.0
    }
}

impl IncomingHandle {
    pub(crate) fn take_frozen(&mut self) -> Option<Block> {
        match self {
            Self::Offered(block) | Self::Frozen(block) => Some(block.clone()),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum Outgoing {
    Frozen(Block),
    Spill(Block),
    Ring(Attachment),
}

/// A block that goes along.
#[derive(Debug)]
pub(crate) struct OutgoingHandle(pub(crate) Outgoing);

/// Several.
pub(crate) type OutgoingHandles = SmallVec<[OutgoingHandle; 1]>;

impl OutgoingHandle {
    pub(crate) fn reference(&self) -> u64 {
        match &self.0 {
            Outgoing::Frozen(block) | Outgoing::Spill(block) => block.id().0,
            Outgoing::Ring(attachment) => attachment.block().id().0,
        }
    }

    pub(crate) fn frozen(block: &Block) -> Option<Self> {
        Some(Self(Outgoing::Frozen(block.clone())))
    }

    pub(crate) fn ring(attachment: &Attachment) -> Self {
        Self(Outgoing::Ring(attachment.clone()))
    }

    pub(crate) fn bundle(block: &Block) -> Self {
        Self(Outgoing::Frozen(block.clone()))
    }

    pub(crate) fn shared(block: &Block) -> Option<Self> {
        Self::frozen(block)
    }

    pub(crate) fn is_exclusive(&self) -> bool {
        false
    }

    /// Nothing that anybody could see.
    pub(crate) fn expect_drop(&self) {}

    /// So long that old pins are looked at whenever there is a new one.
    pub(crate) fn kept_bytes(&self) -> usize {
        1 << 20
    }

    pub(crate) fn looks_kept(&self) -> bool {
        false
    }
}

pub(crate) fn take_back(handles: OutgoingHandles) {
    drop(handles);
}

pub(crate) fn accept(
    heap: &Heap,
    reference: u64,
    handles: &mut Vec<IncomingHandle>,
) -> Result<Option<Block>, Box<StorageError>> {
    let index = usize::try_from(reference).unwrap_or(0);
    let held = heap.hold(index)?;
    if index == usize::MAX {
        return Ok(Some(held));
    }
    handles.push(IncomingHandle::Offered(held));
    Ok(None)
}

pub(crate) fn all_in_domain(_heap: &Heap, _handles: &[OutgoingHandle]) -> bool {
    true
}

/// No message of a model is that long.
pub(crate) fn spill(
    _heap: &Heap,
    _kind: Kind,
    _payload: &[u8],
    _handles: &[OutgoingHandle],
) -> Result<Block, StorageError> {
    Err(StorageError::ForeignDomain)
}

pub(crate) fn unspill(
    _heap: &Heap,
    _block: &Block,
    _message: &mut IncomingMessage,
) -> Result<(), Box<StorageError>> {
    Err(Box::new(StorageError::ForeignDomain))
}

pub(crate) fn fill_payload(message: &mut IncomingMessage, words: &[AtomicU64], payload_len_bytes: usize) {
    message.payload.resize(payload_len_bytes, 0);
    for (chunk, word) in message.payload.chunks_mut(8).zip(words) {
        let bytes = word.load(Ordering::Relaxed).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

pub(crate) fn store_payload(words: &[AtomicU64], payload: &[u8]) {
    for (word, chunk) in words.iter().zip(payload.chunks(8)) {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(bytes), Ordering::Relaxed);
    }
}
