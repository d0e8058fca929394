//! Leases: messages that come back when the process that took them dies.
//!
//! A leased message moves from its slot to a record of the ring, so that a long lease occupies no slot. It
//! stays there until it is acknowledged:
//!
//! ```text
//! slot   ... Ready(L) → Claimed(L, me) ──────────────→ Moved(L, me) ──────────────────→ Free(L+1)
//! record Free → Filling(me) ─ copy, hold what it names ─┘ commit → Leased(1, me) → acknowledged: Free
//!                                                                     ↑    └ returned, or dead: Waiting(1)
//!                                                      Leased(2, you) └───────── Taking(1, you) ←┘
//! ```
//!
//! The slot's step to Moved is the commit: before it the message belongs to the slot, after it to the record.
//! A message that waits in a record comes before those in the slots. A word of the ring counts returns: it is
//! incremented after a message was given back, and with every sweep. A receiver looks through the records if
//! the count has changed since the last look that found nothing. The count never decreases, so a process that
//! is killed or stopped hides no message from the others.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::StorageError;
use crate::block::Block;
use crate::deadline::Deadline;
use crate::message::{IncomingHandle, IncomingMessage, Outgoing, OutgoingHandle, OutgoingHandles};
use crate::pins::PinnedAt;
use crate::record::{Record, RecordState, RecordTag};
use crate::ring::{Consumers, MAX_STEPS, Ring, RingTakeError};
use crate::ring_layout::RingWords;
use crate::slot::{Slot, SlotState, Tag};

/// A message that this process has until it acknowledges it. Dropping the lease gives the message back, to be
/// delivered again.
pub struct Lease {
    ring: Arc<Ring>,
    index: usize,
    /// INVARIANT: the record was in this state when the lease was made, and only a sweeper may change it
    /// meanwhile.
    state: RecordState,
    /// Handles on everything that the message names. Taken when the lease ends.
    handles: OutgoingHandles,
    is_over: bool,
}

/// The lease is not held by this process. Either this process inherited it by fork(2), and it belongs to the
/// process that took the message; or another member declared this process dead, and the message is delivered
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the lease is not held by this process: it was inherited by fork, or the process was declared dead")]
pub struct LeaseLostError;

/// The record that a message is being moved to.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    index: usize,
    state: Option<RecordState>,
    pub(crate) spilled: Option<Block>,
}

impl Kept {
    /// Claims a free record; false when there is none.
    pub(crate) fn claim_record(&mut self, ring: &RingWords<'_>, me: u8) -> bool {
        for (index, record) in ring.records().enumerate() {
            let state = record.state();
            let filling = state.owned(me, RecordTag::Filling);
            if state.tag == RecordTag::Free && record.change(state, filling) {
                *self = Self { index, state: Some(filling), spilled: None };
                return true;
            }
        }
        false
    }

    /// Moves the message from the slot to the record. Returns false when this process was declared dead.
    pub(crate) fn keep(
        &mut self,
        ring: &RingWords<'_>,
        position: u64,
        slot: &Slot<'_>,
        claimed: SlotState,
        freed: SlotState,
    ) -> bool {
        let Some(filling) = self.state else { return false };
        let record = ring.record(self.index);
        record.fill(position, slot);
        let moved = SlotState { tag: Tag::Moved, ..claimed };
        if !slot.change(claimed, moved) {
            self.let_go(ring);
            return false;
        }
        let leased = filling.delivered();
        let counted = record.change(filling, leased);
        self.state = counted.then_some(leased);
        slot.change(moved, freed) && counted
    }

    /// Gives the record back unused.
    pub(crate) fn let_go(&mut self, ring: &RingWords<'_>) {
        if let Some(filling) = self.state.take() {
            let record = ring.record(self.index);
            record.forget();
            record.change(filling, filling.freed());
        }
    }
}

impl Ring {
    /// Leases a message: one that was given back or whose holder died, or else the next one.
    ///
    /// # Blocking
    /// Waits for a message as long as `deadline` allows, as [`Ring::take`] does. It also waits while every
    /// lease is taken and not all of them are this process's; an acknowledged lease wakes it.
    ///
    /// # Errors
    /// [`RingTakeError`]. [`RingTakeError::NoLeases`] and [`RingTakeError::AllLeased`] come at once, whatever
    /// `deadline` is.
    pub fn take_leased(
        self: &Arc<Self>,
        deadline: Deadline,
    ) -> Result<(IncomingMessage, Lease), RingTakeError> {
        self.heap().check_owning_process()?;
        let Some(ring) = self.words() else { return Err(RingTakeError::Closed) };
        if self.max_leases() == 0 {
            return Err(RingTakeError::NoLeases);
        }
        self.wait_for_message(&ring, deadline, || {
            let mut message = IncomingMessage::default();
            let found =
                self.lease_returned(&ring, &mut message).or_else(|| self.lease_next(&ring, &mut message));
            found.map(|found| found.and_then(|kept| self.lease(&ring, message, kept)))
        })
    }

    /// Takes a message that was given back. It is not leased again.
    pub(crate) fn take_returned(
        &self,
        ring: &RingWords<'_>,
        message: &mut IncomingMessage,
    ) -> Option<Result<(), RingTakeError>> {
        let (index, taking) = self.claim_returned(ring)?;
        let record = ring.record(index);
        let read = self.read(record.lengths(), record.room(), message);
        if let Err(error) = &read
            && matches!(**error, StorageError::Domain(_))
        {
            put_back(ring, record, taking);
            return Some(read.map(drop).map_err(RingTakeError::from));
        }
        // From here on the message dies with this process, as after every plain take. If this process was
        // declared dead, the message belongs to another one.
        if !record.change(taking, taking.freed()) {
            message.clear();
            return None;
        }
        ring.not_empty().wake();
        Some(read.map(drop).map_err(RingTakeError::from))
    }

    fn lease_returned(
        &self,
        ring: &RingWords<'_>,
        message: &mut IncomingMessage,
    ) -> Option<Result<Kept, RingTakeError>> {
        let (index, taking) = self.claim_returned(ring)?;
        let record = ring.record(index);
        let spilled = match self.read(record.lengths(), record.room(), message) {
            Ok(spilled) => spilled,
            Err(error) => {
                if matches!(*error, StorageError::Domain(_)) {
                    put_back(ring, record, taking);
                } else {
                    record.change(taking, taking.freed());
                    // Wakes receivers that wait for a record.
                    ring.not_empty().wake();
                }
                return Some(Err(error.into()));
            }
        };
        let leased = taking.delivered();
        record.change(taking, leased).then_some(Ok(Kept { index, state: Some(leased), spilled }))
    }

    fn lease_next(
        &self,
        ring: &RingWords<'_>,
        message: &mut IncomingMessage,
    ) -> Option<Result<Kept, RingTakeError>> {
        let mut all_mine = true;
        let mut any_free = false;
        for record in ring.records() {
            let state = record.state();
            any_free |= state.tag == RecordTag::Free;
            all_mine &= state.tag != RecordTag::Free && state.owner == self.me();
        }
        if all_mine && self.has_all_leases(ring) {
            return Some(Err(RingTakeError::AllLeased(self.max_leases())));
        }
        any_free.then_some(())?;
        let mut kept = Some(Kept::default());
        let taken = self.try_take(ring, Consumers::Multi, message, &mut kept)?;
        kept.map(|kept| taken.map(|()| kept))
    }

    /// Whether [`Ring::take_leased`] without waiting would find a message or an error now. Takes and reports
    /// nothing.
    pub(crate) fn is_ready_to_lease(&self, ring: &RingWords<'_>) -> bool {
        let (mut all_mine, mut any_free) = (true, false);
        for record in ring.records() {
            let state = record.state();
            match state.tag {
                RecordTag::Waiting => return true,
                RecordTag::Free => (all_mine, any_free) = (false, true),
                _ => all_mine &= state.owner == self.me(),
            }
        }
        all_mine || any_free && self.finds_message(ring) || self.has_ended(ring)
    }

    /// Whether this process had all leases at one moment. Each record by itself may have been its own while
    /// it was looked at, and others may have had leases all the time.
    #[cold]
    fn has_all_leases(&self, ring: &RingWords<'_>) -> bool {
        let states = || ring.records().map(|record| record.state()).collect::<Vec<_>>();
        let seen = states();
        let is_mine = |state: &RecordState| state.tag != RecordTag::Free && state.owner == self.me();
        // A step of this process's own, as from filling to leased, leaves it the record.
        let is_same = |(a, b): (&RecordState, &RecordState)| is_mine(a) && is_mine(b) && a.serial == b.serial;
        let again = states();
        seen.iter().zip(&again).all(is_same)
    }

    /// Claims the waiting message with the lowest position in the ring.
    fn claim_returned(&self, ring: &RingWords<'_>) -> Option<(usize, RecordState)> {
        for _ in 0..MAX_STEPS {
            let returns = ring.returns().load(Ordering::SeqCst);
            if self.returns_seen.load(Ordering::Relaxed) == returns {
                return None;
            }
            let is_waiting = |(_, record): &(usize, Record<'_>)| record.state().tag == RecordTag::Waiting;
            let waiting = ring.records().enumerate().filter(is_waiting);
            let Some((index, record)) = waiting.min_by_key(|(_, record)| record.position()) else {
                // A message that is given back from here on is counted after `returns`.
                self.returns_seen.store(returns, Ordering::Relaxed);
                return None;
            };
            let state = record.state();
            let taking = state.owned(self.me(), RecordTag::Taking);
            if state.tag == RecordTag::Waiting && record.change(state, taking) {
                return Some((index, taking));
            }
        }
        None
    }

    /// Makes the lease on a message whose record this process has.
    fn lease(
        self: &Arc<Self>,
        ring: &RingWords<'_>,
        mut message: IncomingMessage,
        kept: Kept,
    ) -> Result<(IncomingMessage, Lease), RingTakeError> {
        let Some(state) = kept.state else { return Err(RingTakeError::Closed) };
        let mut handles = OutgoingHandles::new();
        handles.extend(kept.spilled.map(|block| OutgoingHandle(Outgoing::Spill(block))));
        for handle in &mut message.handles {
            handles.extend(match handle {
                IncomingHandle::Offered(_) | IncomingHandle::Frozen(_) => {
                    handle.take_frozen().map(|block| OutgoingHandle(Outgoing::Frozen(block)))
                }
                IncomingHandle::Shared(block) => OutgoingHandle::shared(block),
                IncomingHandle::Monitor(monitor) => OutgoingHandle::shared(monitor.block()),
                IncomingHandle::Ring(attachment) => Some(OutgoingHandle(Outgoing::Ring(attachment.clone()))),
                IncomingHandle::Bundle(bundle) => Some(OutgoingHandle::bundle(bundle)),
                IncomingHandle::Exclusive(_) => {
                    // No honest sender puts such a message.
                    ring.record(kept.index).change(state, state.freed());
                    // Wakes receivers that wait for a record.
                    ring.not_empty().wake();
                    let what = "a message that may be delivered again grants a block exclusively";
                    return Err(StorageError::BadReference { reference: 0, what }.into());
                }
            });
        }
        Ok((message, Lease { ring: Arc::clone(self), index: kept.index, state, handles, is_over: false }))
    }
}

/// The kernel does not let this process open what a waiting message names: the message goes on waiting.
fn put_back(ring: &RingWords<'_>, record: Record<'_>, taking: RecordState) {
    record.change(taking, taking.waiting());
    ring.returns().fetch_add(1, Ordering::SeqCst);
    ring.not_empty().wake();
}

impl Lease {
    /// How often the message has been delivered, this delivery included. More than 1 means that an earlier
    /// holder gave it back or died. Stops at 65,535.
    #[must_use]
    pub fn deliveries(&self) -> u16 {
        self.state.deliveries
    }

    /// Whether this process has the lease. A process that was forked from its holder has a copy of this
    /// value.
    fn is_mine(&self) -> bool {
        self.state.owner == self.ring.me()
    }

    /// Acknowledges the message: it is not delivered again.
    ///
    /// # Errors
    /// [`LeaseLostError`] when this process inherited the lease by fork(2), or was declared dead by another
    /// member.
    pub fn ack(mut self) -> Result<(), LeaseLostError> {
        self.is_over = true;
        if !self.is_mine() {
            return Err(LeaseLostError);
        }
        let Some(ring) = self.ring.words() else { return Err(LeaseLostError) };
        let acknowledged = ring.record(self.index).change(self.state, self.state.freed());
        // Wakes receivers that wait for a free record, or for the end of the queue.
        ring.not_empty().wake();
        if acknowledged { Ok(()) } else { Err(LeaseLostError) }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_over || !self.is_mine() {
            return;
        }
        let Some(ring) = self.ring.words() else { return };
        let waiting = self.state.waiting();
        if !ring.record(self.index).change(self.state, waiting) {
            return;
        }
        // If this process dies before this, its sweeper counts.
        ring.returns().fetch_add(1, Ordering::SeqCst);
        // An end of a ring in the message is in transit again.
        for handle in &mut self.handles {
            if let Outgoing::Ring(attachment) = &handle.0 {
                *handle = OutgoingHandle::ring(attachment);
            }
        }
        // Until another receiver has it, this process holds what the message names.
        if !self.handles.is_empty() {
            self.ring.pins().pin(&ring, PinnedAt::record(self.index, waiting), &mut self.handles);
        }
        ring.not_empty().wake();
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("deliveries", &self.deliveries()).finish_non_exhaustive()
    }
}
