//! Why a handle could not be closed.

use std::error::Error;
use std::fmt;

use crate::function::BoxedError;
use crate::process::ProcessHandle;

/// A handle that could not be closed, and the reason.
#[non_exhaustive]
pub struct CloseError<T> {
    /// The unchanged handle.
    pub handle: ProcessHandle<T>,
    /// The reason.
    pub kind: CloseErrorKind,
}

impl<T> CloseError<T> {
    /// The handle, to join it or to end the process.
    #[must_use = "dropping the handle ends the process"]
    pub fn into_handle(self) -> ProcessHandle<T> {
        self.handle
    }
}

/// Why a handle could not be closed.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CloseErrorKind {
    /// The process still runs.
    #[error("it still runs; end it or join it first")]
    Running,
    /// The kernel did not report whether the process runs.
    #[error("the kernel does not tell whether it runs: {0}")]
    Wait(BoxedError),
}

tensorferry_os::debug_as_display!(CloseErrorKind);

impl<T> fmt::Debug for CloseError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T> fmt::Display for CloseError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, pid) = (self.handle.name(), self.handle.pid());
        write!(f, "the handle of process {pid} (`{name}`) cannot be closed: {}", self.kind)
    }
}

impl<T> Error for CloseError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.kind.source()
    }
}
