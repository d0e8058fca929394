//! Waiting for another process: a futex word with a flag that says whether any thread sleeps on it.
//!
//! The word is `epoch << 1 | sleepers`. The rules, and what each of them prevents:
//!
//! - A sleeper sets the flag *and moves the epoch*, looks once more, and then sleeps on exactly that value. A
//!   waker publishes what the sleeper waits for, and then looks at the flag. The sleeper has a sequentially
//!   consistent fence in between. The waker has one too, or has published by a sequentially consistent
//!   change. So at least one of them sees the other.
//! - A waker moves the epoch, leaves the flag set, and wakes **all** sleepers. It clears the flag only when
//!   there were none, and only if the word has not moved since. So a waker that is stopped or killed between
//!   any two steps leaves the flag set for the next one. And no wake is lost to a stopped sleeper while
//!   another one could have gone on.
//! - The flag is not a counter. A sleeper that is killed leaves nothing behind that would cost every later
//!   waker a system call.
//!
//! The price is that one message wakes all sleepers of a word. After a death the sweeper also wakes all of
//! them, because the victim may have published something and died before waking.

use std::hint::cold_path;
use std::time::Instant;

use tensorferry_os::futex;

use crate::atomic::{AtomicU32, Ordering, change_before_load, fence};
use crate::{Spin, ensure_services_started};

pub(crate) const SLEEPERS: u32 = 1;
pub(crate) const EPOCH: u32 = 2;

/// A futex word in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct WaitWord<'a> {
    word: &'a AtomicU32,
}

/// The deadline of a wait passed before it found anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing was found before the deadline")]
pub struct TimedOut;

impl<'a> WaitWord<'a> {
    /// Uses this word. It is zero at first, and only `WaitWord`s access it.
    #[must_use]
    #[inline]
    pub fn new(word: &'a AtomicU32) -> Self {
        Self { word }
    }

    /// Calls `look` until it finds something: first spinning, then sleeping between looks.
    ///
    /// # Errors
    /// [`TimedOut`] when `deadline` has passed. `look` was called at least once.
    ///
    /// # Blocking
    /// Until `look` finds something or `deadline` passes. [`WaitWord::wake`] makes a sleeping thread look
    /// again.
    pub fn wait_until<R>(
        &self,
        spin: &Spin,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<R>,
    ) -> Result<R, TimedOut> {
        match look() {
            Some(found) => Ok(found),
            None => self.wait_longer(spin, deadline, look),
        }
    }

    /// As [`WaitWord::wait_until`], for a caller that has just looked and found nothing.
    ///
    /// # Errors
    /// [`TimedOut`] when `deadline` has passed.
    ///
    /// # Blocking
    /// As [`WaitWord::wait_until`].
    #[inline(never)]
    pub fn wait_longer<R>(
        &self,
        spin: &Spin,
        deadline: Option<Instant>,
        mut look: impl FnMut() -> Option<R>,
    ) -> Result<R, TimedOut> {
        ensure_services_started();
        let start = Instant::now();
        if deadline.is_some_and(|d| d <= start) {
            return Err(TimedOut);
        }
        if let Some(found) = spin.until(start, deadline, &mut look) {
            return Ok(found);
        }
        // This thread will not sleep, so it does not set the flag, which would cost the next waker a system
        // call.
        if deadline.is_some_and(|d| d <= Instant::now()) {
            return look().ok_or_else(|| timed_out(spin, start));
        }
        loop {
            let expected = self.announce_sleep();
            if let Some(found) = look() {
                spin.note_sleep(start.elapsed());
                return Ok(found);
            }
            let left = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(timed_out(spin, start));
            }
            // An error means that the word is not mapped, which its owner rules out. All that could be done
            // is to look again, and the deadline still holds.
            let _ = futex::wait(self.word, expected, left);
        }
    }

    /// Wakes all sleepers, if there are any. Call it after publishing what they wait for.
    #[inline]
    pub fn wake(&self) {
        fence(Ordering::SeqCst);
        self.wake_if_asleep();
    }

    /// As [`WaitWord::wake`], but cheaper. For a caller that has published by a sequentially consistent
    /// read-modify-write.
    #[inline]
    pub fn wake_after_change(&self) {
        change_before_load();
        self.wake_if_asleep();
    }

    #[inline]
    fn wake_if_asleep(&self) {
        if self.word.load(Ordering::SeqCst) & SLEEPERS != 0 {
            cold_path();
            self.wake_sleepers();
        }
    }

    /// Wakes all sleepers, whatever the flag says. For the sweeper, whose victim may have left the flag in
    /// any state.
    pub fn wake_sleepers(&self) {
        let moved = self.word.fetch_add(EPOCH, Ordering::SeqCst).wrapping_add(EPOCH);
        if let Ok(0) = futex::wake_all(self.word) {
            let _ = self.word.compare_exchange(moved, moved & !SLEEPERS, Ordering::SeqCst, Ordering::SeqCst);
        }
    }

    pub(crate) fn word(&self) -> &'a AtomicU32 {
        self.word
    }

    /// Sets the flag and moves the epoch. Returns the value to sleep on.
    pub(crate) fn announce_sleep(&self) -> u32 {
        let next = |word: u32| word.wrapping_add(EPOCH) | SLEEPERS;
        let mut seen = self.word.load(Ordering::Relaxed);
        while let Err(now) =
            self.word.compare_exchange_weak(seen, next(seen), Ordering::SeqCst, Ordering::Relaxed)
        {
            seen = now;
        }
        fence(Ordering::SeqCst);
        next(seen)
    }
}

fn timed_out(spin: &Spin, start: Instant) -> TimedOut {
    spin.note_time_out(start.elapsed());
    TimedOut
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::long_spin::LONG;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    #[test]
    fn nothing_found_is_a_time_out() {
        let word = AtomicU32::new(0);
        let deadline = Instant::now() + Duration::from_millis(1);
        let mut looks = 0;
        let outcome = WaitWord::new(&word).wait_until(&Spin::default(), Some(deadline), || {
            looks += 1;
            None::<()>
        });
        assert_eq!(outcome, Err(TimedOut));
        assert!(looks >= 1);
    }

    #[test]
    fn a_wake_without_sleepers_clears_the_flag_so_that_the_next_is_free() {
        let word = AtomicU32::new(0);
        let wait = WaitWord::new(&word);
        wait.announce_sleep();
        wait.wake();
        assert_eq!(word.load(Ordering::Relaxed) & SLEEPERS, 0);
        let before = word.load(Ordering::Relaxed);
        wait.wake();
        assert_eq!(word.load(Ordering::Relaxed), before, "no sleeper, no work");
    }

    #[test]
    fn waits_that_end_asleep_and_late_make_the_spins_short() {
        let (word, item) = (AtomicU32::new(0), AtomicUsize::new(0));
        let wait = WaitWord::new(&word);
        let spin = Spin::default();
        assert_eq!(spin.budget(), Some(LONG));
        for _ in 0..4 {
            let start = Instant::now();
            std::thread::scope(|s| {
                s.spawn(|| {
                    let is_late = || start.elapsed() > 4 * LONG;
                    while word.load(Ordering::SeqCst) & SLEEPERS == 0 || !is_late() {
                        std::thread::yield_now();
                    }
                    item.store(1, Ordering::SeqCst);
                    wait.wake();
                });
                let take = || (item.swap(0, Ordering::SeqCst) == 1).then_some(());
                wait.wait_until(&spin, None, take).unwrap();
            });
            // No thread is asleep, so this clears the flag that the waker left.
            wait.wake();
        }
        assert!(spin.budget() < Some(LONG), "{:?}", spin.budget());
    }

    #[test]
    fn time_outs_make_the_spins_short() {
        let word = AtomicU32::new(0);
        let spin = Spin::default();
        for _ in 0..4 {
            let deadline = Instant::now() + 4 * LONG;
            let outcome = WaitWord::new(&word).wait_until(&spin, Some(deadline), || None::<()>);
            assert_eq!(outcome, Err(TimedOut));
        }
        assert!(spin.budget() < Some(LONG), "{:?}", spin.budget());
    }

    #[test]
    fn every_item_of_a_hand_over_arrives() {
        const N: usize = 2_000;
        let (word, items) = (AtomicU32::new(0), AtomicUsize::new(0));
        std::thread::scope(|s| {
            let takers: Vec<_> = (0..3)
                .map(|_| {
                    s.spawn(|| {
                        let spin = Spin::default();
                        for _ in 0..N {
                            let take = |n: usize| n.checked_sub(1);
                            let look = || items.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok();
                            WaitWord::new(&word).wait_until(&spin, None, look).unwrap();
                        }
                    })
                })
                .collect();
            for _ in 0..3 * N {
                items.fetch_add(1, Ordering::SeqCst);
                WaitWord::new(&word).wake();
            }
            takers.into_iter().for_each(|taker| taker.join().unwrap());
        });
        assert_eq!(items.load(Ordering::SeqCst), 0);
    }
}
