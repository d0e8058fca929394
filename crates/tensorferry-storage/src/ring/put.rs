//! Putting: a slot is claimed, written and committed.

use tensorferry_domain::planted;

use super::{Deadline, MAX_STEPS, Ring};
use crate::StorageError;
use crate::atomic::{Ordering, change_before_load};
use crate::block::Block;
use crate::header::Kind;
use crate::message::{
    MAX_HANDLES, Outgoing, OutgoingHandle, OutgoingHandles, all_in_domain, payload_words, spill, take_back,
};
use crate::pins::PinnedAt;
use crate::ring_layout::{RingWords, SLOT_ROOM_WORDS, Slot, SlotLengths, SlotState, Tag};

/// Why a message was not put. Nothing was sent, and what it would have given away is back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingPutError {
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
    /// The message has something exclusive in it, and may be delivered again.
    #[error(
        "a message of a queue with leases may be delivered again, so nothing exclusive can be in it: freeze() the tensor, \
         clone the sender"
    )]
    NotRepeatable,
    /// There was no memory for a message that does not fit into a slot. Boxed, so that this fits into two registers.
    #[error(transparent)]
    Storage(#[from] Box<StorageError>),
}

impl From<StorageError> for RingPutError {
    #[cold]
    fn from(error: StorageError) -> Self {
        Self::Storage(Box::new(error))
    }
}

impl Ring {
    /// Puts a message. Waits for a free slot as long as `deadline` allows: spinning first, then asleep.
    ///
    /// # Errors
    /// [`RingPutError`]; what `handles` would have given away is back with its owner then.
    pub fn put(
        &self,
        payload: &[u8],
        handles: OutgoingHandles,
        deadline: Deadline,
    ) -> Result<(), RingPutError> {
        let mut handles = handles;
        let sent = self.put_from(payload, &mut handles, deadline);
        if sent.is_err() {
            take_back(handles);
        }
        sent
    }

    /// Says that a message is about to be put: what the memory needs for it then happens while the message is made.
    #[inline]
    pub fn expect_put(&self) {
        self.next_slot.ask();
    }

    /// As [`Ring::put`], and takes the handles only if the message is sent.
    ///
    /// # Errors
    /// [`RingPutError`]; `handles` are as they were then.
    pub fn put_from(
        &self,
        payload: &[u8],
        handles: &mut OutgoingHandles,
        deadline: Deadline,
    ) -> Result<(), RingPutError> {
        self.heap().check_owning_process()?;
        let Some(ring) = self.words_of_owner() else { return Err(RingPutError::Closed) };
        let (position, spilled) = self.put_borrowed(&ring, payload, handles, deadline)?;
        if let Some(block) = spilled {
            handles.push(OutgoingHandle(Outgoing::Spill(block)));
        }
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
        deadline: Deadline,
    ) -> Result<(u64, Option<Block>), RingPutError> {
        if !all_in_domain(self.heap(), handles) {
            return Err(StorageError::ForeignDomain.into());
        }
        if self.shape.n_records > 0 && handles.iter().any(OutgoingHandle::is_exclusive) {
            return Err(RingPutError::NotRepeatable);
        }
        if handles.len() > MAX_HANDLES {
            return Err(RingPutError::TooManyHandles(handles.len()));
        }
        if handles.len() + payload.len().div_ceil(8) <= SLOT_ROOM_WORDS {
            return Ok((self.place(ring, payload, handles, deadline)?, None));
        }
        let block = spill(self.heap(), Kind::Message, payload, handles)?;
        let spilled = OutgoingHandle(Outgoing::Spill(block.clone()));
        let position = self.place(ring, &[], std::slice::from_ref(&spilled), deadline)?;
        Ok((position, Some(block)))
    }

    /// Writes a message that fits into a slot; returns its position.
    fn place(
        &self,
        ring: &RingWords<'_>,
        payload: &[u8],
        handles: &[OutgoingHandle],
        deadline: Deadline,
    ) -> Result<u64, RingPutError> {
        let mut n_looks = 0_u32;
        let look = || {
            let is_first = n_looks == 0;
            n_looks = n_looks.saturating_add(1);
            if ring.closed().load(Ordering::Relaxed) != 0 {
                return Some(Err(RingPutError::Closed));
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
        let placed = deadline.wait(ring.not_full(), &self.put_spin, look).unwrap_or(Err(RingPutError::Full));
        match &placed {
            Ok(position) if n_looks == 1 => {
                let word = |position| self.slot_of(ring, position).0.state_word();
                self.next_slot.learn(word(*position), word(position.wrapping_add(1)));
            }
            _ => self.next_slot.forget(),
        }
        placed
    }

    /// `None` when the ring is full. Claims `unseen` where that is expected to succeed: a look would bring the slot's line here,
    /// and the claim would then ask for it once more. Where it has failed, the line is left to whoever takes from the slot.
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
                return Some(Err(RingPutError::Fenced));
            }
            // A receiver that saw the ring closed and empty does not look again: take the message back then.
            change_before_load();
            if ring.closed().load(Ordering::SeqCst) != 0
                && slot.change(SlotState::ready(lap), SlotState::free(lap + 1))
            {
                // A receiver that saw it meanwhile may have gone to sleep until it is taken.
                ring.not_empty().wake();
                return Some(Err(RingPutError::Closed));
            }
            return Some(Ok(position));
        }
        None
    }

    /// When the ring is full or has no receiver: whether nobody will ever take.
    fn no_more_receivers(&self, ring: &RingWords<'_>) -> Option<RingPutError> {
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
        Some(if died { RingPutError::PeerDied } else { RingPutError::NoReceivers })
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
