//! The end of a ring for who takes: no message can come any more.

use std::hint::cold_path;

use super::{Ring, RingTakeError};
use crate::atomic::{Ordering, fence};
use crate::record::RecordTag;
use crate::ring_layout::RingWords;
use crate::slot::{Slot, Tag};

/// That no message can come any more.
struct Ending {
    error: RingTakeError,
    /// The count of senders that are gone, if this is told only once.
    reports: Option<u64>,
}

impl Ring {
    /// After a look that found nothing: returns an error if no message can come any more.
    pub(super) fn no_more_messages(&self, ring: &RingWords<'_>, reported: u64) -> Option<RingTakeError> {
        let ending = self.ending(ring, reported)?;
        if let Some(gone) = ending.reports {
            self.senders_gone_reported.store(gone, Ordering::SeqCst);
        }
        Some(ending.error)
    }

    /// Why no message can come any more; `None` while one can. `reported` is the count of senders that are
    /// gone of which the caller was told.
    fn ending(&self, ring: &RingWords<'_>, reported: u64) -> Option<Ending> {
        let closed = ring.closed().load(Ordering::SeqCst) != 0;
        let senders = ring.senders().load(Ordering::SeqCst);
        let me = self.heap().me().bit();
        if !closed && senders & !me != 0 {
            return None;
        }
        let i_send = senders & me != 0;
        let gone = ring.senders_gone().load(Ordering::SeqCst);
        if !closed && i_send {
            // This process could still put, so it reports only once that the other senders are gone. A sender
            // that is on its way in a message is not gone.
            let is_news = gone != reported;
            if !is_news || self.attachment().role_in_transit().sends {
                return None;
            }
        }
        // Messages that were put before the last sender left, or before the ring was closed, are still to be
        // taken.
        fence(Ordering::SeqCst);
        if self.has_message(ring) {
            return None;
        }
        let died = ring.sender_deaths().load(Ordering::SeqCst) > 0;
        let error = match (closed, died) {
            (true, _) => RingTakeError::Closed,
            (false, true) => RingTakeError::PeerDied,
            (false, false) => RingTakeError::NoSenders,
        };
        Some(Ending { error, reports: (!closed && i_send).then_some(gone) })
    }

    /// Whether no message can come any more, and this process was not told so yet.
    pub(crate) fn has_ended(&self, ring: &RingWords<'_>) -> bool {
        self.ending(ring, self.senders_gone_reported.load(Ordering::SeqCst)).is_some()
    }

    /// When no further message can come, receivers wait for those that are still taking, and no sender will
    /// wake them. The last process that can send waits too, if it also receives: it is told that the other
    /// senders are gone once their last message is taken.
    pub(super) fn wake_the_last(&self, ring: &RingWords<'_>, taken: u64) {
        let others = ring.senders().load(Ordering::SeqCst) & !self.heap().me().bit();
        let may_end = others == 0 || ring.closed().load(Ordering::SeqCst) != 0;
        let is_one_that_receives =
            || others.is_power_of_two() && ring.receivers().load(Ordering::SeqCst) & others != 0;
        if may_end || is_one_that_receives() {
            cold_path();
            let is_the_last =
                || ring.senders_gone().load(Ordering::SeqCst) != 0 && !self.has_message_behind(ring, taken);
            if may_end || is_the_last() {
                ring.not_empty().wake();
            }
        }
    }

    /// Whether there is a message behind this one, which some receiver will take too. Returns false where the
    /// tail has not been moved yet.
    fn has_message_behind(&self, ring: &RingWords<'_>, taken: u64) -> bool {
        let next = taken.wrapping_add(1);
        let n_behind = ring.tail().load(Ordering::SeqCst).wrapping_sub(next);
        let n_slots = ring.n_slots() as u64;
        let n_behind = if n_behind > n_slots { 0 } else { n_behind };
        (0..n_behind).any(|step| holds_message(&self.slot_of(ring, next.wrapping_add(step)).0))
    }

    /// Whether a message is ready, or claimed by another receiver, which may give it back or die.
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
