//! A process that failed and reported why.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};
use tensorferry_process::Report;

use crate::failure::{Cause, ProcessError};

/// The failure of a process that reported why: it panicked, returned an error, or refused its order. The
/// other kind is [`ProcessExitedError`](crate::ProcessExitedError).
///
/// Made from a [`ProcessError`], for programs that handle the two kinds in different places. `Display` writes
/// one line, and a line for each cause; `{:#}` adds the backtrace.
///
/// ```
/// use tensorferry_spawn::{ProcessRaisedError, SpawnError, func, spawn};
///
/// #[func]
/// fn fail(rank: usize) -> Result<(), String> {
///     Err(format!("legitimate error from process {rank}"))
/// }
///
/// let Err(SpawnError::Failed(errors)) = spawn(fail, (), 1) else { panic!("it fails") };
/// let raised = ProcessRaisedError::try_from(errors.root_cause().clone())?;
/// assert_eq!(raised.report.message, "legitimate error from process 0");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessRaisedError {
    /// The index of the process.
    pub rank: usize,
    /// Its name.
    pub name: String,
    /// Its process ID.
    pub pid: u32,
    /// Its report.
    pub report: Report,
}

impl TryFrom<ProcessError> for ProcessRaisedError {
    type Error = ProcessError;

    /// Returns the failure itself if the process did not report why it failed.
    fn try_from(error: ProcessError) -> Result<Self, ProcessError> {
        match error.cause {
            Cause::Raised(report) => {
                Ok(Self { rank: error.rank, name: error.name, pid: error.pid, report: *report })
            }
            cause => Err(ProcessError { cause, ..error }),
        }
    }
}

impl fmt::Display for ProcessRaisedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {} (`{}`, pid {}) failed: ", self.rank, self.name, self.pid)?;
        fmt::Display::fmt(&self.report, f)
    }
}

impl Error for ProcessRaisedError {}
