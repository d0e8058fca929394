//! A process that ended before its time without a word.

use std::error::Error;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::failure::{Cause, ProcessError};

/// The failure of one process that did not say why: it exited, or a signal ended it. The other kind is
/// [`ProcessRaisedError`](crate::ProcessRaisedError).
///
/// Made of a [`ProcessError`], for those who handle the two kinds in different places. Displayed as that is.
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
    /// What it was called.
    pub name: String,
    /// Its process number.
    pub pid: u32,
    /// The exit code, or minus the number of the signal; `None` when something else in the parent has collected it.
    pub exit_code: Option<i32>,
    /// The name of the signal, as in signal(7).
    pub signal_name: Option<String>,
    /// See [`ProcessError::out_of_memory_kills`].
    pub out_of_memory_kills: u64,
    /// All of it in words.
    text: String,
}

impl TryFrom<ProcessError> for ProcessExitedError {
    type Error = ProcessError;

    /// The failure itself when the process said why.
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
