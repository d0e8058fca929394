//! Spins that are longer than usual, where they pay.
//!
//! A message every 100 microseconds costs a sleep and a wake-up of 3 to 50 microseconds each with the usual budget of 50;
//! so does a peer whose virtual processor stands still for that long, many times a second. As long as most waits that
//! outlast a usual spin end within 250 microseconds, spins may last that long. This is the kernel's rule for halting a
//! virtual processor (Documentation/virt/kvm/halt-polling.rst). It is expected to pay at first; the first few waits that
//! are longer end it.
//!
//! Where others need the processors, spinning is expensive: it may keep the very process from running that is waited for,
//! or use up the CPU quota of both. That shows in two ways: a long spin ends in vain, or the clock jumps in the middle of
//! it because this thread was descheduled. Either costs credit, and a long spin that pays earns some back. When the
//! credit is used up, long spins pause, each pause twice as long as the last one, up to 1.6 seconds, unless a long good
//! time lay between. docs/bench/NOTES.md has what this gains and costs.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a usual spin lasts at most.
pub(crate) const USUAL: Duration = Duration::from_micros(50);
/// How long a spin may last then.
pub(crate) const LONG: Duration = Duration::from_micros(250);
/// Waits that are longer than the spin that they begin with, or than a usual one, are counted up where they end within
/// [`LONG`], asleep or not, and down by [`LONG_TAKES`] where they do not. From so many on spins may last for so long.
const SHORT_WAITS: u32 = 4;
/// No more are counted, so that those of long ago do not count for ever.
const MOST_SHORT_WAITS: u32 = 2 * SHORT_WAITS;
const LONG_TAKES: u32 = 2;
/// A clock that has jumped by so much says that somebody else had the processor: a look takes a fraction of a microsecond, and
/// when a virtual processor stood still by itself it was mostly for less than 100 (docs/bench/NOTES.md).
const STOPPED: Duration = Duration::from_micros(200);
/// What a loss takes of the credit; a long spin that paid gives back one. So at least four of five have to pay.
const LOSS: u32 = 4;
/// So many losses are borne at first: with one, 64 MiB to and fro gained nothing (docs/bench/NOTES.md).
const MOST_CREDIT: u32 = 32 * LOSS;
/// For how long there is none when the credit is used up, at first and at most.
const LEAST_PAUSE_NS: u64 = 100_000_000;
const MOST_PAUSE_NS: u64 = 1_600_000_000;
/// A pause is forgotten when the time after it was good for so many times as long. A quota ends each good time within its period.
const FORGOTTEN_AFTER: u64 = 8;

/// Whether spins may last longer than usual; one per waiting side of a queue, private to the process.
#[derive(Debug)]
pub(crate) struct LongSpin {
    /// What the times below count from.
    born: Instant,
    n_short_waits: AtomicU32,
    credit: AtomicU32,
    /// How long the last pause was.
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

    /// A wait that was longer than its spin, or than a usual one, has ended, so long after it began.
    pub(crate) fn note_wait(&self, waited: Duration) {
        let n = self.n_short_waits.load(Ordering::Relaxed);
        let n_short_waits =
            if waited <= LONG { (n + 1).min(MOST_SHORT_WAITS) } else { n.saturating_sub(LONG_TAKES) };
        self.n_short_waits.store(n_short_waits, Ordering::Relaxed);
    }

    /// A spin that was granted has ended; the clock was looked at before its last looks. What is found is copied in the last
    /// one, so that a long payload looks as if this thread had been stopped.
    pub(crate) fn learn(&self, start: Instant, last_clock: Instant, has_found: bool) {
        self.learn_at(Instant::now(), start, last_clock, has_found);
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

/// Whether a thread that spins was stopped between two looks at the clock.
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
        // However many short ones there were, a few long ones are enough.
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
        // Stopped between the last look at the clock and the end, so that nobody knows when it came.
        long_spin.learn_at(start + 2 * LONG, start, start + USUAL, true);
        assert!(credit() < left);
    }

    #[test]
    fn losses_use_up_the_credit_and_each_rest_is_longer_until_it_is_forgotten() {
        let long_spin = LongSpin::default();
        let mut now = long_spin.born;
        let rest_for = |now, rest_ms| {
            earn_again(&long_spin);
            for _ in 0..MOST_CREDIT / LOSS {
                assert!(long_spin.is_granted(now), "there is credit left");
                long_spin.note_loss(now, Duration::ZERO);
            }
            earn_again(&long_spin);
            assert!(!long_spin.is_granted(now + Duration::from_millis(rest_ms - 1)));
            let later = now + Duration::from_millis(rest_ms);
            assert!(long_spin.is_granted(later), "after {rest_ms} ms");
            later
        };
        for rest_ms in [100, 200, 400, 800, 1600, 1600] {
            // Good for a while, but not for long enough.
            now = rest_for(now, rest_ms) + Duration::from_millis(rest_ms);
        }
        rest_for(now + Duration::from_secs(13), 100);
    }

    #[test]
    fn to_be_stopped_is_as_dear_as_so_much_of_spinning() {
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
    fn where_four_of_five_pay_it_goes_on_for_ever() {
        let long_spin = LongSpin::default();
        let now = long_spin.born;
        for _ in 0..1000 {
            long_spin.note_loss(now, Duration::ZERO);
            (0..LOSS).for_each(|_| long_spin.note_gain());
            assert!(long_spin.is_granted(now));
        }
    }
}
