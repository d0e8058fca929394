//! Waiting for any of several words.
//!
//! The rules are those of `wait.rs`, for each word. A sleeper announces itself on all of them, and only then
//! notes their values, looks once more, and sleeps while all values are the noted ones. So a waker that comes
//! after the announcement either changes a noted value, or was done before the values were noted, and then
//! the look sees what it has published. A value whose flag somebody has cleared meanwhile is not slept on:
//! the next waker would wake nobody.

use std::time::Instant;

use tensorferry_os::futex;

use crate::atomic::{Ordering, fence};
use crate::wait::SLEEPERS;
use crate::{OsError, Spin, WaitWord};

/// Why a wait for any of several words ended without a find.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitAnyError {
    /// The deadline passed before anything was found.
    #[error("the deadline passed")]
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
    if !futex::can_wait_any() {
        return Err(WaitAnyError::Unsupported);
    }
    if let Some(found) = look() {
        return Ok(found);
    }
    let start = Instant::now();
    if deadline.is_some_and(|deadline| deadline <= start) {
        return Err(WaitAnyError::TimedOut);
    }
    if let Some(found) = spin.until(start, deadline, &mut look) {
        return Ok(found);
    }
    loop {
        for word in words {
            let _ = word.announce_sleep();
        }
        let noted: Vec<_> =
            words.iter().map(|word| (word.word(), word.word().load(Ordering::SeqCst))).collect();
        fence(Ordering::SeqCst);
        if let Some(found) = look() {
            spin.note_sleep(start.elapsed());
            return Ok(found);
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            spin.note_time_out(start.elapsed());
            return Err(WaitAnyError::TimedOut);
        }
        if noted.iter().all(|(_, value)| value & SLEEPERS != 0) {
            futex::wait_any(&noted, left)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::atomic::AtomicU32;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

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
