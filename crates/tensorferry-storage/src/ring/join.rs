//! Waiting until everything that was put has been taken, and what was leased has been acknowledged.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tensorferry_domain::{Spin, WaitWord};

use super::Ring;
use crate::StorageError;
use crate::atomic::{AtomicU32, Ordering};
use crate::deadline::Deadline;
use crate::record::RecordTag;
use crate::ring_layout::RingWords;
use crate::slot::Tag;

/// Why not everything is known to be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingJoinError {
    /// Messages were left when the deadline passed.
    #[error("{n_left} messages that were put are not done yet")]
    TimedOut {
        /// About how many: those that nobody has taken, and those that are leased.
        n_left: usize,
    },
    /// No other process is left that could receive, and none that could has died. A process that could itself
    /// receive gets this error once after each receiver that left.
    #[error(
        "messages are left, or were discarded, and every other process that could receive has let go of the queue"
    )]
    NoReceivers,
    /// As [`RingJoinError::NoReceivers`], but at least one process that could receive has died.
    #[error(
        "messages are left, or were discarded, and every process that could receive from the queue is gone; at least \
         one of them died or was killed"
    )]
    PeerDied,
    /// This process is no member of the domain, because it was forked by something other than this library.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

/// With fewer messages left than these, whoever takes one wakes the caller each time.
const FEW: usize = 8;
/// Messages that take longer than this by themselves are not slowed down by a wake-up each.
const LONG_WORK: Duration = Duration::from_millis(1);
/// The most that the caller is late for a queue that has become faster.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// The messages that a call waits for.
struct Unfinished {
    /// The positions of those that nobody had taken yet, in order.
    in_slots: VecDeque<u64>,
    /// Where the messages began that the call does not wait for.
    end: u64,
}

impl Ring {
    /// Waits until each message whose put had returned before this call was taken, and, where it was leased,
    /// acknowledged. What is put later is not waited for.
    ///
    /// A message that a plain take has taken is done, whatever becomes of the process that took it.
    ///
    /// # Blocking
    /// As long as `deadline` allows. A message that is done wakes the call. While many are left and are done
    /// quickly, the call sleeps for the time that half of them should take, 10 ms at most, so that receivers
    /// do not have to wake it for each.
    ///
    /// # Errors
    /// [`RingJoinError`].
    pub fn join(&self, deadline: Deadline) -> Result<(), RingJoinError> {
        self.heap().check_owning_process()?;
        let Some(ring) = self.words() else { return Ok(()) };
        let reported = self.receivers_gone_reported.load(Ordering::SeqCst);
        let mut unfinished = self.unfinished(&ring);
        let (start, n_at_first) = (Instant::now(), unfinished.in_slots.len());
        let spin = Spin::default();
        loop {
            let n_before = self.look_again(&ring, &mut unfinished);
            if n_before == 0 {
                return if ring.lost().load(Ordering::SeqCst) == 0 {
                    Ok(())
                } else {
                    Err(nobody_left(&ring))
                };
            }
            if self.no_more_receivers(&ring, reported).is_some() {
                return Err(nobody_left(&ring));
            }
            let n_slots_before = unfinished.in_slots.len();
            pause(start.elapsed(), n_at_first - n_slots_before, n_slots_before, deadline);
            // Who takes a message wakes those who wait for room; who ends a lease, those who wait for a
            // message.
            let word = if n_slots_before > 0 { ring.not_full() } else { ring.not_empty() };
            let is_news = || {
                let n_left = self.look_again(&ring, &mut unfinished);
                let has_moved = n_left < n_before || unfinished.in_slots.len() < n_slots_before;
                (has_moved || self.no_more_receivers(&ring, reported).is_some()).then_some(())
            };
            if deadline.wait(word, &spin, is_news).is_none() {
                return match self.look_again(&ring, &mut unfinished) {
                    0 => continue,
                    n_left => Err(RingJoinError::TimedOut { n_left }),
                };
            }
        }
    }

    /// What is in the slots now. A message that is being written is not promised yet.
    fn unfinished(&self, ring: &RingWords<'_>) -> Unfinished {
        let mut end = ring.head().load(Ordering::Acquire);
        let mut in_slots = VecDeque::new();
        // The head may lie one lap behind.
        for _ in 0..2 * ring.n_slots() {
            let (slot, lap) = self.slot_of(ring, end);
            let state = slot.state();
            if state.lap < lap || (state.lap == lap && state.tag == Tag::Free) {
                break;
            }
            if state.lap == lap && state.tag != Tag::Writing {
                in_slots.push_back(end);
            }
            end = end.wrapping_add(1);
        }
        Unfinished { in_slots, end }
    }

    /// Forgets what has been taken meanwhile. Returns how many messages are left.
    fn look_again(&self, ring: &RingWords<'_>, unfinished: &mut Unfinished) -> usize {
        while let Some(&position) = unfinished.in_slots.front() {
            let (slot, lap) = self.slot_of(ring, position);
            if slot.state().lap <= lap {
                break;
            }
            unfinished.in_slots.pop_front();
        }
        // Slots first: a leased message is in its record before its slot moves on, so a record that is still
        // being filled is about a slot that was not passed, or about a message that came later.
        let is_leased = |tag| matches!(tag, RecordTag::Leased | RecordTag::Waiting | RecordTag::Taking);
        let in_records = ring
            .records()
            .filter(|record| is_leased(record.state().tag) && record.position() < unfinished.end);
        unfinished.in_slots.len() + in_records.count()
    }
}

fn nobody_left(ring: &RingWords<'_>) -> RingJoinError {
    if ring.receiver_deaths().load(Ordering::SeqCst) > 0 {
        RingJoinError::PeerDied
    } else {
        RingJoinError::NoReceivers
    }
}

/// Waits until half of what is left should be done, at the pace so far. Not where that is soon or far away.
fn pause(elapsed: Duration, n_done: usize, n_left: usize, deadline: Deadline) {
    let Some(each) = u32::try_from(n_done).ok().and_then(|n_done| elapsed.checked_div(n_done)) else {
        return;
    };
    if n_left <= FEW || each > LONG_WORK {
        return;
    }
    let half = each.saturating_mul(u32::try_from(n_left / 2).unwrap_or(u32::MAX)).min(LONGEST_PAUSE);
    let until = match (Deadline::within(half), deadline) {
        (Deadline::At(until), Deadline::At(end)) => Deadline::At(until.min(end)),
        (until, Deadline::Never) => until,
        (_, Deadline::Now | Deadline::At(_)) => return,
    };
    // Nobody else knows this word.
    let (word, spin) = (AtomicU32::new(0), Spin::default());
    spin.set_fixed(Some(Duration::ZERO));
    until.wait(WaitWord::new(&word), &spin, || None::<()>);
}
