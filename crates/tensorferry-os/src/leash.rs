//! A process that is killed when another one ends, whoever its parent is.
//!
//! `PR_SET_PDEATHSIG` is about a parent. What a fork server forks is its child and not that of the process that it serves, and
//! is to live as long as that one. So the served process holds the writing end of a pipe that nobody writes to, and each
//! forked child asks the kernel to signal it when the pipe changes (`O_ASYNC`, `F_SETSIG`; fcntl(2), pipe(7)): with SIGKILL,
//! which needs no handler, no thread, and also ends a process that is stopped. The kernel closes the writing end however
//! its holder ends.
//!
//! # Safety
//! The three fcntl(2) calls that rustix and nix do not have take plain numbers and touch no memory.
#![expect(unsafe_code, reason = "fcntl calls that rustix and nix do not offer")]

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::libc;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;

use crate::{Error, Result};

/// The two ends: the first is for the process that nobody may outlive, the second for [`Leash::arm`]. Both close-on-exec.
///
/// # Errors
/// EMFILE when no descriptor is left.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map_err(|e| Error::new("pipe2", e))?;
    Ok((writer, reader))
}

/// Held by a process that is killed when the other end is closed.
#[derive(Debug)]
pub struct Leash {
    _description: OwnedFd,
}

impl Leash {
    /// From now on this process is killed (SIGKILL) when the other end of the pipe is closed. `None` when it was closed before:
    /// then nothing will happen any more, and the caller ends itself.
    ///
    /// The signal is not sent to a process that has changed its user, as with `PR_SET_PDEATHSIG`.
    ///
    /// # Errors
    /// ENOENT where `/proc` is not mounted, EMFILE; the kernel's error of fcntl(2).
    pub fn arm(reader: impl AsFd) -> Result<Option<Self>> {
        // An open file description of its own: whom to signal is kept with the description, and the one that came
        // by fork is everybody's.
        let path = format!("/proc/self/fd/{}", reader.as_fd().as_raw_fd());
        let description =
            rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty())
                .map_err(|e| Error::new(format!("open of {path}"), e))?;
        let me = rustix::process::getpid().as_raw_nonzero().get();
        for (call, command, argument) in [
            ("fcntl(F_SETOWN)", libc::F_SETOWN, me),
            // linux/fcntl.h; the libc crate has it for Android only.
            ("fcntl(F_SETSIG, SIGKILL)", F_SETSIG, libc::SIGKILL),
            ("fcntl(F_SETFL, O_ASYNC)", libc::F_SETFL, libc::O_NONBLOCK | libc::O_ASYNC),
        ] {
            // SAFETY: each of these commands takes an int and reads and writes no memory (fcntl(2)).
            if unsafe { libc::fcntl(description.as_raw_fd(), command, argument) } == -1 {
                return Err(Error::new(call, std::io::Error::last_os_error()));
            }
        }
        // Looked at after it was armed: either the signal comes or this sees why it does not.
        let mut polled = [PollFd::new(&description, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        let n = rustix::event::poll(&mut polled, Some(&now)).map_err(|e| Error::new("poll of a leash", e))?;
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
