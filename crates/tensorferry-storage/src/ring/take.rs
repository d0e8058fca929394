//! Taking a message: the message is claimed, the blocks that it names are held, and the slot is freed.
//! Freeing the slot is the take.

use std::cmp::Ordering::{Equal, Greater, Less};
use std::hint::{cold_path, spin_loop};

use smallvec::SmallVec;
use tensorferry_domain::planted;

use super::{Consumers, MAX_STEPS, Ring};
use crate::StorageError;
use crate::atomic::{AtomicU64, Ordering, prefetch_to_write};
use crate::block::Block;
use crate::deadline::Deadline;
use crate::lease::Kept;
use crate::message::{IncomingMessage, accept, fill_payload, unspill};
use crate::record::RecordTag;
use crate::ring_layout::RingWords;
use crate::slot::{Slot, SlotLengths, SlotState, Tag};

/// Why no message was taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingTakeError {
    /// No message came before the deadline.
    #[error("the queue is empty")]
    Empty,
    /// The queue is closed and everything that was in it has been taken.
    #[error("the queue is closed")]
    Closed,
    /// No other process is left that could send, and none that could has died. A process that could itself
    /// send gets this error once after each sender that left.
    #[error("every other process that could send to the queue has let go of it")]
    NoSenders,
    /// As [`RingTakeError::NoSenders`], but at least one process that could send has died.
    #[error(
        "every process that could send to the queue is gone, and at least one of them died or was killed"
    )]
    PeerDied,
    /// The ring was made without leases.
    #[error("the queue was made without leases")]
    NoLeases,
    /// This process has all leases of the ring: it has to acknowledge one first.
    #[error("no message can be leased: this process has all {0} leases of the queue")]
    AllLeased(usize),
    /// The message that was taken has an invalid table, and is lost. The exception is
    /// [`StorageError::Domain`]: the kernel does not let this process open the memory that the message names,
    /// and the message stays in the ring.
    #[error(transparent)]
    Storage(#[from] Box<StorageError>),
}

impl From<StorageError> for RingTakeError {
    #[cold]
    fn from(error: StorageError) -> Self {
        Self::Storage(Box::new(error))
    }
}

/// How many slots one look passes beyond those of the ring. With living members the head is at most one lap
/// behind, and a receiver that was overtaken goes on from where the others are. Laps that a faulty member
/// wrote over could otherwise keep it going without end.
const MAX_PASSED: u64 = 1 << 16;

/// How often a receiver that found nothing glances at the next slot. It pauses for 9 to 50 ns after each
/// glance, as the processor goes.
const GLANCES: u32 = 64;

/// The outcome of one walk over the slots. A position and not the slot itself, so that it is returned in
/// registers.
enum Look {
    /// The position of a message that no receiver has claimed.
    Found(u64),
    /// A message that comes before the one that was found has become ready.
    Again,
    /// There is no message.
    Nothing,
}

/// A message that is ready, or was ready a moment ago.
struct Found<'a> {
    position: u64,
    slot: Slot<'a>,
    lap: u64,
}

impl Found<'_> {
    /// Leaves a claimed message to the next receiver that looks.
    fn leave(&self, ring: &RingWords<'_>, held: SlotState) {
        self.slot.change(held, SlotState::ready(self.lap));
        ring.not_empty().wake();
    }
}

/// Moves the head past the position `taken`, unless another process has. Returns where the head is then.
fn move_head_past(ring: &RingWords<'_>, taken: u64) -> u64 {
    let next = taken.wrapping_add(1);
    let is_ahead = |found: u64| found.wrapping_sub(next) <= u64::MAX / 2;
    match ring.head().compare_exchange(taken, next, Ordering::AcqRel, Ordering::Acquire) {
        Err(found) if is_ahead(found) => found,
        _ => next,
    }
}

impl Ring {
    /// Takes a message.
    ///
    /// # Blocking
    /// Waits for a message as long as `deadline` allows: it polls first, then sleeps. A sender that puts a
    /// message wakes it. So do closing the ring, a sender that leaves, and the sweep after a death.
    /// `Deadline::Now` does not wait.
    ///
    /// # Errors
    /// [`RingTakeError`].
    pub fn take(&self, consumers: Consumers, deadline: Deadline) -> Result<IncomingMessage, RingTakeError> {
        let mut message = IncomingMessage::default();
        self.take_into(&mut message, consumers, deadline)?;
        Ok(message)
    }

    /// As [`Ring::take`], into a message that is reused: its former contents are let go of first.
    ///
    /// # Errors
    /// As [`Ring::take`]. The message is then empty.
    pub fn take_into(
        &self,
        message: &mut IncomingMessage,
        consumers: Consumers,
        deadline: Deadline,
    ) -> Result<(), RingTakeError> {
        self.heap().check_owning_process()?;
        let ring = self.words_of_owner();
        // Of several threads that wait, each is told what happens while it waits.
        let reported = self.senders_gone_reported.load(Ordering::SeqCst);
        let mut is_at_once = true;
        // A loop, so that the look is inlined once.
        let found = loop {
            let found = self.look_for_message(ring, consumers, message, reported);
            if found.is_some() || !is_at_once {
                break found;
            }
            is_at_once = false;
            if !self.sees_change(ring, deadline) {
                break None;
            }
        };
        if found.is_some() && !is_at_once {
            self.take_spin.note_found();
        }
        let taken = found.unwrap_or_else(|| {
            let look = || self.look_for_message(ring, consumers, message, reported);
            self.wait_longer(ring, deadline, look)
        });
        if consumers == Consumers::Single {
            self.next_message.learn(is_at_once);
            if let Some(position) = self.next_message.expected() {
                self.look_ahead(ring, position);
            }
        }
        taken
    }

    /// After a look that found nothing: glances at the slot of the next message, for a few microseconds at
    /// most, and returns whether it has changed.
    ///
    /// Where both sides are busy, the next message comes within that time. A glance is a fraction of a look,
    /// so the message is seen sooner, and is then taken in the straight code of the first look
    /// (docs/bench/NOTES.md).
    #[inline]
    fn sees_change(&self, ring: &RingWords<'_>, deadline: Deadline) -> bool {
        if !self.take_spin.is_worthwhile() || !deadline.has_time() {
            return false;
        }
        let (slot, lap) = self.slot_of(ring, ring.head().load(Ordering::Acquire));
        for _ in 0..GLANCES {
            let state = slot.state();
            // One that is being written is there in a moment.
            if state != SlotState::free(lap) && (state.lap, state.tag) != (lap, Tag::Writing) {
                return true;
            }
            spin_loop();
        }
        false
    }

    /// Prefetches the block that the message at `position` names first, if the message is there.
    fn look_ahead(&self, ring: &RingWords<'_>, position: u64) {
        let (slot, lap) = self.slot_of(ring, position);
        let is_found = slot.state() == SlotState::ready(lap)
            && slot.lengths().n_references > 0
            && slot
                .room()
                .first()
                .is_some_and(|word| self.heap().prefetch_fresh(word.load(Ordering::Relaxed)));
        if !is_found {
            self.next_message.pause();
        }
    }

    /// One look. Returns `None` when there is no message and one may come. Inlined, so that a message that is
    /// there at once is taken in straight code.
    #[inline(always)]
    fn look_for_message(
        &self,
        ring: &RingWords<'_>,
        consumers: Consumers,
        message: &mut IncomingMessage,
        reported: u64,
    ) -> Option<Result<(), RingTakeError>> {
        if self.max_leases() > 0
            && let Some(returned) = self.take_returned(ring, message)
        {
            return Some(returned);
        }
        match self.try_take(ring, consumers, message, &mut None) {
            Some(taken) => Some(taken),
            None => self.no_more_messages(ring, reported).map(Err),
        }
    }

    /// Looks until there is a message, until no message can come any more, or until `deadline`.
    pub(crate) fn wait_for_message<R>(
        &self,
        ring: &RingWords<'_>,
        deadline: Deadline,
        mut take: impl FnMut() -> Option<Result<R, RingTakeError>>,
    ) -> Result<R, RingTakeError> {
        let reported = self.senders_gone_reported.load(Ordering::SeqCst);
        let mut look = || take().or_else(|| self.no_more_messages(ring, reported).map(Err));
        look().unwrap_or_else(|| self.wait_longer(ring, deadline, look))
    }

    /// As [`Ring::wait_for_message`], after a look that found nothing.
    #[inline(never)]
    fn wait_longer<R>(
        &self,
        ring: &RingWords<'_>,
        deadline: Deadline,
        look: impl FnMut() -> Option<Result<R, RingTakeError>>,
    ) -> Result<R, RingTakeError> {
        let found = deadline.wait_longer(ring.not_empty(), &self.take_spin, look);
        found.unwrap_or(Err(RingTakeError::Empty))
    }

    /// Returns `None` when there is no message. If `lease` is `Some`, the message stays in a record, which is
    /// noted in the lease; the result is then also `None` when no record is free.
    #[inline(always)]
    pub(crate) fn try_take(
        &self,
        ring: &RingWords<'_>,
        consumers: Consumers,
        message: &mut IncomingMessage,
        lease: &mut Option<Kept>,
    ) -> Option<Result<(), RingTakeError>> {
        let mut n_passed = 0;
        for _ in 0..MAX_STEPS {
            let position = match self.find(ring, &mut n_passed) {
                Look::Found(position) => position,
                Look::Again => continue,
                Look::Nothing => return None,
            };
            let (slot, lap) = self.slot_of(ring, position);
            let found = Found { position, slot, lap };
            let Some(held) = self.claim(&found, consumers) else { continue };
            if let Some(kept) = lease
                && !kept.claim_record(ring, self.me())
            {
                // Another receiver was faster.
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

    /// Looks for the first message that no receiver has claimed. Every receiver that sees a taken message at
    /// the head moves the head past it.
    #[inline(always)]
    fn find(&self, ring: &RingWords<'_>, n_passed: &mut u64) -> Look {
        let mut head = ring.head().load(Ordering::Acquire);
        loop {
            let (slot, lap) = self.slot_of(ring, head);
            // The usual case, as a whole word: of the lap the 48 bits that a state has, as for every change.
            let word = slot.state_word().load(Ordering::Acquire);
            if word == SlotState::ready(lap).pack() {
                return Look::Found(head);
            }
            let state = SlotState::unpack(word);
            if state.lap <= lap {
                let is_free = state == SlotState::free(lap) || state.lap < lap;
                return if is_free { Look::Nothing } else { self.find_behind_hole(ring, head) };
            }
            *n_passed += 1;
            if *n_passed > ring.n_slots() as u64 + MAX_PASSED {
                cold_path();
                return Look::Nothing;
            }
            head = move_head_past(ring, head);
        }
    }

    /// As [`Ring::find`], when the message at the head is being written or taken.
    #[inline(never)]
    fn find_behind_hole(&self, ring: &RingWords<'_>, head: u64) -> Look {
        let mut holes: SmallVec<[u64; 8]> = SmallVec::new();
        for step in 0..ring.n_slots() as u64 {
            let position = head.wrapping_add(step);
            let (slot, lap) = self.slot_of(ring, position);
            let state = slot.state();
            match state.lap.cmp(&lap) {
                // Not put yet.
                Less => return Look::Nothing,
                // Taken, while something before it is not.
                Greater => {}
                Equal => match state.tag {
                    Tag::Free => return Look::Nothing,
                    Tag::Ready => {
                        // A hole that became ready meanwhile comes first, which keeps each sender's order.
                        let is_ready = |&hole: &u64| {
                            let (slot, lap) = self.slot_of(ring, hole);
                            slot.state() == SlotState::ready(lap)
                        };
                        let is_first = !holes.iter().any(is_ready);
                        return if is_first { Look::Found(position) } else { Look::Again };
                    }
                    Tag::Writing | Tag::Claimed | Tag::Moved => holes.push(position),
                },
            }
        }
        Look::Nothing
    }

    /// Reads a message that this receiver has claimed and frees its slot, which is the take. Returns `None`
    /// when this process was declared dead: another process has the message then, and what was held of it is
    /// dropped.
    #[inline(always)]
    fn take_claimed(
        &self,
        ring: &RingWords<'_>,
        found: &Found<'_>,
        held: SlotState,
        message: &mut IncomingMessage,
        lease: &mut Option<Kept>,
    ) -> Option<Result<(), RingTakeError>> {
        let &Found { position, ref slot, lap } = found;
        let freed = SlotState::free_after(lap);
        let early = planted("get-holds-late") && slot.change(held, freed);
        let read = self.read(slot.lengths(), slot.room(), message);
        if let Err(error) = &read {
            cold_path();
            if matches!(**error, StorageError::Domain(_)) {
                // The kernel does not let this process open what the message names. The message is not at
                // fault, so it stays.
                if let Some(kept) = lease {
                    kept.let_go(ring);
                }
                found.leave(ring, held);
                return read.err().map(|error| Err(error.into()));
            }
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
                // Wakes receivers that wait for a record.
                ring.not_empty().wake();
                slot.change(held, freed)
            }
            None => early || slot.change(held, freed),
        };
        if !is_ours {
            cold_path();
            message.clear();
            return None;
        }
        self.next_message.follows(position);
        // The next look moves the head; no process waits for that.
        ring.not_full().wake_after_change();
        self.wake_the_last(ring, position);
        Some(taken.map_err(RingTakeError::from))
    }

    /// Claims the message of a slot for this receiver. Returns the state that the slot has until it is freed,
    /// or `None` when another receiver was faster.
    fn claim(&self, found: &Found<'_>, consumers: Consumers) -> Option<SlotState> {
        let ready = SlotState::ready(found.lap);
        match consumers {
            Consumers::Multi => {
                let claimed = SlotState { lap: found.lap, owner: self.me(), tag: Tag::Claimed };
                found.slot.change(ready, claimed).then_some(claimed)
            }
            Consumers::Single => {
                // The slot's line was only read so far, and is written once the message was read.
                prefetch_to_write(found.slot.state_word());
                Some(ready)
            }
        }
    }

    /// Copies a message out of a slot or a record and holds what it names. Returns the block that the message
    /// lay in, if it was in one.
    #[inline(always)]
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
        if let Some(block) = spilled {
            cold_path();
            unspill(self.heap(), &block, message).inspect_err(|_| message.clear())?;
            return Ok(Some(block));
        }
        fill_payload(message, payload, payload_len_bytes);
        Ok(None)
    }

    /// Whether [`Ring::take`] without waiting would find a message or an error now. Takes and reports
    /// nothing.
    pub(crate) fn is_ready(&self, ring: &RingWords<'_>) -> bool {
        let has_returned = || ring.records().any(|record| record.state().tag == RecordTag::Waiting);
        self.finds_message(ring) || has_returned() || self.has_ended(ring)
    }

    /// Whether there is a message in a slot that no receiver has claimed.
    pub(crate) fn finds_message(&self, ring: &RingWords<'_>) -> bool {
        !matches!(self.find(ring, &mut 0), Look::Nothing)
    }
}

#[cfg(test)]
mod tests {
    use tensorferry_domain::Domain;

    use super::*;
    use crate::Heap;

    #[test]
    fn a_glance_finds_a_message_and_none_that_is_being_written() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = Ring::create(&heap, 4, 0).unwrap();
        let words = ring.words().unwrap();
        let finds = |state: SlotState| {
            words.slot(0).state_word().store(state.pack(), Ordering::SeqCst);
            ring.sees_change(&words, Deadline::Never)
        };
        let free = SlotState::free(0);
        assert!(!finds(free));
        assert!(!finds(SlotState { owner: 3, tag: Tag::Writing, ..free }));
        assert!(finds(SlotState::ready(0)));
        // Another receiver has it, or had it: the head is to be moved.
        assert!(finds(SlotState { owner: 3, tag: Tag::Claimed, ..free }));
        assert!(finds(SlotState::free(1)));
    }
}
