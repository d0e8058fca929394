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

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use smallvec::SmallVec;
use tensorferry_domain::Spin;

use crate::StorageError;
use crate::attachments::Attachment;
use crate::block::Block;
use crate::header::Kind;
use crate::heap::Heap;
use crate::message::{
    Accepted, IncomingMessage, MAX_HANDLES, Outgoing, OutgoingHandle, OutgoingHandles, accept, are_at_home,
    fill_payload, payload_words, spill, take_back, unspill,
};
use crate::pins::PinList;
use crate::reference::Role;
use crate::ring_layout::{
    MAX_SLOTS, RingWords, SLOT_ROOM_WORDS, Slot, SlotLengths, SlotState, Tag, words_for,
};

/// How often one look starts over before it reports that it found nothing. The living cannot make anybody start over
/// this often; words that somebody scribbled over could, for ever.
const MAX_STEPS: usize = 1 << 21;

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
    /// The last process that could have received died.
    #[error("the last process that could receive from the queue died")]
    PeerDied,
    /// This process was declared dead and its claim taken away.
    #[error("this process was declared dead by another member of its domain")]
    Fenced,
    /// More handles than a message can have.
    #[error("{0} handles in one message, at most 65535 are possible")]
    TooManyHandles(usize),
    /// There was no memory for a message that does not fit into a slot.
    #[error(transparent)]
    Storage(#[from] StorageError),
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
    /// The last process that could have sent died.
    #[error("the last process that could send to the queue died")]
    PeerDied,
    /// A message was taken whose table makes no sense. It is lost.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// One process's end of a ring.
#[derive(Debug)]
pub struct Ring {
    attachment: Attachment,
    /// Read once, and believed from then on.
    n_slots: usize,
    /// Made when the first message with handles is sent.
    pins: OnceLock<Arc<PinList>>,
    put_spin: Spin,
    take_spin: Spin,
    /// Deaths of attached members that this end has reported already.
    deaths_reported: AtomicU64,
}

impl Ring {
    /// Makes a ring of `n_slots` slots of 256 bytes, with this process attached in both roles. `type_hash` tells
    /// what travels in it.
    ///
    /// # Errors
    /// [`StorageError::Domain`] when there is no memory for it, [`StorageError::TooLarge`] for more than a million slots.
    pub fn create(heap: &Heap, n_slots: usize, type_hash: u64) -> Result<Self, StorageError> {
        let n_slots = n_slots.max(1);
        if n_slots > MAX_SLOTS {
            let address_space_bytes = heap.domain().layout().data_len_bytes;
            return Err(StorageError::TooLarge {
                len_bytes: n_slots.saturating_mul(256),
                address_space_bytes,
            });
        }
        let block = heap.allocate_block(words_for(n_slots) * 8)?;
        RingWords::format(&block, n_slots, type_hash);
        if let Some(header) = heap.header(block.place()) {
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
        let deaths_reported = AtomicU64::new(words.deaths().load(Ordering::SeqCst));
        let n_slots = words.n_slots();
        Ok(Self {
            attachment,
            n_slots,
            pins: OnceLock::new(),
            put_spin: Spin::default(),
            take_spin: Spin::default(),
            deaths_reported,
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
        self.n_slots
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
        let tail = ring.tail().load(Ordering::Acquire).min(head.saturating_add(n_slots));
        // What was taken in another order than it was put is passed by the head only at the next take.
        while head < tail {
            let (slot, lap) = self.slot_of(&ring, head, n_slots);
            if slot.state().lap <= lap {
                break;
            }
            head += 1;
        }
        usize::try_from(tail.saturating_sub(head)).unwrap_or(usize::MAX)
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
        match self.put_borrowed(payload, &handles, patience) {
            Ok((position, spilled)) => {
                handles.extend(spilled.map(|block| OutgoingHandle(Outgoing::Spill(block))));
                if !handles.is_empty() {
                    self.pins().pin(position, handles);
                }
                if let Some(ring) = self.words() {
                    ring.not_empty().wake();
                }
                Ok(())
            }
            Err(failure) => {
                take_back(handles);
                Err(failure)
            }
        }
    }

    /// Writes a message into a slot, or into a block of its own when it is long. Returns its position, and that block.
    fn put_borrowed(
        &self,
        payload: &[u8],
        handles: &[OutgoingHandle],
        patience: Patience,
    ) -> Result<(u64, Option<Block>), PutFailure> {
        if !are_at_home(self.heap(), handles) {
            return Err(StorageError::ForeignDomain.into());
        }
        if handles.len() > MAX_HANDLES {
            return Err(PutFailure::TooManyHandles(handles.len()));
        }
        if handles.len() + payload.len().div_ceil(8) <= SLOT_ROOM_WORDS {
            return Ok((self.place(payload, handles, patience)?, None));
        }
        let block = spill(self.heap(), Kind::Message, payload, handles)?;
        let spilled = OutgoingHandle(Outgoing::Spill(block.clone()));
        let position = self.place(&[], std::slice::from_ref(&spilled), patience)?;
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
        let Some(ring) = self.words() else { return Err(TakeFailure::Closed) };
        let look = || match self.try_take(&ring, company, message) {
            Some(taken) => Some(taken),
            None => self.no_more_messages(&ring).map(Err),
        };
        let found = match patience {
            Patience::None => {
                let mut look = look;
                look()
            }
            Patience::Until(deadline) => {
                ring.not_empty().wait_until(&self.take_spin, Some(deadline), look).ok()
            }
            Patience::Forever => ring.not_empty().wait_until(&self.take_spin, None, look).ok(),
        };
        found.unwrap_or(Err(TakeFailure::Empty))
    }

    fn pins(&self) -> &PinList {
        self.pins
            .get_or_init(|| self.heap().inner().pins.list_for(self.attachment.block().clone(), self.n_slots))
    }

    fn words(&self) -> Option<RingWords<'_>> {
        RingWords::with_slots(self.attachment.block(), self.n_slots)
    }

    fn me(&self) -> u8 {
        self.heap().me().slot
    }

    /// Writes a message that fits into a slot; returns its position.
    fn place(
        &self,
        payload: &[u8],
        handles: &[OutgoingHandle],
        patience: Patience,
    ) -> Result<u64, PutFailure> {
        let Some(ring) = self.words() else { return Err(PutFailure::Closed) };
        let references: SmallVec<[u64; 2]> = handles.iter().map(OutgoingHandle::reference).collect();
        let look = || {
            if ring.closed().load(Ordering::Relaxed) != 0 {
                return Some(Err(PutFailure::Closed));
            }
            // Also when there is room: a message that nobody will ever take is no message sent.
            if ring.receivers().load(Ordering::SeqCst) == 0 {
                return self.no_more_receivers(&ring).map(Err);
            }
            match self.try_place(&ring, payload, &references) {
                Some(placed) => Some(placed),
                None => self.no_more_receivers(&ring).map(Err),
            }
        };
        let placed = match patience {
            Patience::None => look(),
            Patience::Until(deadline) => {
                ring.not_full().wait_until(&self.put_spin, Some(deadline), look).ok()
            }
            Patience::Forever => ring.not_full().wait_until(&self.put_spin, None, look).ok(),
        };
        placed.unwrap_or(Err(PutFailure::Full))
    }

    /// `None` when the ring is full.
    fn try_place(
        &self,
        ring: &RingWords<'_>,
        payload: &[u8],
        references: &[u64],
    ) -> Option<Result<u64, PutFailure>> {
        let n_slots = ring.n_slots() as u64;
        for _ in 0..MAX_STEPS {
            let position = ring.tail().load(Ordering::Acquire);
            let (slot, lap) = self.slot_of(ring, position, n_slots);
            let state = slot.state();
            if state.lap < lap {
                if ring.tail().load(Ordering::Acquire) == position {
                    return None;
                }
                continue;
            }
            let writing = SlotState { lap, owner: self.me(), tag: Tag::Writing };
            let claimed = state == SlotState::free(lap) && slot.change(SlotState::free(lap), writing);
            // Whoever claimed the position may have died before moving the tail, so everybody moves it.
            let moved = position.wrapping_add(1);
            if state.lap > lap || state.tag != Tag::Free || claimed {
                let _ = ring.tail().compare_exchange(position, moved, Ordering::AcqRel, Ordering::Relaxed);
            }
            if !claimed {
                continue;
            }
            write(&slot, payload, references);
            // The commit. A compare-and-swap, so that a sender that was wrongly declared dead is fenced.
            if !slot.change(writing, SlotState::ready(lap)) {
                return Some(Err(PutFailure::Fenced));
            }
            // A receiver that saw the ring closed and empty does not look again: take the message back then.
            fence(Ordering::SeqCst);
            if ring.closed().load(Ordering::Relaxed) != 0
                && slot.change(SlotState::ready(lap), SlotState::free(lap + 1))
            {
                return Some(Err(PutFailure::Closed));
            }
            return Some(Ok(position));
        }
        None
    }

    /// `None` when there is no message.
    fn try_take(
        &self,
        ring: &RingWords<'_>,
        company: Company,
        message: &mut IncomingMessage,
    ) -> Option<Result<(), TakeFailure>> {
        let n_slots = ring.n_slots() as u64;
        'again: for _ in 0..MAX_STEPS {
            let mut head = ring.head().load(Ordering::Acquire);
            let mut position = head;
            let mut holes: SmallVec<[u64; 8]> = SmallVec::new();
            while position.wrapping_sub(head) < n_slots {
                let (slot, lap) = self.slot_of(ring, position, n_slots);
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
                        let (slot, lap) = self.slot_of(ring, hole, n_slots);
                        if slot.state() == SlotState::ready(lap) {
                            continue 'again;
                        }
                    }
                    let claimed = SlotState { lap, owner: self.me(), tag: Tag::Claimed };
                    if company == Company::Many && !slot.change(SlotState::ready(lap), claimed) {
                        continue 'again;
                    }
                    let held = if company == Company::Many { claimed } else { SlotState::ready(lap) };
                    let taken = self.read(&slot, message);
                    // The take. Everything that the message names is held by now. Fenced means that we were
                    // declared dead: the message is somebody else's, and what we hold is dropped.
                    if !slot.change(held, SlotState::free(lap.wrapping_add(1))) {
                        message.clear();
                        continue 'again;
                    }
                    let next = position.wrapping_add(1);
                    if position == head {
                        let _ = ring.head().compare_exchange(head, next, Ordering::AcqRel, Ordering::Relaxed);
                    }
                    ring.not_full().wake();
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

    /// Copies a message out of its slot and holds what it names.
    fn read(&self, slot: &Slot<'_>, message: &mut IncomingMessage) -> Result<(), StorageError> {
        message.clear();
        let SlotLengths { payload_len_bytes, n_references } = slot.lengths();
        let (references, payload) = slot.room().split_at(n_references);
        let mut spilled = None;
        for word in references {
            match accept(self.heap(), word.load(Ordering::Relaxed)) {
                Ok(Accepted::Handle(handle)) => message.handles.push(handle),
                Ok(Accepted::Spill(block)) => spilled = Some(block),
                Err(error) => {
                    message.clear();
                    return Err(error);
                }
            }
        }
        match spilled {
            Some(block) => unspill(self.heap(), &block, message).inspect_err(|_| message.clear()),
            None => {
                fill_payload(message, payload, payload_len_bytes);
                Ok(())
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
        let alone_after_death = !closed && i_send && self.has_unreported_death(ring);
        if !closed && i_send && !alone_after_death {
            return None;
        }
        // What was put before the last sender left or the ring was closed is still to be taken.
        fence(Ordering::SeqCst);
        if self.has_message(ring) {
            return None;
        }
        let died = ring.deaths().load(Ordering::SeqCst) > 0;
        if alone_after_death {
            self.report_deaths(ring);
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
        if receivers & me == 0 {
            let died = ring.deaths().load(Ordering::SeqCst) > 0;
            return Some(if died { PutFailure::PeerDied } else { PutFailure::NoReceivers });
        }
        self.has_unreported_death(ring).then(|| {
            self.report_deaths(ring);
            PutFailure::PeerDied
        })
    }

    /// When nothing more can come, receivers wait for those who are still taking, and nobody else will wake them.
    fn wake_the_last(&self, ring: &RingWords<'_>) {
        let others = ring.senders().load(Ordering::Relaxed) & !self.heap().me().bit();
        if others == 0 || ring.closed().load(Ordering::Relaxed) != 0 {
            ring.not_empty().wake();
        }
    }

    fn has_unreported_death(&self, ring: &RingWords<'_>) -> bool {
        ring.deaths().load(Ordering::SeqCst) > self.deaths_reported.load(Ordering::SeqCst)
    }

    fn report_deaths(&self, ring: &RingWords<'_>) {
        self.deaths_reported.store(ring.deaths().load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Whether a message is ready, or was claimed by a receiver that may give it back by dying.
    fn has_message(&self, ring: &RingWords<'_>) -> bool {
        ring.slots().any(|slot| matches!(slot.state().tag, Tag::Ready | Tag::Claimed))
    }

    fn slot_of<'a>(&self, ring: &RingWords<'a>, position: u64, n_slots: u64) -> (Slot<'a>, u64) {
        let (lap, index) = if n_slots.is_power_of_two() {
            (position >> n_slots.trailing_zeros(), position & (n_slots - 1))
        } else {
            (position / n_slots, position % n_slots)
        };
        (ring.slot(usize::try_from(index).unwrap_or(0)), lap)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Some(list) = self.pins.take() {
            self.heap().inner().pins.close(list);
        }
    }
}

fn write(slot: &Slot<'_>, payload: &[u8], references: &[u64]) {
    slot.set_lengths(SlotLengths { payload_len_bytes: payload.len(), n_references: references.len() });
    let values = references.iter().copied().chain(payload_words(payload));
    for (word, value) in slot.room().iter().zip(values) {
        word.store(value, Ordering::Relaxed);
    }
}
