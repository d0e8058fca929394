//! Waiting for any of several words.
//!
//! The rules are those of `wait.rs`, for each word. A sleeper announces itself on all of them, looks once
//! more, and sleeps while all values are those that it announced. Values that it read only afterwards would
//! not do: a waker that has moved the epoch already, and has woken nobody, would clear the flag of a sleeper.

use std::time::Instant;

use tensorferry_os::futex;

use crate::atomic::AtomicU32;
use crate::{OsError, Spin, TimedOut, WaitWord, ensure_services_started};

/// Why a wait for any of several words ended without a find.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitAnyError {
    /// The deadline passed before anything was found.
    #[error("nothing came in time to any of those that were waited for")]
    TimedOut,
    /// More words than the kernel waits for at once.
    #[error("one call waits for at most {limit} at once, not for {n}")]
    TooMany {
        /// How many there are.
        n: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The kernel cannot wait for several words.
    #[error("waiting for several needs futex_waitv: Linux 5.16 or later, and no filter that forbids it")]
    Unsupported,
    /// The kernel failed.
    #[error(transparent)]
    Os(#[from] OsError),
}

/// Calls `look` until it finds something: first spinning, then sleeping between looks.
///
/// # Errors
/// [`WaitAnyError`]. Whether the kernel can wait is found out first, so that it does not depend on what is
/// found.
///
/// # Blocking
/// Until `look` finds something or `deadline` passes. A wake of any of the words makes a sleeping thread look
/// again.
pub fn wait_any_until<R>(
    words: &[WaitWord<'_>],
    spin: &Spin,
    deadline: Option<Instant>,
    mut look: impl FnMut() -> Option<R>,
) -> Result<R, WaitAnyError> {
    if words.len() > futex::MAX_WORDS {
        return Err(WaitAnyError::TooMany { n: words.len(), limit: futex::MAX_WORDS });
    }
    if let [word] = words {
        return word.wait_until(spin, deadline, look).map_err(|TimedOut| WaitAnyError::TimedOut);
    }
    if !futex::can_wait_any() {
        return Err(WaitAnyError::Unsupported);
    }
    if let Some(found) = look() {
        return Ok(found);
    }
    ensure_services_started();
    let start = Instant::now();
    if deadline.is_some_and(|deadline| deadline <= start) {
        return Err(WaitAnyError::TimedOut);
    }
    if let Some(found) = spin.until(start, deadline, &mut look) {
        return Ok(found);
    }
    loop {
        let announced = announce_sleep(words);
        if let Some(found) = look() {
            spin.note_sleep(start.elapsed());
            return Ok(found);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            spin.note_time_out(start.elapsed());
            return Err(WaitAnyError::TimedOut);
        }
        futex::wait_any(&announced, left)?;
    }
}

/// Sets all flags and moves all epochs. Returns each word once, with the value to sleep on.
fn announce_sleep<'a>(words: &[WaitWord<'a>]) -> Vec<(&'a AtomicU32, u32)> {
    let mut announced: Vec<(&AtomicU32, u32)> = Vec::with_capacity(words.len());
    for word in words {
        let value = word.announce_sleep();
        match announced.iter_mut().find(|(other, _)| std::ptr::eq(*other, word.word())) {
            // Of two announcements the second one is what stands there.
            Some((_, earlier)) => *earlier = value,
            None => announced.push((word.word(), value)),
        }
    }
    announced
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomic::Ordering;
    use crate::wait::{EPOCH, SLEEPERS};
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;
    use tensorferry_os::futex::Woken;

    #[test]
    fn every_item_of_several_wakers_arrives_also_by_a_word_that_stands_twice() {
        const N: usize = 2_000;
        if !futex::can_wait_any() {
            return;
        }
        let (words, items) = ([AtomicU32::new(0), AtomicU32::new(0)], AtomicUsize::new(0));
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| {
                    let spin = Spin::default();
                    spin.set_fixed(Some(Duration::ZERO));
                    let waits = [&words[0], &words[1], &words[0]].map(WaitWord::new);
                    let take = |n: usize| n.checked_sub(1);
                    let look = || items.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).ok();
                    for _ in 0..N {
                        wait_any_until(&waits, &spin, None, look).unwrap();
                    }
                });
            }
            for turn in 0..2 * N {
                items.fetch_add(1, Ordering::SeqCst);
                WaitWord::new(&words[turn % 2]).wake();
            }
        });
        assert_eq!(items.into_inner(), 0);
    }

    #[test]
    fn a_sleep_does_not_begin_while_a_waker_is_between_its_wake_and_clearing_the_flag() {
        if !futex::can_wait_any() {
            return;
        }
        let words = [AtomicU32::new(0), AtomicU32::new(0)];
        let announced = announce_sleep(&[&words[1], &words[0], &words[1]].map(WaitWord::new));
        let sleep = |announced: &[_]| futex::wait_any(announced, Some(Duration::from_millis(5))).unwrap();
        assert!(matches!(sleep(&announced), Woken::TimedOut), "undisturbed, it sleeps");
        for word in &words {
            let announced = announce_sleep(&words.each_ref().map(WaitWord::new));
            // As in `wake_sleepers`. Nobody slept yet, so the next step clears the flag.
            word.fetch_add(EPOCH, Ordering::SeqCst);
            assert_eq!(word.load(Ordering::SeqCst) & SLEEPERS, SLEEPERS);
            assert!(!matches!(sleep(&announced), Woken::TimedOut));
        }
    }

    #[test]
    fn nothing_found_and_too_many_words_are_errors() {
        if !futex::can_wait_any() {
            return;
        }
        let word = AtomicU32::new(0);
        let wait = |n, deadline| {
            let waits: Vec<_> = (0..n).map(|_| WaitWord::new(&word)).collect();
            wait_any_until(&waits, &Spin::default(), Some(deadline), || None::<()>)
        };
        let now = Instant::now();
        for deadline in [now, now + Duration::from_millis(2)] {
            assert!(matches!(wait(2, deadline), Err(WaitAnyError::TimedOut)));
        }
        let too_many = wait(futex::MAX_WORDS + 1, now);
        assert!(matches!(too_many, Err(WaitAnyError::TooMany { n: 129, limit: 128 })), "{too_many:?}");
    }
}
