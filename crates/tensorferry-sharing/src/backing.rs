//! The file behind a domain.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use tensorferry_os::{Error, Result, memfd};

use crate::SharingStrategy;

/// The memory of one domain as a file: made by a [`SharingStrategy`], or received from another process.
#[derive(Debug)]
pub struct Backing {
    fd: OwnedFd,
    len_bytes: u64,
    strategy: SharingStrategy,
}

impl Backing {
    /// The name that the kernel shows for such a file (`/proc/PID/maps`, `/proc/PID/fd`). It is no name under
    /// which the file could be opened.
    pub const FILE_NAME: &str = "tensorferry";

    /// Makes a sparse file of `len_bytes`.
    ///
    /// # Errors
    /// The kernel's error; `Unsupported` for a strategy that this version does not have.
    pub fn create(strategy: SharingStrategy, len_bytes: u64) -> Result<Self> {
        match strategy {
            SharingStrategy::FileDescriptor => {
                let fd = memfd::create_sealed(Self::FILE_NAME, len_bytes)?;
                Ok(Self { fd, len_bytes, strategy })
            }
            SharingStrategy::FileSystem => Err(Error::new(
                "backing by file_system",
                std::io::Error::from(std::io::ErrorKind::Unsupported),
            )),
        }
    }

    /// Takes a descriptor that came from another process, after checking that the file can never change its
    /// size.
    ///
    /// # Errors
    /// `InvalidInput` when the file is not sealed against shrinking and growing. That includes everything
    /// that is not a memory file. The kernel's error of fstat(2).
    pub fn from_fd(fd: OwnedFd) -> Result<Self> {
        if !memfd::is_size_sealed(&fd).unwrap_or(false) {
            let kind = std::io::Error::from(std::io::ErrorKind::InvalidInput);
            return Err(Error::new("taking a descriptor that is no sealed memory file", kind));
        }
        let len_bytes = memfd::len_bytes(&fd)?;
        Ok(Self { fd, len_bytes, strategy: SharingStrategy::FileDescriptor })
    }

    /// The size of the file in bytes, holes included.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// The strategy that backs the file.
    #[must_use]
    pub fn strategy(&self) -> SharingStrategy {
        self.strategy
    }
}

impl AsFd for Backing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_sealed_memory_file_is_taken() {
        let (read, _write) = std::io::pipe().unwrap();
        assert!(Backing::from_fd(read.into()).is_err());
        let made = Backing::create(SharingStrategy::FileDescriptor, 1 << 20).unwrap();
        let taken = Backing::from_fd(made.as_fd().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(taken.len_bytes(), 1 << 20);
    }
}
