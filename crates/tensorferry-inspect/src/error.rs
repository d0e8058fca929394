//! Why a process or a domain could not be looked at.

use tensorferry_domain::{DomainError, OsError};
use tensorferry_storage::StorageError;

/// Why there is no answer.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// `/proc` is not mounted, or shows other processes than this one's.
    #[error("the processes of this machine cannot be listed: {error}; mount /proc")]
    NoProcesses {
        /// The kernel's answer.
        error: OsError,
    },
    /// The process has ended, or may not be inspected: it belongs to somebody else.
    #[error("process {pid} cannot be inspected: {error}")]
    Process {
        /// Its number.
        pid: u32,
        /// The kernel's answer.
        error: OsError,
    },
    /// Nobody who could be asked has the domain open any more.
    #[error("the domain is gone: the processes that had it, {processes:?}, have ended")]
    Gone {
        /// Their numbers.
        processes: Vec<u32>,
    },
    /// The file cannot be opened, or is no domain that this version can read.
    #[error(transparent)]
    Domain(#[from] DomainError),
    /// The domain could not be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

tensorferry_os::debug_as_display!(InspectError);
