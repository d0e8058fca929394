//! Sleeping on a word that several processes map, and waking the sleepers (futex(2)).
//!
//! All calls use the shared form. `FUTEX_PRIVATE_FLAG` would key the word by its address in this process, so
//! no other process would find it.

use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use rustix::io::Errno;
use rustix::thread::futex::{self, Flags, Timespec, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::time::{ClockId, clock_gettime};

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

/// The most words that [`wait_any`] sleeps on (`FUTEX_WAITV_MAX`).
pub const MAX_WORDS: usize = 128;

/// Whether [`wait_any`] works here: since Linux 5.16, where no filter of system calls forbids it.
#[must_use]
pub fn can_wait_any() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    // No words are an invalid argument for a kernel that knows the call.
    let asked = || futex::waitv(&[], WaitvFlags::empty(), None, ClockId::Monotonic);
    *CAN.get_or_init(|| asked() == Err(Errno::INVAL))
}

/// As [`wait`], on several words: sleeps while each of them has the value beside it.
///
/// # Errors
/// ENOSYS before Linux 5.16, EINVAL for no words or more than [`MAX_WORDS`], EFAULT when a word is not
/// mapped, or another unexpected error of [futex_waitv(2)].
///
/// # Blocking
/// As [`wait`], on any of the words.
///
/// [futex_waitv(2)]: https://docs.kernel.org/userspace-api/futex2.html
pub fn wait_any(words: &[(&AtomicU32, u32)], timeout: Option<Duration>) -> Result<Woken> {
    let wait_on = |&(word, expected): &(&AtomicU32, u32)| {
        let mut wait = Wait::new();
        wait.val = expected.into();
        wait.uaddr = WaitPtr::new(word.as_ptr().cast());
        wait.flags = WaitFlags::SIZE_U32;
        wait
    };
    let waits: Vec<Wait> = words.iter().map(wait_on).collect();
    // This call takes the time at which it ends. One beyond the end of time is none.
    let now = clock_gettime(ClockId::Monotonic);
    let end = timeout.and_then(|timeout| {
        let nanoseconds = now.tv_nsec + i64::from(timeout.subsec_nanos());
        let seconds = now.tv_sec.checked_add(i64::try_from(timeout.as_secs()).ok()?)?;
        let tv_sec = seconds.checked_add(nanoseconds / 1_000_000_000)?;
        Some(Timespec { tv_sec, tv_nsec: nanoseconds % 1_000_000_000 })
    });
    match futex::waitv(&waits, WaitvFlags::empty(), end.as_ref(), ClockId::Monotonic) {
        Ok(_) | Err(Errno::INTR) => Ok(Woken::Perhaps),
        Err(Errno::AGAIN) => Ok(Woken::Changed),
        Err(Errno::TIMEDOUT) => Ok(Woken::TimedOut),
        Err(e) => Err(Error::new("futex_waitv", e)),
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

    #[test]
    fn any_of_several_words_wakes_a_sleeper() {
        if !can_wait_any() {
            return;
        }
        let words = [AtomicU32::new(0), AtomicU32::new(1), AtomicU32::new(2)];
        let expected = |values: [u32; 3]| [0, 1, 2].map(|index| (&words[index], values[index]));
        assert_eq!(wait_any(&expected([0, 1, 0]), None).unwrap(), Woken::Changed);
        let short = Some(Duration::from_millis(1));
        assert_eq!(wait_any(&expected([0, 1, 2]), short).unwrap(), Woken::TimedOut);
        for (index, word) in words.iter().enumerate() {
            let changed = 10 + u32::try_from(index).unwrap();
            std::thread::scope(|s| {
                s.spawn(|| {
                    while word.load(Ordering::Acquire) != changed {
                        let values = [0, 1, 2].map(|index| words[index].load(Ordering::Acquire));
                        if values[index] != changed {
                            wait_any(&expected(values), Some(Duration::MAX)).unwrap();
                        }
                    }
                });
                word.store(changed, Ordering::Release);
                wake_all(word).unwrap();
            });
        }
        assert!(wait_any(&[], None).is_err());
    }
}
