//! A lock in a file that shows that its process lives, visible from any PID namespace.
//!
//! A lock of an open file description (`F_OFD_SETLK`, fcntl_locking(2)) is released when the last descriptor
//! of that description is closed. The kernel does that when the process ends. Checking the lock needs no
//! process number.

use std::os::fd::{AsFd, AsRawFd};

use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
use nix::libc;
use nix::sys::stat::Mode;
use rustix::io::Errno;

use crate::descriptor::off_standard_streams;
use crate::fork::RenewableFd;
use crate::{Error, Result};

/// One byte of a file, locked for as long as this value and this process live.
#[derive(Debug)]
pub struct Presence {
    description: RenewableFd,
}

impl Presence {
    /// Locks the byte at `offset_bytes` of the file behind `fd`, through a new open file description.
    ///
    /// # Errors
    /// EAGAIN when another description has locked the byte; ENOENT where `/proc` is not mounted; EMFILE.
    pub fn announce(fd: impl AsFd, offset_bytes: u64) -> Result<Self> {
        let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
        let description = open(path.as_str(), OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|e| Error::new(format!("open of {path}"), to_errno(e)))?;
        let description = off_standard_streams(description)?;
        fcntl(&description, FcntlArg::F_OFD_SETLK(&byte(libc::F_WRLCK, offset_bytes)))
            .map_err(|e| Error::new(format!("fcntl(F_OFD_SETLK) of byte {offset_bytes}"), to_errno(e)))?;
        Ok(Self { description: description.into() })
    }

    /// In a forked process, where the parent's lock is still shared: locks another byte as this process's
    /// own, and closes the description that it shares with the parent.
    ///
    /// # Errors
    /// As [`Presence::announce`].
    pub fn renew(&self, fd: impl AsFd, offset_bytes: u64) -> Result<()> {
        let own = Self::announce(fd, offset_bytes)?;
        self.description.replace(own.description)
    }

    /// Whether an open file description other than that of `fd` has locked the byte.
    ///
    /// # Errors
    /// The kernel's error of fcntl(2).
    pub fn is_announced(fd: impl AsFd, offset_bytes: u64) -> Result<bool> {
        let mut found = byte(libc::F_WRLCK, offset_bytes);
        fcntl(fd.as_fd(), FcntlArg::F_OFD_GETLK(&mut found))
            .map_err(|e| Error::new(format!("fcntl(F_OFD_GETLK) of byte {offset_bytes}"), to_errno(e)))?;
        Ok(i32::from(found.l_type) != libc::F_UNLCK)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "constants that fit: the kernel's own types differ")]
fn byte(kind: i32, offset_bytes: u64) -> libc::flock {
    libc::flock {
        l_type: kind as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: i64::try_from(offset_bytes).unwrap_or(i64::MAX),
        l_len: 1,
        l_pid: 0,
    }
}

fn to_errno(errno: nix::errno::Errno) -> Errno {
    Errno::from_raw_os_error(errno as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfd;

    #[test]
    fn a_byte_is_announced_as_long_as_its_owner_lives_and_by_one() {
        let fd = memfd::create_sealed("test", 4096).unwrap();
        assert!(!Presence::is_announced(&fd, 7).unwrap());
        let present = Presence::announce(&fd, 7).unwrap();
        assert!(Presence::is_announced(&fd, 7).unwrap());
        assert!(!Presence::is_announced(&fd, 8).unwrap());
        let busy = Presence::announce(&fd, 7).unwrap_err();
        assert_eq!(busy.raw_os_error(), Some(Errno::AGAIN.raw_os_error()));
        // Another descriptor of the file comes and goes. The lock stays.
        drop(fd.try_clone().unwrap());
        assert!(Presence::is_announced(&fd, 7).unwrap());
        drop(present);
        assert!(!Presence::is_announced(&fd, 7).unwrap());
    }
}
