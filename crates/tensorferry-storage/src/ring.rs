//! The owner-stamped slot ring: how messages pass between processes that may die at any instruction.
//!
//! ```text
//! slot i of lap L walks   Free(L) → Writing(L, sender) → Ready(L) → Claimed(L, receiver) → Free(L+1)
//! after a proven death    Writing(L, dead) → Free(L+1)     never committed: skipped
//!                         Claimed(L, dead) → Ready(L)      committed, not taken: delivered to another
//! ```
//!
//! Every state that is not idle names its owner in the same compare-and-swap that made it, so there is no claim
//! that nobody can attribute. Only the owner, or a sweeper with proof of its death, moves a slot out of Writing or
//! Claimed, and both compare the whole word, so exactly one of them wins. `head` and `tail` are hints that
//! anybody may advance, so nobody owns progress. A process that is stopped in the middle is passed by: its slot
//! is a hole, and back-pressure comes only when the ring has gone around to it.
//!
//! A message is promised once [`Ring::put`] has returned, and taken by exactly one receiver.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use smallvec::SmallVec;
use tensorferry_domain::{Spin, WaitWord, planted};

use crate::StorageError;
use crate::atomic::{AtomicU64, Ordering, change_before_load, fence};
use crate::attachments::Attachment;
use crate::block::Block;
use crate::header::Kind;
use crate::heap::Heap;
use crate::lease::Kept;
use crate::message::{
    IncomingMessage, MAX_HANDLES, Outgoing, OutgoingHandle, OutgoingHandles, accept, are_at_home,
    fill_payload, payload_words, spill, take_back, unspill,
};
use crate::pins::{PinList, PinnedAt};
use crate::record::{MAX_RECORDS, RecordTag};
use crate::reference::Role;
use crate::ring_layout::{
    MAX_SLOTS, RingShape, RingWords, SLOT_ROOM_WORDS, Slot, SlotLengths, SlotState, Tag,
};

/// How often one look starts over before it reports that it found nothing. The living cannot make anybody start over
/// this often; words that somebody scribbled over could, for ever.
pub(crate) const MAX_STEPS: usize = 1 << 21;

/// Whether a receiver has its ring to itself. A sole one saves its claim; the slots look the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    /// Others may be doing the same at the same time.
    Many,
    /// No other thread or process takes at the same time. Where that is not so, the message still goes to one of them
    /// alone, because freeing the slot decides; the others have looked in vain.
    Sole,
}

/// Until when a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Not at all.
    None,
    /// Until this moment.
    Until(Instant),
    /// For ever.
    Forever,
}

impl Patience {
    /// Looks until there is something, for as long as this allows.
    fn wait<R>(self, word: WaitWord<'_>, spin: &Spin, mut look: impl FnMut() -> Option<R>) -> Option<R> {
        match self {
            Self::None => look(),
            Self::Until(deadline) => word.wait_until(spin, Some(deadline), look).ok(),
            Self::Forever => word.wait_until(spin, None, look).ok(),
        }
    }
}

/// Why a message was not put. Nothing was sent, and what it would have given away is back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutFailure {
    /// Every slot is taken, and the time was up.
    #[error("the queue is full")]
    Full,
    /// Somebody closed the queue.
    #[error("the queue is closed")]
    Closed,
    /// Nobody is left who could receive.
    #[error("every receiver of the queue is gone")]
    NoReceivers,
    /// Nobody else is left who could receive, and somebody who could has died.
    #[error("every process that could receive from the queue is gone, and at least one of them died")]
    PeerDied,
    /// This process was declared dead and its claim taken away.
    #[error("this process was declared dead by another member of its domain")]
    Fenced,
    /// More handles than a message can have.
    #[error("{0} handles in one message, at most 65535 are possible")]
    TooManyHandles(usize),
    /// Something that is one's alone, in a message that may be delivered again.
    #[error(
        "a message of a queue with leases may be delivered again, so nothing exclusive can be in it: freeze() the tensor, \
         clone the sender"
    )]
    NotRepeatable,
    /// There was no memory for a message that does not fit into a slot. Boxed, so that this fits into two registers.
    #[error(transparent)]
    Storage(#[from] Box<StorageError>),
}

impl From<StorageError> for PutFailure {
    #[cold]
    fn from(error: StorageError) -> Self {
        Self::Storage(Box::new(error))
    }
}

/// Why no message was taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TakeFailure {
    /// No message came in time.
    #[error("the queue is empty")]
    Empty,
    /// The queue is closed and everything that was in it has been taken.
    #[error("the queue is closed")]
    Closed,
    /// Nobody is left who could send.
    #[error("every sender of the queue is gone")]
    NoSenders,
    /// Nobody else is left who could send, and somebody who could has died.
    #[error("every process that could send to the queue is gone, and at least one of them died")]
    PeerDied,
    /// The ring was made without leases.
    #[error("the queue was made without leases")]
    NoLeases,
    /// This process has all of them: it has to acknowledge one first.
    #[error("no message can be leased: this process has all {0} leases of the queue")]
    AllLeased(usize),
    /// A message was taken whose table makes no sense, and is lost. Or, with [`StorageError::Domain`], the kernel does not
    /// let this process open the memory that the message names: then it stays in the ring.
    #[error(transparent)]
    Storage(#[from] Box<StorageError>),
}

impl From<StorageError> for TakeFailure {
    #[cold]
    fn from(error: StorageError) -> Self {
        Self::Storage(Box::new(error))
    }
}

/// One process's end of a ring.
#[derive(Debug)]
pub struct Ring {
    attachment: Attachment,
    /// Read once, and believed from then on.
    shape: RingShape,
    /// Made when the first message with handles is sent.
    pins: OnceLock<Arc<PinList>>,
    put_spin: Spin,
    take_spin: Spin,
    /// Up to which count this end has reported that senders are gone.
    senders_gone_reported: AtomicU64,
    receivers_gone_reported: AtomicU64,
    /// Up to which count of returns this end has looked through the records and found nothing.
    pub(crate) returns_seen: AtomicU64,
}

impl Ring {
    /// Makes a ring of `n_slots` slots of 256 bytes, with this process attached in both roles. `type_hash` tells
    /// what travels in it.
    ///
    /// # Errors
    /// [`StorageError::Domain`] when there is no memory for it, [`StorageError::TooManySlots`]
    /// for more than 1,048,576.
    pub fn create(heap: &Heap, n_slots: usize, type_hash: u64) -> Result<Self, StorageError> {
        Self::create_with_leases(heap, n_slots, 0, type_hash)
    }

    /// As [`Ring::create`], with room for so many leases at a time, of 320 bytes each.
    ///
    /// # Errors
    /// As [`Ring::create`]; [`StorageError::TooManySlots`] also for more than 65,536 leases.
    pub fn create_with_leases(
        heap: &Heap,
        n_slots: usize,
        n_records: usize,
        type_hash: u64,
    ) -> Result<Self, StorageError> {
        let shape = RingShape { n_slots: n_slots.max(1), n_records };
        if n_records > MAX_RECORDS {
            return Err(StorageError::TooManySlots { n_slots: n_records, limit: MAX_RECORDS });
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

    /// Uses the ring that an attachment holds.
    ///
    /// # Errors
    /// [`StorageError::BadReference`] when what stands there is no ring.
    pub fn attach(attachment: Attachment) -> Result<Self, StorageError> {
        let block = attachment.block();
        let Some(words) = RingWords::of(block) else {
            return Err(StorageError::BadReference {
                reference: block.id().0,
                what: "the block holds no ring",
            });
        };
        let now = |counter: &AtomicU64| AtomicU64::new(counter.load(Ordering::SeqCst));
        let (senders_gone_reported, receivers_gone_reported) =
            (now(words.senders_gone()), now(words.receivers_gone()));
        let shape = words.shape();
        Ok(Self {
            attachment,
            shape,
            pins: OnceLock::new(),
            put_spin: Spin::default(),
            take_spin: Spin::default(),
            senders_gone_reported,
            receivers_gone_reported,
            returns_seen: AtomicU64::new(u64::MAX),
        })
    }

    /// Another end of the same ring, in the given role.
    ///
    /// # Errors
    /// As [`Ring::attach`].
    pub fn with_role(&self, role: Role) -> Result<Self, StorageError> {
        Self::attach(self.attachment.with_role(role))
    }

    /// What holds the ring and this process's role in it.
    #[must_use]
    pub fn attachment(&self) -> &Attachment {
        &self.attachment
    }

    /// The heap that the ring lies in.
    #[must_use]
    pub fn heap(&self) -> &Heap {
        self.attachment.block().heap()
    }

    /// How many messages fit.
    #[must_use]
    pub fn capacity_items(&self) -> usize {
        self.shape.n_slots
    }

    /// How many messages can be leased at a time; 0 for a ring without leases.
    #[must_use]
    pub fn max_leases(&self) -> usize {
        self.shape.n_records
    }

    /// What travels in it, as its maker said.
    #[must_use]
    pub fn type_hash(&self) -> u64 {
        self.words().map_or(0, |ring| ring.type_hash())
    }

    /// About how many messages are in it; others may be putting and taking at the same time.
    #[must_use]
    pub fn len(&self) -> usize {
        let Some(ring) = self.words() else { return 0 };
        let n_slots = ring.n_slots() as u64;
        let mut head = ring.head().load(Ordering::Acquire);
        let mut tail = ring.tail().load(Ordering::Acquire).max(head);
        // Both are behind: what was taken is passed at the next look, and a sender moves the tail when the message is there.
        let is_taken = |position| {
            let (slot, lap) = self.slot_of(&ring, position);
            slot.state().lap > lap
        };
        for _ in 0..2 * n_slots {
            if head == tail || !is_taken(head) {
                break;
            }
            head = head.wrapping_add(1);
        }
        let is_put = |position| {
            let (slot, lap) = self.slot_of(&ring, position);
            let state = slot.state();
            state.lap == lap && state.tag != Tag::Free
        };
        // Wrapping, because anybody may have written anything there.
        while tail.wrapping_sub(head) < n_slots && is_put(tail) {
            tail = tail.wrapping_add(1);
        }
        let n_waiting = ring.records().filter(|record| record.state().tag == RecordTag::Waiting).count();
        let n_put = tail.wrapping_sub(head).min(n_slots);
        usize::try_from(n_put).unwrap_or(usize::MAX).saturating_add(n_waiting)
    }

    /// Whether no message is in it, as far as one can tell.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Refuses every further put, everywhere; what is in the ring can still be taken.
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

    /// Puts a message. Waits for a free slot as long as `patience` allows: spinning first, then asleep.
    ///
    /// # Errors
    /// [`PutFailure`]; what `handles` would have given away is back with its owner then.
    pub fn put(
        &self,
        payload: &[u8],
        handles: OutgoingHandles,
        patience: Patience,
    ) -> Result<(), PutFailure> {
        let mut handles = handles;
        let sent = self.put_from(payload, &mut handles, patience);
        if sent.is_err() {
            take_back(handles);
        }
        sent
    }

    /// As [`Ring::put`], and takes the handles only if the message is sent.
    ///
    /// # Errors
    /// [`PutFailure`]; `handles` are as they were then.
    pub fn put_from(
        &self,
        payload: &[u8],
        handles: &mut OutgoingHandles,
        patience: Patience,
    ) -> Result<(), PutFailure> {
        self.heap().check_home()?;
        let Some(ring) = self.words_at_home() else { return Err(PutFailure::Closed) };
        let (position, spilled) = self.put_borrowed(&ring, payload, handles, patience)?;
        handles.extend(spilled.map(|block| OutgoingHandle(Outgoing::Spill(block))));
        // The handles are ours until they are pinned, which can wait.
        ring.not_empty().wake_after_change();
        if !handles.is_empty() {
            self.pins().pin(&ring, PinnedAt::slot(position), handles);
        }
        Ok(())
    }

    /// Writes a message into a slot, or into a block of its own when it is long. Returns its position, and that block.
    fn put_borrowed(
        &self,
        ring: &RingWords<'_>,
        payload: &[u8],
        handles: &[OutgoingHandle],
        patience: Patience,
    ) -> Result<(u64, Option<Block>), PutFailure> {
        if !are_at_home(self.heap(), handles) {
            return Err(StorageError::ForeignDomain.into());
        }
        if self.shape.n_records > 0 && handles.iter().any(OutgoingHandle::is_exclusive) {
            return Err(PutFailure::NotRepeatable);
        }
        if handles.len() > MAX_HANDLES {
            return Err(PutFailure::TooManyHandles(handles.len()));
        }
        if handles.len() + payload.len().div_ceil(8) <= SLOT_ROOM_WORDS {
            return Ok((self.place(ring, payload, handles, patience)?, None));
        }
        let block = spill(self.heap(), Kind::Message, payload, handles)?;
        let spilled = OutgoingHandle(Outgoing::Spill(block.clone()));
        let position = self.place(ring, &[], std::slice::from_ref(&spilled), patience)?;
        Ok((position, Some(block)))
    }

    /// Takes a message. Waits for one as long as `patience` allows: spinning first, then asleep.
    ///
    /// # Errors
    /// [`TakeFailure`].
    pub fn take(&self, company: Company, patience: Patience) -> Result<IncomingMessage, TakeFailure> {
        let mut message = IncomingMessage::default();
        self.take_into(&mut message, company, patience)?;
        Ok(message)
    }

    /// As [`Ring::take`], into a message that is used again: what it held before is let go of.
    ///
    /// # Errors
    /// As [`Ring::take`]; the message is empty then.
    pub fn take_into(
        &self,
        message: &mut IncomingMessage,
        company: Company,
        patience: Patience,
    ) -> Result<(), TakeFailure> {
        self.heap().check_home()?;
        let Some(ring) = self.words_at_home() else { return Err(TakeFailure::Closed) };
        let has_leases = self.max_leases() > 0;
        self.wait_for_message(&ring, patience, || {
            let returned = if has_leases { self.take_returned(&ring, message) } else { None };
            returned.or_else(|| self.try_take(&ring, company, message, &mut None))
        })
    }

    /// Looks until there is something, or nothing can come any more, or `patience` ends.
    pub(crate) fn wait_for_message<R>(
        &self,
        ring: &RingWords<'_>,
        patience: Patience,
        mut take: impl FnMut() -> Option<Result<R, TakeFailure>>,
    ) -> Result<R, TakeFailure> {
        let look = || take().or_else(|| self.no_more_messages(ring).map(Err));
        patience.wait(ring.not_empty(), &self.take_spin, look).unwrap_or(Err(TakeFailure::Empty))
    }

    pub(crate) fn pins(&self) -> &PinList {
        self.pins
            .get_or_init(|| self.heap().inner().pins.list_for(self.attachment.block().clone(), self.shape))
    }

    /// `None` in a process that was forked from an end's by others than us.
    pub(crate) fn words(&self) -> Option<RingWords<'_>> {
        if self.heap().is_home() { self.words_at_home() } else { None }
    }

    #[inline(always)]
    fn words_at_home(&self) -> Option<RingWords<'_>> {
        RingWords::with_shape(self.attachment.block(), self.shape)
    }

    pub(crate) fn me(&self) -> u8 {
        self.heap().me().slot
    }

    /// Writes a message that fits into a slot; returns its position.
    fn place(
        &self,
        ring: &RingWords<'_>,
        payload: &[u8],
        handles: &[OutgoingHandle],
        patience: Patience,
    ) -> Result<u64, PutFailure> {
        let mut is_first = true;
        let look = || {
            let is_first = std::mem::take(&mut is_first);
            if ring.closed().load(Ordering::Relaxed) != 0 {
                return Some(Err(PutFailure::Closed));
            }
            // Also when there is room: a message that nobody will ever take is no message sent.
            if ring.receivers().load(Ordering::SeqCst) == 0
                && let Some(failure) = self.no_more_receivers(ring)
            {
                return Some(Err(failure));
            }
            match self.try_place(ring, payload, handles, is_first) {
                Some(placed) => Some(placed),
                None => self.no_more_receivers(ring).map(Err),
            }
        };
        patience.wait(ring.not_full(), &self.put_spin, look).unwrap_or(Err(PutFailure::Full))
    }

    /// `None` when the ring is full. Claims `unseen` where that is expected to succeed: a look would bring the slot's line here,
    /// and the claim would then ask for it once more. Where it has failed, the line is left to whoever takes from the slot.
    fn try_place(
        &self,
        ring: &RingWords<'_>,
        payload: &[u8],
        handles: &[OutgoingHandle],
        mut unseen: bool,
    ) -> Option<Result<u64, PutFailure>> {
        let owner = if planted("put-claims-unnamed") { u8::MAX } else { self.me() };
        for _ in 0..MAX_STEPS {
            let position = ring.tail().load(Ordering::Acquire);
            let (slot, lap) = self.slot_of(ring, position);
            let (free, writing) = (SlotState::free(lap), SlotState { lap, owner, tag: Tag::Writing });
            let moved = position.wrapping_add(1);
            let seen = if unseen { free } else { slot.state() };
            let claimed = if seen == free { slot.replace(free, writing) } else { Err(seen) };
            if let Err(state) = claimed {
                unseen = false;
                if state.lap < lap {
                    if ring.tail().load(Ordering::Acquire) == position {
                        return None;
                    }
                } else {
                    // Whoever claimed the position may have died before moving the tail, so everybody moves it.
                    let _ =
                        ring.tail().compare_exchange(position, moved, Ordering::AcqRel, Ordering::Relaxed);
                }
                continue;
            }
            let early = planted("put-commits-first") && slot.change(writing, SlotState::ready(lap));
            write(&slot, payload, handles);
            // The commit. A compare-and-swap, so that a sender that was wrongly declared dead is fenced.
            let committed = early || slot.change(writing, SlotState::ready(lap));
            // After the commit, for which receivers wait.
            let _ = ring.tail().compare_exchange(position, moved, Ordering::AcqRel, Ordering::Relaxed);
            if !committed {
                return Some(Err(PutFailure::Fenced));
            }
            // A receiver that saw the ring closed and empty does not look again: take the message back then.
            change_before_load();
            if ring.closed().load(Ordering::SeqCst) != 0
                && slot.change(SlotState::ready(lap), SlotState::free(lap + 1))
            {
                // A receiver that saw it meanwhile may have gone to sleep until it is taken.
                ring.not_empty().wake();
                return Some(Err(PutFailure::Closed));
            }
            return Some(Ok(position));
        }
        None
    }

    /// `None` when there is no message. With a `lease` that asks for it, the message stays in a record, of which the lease
    /// then knows; `None` also when there is no record for it.
    pub(crate) fn try_take(
        &self,
        ring: &RingWords<'_>,
        company: Company,
        message: &mut IncomingMessage,
        lease: &mut Option<Kept>,
    ) -> Option<Result<(), TakeFailure>> {
        let n_slots = ring.n_slots() as u64;
        'again: for _ in 0..MAX_STEPS {
            let mut head = ring.head().load(Ordering::Acquire);
            let mut position = head;
            let mut holes: SmallVec<[u64; 8]> = SmallVec::new();
            while position.wrapping_sub(head) < n_slots {
                let (slot, lap) = self.slot_of(ring, position);
                let state = slot.state();
                if state.lap > lap {
                    // Taken. The head moves past what is taken, by whoever sees it.
                    if position == head {
                        let next = head.wrapping_add(1);
                        let _ = ring.head().compare_exchange(head, next, Ordering::AcqRel, Ordering::Relaxed);
                        head = next;
                    }
                } else if state.lap < lap || state.tag == Tag::Free {
                    return None;
                } else if state.tag == Tag::Ready {
                    // A hole that became ready in the meantime comes first: each sender's order is kept.
                    for &hole in &holes {
                        let (slot, lap) = self.slot_of(ring, hole);
                        if slot.state() == SlotState::ready(lap) {
                            continue 'again;
                        }
                    }
                    let claimed = SlotState { lap, owner: self.me(), tag: Tag::Claimed };
                    if company == Company::Many && !slot.change(SlotState::ready(lap), claimed) {
                        continue 'again;
                    }
                    let held = if company == Company::Many { claimed } else { SlotState::ready(lap) };
                    if let Some(kept) = lease
                        && !kept.claim_record(ring, self.me())
                    {
                        // Somebody else was faster. Who passed this slot by looks again.
                        slot.change(claimed, SlotState::ready(lap));
                        ring.not_empty().wake();
                        return None;
                    }
                    let freed = SlotState::free(lap.wrapping_add(1));
                    let early = planted("get-holds-late") && slot.change(held, freed);
                    let taken = self.read(slot.lengths(), slot.room(), message);
                    if let Err(error) = &taken
                        && matches!(**error, StorageError::Domain(_))
                    {
                        // The kernel does not let us open what it names, which is not its fault: it stays.
                        if let Some(kept) = lease {
                            kept.let_go(ring);
                        }
                        slot.change(claimed, SlotState::ready(lap));
                        ring.not_empty().wake();
                        return taken.err().map(|error| Err(error.into()));
                    }
                    let taken = taken.map(|spilled| {
                        if let Some(kept) = lease {
                            kept.spilled = spilled;
                        }
                    });
                    // The take. Everything that the message names is held by now. Fenced means that we were
                    // declared dead: the message is somebody else's, and what we hold is dropped.
                    let done = match lease {
                        Some(kept) if taken.is_ok() => kept.keep(ring, position, &slot, claimed, freed),
                        Some(kept) => {
                            kept.let_go(ring);
                            slot.change(held, freed)
                        }
                        None => early || slot.change(held, freed),
                    };
                    if !done {
                        message.clear();
                        continue 'again;
                    }
                    // The next look moves the head, which nobody waits for.
                    ring.not_full().wake_after_change();
                    self.wake_the_last(ring);
                    return Some(taken.map_err(TakeFailure::from));
                } else {
                    holes.push(position);
                }
                position = position.wrapping_add(1);
            }
            return None;
        }
        None
    }

    /// Copies a message out of a slot or a record and holds what it names. Returns the block that it lay in, if any.
    pub(crate) fn read(
        &self,
        lengths: SlotLengths,
        room: &[AtomicU64],
        message: &mut IncomingMessage,
    ) -> Result<Option<Block>, Box<StorageError>> {
        message.clear();
        let SlotLengths { payload_len_bytes, n_references } = lengths;
        let (references, payload) = room.split_at(n_references);
        let mut spilled = None;
        for word in references {
            match accept(self.heap(), word.load(Ordering::Relaxed), &mut message.handles) {
                Ok(None) => {}
                Ok(Some(block)) => spilled = Some(block),
                Err(error) => {
                    message.clear();
                    return Err(error);
                }
            }
        }
        match spilled {
            Some(block) => {
                unspill(self.heap(), &block, message).inspect_err(|_| message.clear())?;
                Ok(Some(block))
            }
            None => {
                fill_payload(message, payload, payload_len_bytes);
                Ok(None)
            }
        }
    }

    /// After a look that found nothing: whether nothing can come any more.
    fn no_more_messages(&self, ring: &RingWords<'_>) -> Option<TakeFailure> {
        let closed = ring.closed().load(Ordering::SeqCst) != 0;
        let senders = ring.senders().load(Ordering::SeqCst);
        let me = self.heap().me().bit();
        if !closed && senders & !me != 0 {
            return None;
        }
        let i_send = senders & me != 0;
        let gone = ring.senders_gone().load(Ordering::SeqCst);
        if !closed && i_send {
            // This process could still put, so that the others are gone is told once. Who is on its way to being a sender is
            // not gone.
            let is_news = gone != self.senders_gone_reported.load(Ordering::SeqCst);
            if !is_news || self.attachment.role_in_transit().sends {
                return None;
            }
        }
        // What was put before the last sender left or the ring was closed is still to be taken.
        fence(Ordering::SeqCst);
        if self.has_message(ring) {
            return None;
        }
        let died = ring.sender_deaths().load(Ordering::SeqCst) > 0;
        if !closed && i_send {
            self.senders_gone_reported.store(gone, Ordering::SeqCst);
        }
        Some(match (closed, died) {
            (true, _) => TakeFailure::Closed,
            (false, true) => TakeFailure::PeerDied,
            (false, false) => TakeFailure::NoSenders,
        })
    }

    /// When the ring is full or has no receiver: whether nobody will ever take.
    fn no_more_receivers(&self, ring: &RingWords<'_>) -> Option<PutFailure> {
        let receivers = ring.receivers().load(Ordering::SeqCst);
        let me = self.heap().me().bit();
        if receivers & !me != 0 {
            return None;
        }
        let gone = ring.receivers_gone().load(Ordering::SeqCst);
        if receivers & me != 0 {
            // As in `no_more_messages`.
            let is_news = gone != self.receivers_gone_reported.load(Ordering::SeqCst);
            if !is_news || self.attachment.role_in_transit().receives {
                return None;
            }
            self.receivers_gone_reported.store(gone, Ordering::SeqCst);
        }
        let died = ring.receiver_deaths().load(Ordering::SeqCst) > 0;
        Some(if died { PutFailure::PeerDied } else { PutFailure::NoReceivers })
    }

    /// When nothing more can come, receivers wait for those who are still taking, and nobody else will wake them.
    pub(crate) fn wake_the_last(&self, ring: &RingWords<'_>) {
        let others = ring.senders().load(Ordering::SeqCst) & !self.heap().me().bit();
        if others == 0 || ring.closed().load(Ordering::SeqCst) != 0 {
            ring.not_empty().wake();
        }
    }

    /// Whether a message is ready, or in the hands of another receiver that may give it back or die.
    fn has_message(&self, ring: &RingWords<'_>) -> bool {
        ring.slots().any(|slot| matches!(slot.state().tag, Tag::Ready | Tag::Claimed | Tag::Moved))
            || ring.records().any(|record| {
                let state = record.state();
                match state.tag {
                    RecordTag::Free => false,
                    RecordTag::Leased => state.owner != self.me(),
                    RecordTag::Filling | RecordTag::Waiting | RecordTag::Taking => true,
                }
            })
    }

    fn slot_of<'a>(&self, ring: &RingWords<'a>, position: u64) -> (Slot<'a>, u64) {
        let (index, lap) = self.shape.slot_and_lap(position);
        (ring.slot(index), lap)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(list) = self.pins.take().filter(|_| self.heap().is_home()) {
            self.heap().inner().pins.close(list);
        }
    }
}

fn write(slot: &Slot<'_>, payload: &[u8], handles: &[OutgoingHandle]) {
    slot.set_lengths(SlotLengths { payload_len_bytes: payload.len(), n_references: handles.len() });
    let (references, words) = slot.room().split_at(handles.len().min(SLOT_ROOM_WORDS));
    for (word, handle) in references.iter().zip(handles) {
        word.store(handle.reference(), Ordering::Relaxed);
    }
    for (word, value) in words.iter().zip(payload_words(payload)) {
        word.store(value, Ordering::Relaxed);
    }
}
