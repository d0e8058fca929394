//! Where the standard output and error of a child go.

use std::fs::File;
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;

use tensorferry_os::child as os;

/// Where the standard output or error of a child goes.
#[derive(Debug, Default)]
#[non_exhaustive]
pub enum Redirect {
    /// To that of this process.
    #[default]
    Inherit,
    /// To `/dev/null`.
    Null,
    /// To a file, a pipe or a socket.
    To(OwnedFd),
}

impl Redirect {
    /// For a program that is about to be executed. `None` leaves its output as it is.
    pub(crate) fn into_stdio(self) -> Option<Stdio> {
        match self {
            Self::Inherit => None,
            Self::Null => Some(Stdio::null()),
            Self::To(fd) => Some(Stdio::from(fd)),
        }
    }

    /// The same, as a descriptor. `/dev/null` is kept open in `null`.
    pub(crate) fn as_fd<'a>(
        &'a self,
        null: &'a mut Option<OwnedFd>,
    ) -> tensorferry_os::Result<Option<BorrowedFd<'a>>> {
        Ok(match self {
            Self::Inherit => None,
            Self::Null => Some(OwnedFd::as_fd(null.insert(os::null()?))),
            Self::To(fd) => Some(fd.as_fd()),
        })
    }

    /// For a process that is forked. `own` is the output to inherit.
    pub(crate) fn into_fd(self, own: BorrowedFd<'_>) -> tensorferry_os::Result<OwnedFd> {
        match self {
            Self::Inherit => {
                own.try_clone_to_owned().map_err(|e| tensorferry_os::Error::new("dup of an output", e))
            }
            Self::Null => os::null(),
            Self::To(fd) => Ok(fd),
        }
    }
}

/// Both outputs, for a process that is forked.
#[derive(Debug)]
pub(crate) struct Outputs {
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Outputs {
    pub(crate) fn open(stdout: Redirect, stderr: Redirect) -> tensorferry_os::Result<Self> {
        let stdout = stdout.into_fd(io::stdout().as_fd())?;
        Ok(Self { stdout, stderr: stderr.into_fd(io::stderr().as_fd())? })
    }

    /// Makes them the outputs of this process.
    pub(crate) fn take_over(self) -> tensorferry_os::Result<()> {
        os::replace_stdout(&self.stdout)?;
        os::replace_stderr(&self.stderr)
    }
}

impl From<OwnedFd> for Redirect {
    fn from(fd: OwnedFd) -> Self {
        Self::To(fd)
    }
}

impl From<File> for Redirect {
    fn from(file: File) -> Self {
        Self::To(file.into())
    }
}

impl From<PipeWriter> for Redirect {
    fn from(pipe: PipeWriter) -> Self {
        Self::To(pipe.into())
    }
}
