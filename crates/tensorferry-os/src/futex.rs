//! Sleeping on a word that several processes map, and waking the sleepers (futex(2)).
//!
//! All calls use the shared form. `FUTEX_PRIVATE_FLAG` would key the word by its address in this process, so
//! no other process would find it.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec};

use crate::{Error, Result};

/// Why a sleep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// [`wake_all`] was called, a signal arrived, or the kernel woke this thread for no reason: look again.
    Perhaps,
    /// The word no longer had the expected value, so there was no sleep.
    Changed,
    /// The time-out passed.
    TimedOut,
}

/// Sleeps while `*word == expected`, for at most `timeout` (without limit if `None`).
///
/// # Errors
/// EFAULT when the word is not mapped, or another unexpected error of futex(2).
///
/// # Blocking
/// Until [`wake_all`] is called on the word in any process, a signal arrives, or `timeout` has passed.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Option<Duration>) -> Result<Woken> {
    let timeout = timeout.map(|t| Timespec {
        tv_sec: i64::try_from(t.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(t.subsec_nanos()),
    });
    match futex::wait(word, Flags::empty(), expected, timeout.as_ref()) {
        Ok(()) | Err(Errno::INTR) => Ok(Woken::Perhaps),
        Err(Errno::AGAIN) => Ok(Woken::Changed),
        Err(Errno::TIMEDOUT) => Ok(Woken::TimedOut),
        Err(e) => Err(Error::new("futex(FUTEX_WAIT)", e)),
    }
}

/// Wakes all threads that sleep on `word`, in every process. Returns how many there were.
///
/// # Errors
/// EFAULT when the word is not mapped; no other error is expected.
pub fn wake_all(word: &AtomicU32) -> Result<usize> {
    futex::wake(word, Flags::empty(), i32::MAX.unsigned_abs()).map_err(|e| Error::new("futex(FUTEX_WAKE)", e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_changed_word_does_not_sleep() {
        assert_eq!(wait(&AtomicU32::new(1), 0, None).unwrap(), Woken::Changed);
    }

    #[test]
    fn a_time_out_is_told_from_a_wake() {
        let word = AtomicU32::new(0);
        assert_eq!(wait(&word, 0, Some(Duration::from_millis(1))).unwrap(), Woken::TimedOut);
    }

    #[test]
    fn a_sleeper_is_woken() {
        let word = AtomicU32::new(0);
        std::thread::scope(|s| {
            s.spawn(|| {
                while word.load(Ordering::Acquire) == 0 {
                    wait(&word, 0, None).unwrap();
                }
            });
            word.store(1, Ordering::Release);
            wake_all(&word).unwrap();
        });
        assert_eq!(wake_all(&word).unwrap(), 0, "nobody is left");
    }
}
