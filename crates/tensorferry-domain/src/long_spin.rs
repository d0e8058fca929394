//! Spins that are longer than usual, where they pay.
//!
//! With the usual budget of 50 microseconds, a message every 100 microseconds costs a sleep and a wake-up of
//! 3 to 50 microseconds each. So does a peer whose virtual processor stops for that long, many times a
//! second. As long as most waits that outlast a usual spin end within 250 microseconds, spins may last that
//! long. This is the kernel's rule for halting a virtual processor (Documentation/virt/kvm/halt-polling.rst).
//! Long spins are granted at first, and end with the first few waits that are longer.
//!
//! Where other threads need the processors, spinning is expensive: it may keep the awaited process itself
//! from running, or use up the CPU quota of both. That shows in two ways: a long spin ends in vain, or the
//! clock jumps during the spin because this thread was descheduled. Either costs credit, and a long spin that
//! pays earns some back. When the credit is used up, long spins pause. Each pause is twice as long as the
//! last one, up to 1.6 seconds, unless a long good time lay between. docs/bench/NOTES.md has the gains and
//! the costs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The longest usual spin.
pub(crate) const USUAL: Duration = Duration::from_micros(50);
/// The longest spin while long spins are granted.
pub(crate) const LONG: Duration = Duration::from_micros(250);
/// A wait counts if it outlasts the spin that it begins with, or a usual spin. It raises the count by one if
/// it ends within [`LONG`], asleep or not. Otherwise it lowers the count by [`LONG_TAKES`]. Long spins are
/// granted from this count on.
const SHORT_WAITS: u32 = 4;
/// The highest count, so that old short waits do not count forever.
const MOST_SHORT_WAITS: u32 = 2 * SHORT_WAITS;
const LONG_TAKES: u32 = 2;
/// A jump of the clock that means that another thread had the processor. A look takes a fraction of a
/// microsecond, and a virtual processor that stopped by itself mostly did so for less than 100 microseconds
/// (docs/bench/NOTES.md).
const STOPPED: Duration = Duration::from_micros(200);
/// The credit that a loss costs. A long spin that pays earns 1, so at least four of five must pay.
const LOSS: u32 = 4;
/// The credit at first and at most, enough for 32 losses. With one loss, 64 MiB to and fro gained nothing
/// (docs/bench/NOTES.md).
const MOST_CREDIT: u32 = 32 * LOSS;
/// The shortest and the longest pause after the credit is used up.
const LEAST_PAUSE_NS: u64 = 100_000_000;
const MOST_PAUSE_NS: u64 = 1_600_000_000;
/// A pause is forgotten when the good time after it was this many times as long. Under a CPU quota, each good
/// time ends within the period of the quota.
const FORGOTTEN_AFTER: u64 = 8;

/// Decides whether spins may last longer than usual. One per waiting side of a queue, private to the process.
#[derive(Debug)]
pub(crate) struct LongSpin {
    /// The origin of the times below.
    born: Instant,
    n_short_waits: AtomicU32,
    credit: AtomicU32,
    /// The length of the last pause.
    pause_ns: AtomicU64,
    paused_until_ns: AtomicU64,
}

impl Default for LongSpin {
    fn default() -> Self {
        Self {
            born: Instant::now(),
            n_short_waits: AtomicU32::new(MOST_SHORT_WAITS),
            credit: AtomicU32::new(MOST_CREDIT),
            pause_ns: AtomicU64::new(0),
            paused_until_ns: AtomicU64::new(0),
        }
    }
}

impl LongSpin {
    /// Whether a spin that begins now may last for [`LONG`].
    pub(crate) fn is_granted(&self, now: Instant) -> bool {
        self.n_short_waits.load(Ordering::Relaxed) >= SHORT_WAITS
            && self.since_birth_ns(now) >= self.paused_until_ns.load(Ordering::Relaxed)
    }

    /// Records that a wait has ended after `waited`. For waits that were longer than their spin, or than a
    /// usual one.
    pub(crate) fn note_wait(&self, waited: Duration) {
        let n = self.n_short_waits.load(Ordering::Relaxed);
        let n_short_waits =
            if waited <= LONG { (n + 1).min(MOST_SHORT_WAITS) } else { n.saturating_sub(LONG_TAKES) };
        self.n_short_waits.store(n_short_waits, Ordering::Relaxed);
    }

    /// Records the end of a granted spin. `last_clock` is the last reading of the clock, before the last
    /// looks. The last look also copies what it finds, so a long payload looks as if this thread had been
    /// stopped.
    pub(crate) fn learn(&self, start: Instant, last_clock: Instant, has_found: bool) {
        // What was found before the first reading of the clock after `start` says nothing: so short a spin
        // takes the processor from nobody. Reading the clock once more would keep the caller from what was
        // found.
        if !has_found || last_clock != start {
            self.learn_at(Instant::now(), start, last_clock, has_found);
        }
    }

    fn learn_at(&self, now: Instant, start: Instant, last_clock: Instant, has_found: bool) {
        if was_stopped(last_clock, now) {
            self.note_loss(now, now.saturating_duration_since(last_clock));
        } else if has_found {
            let waited = last_clock.saturating_duration_since(start);
            if waited > USUAL {
                self.note_gain();
                self.note_wait(waited);
            }
        } else if now.saturating_duration_since(start) >= LONG {
            self.note_loss(now, Duration::ZERO);
        }
    }

    fn note_gain(&self) {
        let credit = self.credit.load(Ordering::Relaxed);
        if credit < MOST_CREDIT {
            self.credit.store(credit + 1, Ordering::Relaxed);
        }
    }

    /// Being stopped costs as much as spinning in vain for that time.
    fn note_loss(&self, now: Instant, stopped: Duration) {
        let n_losses = (stopped.as_micros() / LONG.as_micros()).max(1);
        let lost = u32::try_from(n_losses).unwrap_or(u32::MAX).saturating_mul(LOSS);
        let left = self.credit.load(Ordering::Relaxed).saturating_sub(lost);
        self.credit.store(left, Ordering::Relaxed);
        if left > 0 {
            return;
        }
        let now_ns = self.since_birth_ns(now);
        let last_ns = self.pause_ns.load(Ordering::Relaxed);
        let good_for_ns = now_ns.saturating_sub(self.paused_until_ns.load(Ordering::Relaxed));
        let is_forgotten = good_for_ns > last_ns.saturating_mul(FORGOTTEN_AFTER);
        let pause_ns =
            if is_forgotten { LEAST_PAUSE_NS } else { (last_ns * 2).clamp(LEAST_PAUSE_NS, MOST_PAUSE_NS) };
        self.paused_until_ns.store(now_ns.saturating_add(pause_ns), Ordering::Relaxed);
        self.pause_ns.store(pause_ns, Ordering::Relaxed);
        self.credit.store(MOST_CREDIT, Ordering::Relaxed);
        self.n_short_waits.store(0, Ordering::Relaxed);
    }

    fn since_birth_ns(&self, now: Instant) -> u64 {
        u64::try_from(now.saturating_duration_since(self.born).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Whether a spinning thread was stopped between two readings of the clock.
pub(crate) fn was_stopped(before: Instant, now: Instant) -> bool {
    now.saturating_duration_since(before) > STOPPED
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOO_LONG: Duration = LONG.saturating_add(Duration::from_nanos(1));

    fn earn_again(long_spin: &LongSpin) {
        (0..SHORT_WAITS).for_each(|_| long_spin.note_wait(LONG));
    }

    #[test]
    fn it_is_granted_at_first_and_ends_with_a_few_long_waits_until_there_are_short_ones_again() {
        let long_spin = LongSpin::default();
        let now = long_spin.born;
        for _ in 0..=(MOST_SHORT_WAITS - SHORT_WAITS) / LONG_TAKES {
            assert!(long_spin.is_granted(now));
            long_spin.note_wait(TOO_LONG);
        }
        assert!(!long_spin.is_granted(now));
        (0..100).for_each(|_| long_spin.note_wait(TOO_LONG));
        for _ in 0..SHORT_WAITS {
            assert!(!long_spin.is_granted(now));
            long_spin.note_wait(LONG);
        }
        assert!(long_spin.is_granted(now));
        // A few long waits are enough, however many short ones came before.
        (0..100).for_each(|_| long_spin.note_wait(LONG));
        (0..3).for_each(|_| long_spin.note_wait(TOO_LONG));
        assert!(!long_spin.is_granted(now));
    }

    #[test]
    fn what_a_usual_spin_would_have_found_says_nothing() {
        let long_spin = LongSpin::default();
        let start = long_spin.born;
        long_spin.note_loss(start, Duration::ZERO);
        let credit = || long_spin.credit.load(Ordering::Relaxed);
        let left = credit();
        let after = |waited| long_spin.learn_at(start + waited, start, start + waited, true);
        after(USUAL);
        assert_eq!(credit(), left);
        after(2 * USUAL);
        assert_eq!(credit(), left + 1);
        // The thread was stopped between the last reading of the clock and the end, so the time of arrival is
        // unknown.
        long_spin.learn_at(start + 2 * LONG, start, start + USUAL, true);
        assert!(credit() < left);
    }

    #[test]
    fn what_the_first_looks_find_says_nothing_and_costs_no_reading_of_the_clock() {
        let long_spin = LongSpin::default();
        let credit = || long_spin.credit.load(Ordering::Relaxed);
        // If the clock were read, this thread would seem to have been stopped for all the time since.
        let start = Instant::now().checked_sub(2 * STOPPED).unwrap();
        long_spin.learn(start, start, true);
        assert_eq!(credit(), MOST_CREDIT);
        // A later find reads it, and so does a spin in vain.
        long_spin.learn(start, start + Duration::from_nanos(1), true);
        let left = credit();
        assert!(left < MOST_CREDIT, "{left}");
        long_spin.learn(start, start, false);
        assert!(credit() < left, "{} after {left}", credit());
    }

    #[test]
    fn losses_use_up_the_credit_and_each_pause_is_longer_until_it_is_forgotten() {
        let long_spin = LongSpin::default();
        let mut now = long_spin.born;
        let pause_for = |now, pause_ms| {
            earn_again(&long_spin);
            for _ in 0..MOST_CREDIT / LOSS {
                assert!(long_spin.is_granted(now), "there is credit left");
                long_spin.note_loss(now, Duration::ZERO);
            }
            earn_again(&long_spin);
            assert!(!long_spin.is_granted(now + Duration::from_millis(pause_ms - 1)));
            let later = now + Duration::from_millis(pause_ms);
            assert!(long_spin.is_granted(later), "after {pause_ms} ms");
            later
        };
        for pause_ms in [100, 200, 400, 800, 1600, 1600] {
            // Good for a while, but not for long enough.
            now = pause_for(now, pause_ms) + Duration::from_millis(pause_ms);
        }
        pause_for(now + Duration::from_secs(13), 100);
    }

    #[test]
    fn being_stopped_costs_as_much_as_spinning_for_that_time() {
        let long_spin = LongSpin::default();
        let now = long_spin.born;
        long_spin.note_loss(now, LONG * (MOST_CREDIT / LOSS - 1));
        assert!(long_spin.is_granted(now));
        long_spin.note_loss(now, LONG);
        earn_again(&long_spin);
        assert!(!long_spin.is_granted(now));
        let long_spin = LongSpin::default();
        long_spin.note_loss(now, Duration::MAX);
        earn_again(&long_spin);
        assert!(!long_spin.is_granted(now), "a clock that jumps far is no overflow");
    }

    #[test]
    fn where_four_of_five_pay_it_never_pauses() {
        let long_spin = LongSpin::default();
        let now = long_spin.born;
        for _ in 0..1000 {
            long_spin.note_loss(now, Duration::ZERO);
            (0..LOSS).for_each(|_| long_spin.note_gain());
            assert!(long_spin.is_granted(now));
        }
    }
}
