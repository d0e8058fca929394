//! A leash: a process is killed when another one ends, even if that is not its parent.
//!
//! `PR_SET_PDEATHSIG` (prctl(2)) follows the *thread* that started a process, and the kernel clears it when
//! the process changes its user or group. It does not serve a process that a fork server has forked, which is
//! to live as long as the process that the server serves. A leash has none of these limits. The process that
//! no other may outlive holds the writing end of a pipe, to which it never writes. Each of the others asks
//! the kernel for a signal when the pipe changes (`O_ASYNC`, `F_SETSIG`; fcntl(2), pipe(7)). The signal is
//! SIGKILL, which needs no handler and no thread, and also ends a stopped process. The kernel closes the
//! writing end however its holder ends, and when the holder executes another program.
//!
//! A leash ends with its descriptor: a process that closes all of its descriptors does not hang on it any
//! more.
//!
//! # Safety
//! The three fcntl(2) calls that rustix and nix do not have take plain numbers and touch no memory.
#![expect(unsafe_code, reason = "fcntl calls that rustix and nix do not offer")]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

use crate::descriptor::off_standard_streams;
use crate::{Error, Result};

/// Makes the pipe: the first end is for the process that no other may outlive, the second for [`Leash::arm`].
/// Both are close-on-exec.
///
/// # Errors
/// EMFILE when no descriptor is left.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::new("pipe2", e))?;
    // The pipe belongs to the user of this moment, and those that open it again may be others by then.
    rustix::fs::fchmod(&reader, Mode::RUSR | Mode::RGRP | Mode::ROTH)
        .map_err(|e| Error::new("fchmod of a leash", e))?;
    Ok((off_standard_streams(writer)?, off_standard_streams(reader)?))
}

/// Kills the process that armed it when the other end of the pipe is closed.
#[derive(Debug)]
pub struct Leash {
    _description: OwnedFd,
}

impl Leash {
    /// From now on, the kernel kills this process (SIGKILL) when the other end of the pipe is closed. Returns
    /// `None` when that end was closed before. No signal comes then, and the caller must end itself.
    ///
    /// The signal is sent with the user of this moment: a process that was root gets it also when it has
    /// changed its user since, and no other process can change its user without executing another program.
    ///
    /// # Errors
    /// ENOENT where `/proc` is not mounted, EMFILE; the kernel's error of fcntl(2).
    pub fn arm(reader: impl AsFd) -> Result<Option<Self>> {
        // Opens a new open file description. The receiver of the signal is stored in the description, and all
        // forked processes share the one that they inherited.
        let path = format!("/proc/self/fd/{}", reader.as_fd().as_raw_fd());
        let description =
            rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
                .map_err(|e| Error::new(format!("open of {path}"), e))
                .and_then(off_standard_streams)?;
        let me = rustix::process::getpid().as_raw_nonzero().get();
        for (call, command, argument) in [
            ("fcntl(F_SETOWN)", libc::F_SETOWN, me),
            // The libc crate does not have it for Linux.
            ("fcntl(F_SETSIG, SIGKILL)", F_SETSIG, libc::SIGKILL),
            ("fcntl(F_SETFL, O_ASYNC)", libc::F_SETFL, libc::O_NONBLOCK | libc::O_ASYNC),
        ] {
            // SAFETY: each of these commands takes an int, and reads and writes no memory (fcntl(2)).
            if unsafe { libc::fcntl(description.as_raw_fd(), command, argument) } == -1 {
                return Err(Error::new(call, std::io::Error::last_os_error()));
            }
        }
        // Check after arming: either the signal comes, or this sees that the other end is closed.
        let mut polled = [PollFd::new(&description, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // The kernel interrupts also a poll that does not wait.
        let n = rustix::io::retry_on_intr(|| rustix::event::poll(&mut polled, Some(&now)))
            .map_err(|e| Error::new("poll of a leash", e))?;
        Ok((n == 0).then_some(Self { _description: description }))
    }
}

/// `F_SETSIG` of fcntl(2) (asm-generic/fcntl.h).
const F_SETSIG: i32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leash_whose_other_end_is_gone_says_so() {
        let (holder, reader) = pair().unwrap();
        drop(holder);
        assert!(Leash::arm(&reader).unwrap().is_none());
    }
}
