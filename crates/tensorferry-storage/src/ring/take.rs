//! Taking: a message is claimed, what it names is held, and the slot is freed, which is the take.

use std::cmp::Ordering::{Equal, Greater, Less};

use smallvec::SmallVec;
use tensorferry_domain::planted;

use super::{Consumers, Deadline, MAX_STEPS, Ring};
use crate::StorageError;
use crate::atomic::{AtomicU64, Ordering, fence, prefetch_to_write};
use crate::block::Block;
use crate::lease::Kept;
use crate::message::{IncomingMessage, accept, fill_payload, unspill};
use crate::record::RecordTag;
use crate::ring_layout::{RingWords, Slot, SlotLengths, SlotState, Tag};

/// Why no message was taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingTakeError {
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
    /// The message that was taken has a table that makes no sense, and is lost. With [`StorageError::Domain`] the kernel does not
    /// let this process open the memory that the message names: then it stays in the ring.
    #[error(transparent)]
    Storage(#[from] Box<StorageError>),
}

impl From<StorageError> for RingTakeError {
    #[cold]
    fn from(error: StorageError) -> Self {
        Self::Storage(Box::new(error))
    }
}

/// How many slots one look passes beyond those of the ring. Among the living the head is at most one lap behind, and who was
/// overtaken goes on where the others are; behind laps that somebody scribbled over it could go on for ever.
const MAX_PASSED: u64 = 1 << 16;

/// What one walk over the slots came to.
enum Look<'a> {
    /// A message that nobody has.
    Found(Found<'a>),
    /// Something came in before what was found.
    Again,
    /// There is no message.
    Nothing,
}

/// A message that is ready, or was a moment ago.
struct Found<'a> {
    position: u64,
    slot: Slot<'a>,
    lap: u64,
}

impl Found<'_> {
    /// Leaves a message that this receiver had to whoever looks next.
    fn leave(&self, ring: &RingWords<'_>, held: SlotState) {
        self.slot.change(held, SlotState::ready(self.lap));
        ring.not_empty().wake();
    }
}

/// Moves the head past what was taken, unless somebody else has. Returns where it is then.
fn move_head_past(ring: &RingWords<'_>, taken: u64) -> u64 {
    let next = taken.wrapping_add(1);
    let is_ahead = |found: u64| found.wrapping_sub(next) <= u64::MAX / 2;
    match ring.head().compare_exchange(taken, next, Ordering::AcqRel, Ordering::Acquire) {
        Err(found) if is_ahead(found) => found,
        _ => next,
    }
}

impl Ring {
    /// Takes a message. Waits for one as long as `deadline` allows: spinning first, then asleep.
    ///
    /// # Errors
    /// [`RingTakeError`].
    pub fn take(&self, consumers: Consumers, deadline: Deadline) -> Result<IncomingMessage, RingTakeError> {
        let mut message = IncomingMessage::default();
        self.take_into(&mut message, consumers, deadline)?;
        Ok(message)
    }

    /// As [`Ring::take`], into a message that is used again: what it held before is let go of.
    ///
    /// # Errors
    /// As [`Ring::take`]; the message is empty then.
    pub fn take_into(
        &self,
        message: &mut IncomingMessage,
        consumers: Consumers,
        deadline: Deadline,
    ) -> Result<(), RingTakeError> {
        self.heap().check_owning_process()?;
        let Some(ring) = self.words_of_owner() else { return Err(RingTakeError::Closed) };
        let has_leases = self.max_leases() > 0;
        self.wait_for_message(&ring, deadline, || {
            let returned = if has_leases { self.take_returned(&ring, message) } else { None };
            returned.or_else(|| self.try_take(&ring, consumers, message, &mut None))
        })
    }

    /// Looks until there is something, or nothing can come any more, or `deadline` ends.
    pub(crate) fn wait_for_message<R>(
        &self,
        ring: &RingWords<'_>,
        deadline: Deadline,
        mut take: impl FnMut() -> Option<Result<R, RingTakeError>>,
    ) -> Result<R, RingTakeError> {
        let look = || take().or_else(|| self.no_more_messages(ring).map(Err));
        deadline.wait(ring.not_empty(), &self.take_spin, look).unwrap_or(Err(RingTakeError::Empty))
    }

    /// `None` when there is no message. With a `lease` that asks for it, the message stays in a record, of which the lease
    /// then knows; `None` also when there is no record for it.
    pub(crate) fn try_take(
        &self,
        ring: &RingWords<'_>,
        consumers: Consumers,
        message: &mut IncomingMessage,
        lease: &mut Option<Kept>,
    ) -> Option<Result<(), RingTakeError>> {
        let mut n_passed = 0;
        for _ in 0..MAX_STEPS {
            let found = match self.find(ring, &mut n_passed) {
                Look::Found(found) => found,
                Look::Again => continue,
                Look::Nothing => return None,
            };
            let Some(held) = self.claim(&found, consumers) else { continue };
            if let Some(kept) = lease
                && !kept.claim_record(ring, self.me())
            {
                // Somebody else was faster.
                found.leave(ring, held);
                return None;
            }
            let taken = self.take_claimed(ring, &found, held, message, lease);
            if taken.is_some() {
                return taken;
            }
        }
        None
    }

    /// Looks for the first message that nobody has. The head moves past what is taken, by whoever sees it.
    #[inline]
    fn find<'a>(&self, ring: &RingWords<'a>, n_passed: &mut u64) -> Look<'a> {
        let n_slots = ring.n_slots() as u64;
        let mut head = ring.head().load(Ordering::Acquire);
        let mut position = head;
        let mut holes: SmallVec<[u64; 8]> = SmallVec::new();
        while position.wrapping_sub(head) < n_slots {
            let (slot, lap) = self.slot_of(ring, position);
            let state = slot.state();
            match state.lap.cmp(&lap) {
                // Not put yet.
                Less => return Look::Nothing,
                Greater if position == head => {
                    *n_passed += 1;
                    if *n_passed > n_slots + MAX_PASSED {
                        return Look::Nothing;
                    }
                    head = move_head_past(ring, head);
                    position = head;
                    continue;
                }
                // Taken, and something before it is not.
                Greater => {}
                Equal => match state.tag {
                    Tag::Free => return Look::Nothing,
                    Tag::Ready => {
                        // A hole that became ready in the meantime comes first: each sender's order is kept.
                        let is_ready = |&hole: &u64| {
                            let (slot, lap) = self.slot_of(ring, hole);
                            slot.state() == SlotState::ready(lap)
                        };
                        let is_first = !holes.iter().any(is_ready);
                        return if is_first {
                            Look::Found(Found { position, slot, lap })
                        } else {
                            Look::Again
                        };
                    }
                    Tag::Writing | Tag::Claimed | Tag::Moved => holes.push(position),
                },
            }
            position = position.wrapping_add(1);
        }
        Look::Nothing
    }

    /// Reads a message that this receiver has and frees its slot, which is the take. `None` when this process was declared dead:
    /// the message is somebody else's, and what was held of it is dropped.
    #[inline]
    fn take_claimed(
        &self,
        ring: &RingWords<'_>,
        found: &Found<'_>,
        held: SlotState,
        message: &mut IncomingMessage,
        lease: &mut Option<Kept>,
    ) -> Option<Result<(), RingTakeError>> {
        let &Found { position, ref slot, lap } = found;
        let freed = SlotState::free(lap.wrapping_add(1));
        let early = planted("get-holds-late") && slot.change(held, freed);
        let read = self.read(slot.lengths(), slot.room(), message);
        if let Err(error) = &read
            && matches!(**error, StorageError::Domain(_))
        {
            // The kernel does not let us open what it names, which is not its fault: it stays.
            if let Some(kept) = lease {
                kept.let_go(ring);
            }
            found.leave(ring, held);
            return read.err().map(|error| Err(error.into()));
        }
        let taken = read.map(|spilled| {
            if let Some(kept) = lease {
                kept.spilled = spilled;
            }
        });
        // Everything that the message names is held by now.
        let is_ours = match lease {
            Some(kept) if taken.is_ok() => kept.keep(ring, position, slot, held, freed),
            Some(kept) => {
                kept.let_go(ring);
                // For who waits for a record.
                ring.not_empty().wake();
                slot.change(held, freed)
            }
            None => early || slot.change(held, freed),
        };
        if !is_ours {
            message.clear();
            return None;
        }
        // The next look moves the head, which nobody waits for.
        ring.not_full().wake_after_change();
        self.wake_the_last(ring, position);
        Some(taken.map_err(RingTakeError::from))
    }

    /// Takes the message of a slot for this receiver. Returns what the slot says until it is freed; `None` when somebody else was
    /// faster.
    fn claim(&self, found: &Found<'_>, consumers: Consumers) -> Option<SlotState> {
        let ready = SlotState::ready(found.lap);
        match consumers {
            Consumers::Multi => {
                let claimed = SlotState { lap: found.lap, owner: self.me(), tag: Tag::Claimed };
                found.slot.change(ready, claimed).then_some(claimed)
            }
            Consumers::Single => {
                // Its line was only looked at so far, and is written once the message was read.
                prefetch_to_write(found.slot.state_word());
                Some(ready)
            }
        }
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
    fn no_more_messages(&self, ring: &RingWords<'_>) -> Option<RingTakeError> {
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
            (true, _) => RingTakeError::Closed,
            (false, true) => RingTakeError::PeerDied,
            (false, false) => RingTakeError::NoSenders,
        })
    }

    /// When nothing more can come, receivers wait for those who are still taking, and nobody else will wake them. So does the
    /// last one that can send, if it receives too: it is told that the others are gone when what they had put is taken.
    fn wake_the_last(&self, ring: &RingWords<'_>, taken: u64) {
        let others = ring.senders().load(Ordering::SeqCst) & !self.heap().me().bit();
        let is_one_that_receives =
            || others.is_power_of_two() && ring.receivers().load(Ordering::SeqCst) & others != 0;
        if others == 0
            || ring.closed().load(Ordering::SeqCst) != 0
            || (is_one_that_receives()
                && ring.senders_gone().load(Ordering::SeqCst) != 0
                && !self.has_message_behind(ring, taken))
        {
            ring.not_empty().wake();
        }
    }

    /// Whether there is a message behind this one, which somebody will take too. False where the tail has not been moved yet.
    fn has_message_behind(&self, ring: &RingWords<'_>, taken: u64) -> bool {
        let next = taken.wrapping_add(1);
        let n_behind = ring.tail().load(Ordering::SeqCst).wrapping_sub(next);
        let n_slots = ring.n_slots() as u64;
        let n_behind = if n_behind > n_slots { 0 } else { n_behind };
        (0..n_behind).any(|step| holds_message(&self.slot_of(ring, next.wrapping_add(step)).0))
    }

    /// Whether a message is ready, or in the hands of another receiver that may give it back or die.
    fn has_message(&self, ring: &RingWords<'_>) -> bool {
        ring.slots().any(|slot| holds_message(&slot))
            || ring.records().any(|record| {
                let state = record.state();
                match state.tag {
                    RecordTag::Free => false,
                    RecordTag::Leased => state.owner != self.me(),
                    RecordTag::Filling | RecordTag::Waiting | RecordTag::Taking => true,
                }
            })
    }
}

fn holds_message(slot: &Slot<'_>) -> bool {
    matches!(slot.state().tag, Tag::Ready | Tag::Claimed | Tag::Moved)
}
