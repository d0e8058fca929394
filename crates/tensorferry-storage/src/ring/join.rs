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
        /// About how many: those that nobody has taken, and those that are leased. Rather too many than too
        /// few.
        n_left: usize,
    },
    /// No other process is left that could receive, and none that could has died. A process that could itself
    /// receive gets this error once after each receiver that left.
    ///
    /// From each call also once a message may have been discarded because nobody was left that could receive
    /// it, whoever has come since.
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

/// With no more messages left than these, whoever takes one wakes the caller each time, and so often the
/// caller is woken in vain.
const FEW: usize = 8;
/// Messages that take longer than this by themselves are not slowed down by a wake-up each.
const LONG_WORK: Duration = Duration::from_millis(1);
/// After looks in vain; longer each time.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
/// The most that the caller is late for a queue that has become faster.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// Why a join ends for which no receiver is left that could do the rest.
fn none_is_left(has_died: bool) -> RingJoinError {
    if has_died { RingJoinError::PeerDied } else { RingJoinError::NoReceivers }
}

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
    /// As long as `deadline` allows, asleep. A message that is done wakes the call. While many are left and
    /// are done quickly, and while others use the ring, it cannot be woken for at most 10 ms at a time, so
    /// that nobody has to wake it for each message.
    ///
    /// # Errors
    /// [`RingJoinError`].
    pub fn join(&self, deadline: Deadline) -> Result<(), RingJoinError> {
        self.join_until(deadline, || None)
    }

    /// As [`Ring::join`], asking `goes_on` after each `interval` in which not everything was done. What is
    /// put after the call has begun is not waited for, however often it asks.
    ///
    /// # Blocking
    /// As [`Ring::join`], until `goes_on` is false.
    ///
    /// # Errors
    /// [`RingJoinError`]; [`RingJoinError::TimedOut`] when `goes_on` was false.
    pub fn join_while(
        &self,
        interval: Duration,
        mut goes_on: impl FnMut() -> bool,
    ) -> Result<(), RingJoinError> {
        self.join_until(Deadline::within(interval), || goes_on().then(|| Deadline::within(interval)))
    }

    /// Joins until `deadline`, and when it has passed, until the next one, if there is one.
    fn join_until(
        &self,
        mut deadline: Deadline,
        mut next: impl FnMut() -> Option<Deadline>,
    ) -> Result<(), RingJoinError> {
        self.heap().check_owning_process()?;
        let block = self.attachment().block();
        let damaged = StorageError::Damaged { offset_bytes: block.id().0, what: "the block holds no ring" };
        let ring = self.words().ok_or(damaged)?;
        let reported = self.receivers_gone_reported.load(Ordering::SeqCst);
        let mut unfinished = self.unfinished(&ring);
        let (start, n_at_first) = (Instant::now(), unfinished.in_slots.len());
        // Whoever is waited for may need the processor.
        let spin = Spin::default();
        spin.set_fixed(Some(Duration::ZERO));
        let mut pause_in_vain = SHORTEST_PAUSE;
        loop {
            // First who is left, and then what: the last receiver may have done everything before it left.
            let gone = self.receivers_gone(&ring, reported);
            let n_left = self.look_again(&ring, &mut unfinished);
            let is_over = n_left == 0;
            if is_over && ring.lost().load(Ordering::SeqCst) == 0 {
                return Ok(());
            }
            if let Some(gone) = gone.or_else(|| self.receivers_gone(&ring, reported).filter(|_| is_over)) {
                self.tell_of(&gone);
                return Err(none_is_left(gone.has_died));
            }
            if is_over {
                // Something was discarded when no receiver was left. That one has come since does not bring
                // it back.
                return Err(none_is_left(ring.receiver_deaths().load(Ordering::SeqCst) > 0));
            }
            let n_in_slots = unfinished.in_slots.len();
            pause(until_half_is_done(start.elapsed(), n_at_first - n_in_slots, n_in_slots), deadline);
            // Who takes a message wakes those who wait for room; who ends a lease, those who wait for a
            // message.
            let word = if n_in_slots > 0 { ring.not_full() } else { ring.not_empty() };
            let mut n_looks = 0;
            let is_news = || {
                n_looks += 1;
                let is_less = self.look_again(&ring, &mut unfinished) < n_left
                    || unfinished.in_slots.len() < n_in_slots
                    || self.receivers_gone(&ring, reported).is_some();
                (is_less || n_looks > FEW).then_some(is_less)
            };
            match deadline.wait(word, &spin, is_news) {
                Some(true) => pause_in_vain = SHORTEST_PAUSE,
                // It was woken by what others do, again and again, who would wake it each time.
                Some(false) => {
                    pause(pause_in_vain, deadline);
                    pause_in_vain = (pause_in_vain * 2).min(LONGEST_PAUSE);
                }
                None => {
                    let n_left = self.look_again(&ring, &mut unfinished);
                    if n_left > 0 {
                        deadline = next().ok_or(RingJoinError::TimedOut { n_left })?;
                    }
                }
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

/// How long half of what is left should take, at the pace so far; zero where that is soon, or far away.
fn until_half_is_done(elapsed: Duration, n_done: usize, n_left: usize) -> Duration {
    let each = u32::try_from(n_done).ok().and_then(|n_done| elapsed.checked_div(n_done));
    match each {
        Some(each) if n_left > FEW && each <= LONG_WORK => {
            each.saturating_mul(u32::try_from(n_left / 2).unwrap_or(u32::MAX)).min(LONGEST_PAUSE)
        }
        _ => Duration::ZERO,
    }
}

/// Waits, without being woken, for as long as both allow.
fn pause(how_long: Duration, deadline: Deadline) {
    if how_long.is_zero() {
        return;
    }
    let until = match (Deadline::within(how_long), deadline) {
        (_, Deadline::Now) => return,
        (Deadline::At(until), Deadline::At(end)) => Deadline::At(until.min(end)),
        (until, _) => until,
    };
    // Nobody else knows this word.
    let (word, spin) = (AtomicU32::new(0), Spin::default());
    spin.set_fixed(Some(Duration::ZERO));
    until.wait(WaitWord::new(&word), &spin, || None::<()>);
}
