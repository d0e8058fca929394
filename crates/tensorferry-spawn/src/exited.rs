//! A process that ended early without a report.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::{Cause, ProcessError};

/// The failure of a process that did not report why: it exited, or a signal ended it. The other kind is
/// [`ProcessRaisedError`](crate::ProcessRaisedError).
///
/// Made from a [`ProcessError`], for programs that handle the two kinds in different places. `Display` writes
/// what that writes.
///
/// ```
/// use tensorferry_spawn::{ProcessExitedError, SpawnError, func, spawn};
///
/// #[func]
/// fn abort(_rank: usize) {
///     std::process::abort();
/// }
///
/// let Err(SpawnError::Failed(errors)) = spawn(abort, (), 1) else { panic!("it fails") };
/// let exited = ProcessExitedError::try_from(errors.root_cause().clone())?;
/// assert_eq!((exited.exit_code, exited.signal_name.as_deref()), (Some(-6), Some("SIGABRT")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessExitedError {
    /// The index of the process.
    pub rank: usize,
    /// Its name.
    pub name: String,
    /// Its process ID.
    pub pid: u32,
    /// The exit code, or the negated signal number; `None` if it is unknown ([`Cause::Lost`] and
    /// [`Cause::StatusUnavailable`]).
    pub exit_code: Option<i32>,
    /// The name of the signal, as in signal(7).
    pub signal_name: Option<String>,
    /// See [`ProcessError::out_of_memory_kills`].
    pub out_of_memory_kills: u64,
    /// The whole message.
    text: String,
}

impl TryFrom<ProcessError> for ProcessExitedError {
    type Error = ProcessError;

    /// Returns the failure itself if the process reported why it failed.
    fn try_from(error: ProcessError) -> Result<Self, ProcessError> {
        if matches!(error.cause, Cause::Raised(_)) {
            return Err(error);
        }
        Ok(Self {
            rank: error.rank,
            pid: error.pid,
            exit_code: error.exit_code(),
            signal_name: error.signal_name().map(String::from),
            out_of_memory_kills: error.out_of_memory_kills,
            text: error.to_string(),
            name: error.name,
        })
    }
}

impl fmt::Display for ProcessExitedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for ProcessExitedError {}
