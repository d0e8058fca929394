//! Standard input, output and error of this process, and `/dev/null`.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use crate::{Error, Result};

/// The first descriptor that is none of standard input, output and error.
const FIRST_OTHER: i32 = 3;

/// Moves standard input to a new descriptor (close-on-exec, 3 or higher) and opens `/dev/null` in its place.
///
/// # Errors
/// EMFILE when no descriptor is left, EBADF when standard input is closed; as [`null_stdin`].
pub fn take_stdin() -> Result<OwnedFd> {
    let stdin = std::io::stdin();
    let taken = rustix::io::fcntl_dupfd_cloexec(&stdin, FIRST_OTHER)
        .map_err(|e| Error::new("fcntl(F_DUPFD_CLOEXEC) of standard input", e))?;
    null_stdin()?;
    Ok(taken)
}

/// Makes `fd` the standard output of this process.
///
/// # Errors
/// The kernel's error of dup2(2).
pub fn replace_stdout(fd: impl AsFd) -> Result<()> {
    rustix::stdio::dup2_stdout(fd).map_err(|e| Error::new("dup2 to standard output", e))
}

/// Makes `fd` the standard error of this process.
///
/// # Errors
/// As [`replace_stdout`].
pub fn replace_stderr(fd: impl AsFd) -> Result<()> {
    rustix::stdio::dup2_stderr(fd).map_err(|e| Error::new("dup2 to standard error", e))
}

/// Makes `/dev/null` the standard input of this process.
///
/// # Errors
/// As [`replace_stdout`]; ENOENT where there is no `/dev/null`.
pub fn null_stdin() -> Result<()> {
    rustix::stdio::dup2_stdin(null()?).map_err(|e| Error::new("dup2 of /dev/null to standard input", e))
}

/// Opens `/dev/null` for reading and writing. The descriptor is not 0, 1 or 2, also where those are closed,
/// so that it can be put there and closed.
///
/// # Errors
/// The kernel's error of open(2).
pub fn null() -> Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())
        .map_err(|e| Error::new("open of /dev/null", e))?;
    if null.as_raw_fd() >= FIRST_OTHER {
        return Ok(null);
    }
    rustix::io::fcntl_dupfd_cloexec(&null, FIRST_OTHER).map_err(|e| Error::new("dup of /dev/null", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_input_that_was_closed_is_dev_null_afterwards() {
        let in_a_table_of_its_own = std::thread::spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FILES).unwrap();
            nix::unistd::close(0).unwrap();
            assert!(null().unwrap().as_raw_fd() >= FIRST_OTHER);
            null_stdin().unwrap();
            std::fs::read_link("/proc/thread-self/fd/0").unwrap()
        });
        assert_eq!(in_a_table_of_its_own.join().unwrap().to_str(), Some("/dev/null"));
    }
}
