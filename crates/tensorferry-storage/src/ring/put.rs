//! Putting a message: a slot is claimed, written and committed.

use std::hint::{cold_path, spin_loop};

use tensorferry_domain::planted;

use super::{MAX_STEPS, Ring};
use crate::StorageError;
use crate::atomic::{Ordering, change_before_load};
use crate::block::Block;
use crate::deadline::Deadline;
use crate::header::Kind;
use crate::message::{
    MAX_HANDLES, Outgoing, OutgoingHandle, OutgoingHandles, all_in_domain, spill, store_payload, take_back,
};
use crate::pins::PinnedAt;
use crate::ring_layout::RingWords;
use crate::slot::{SLOT_ROOM_WORDS, Slot, SlotLengths, SlotState, Tag};

/// Why a message was not put. Nothing was sent, and what the message would have given away is back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingPutError {
    /// Every slot was taken until the deadline.
    #[error("the queue is full")]
    Full,
    /// A process closed the queue.
    #[error("the queue is closed")]
    Closed,
    /// No other process is left that could receive, and none that could has died. A process that could itself
    /// receive gets this error only when the ring is full, and once after each receiver that left.
    #[error("every other process that could receive from the queue has let go of it")]
    NoReceivers,
    /// As [`RingPutError::NoReceivers`], but at least one process that could receive has died.
    #[error(
        "every process that could receive from the queue is gone, and at least one of them died or was killed"
    )]
    PeerDied,
    /// This process was declared dead, and its claim was taken away.
    #[error("this process was declared dead by another member of its domain")]
    DeclaredDead,
    /// More handles than a message can have.
    #[error("{0} handles in one message, at most 65535 are possible (a bundle is one)")]
    TooManyHandles(usize),
    /// The ring has leases, so the message may be delivered again, but the message has something exclusive in
    /// it.
    #[error(
        "a message of a queue with leases may be delivered again, so nothing exclusive can be in it: freeze() the tensor, \
         clone the sender"
    )]
    NotRepeatable,
    /// There was no memory for a message that does not fit into a slot. Boxed, so that the error fits into
    /// two registers.
    #[error(transparent)]
    Storage(#[from] Box<StorageError>),
}

impl From<StorageError> for RingPutError {
    #[cold]
    fn from(error: StorageError) -> Self {
        Self::Storage(Box::new(error))
    }
}

/// That nobody else is left who could receive.
pub(super) struct ReceiversGone {
    /// Whether one of those who could has died.
    pub(super) has_died: bool,
    /// The count of receivers that are gone, if this is told only once.
    reports: Option<u64>,
}

/// How many slots a sender that found the ring full wants to be free, where half of the ring is more.
const MOST_AHEAD: u64 = 8;
/// How often it looks whether they are.
const LOOKS_AHEAD: u32 = 16;
/// How often it pauses before each look. A pause takes 9 to 50 ns, as the processor goes.
const PAUSES_AHEAD: u32 = 4;

impl Ring {
    /// Puts a message.
    ///
    /// # Blocking
    /// Waits for a free slot as long as `deadline` allows: it polls first, then sleeps. A receiver that frees
    /// a slot wakes it. So do closing the ring, a receiver that leaves, and the sweep after a death.
    /// `Deadline::Now` does not wait.
    ///
    /// # Errors
    /// [`RingPutError`]. What `handles` would have given away is then back with its owner.
    pub fn put(
        &self,
        payload: &[u8],
        mut handles: OutgoingHandles,
        deadline: Deadline,
    ) -> Result<(), RingPutError> {
        let sent = self.put_from(payload, &mut handles, deadline);
        if sent.is_err() {
            take_back(handles);
        }
        sent
    }

    /// Announces that a message is about to be put. The slot's memory is then fetched while the message is
    /// made. A hint; leaving it out is no error.
    #[inline]
    pub fn expect_put(&self) {
        self.next_slot.ask();
    }

    /// As [`Ring::put`], but takes the handles only if the message is sent.
    ///
    /// # Errors
    /// [`RingPutError`]. `handles` are then unchanged.
    pub fn put_from(
        &self,
        payload: &[u8],
        handles: &mut OutgoingHandles,
        deadline: Deadline,
    ) -> Result<(), RingPutError> {
        self.heap().check_owning_process()?;
        let ring = self.words_of_owner();
        let (position, spilled) = self.put_borrowed(ring, payload, handles, deadline)?;
        if let Some(block) = spilled {
            handles.push(OutgoingHandle(Outgoing::Spill(block)));
        }
        // Wake first: pinning the handles can wait, because this process holds them until then.
        ring.not_empty().wake_after_change();
        if !handles.is_empty() {
            self.pins().pin(ring, PinnedAt::slot(position), handles);
        }
        Ok(())
    }

    /// Writes a message into a slot, or into a block of its own when it is too long for one. Returns the
    /// position, and that block.
    #[inline]
    fn put_borrowed(
        &self,
        ring: &RingWords<'_>,
        payload: &[u8],
        handles: &[OutgoingHandle],
        deadline: Deadline,
    ) -> Result<(u64, Option<Block>), RingPutError> {
        if !all_in_domain(self.heap(), handles) {
            return Err(StorageError::ForeignDomain.into());
        }
        if self.max_leases() > 0 && handles.iter().any(OutgoingHandle::is_exclusive) {
            return Err(RingPutError::NotRepeatable);
        }
        if handles.len() + payload.len().div_ceil(8) <= SLOT_ROOM_WORDS {
            return Ok((self.place(ring, payload, handles, deadline)?, None));
        }
        cold_path();
        if handles.len() > MAX_HANDLES {
            return Err(RingPutError::TooManyHandles(handles.len()));
        }
        let block = spill(self.heap(), Kind::Message, payload, handles)?;
        let spilled = OutgoingHandle(Outgoing::Spill(block.clone()));
        let position = self.place(ring, &[], std::slice::from_ref(&spilled), deadline)?;
        Ok((position, Some(block)))
    }

    /// Writes a message that fits into a slot, and returns its position.
    #[inline(always)]
    fn place(
        &self,
        ring: &RingWords<'_>,
        payload: &[u8],
        handles: &[OutgoingHandle],
        deadline: Deadline,
    ) -> Result<u64, RingPutError> {
        // As for a receiver: of several threads that wait, each is told.
        let reported = self.receivers_gone_reported.load(Ordering::SeqCst);
        let first = self.look_for_room(ring, payload, handles, reported, true);
        if let Some(Ok(position)) = first {
            let word = |position| self.slot_of(ring, position).0.state_word();
            self.next_slot.learn(word(position), word(position.wrapping_add(1)));
            return Ok(position);
        }
        self.next_slot.forget();
        first.unwrap_or_else(|| self.wait_for_room(ring, payload, handles, reported, deadline))
    }

    /// As [`Ring::place`], after a look that found the ring full.
    #[inline(never)]
    fn wait_for_room(
        &self,
        ring: &RingWords<'_>,
        payload: &[u8],
        handles: &[OutgoingHandle],
        reported: u64,
        deadline: Deadline,
    ) -> Result<u64, RingPutError> {
        let look = || match self.look_for_room(ring, payload, handles, reported, false) {
            Some(Ok(position)) => Some(self.keep_if_wanted(ring, reported, position)),
            other => other,
        };
        if deadline != Deadline::Now && self.put_spin.is_worthwhile() {
            self.let_receivers_go_ahead(ring);
            if let Some(placed) = look() {
                return placed;
            }
        }
        deadline.wait_longer(ring.not_full(), &self.put_spin, look).unwrap_or(Err(RingPutError::Full))
    }

    /// After a wait for room: the room may be that of a message that was discarded, because the last receiver
    /// is gone. Then the message that was put there is taken back, unless it is discarded or taken already.
    fn keep_if_wanted(
        &self,
        ring: &RingWords<'_>,
        reported: u64,
        position: u64,
    ) -> Result<u64, RingPutError> {
        if ring.receivers().load(Ordering::SeqCst) == 0
            && let Some(failure) = self.no_more_receivers(ring, reported)
        {
            let (slot, lap) = self.slot_of(ring, position);
            if slot.change(SlotState::ready(lap), SlotState::free_after(lap)) {
                return Err(failure);
            }
        }
        Ok(position)
    }

    /// Waits a few microseconds until several slots are free, for a sender that has found none.
    ///
    /// A sender that takes the first slot that gets free does so for every message from then on: it looks at
    /// the line that a receiver is about to write, and the receiver reads the line that it has just written.
    /// This one looks at a slot further ahead, and leaves the nearer ones to the receivers meanwhile
    /// (docs/bench/NOTES.md).
    fn let_receivers_go_ahead(&self, ring: &RingWords<'_>) {
        let n_ahead = (ring.n_slots() as u64 / 2).min(MOST_AHEAD);
        let position = ring.tail().load(Ordering::Relaxed).wrapping_add(n_ahead);
        let (slot, lap) = self.slot_of(ring, position);
        for _ in 0..LOOKS_AHEAD {
            for _ in 0..PAUSES_AHEAD {
                spin_loop();
            }
            if slot.state().lap >= lap {
                return;
            }
        }
    }

    /// One look. Returns `None` when the ring is full and somebody may take from it. Inlined, so that a
    /// message that finds room at once is put in straight code.
    #[inline(always)]
    fn look_for_room(
        &self,
        ring: &RingWords<'_>,
        payload: &[u8],
        handles: &[OutgoingHandle],
        reported: u64,
        is_first: bool,
    ) -> Option<Result<u64, RingPutError>> {
        if ring.closed().load(Ordering::Relaxed) != 0 {
            cold_path();
            return Some(Err(RingPutError::Closed));
        }
        // Checked even when there is room: a message that no process will ever take is not sent.
        if ring.receivers().load(Ordering::SeqCst) == 0 {
            cold_path();
            if let Some(failure) = self.no_more_receivers(ring, reported) {
                return Some(Err(failure));
            }
        }
        match self.try_place(ring, payload, handles, is_first) {
            Some(placed) => Some(placed),
            None => self.no_more_receivers(ring, reported).map(Err),
        }
    }

    /// Returns `None` when the ring is full. With `unseen`, claims a slot without reading it first, where the
    /// claim is expected to succeed. A read would bring the slot's line here, and the claim would then ask
    /// for the line again. After a claim has failed, the slot is read first, so that the line stays with the
    /// process that takes from the slot.
    #[inline(always)]
    fn try_place(
        &self,
        ring: &RingWords<'_>,
        payload: &[u8],
        handles: &[OutgoingHandle],
        mut unseen: bool,
    ) -> Option<Result<u64, RingPutError>> {
        let owner = if planted("put-claims-unnamed") { u8::MAX } else { self.me() };
        for _ in 0..MAX_STEPS {
            let position = ring.tail().load(Ordering::Acquire);
            let (slot, lap) = self.slot_of(ring, position);
            let (free, writing) = (SlotState::free(lap), SlotState { lap, owner, tag: Tag::Writing });
            let moved = position.wrapping_add(1);
            let seen = if unseen { free } else { slot.state() };
            let claimed = if seen == free { slot.replace(free, writing) } else { Err(seen) };
            if let Err(state) = claimed {
                cold_path();
                unseen = false;
                if state.lap < lap {
                    if ring.tail().load(Ordering::Acquire) == position {
                        return None;
                    }
                } else {
                    // The process that claimed the position may have died before it moved the tail, so every
                    // sender moves it.
                    let _ =
                        ring.tail().compare_exchange(position, moved, Ordering::AcqRel, Ordering::Relaxed);
                }
                continue;
            }
            let early = planted("put-commits-first") && slot.change(writing, SlotState::ready(lap));
            write(&slot, payload, handles);
            // The commit. It is a compare-and-swap, so that a sender that was wrongly declared dead is fenced
            // off.
            let committed = early || slot.change(writing, SlotState::ready(lap));
            // After the commit, because receivers wait for the commit.
            let _ = ring.tail().compare_exchange(position, moved, Ordering::AcqRel, Ordering::Relaxed);
            if !committed {
                cold_path();
                return Some(Err(RingPutError::DeclaredDead));
            }
            // A receiver that saw the ring closed and empty does not look again. So if the ring is closed
            // now, the message is taken back.
            change_before_load();
            if ring.closed().load(Ordering::SeqCst) != 0 {
                cold_path();
                if slot.change(SlotState::ready(lap), SlotState::free_after(lap)) {
                    // Who saw the message meanwhile may have gone to sleep until it is taken.
                    ring.not_empty().wake();
                    ring.not_full().wake();
                    return Some(Err(RingPutError::Closed));
                }
            }
            return Some(Ok(position));
        }
        None
    }

    /// For a ring that is full or has no receiver: returns an error if no process will ever take from it.
    /// `reported` is the count of receivers that are gone of which the caller was told.
    #[inline(never)]
    fn no_more_receivers(&self, ring: &RingWords<'_>, reported: u64) -> Option<RingPutError> {
        let gone = self.receivers_gone(ring, reported)?;
        self.tell_of(&gone);
        Some(if gone.has_died { RingPutError::PeerDied } else { RingPutError::NoReceivers })
    }

    /// As [`Ring::no_more_receivers`], without telling.
    pub(super) fn receivers_gone(&self, ring: &RingWords<'_>, reported: u64) -> Option<ReceiversGone> {
        let receivers = ring.receivers().load(Ordering::SeqCst);
        let me = self.heap().me().bit();
        if receivers & !me != 0 {
            return None;
        }
        let gone = ring.receivers_gone().load(Ordering::SeqCst);
        let i_receive = receivers & me != 0;
        // As in `no_more_messages`.
        if i_receive && (gone == reported || self.attachment().role_in_transit().receives) {
            return None;
        }
        let has_died = ring.receiver_deaths().load(Ordering::SeqCst) > 0;
        Some(ReceiversGone { has_died, reports: i_receive.then_some(gone) })
    }

    /// Whether [`Ring::put`] without waiting would find room or an error now. Puts and reports nothing.
    pub(crate) fn is_ready_to_put(&self, ring: &RingWords<'_>) -> bool {
        let reported = || self.receivers_gone_reported.load(Ordering::SeqCst);
        ring.closed().load(Ordering::SeqCst) != 0
            || self.finds_room(ring)
            || self.receivers_gone(ring, reported()).is_some()
    }

    /// Whether the slot is free that the next message is put into.
    fn finds_room(&self, ring: &RingWords<'_>) -> bool {
        let tail = ring.tail().load(Ordering::Acquire);
        for step in 0..=ring.n_slots() as u64 {
            let (slot, lap) = self.slot_of(ring, tail.wrapping_add(step));
            let state = slot.state();
            if state.lap < lap {
                return false;
            }
            if state == SlotState::free(lap) {
                return true;
            }
            // Put already; the tail has not been moved yet.
        }
        false
    }

    /// This end has told its user.
    pub(super) fn tell_of(&self, gone: &ReceiversGone) {
        if let Some(gone) = gone.reports {
            self.receivers_gone_reported.store(gone, Ordering::SeqCst);
        }
    }
}

#[inline(always)]
fn write(slot: &Slot<'_>, payload: &[u8], handles: &[OutgoingHandle]) {
    slot.set_lengths(SlotLengths { payload_len_bytes: payload.len(), n_references: handles.len() });
    let (references, words) = slot.room().split_at(handles.len().min(SLOT_ROOM_WORDS));
    for (word, handle) in references.iter().zip(handles) {
        word.store(handle.reference(), Ordering::Relaxed);
    }
    store_payload(words, payload);
}

#[cfg(test)]
mod tests {
    use tensorferry_domain::Domain;

    use super::*;
    use crate::Heap;

    #[test]
    fn a_message_in_the_place_of_one_that_was_discarded_is_taken_back() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = Ring::create(&heap, 1, 0).unwrap();
        ring.put(b"first", OutgoingHandles::new(), Deadline::Now).unwrap();
        let words = RingWords::of(ring.attachment().block()).unwrap();
        assert_eq!(ring.keep_if_wanted(&words, 0, 0).unwrap(), 0, "there is a receiver");
        assert!(words.has_messages());
        let me = words.receivers().swap(0, Ordering::SeqCst);
        assert!(matches!(ring.keep_if_wanted(&words, 0, 0), Err(RingPutError::NoReceivers)));
        assert!(!words.has_messages());
        assert_eq!(ring.keep_if_wanted(&words, 0, 0).unwrap(), 0, "somebody else has taken it");
        words.receivers().store(me, Ordering::SeqCst);
    }
}
