//! The ring of owner-stamped slots: how messages pass between processes that may die at any instruction.
//!
//! ```text
//! slot i of lap L walks   Free(L) → Writing(L, sender) → Ready(L) → Claimed(L, receiver) → Free(L+1)
//! after a proven death    Writing(L, dead) → Free(L+1)     never committed: skipped
//!                         Claimed(L, dead) → Ready(L)      committed, not taken: delivered to another
//! a leased message        Claimed(L, me) → Moved(L, me) → Free(L+1), and stays in a record (`lease.rs`)
//! ```
//!
//! Every slot state except Free and Ready names its owner, in the same compare-and-swap that made the state.
//! So every claim can be attributed. Only the owner, or a sweeper with proof of the owner's death, moves a
//! slot out of Writing, Claimed or Moved. Both compare the whole word, so exactly one of them wins. `head`
//! and `tail` are hints that any process may advance, so progress depends on no single process. Others pass
//! by a process that is stopped in the middle: its slot is a hole, and back-pressure comes only when the ring
//! has gone around to it.
//!
//! Once [`Ring::put`] has returned, the message is promised: exactly one receiver takes it.

// The paths name the folder, because the loom tests compile this file by its path.
#[path = "ring/ending.rs"]
mod ending;
#[path = "ring/join.rs"]
mod join;
#[path = "ring/next_message.rs"]
mod next_message;
#[path = "ring/next_slot.rs"]
mod next_slot;
#[path = "ring/put.rs"]
mod put;
#[path = "ring/take.rs"]
mod take;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tensorferry_domain::Spin;

use crate::StorageError;
use crate::atomic::{AtomicU64, Ordering};
use crate::attached_ring::AttachedRing;
use crate::attachments::Attachment;
use crate::header::Kind;
use crate::heap::Heap;
use crate::pins::PinList;
use crate::record::{MAX_RECORDS, RecordTag};
use crate::reference::{BlockId, Role};
use crate::ring_layout::{MAX_SLOTS, RingShape, RingWords};
use crate::slot::{Slot, Tag};

pub use join::RingJoinError;
use next_message::NextMessage;
use next_slot::NextSlot;
pub use put::RingPutError;
pub use take::RingTakeError;

/// How often one look starts over before it reports that it found nothing. Living members cannot make another
/// one start over this often. Words that a faulty member wrote over could do so without end.
pub(crate) const MAX_STEPS: usize = 1 << 21;

/// How many threads and processes may take from a ring at the same time. A single consumer saves its claim.
/// The slots look the same in both cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Consumers {
    /// Other threads or processes may take at the same time.
    Multi,
    /// No other thread or process takes at the same time. If one does, each message still goes to exactly one
    /// of them, because freeing the slot decides; the others have looked in vain.
    Single,
}

/// One process's end of a ring.
#[derive(Debug)]
pub struct Ring {
    attached: AttachedRing,
    /// Made when the first message with handles is sent.
    pins: OnceLock<Arc<PinList>>,
    pub(crate) put_spin: Spin,
    pub(crate) take_spin: Spin,
    /// The value of `senders_gone` up to which this end has reported that senders are gone.
    senders_gone_reported: AtomicU64,
    receivers_gone_reported: AtomicU64,
    /// The count of returns up to which this end has looked through the records and found nothing.
    pub(crate) returns_seen: AtomicU64,
    next_slot: NextSlot,
    next_message: NextMessage,
}

impl Ring {
    /// Makes a ring of `n_slots` slots of 256 bytes each. This process is attached in both roles. `type_hash`
    /// tells what travels in the ring.
    ///
    /// # Errors
    /// [`StorageError::Domain`] when there is no memory for it, [`StorageError::TooManySlots`]
    /// for more than 1,048,576.
    pub fn create(heap: &Heap, n_slots: usize, type_hash: u64) -> Result<Self, StorageError> {
        Self::create_with_leases(heap, n_slots, 0, type_hash)
    }

    /// As [`Ring::create`], with `n_records` records of 320 bytes each: that many messages can be leased at a
    /// time.
    ///
    /// # Errors
    /// As [`Ring::create`]; [`StorageError::TooManyLeases`] for more than 65,536 leases.
    pub fn create_with_leases(
        heap: &Heap,
        n_slots: usize,
        n_records: usize,
        type_hash: u64,
    ) -> Result<Self, StorageError> {
        let shape = RingShape::new(n_slots.max(1), n_records);
        if n_records > MAX_RECORDS {
            return Err(StorageError::TooManyLeases { n_leases: n_records, limit: MAX_RECORDS });
        }
        if n_slots > MAX_SLOTS {
            return Err(StorageError::TooManySlots { n_slots, limit: MAX_SLOTS });
        }
        let block = heap.allocate_block(shape.n_words() * 8)?;
        RingWords::format(&block, shape, type_hash);
        if let Some(header) = block.header() {
            header.set_kind(Kind::Ring);
        }
        Self::attach(Attachment::new(block, Role { sends: true, receives: true }))
    }

    /// Makes an end of the ring that an attachment holds.
    ///
    /// # Errors
    /// [`StorageError::BadReference`] when the block holds no ring.
    pub fn attach(attachment: Attachment) -> Result<Self, StorageError> {
        let attached = AttachedRing::try_new(attachment, |attachment| {
            let no_ring = |what| StorageError::BadReference { reference: attachment.block().id().0, what };
            RingWords::of(attachment.block()).ok_or_else(|| no_ring("the block holds no ring"))
        })?;
        let words = attached.borrow_dependent();
        let now = |counter: &AtomicU64| AtomicU64::new(counter.load(Ordering::SeqCst));
        let (senders_gone_reported, receivers_gone_reported) =
            (now(words.senders_gone()), now(words.receivers_gone()));
        Ok(Self {
            attached,
            pins: OnceLock::new(),
            put_spin: Spin::default(),
            take_spin: Spin::default(),
            senders_gone_reported,
            receivers_gone_reported,
            returns_seen: AtomicU64::new(u64::MAX),
            next_slot: NextSlot::default(),
            next_message: NextMessage::default(),
        })
    }

    /// Another end of the same ring, in the given role. An end that receives is made from one that receives:
    /// while a ring has no receiver, its messages may be discarded at any time, also one that was just put.
    ///
    /// # Errors
    /// As [`Ring::attach`].
    pub fn with_role(&self, role: Role) -> Result<Self, StorageError> {
        Self::attach(self.attachment().with_role(role))
    }

    /// The attachment, which holds the ring and this process's role in it.
    #[must_use]
    pub fn attachment(&self) -> &Attachment {
        self.attached.borrow_owner()
    }

    /// The heap that the ring lies in.
    #[must_use]
    pub fn heap(&self) -> &Heap {
        self.attachment().block().heap()
    }

    /// How many messages the ring holds.
    #[must_use]
    pub fn capacity_items(&self) -> usize {
        self.shape().n_slots
    }

    /// How many messages can be leased at a time; 0 for a ring without leases.
    #[must_use]
    pub fn max_leases(&self) -> usize {
        self.shape().n_records
    }

    /// The type hash that the ring was made with.
    #[must_use]
    pub fn type_hash(&self) -> u64 {
        self.words().map_or(0, |ring| ring.type_hash())
    }

    /// About how many messages are in the ring; other processes may put and take at the same time. Leased
    /// messages that were given back count too, so the number may exceed [`Ring::capacity_items`].
    #[must_use]
    pub fn len(&self) -> usize {
        let Some(ring) = self.words() else { return 0 };
        let n_back = ring.records().filter(|record| record.state().tag == RecordTag::Waiting).count();
        self.n_in_slots(&ring).saturating_add(n_back)
    }

    /// Whether every slot is taken, as far as this process can tell. Leased messages occupy no slot.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.words().is_some_and(|ring| self.n_in_slots(&ring) >= ring.n_slots())
    }

    fn n_in_slots(&self, ring: &RingWords<'_>) -> usize {
        let n_slots = ring.n_slots() as u64;
        let mut head = ring.head().load(Ordering::Acquire);
        let mut tail = ring.tail().load(Ordering::Acquire).max(head);
        // Both may lag: the next look moves the head past what was taken, and a sender moves the tail after
        // it has committed.
        let is_taken = |position| {
            let (slot, lap) = self.slot_of(ring, position);
            slot.state().lap > lap
        };
        for _ in 0..2 * n_slots {
            if head == tail || !is_taken(head) {
                break;
            }
            head = head.wrapping_add(1);
        }
        let is_put = |position| {
            let (slot, lap) = self.slot_of(ring, position);
            let state = slot.state();
            state.lap == lap && state.tag != Tag::Free
        };
        // Wrapping, because another process may have written any number there.
        while tail.wrapping_sub(head) < n_slots && is_put(tail) {
            tail = tail.wrapping_add(1);
        }
        usize::try_from(tail.wrapping_sub(head).min(n_slots)).unwrap_or(usize::MAX)
    }

    /// Whether no message is in the ring, as far as this process can tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The block that the ring lies in.
    #[must_use]
    pub fn id(&self) -> BlockId {
        self.attachment().block().id()
    }

    /// Whether any process can take a message, this one included. A process that has died counts until what
    /// it had is known to be in no message.
    #[must_use]
    pub fn has_receivers(&self) -> bool {
        self.words().is_some_and(|ring| ring.receivers().load(Ordering::SeqCst) != 0)
    }

    /// Closes the ring: every further put fails, in every process. Messages that are in the ring can still be
    /// taken. Wakes all waiting senders and receivers.
    pub fn close(&self) {
        if let Some(ring) = self.words() {
            ring.closed().store(1, Ordering::SeqCst);
            ring.not_empty().wake();
            ring.not_full().wake();
        }
    }

    /// Whether the ring was closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.words().is_some_and(|ring| ring.closed().load(Ordering::SeqCst) != 0)
    }

    /// Sets how long calls of this end poll before they sleep. With `None` the time adapts to how long
    /// polling has paid recently: 250 microseconds at most, except for a moment now and then.
    pub fn set_busy_poll(&self, how_long: Option<Duration>) {
        self.put_spin.set_fixed(how_long);
        self.take_spin.set_fixed(how_long);
    }

    pub(crate) fn pins(&self) -> &PinList {
        self.pins.get_or_init(|| {
            self.heap().inner().pins.list_for(self.attachment().block().clone(), self.shape())
        })
    }

    /// `None` in a child of a fork(2) that is not this library's.
    pub(crate) fn words(&self) -> Option<RingWords<'_>> {
        self.heap().is_owning_process().then(|| *self.words_of_owner())
    }

    /// Read once, when the end is attached, and not read again.
    #[inline]
    fn shape(&self) -> RingShape {
        self.attached.borrow_dependent().shape()
    }

    /// As [`Ring::words`]; the caller has checked that this is the process that is attached.
    #[inline]
    fn words_of_owner(&self) -> &RingWords<'_> {
        self.attached.borrow_dependent()
    }

    pub(crate) fn me(&self) -> u8 {
        self.heap().me().slot
    }

    fn slot_of<'a>(&self, ring: &RingWords<'a>, position: u64) -> (Slot<'a>, u64) {
        let (index, lap) = ring.shape().slot_and_lap(position);
        (ring.slot(index), lap)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(list) = self.pins.take().filter(|_| self.heap().is_owning_process()) {
            self.heap().inner().pins.close(list);
        }
    }
}
