//! Why processes could not be started, or have no values to return.

use std::error::Error;
use std::fmt;

use crate::failure::ProcessErrors;
use crate::function::BoxedError;
use crate::output::OutputError;

/// Processes that could not be started, and why. Those that had been started already have been killed and collected.
#[non_exhaustive]
pub struct StartError<Args> {
    /// The arguments. Exclusive tensors in them are whole, unless a process had received them already.
    pub args: Args,
    /// Why.
    pub kind: StartErrorKind,
}

/// Why processes could not be started.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartErrorKind {
    /// The function is not in the table of functions. No process was started.
    #[error("`{function}` cannot be spawned because it is not registered: {hint}")]
    NotRegistered {
        /// The function's path, or what it is.
        function: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The arguments cannot travel. No process was started.
    #[error("the arguments of `{function}` for process {rank} cannot be sent: {error}")]
    Arguments {
        /// The function's path.
        function: String,
        /// Which process they were for.
        rank: usize,
        /// What serde or the transport says.
        error: BoxedError,
    },
    /// A domain has no room for so many. No process was started.
    #[error("{nprocs} processes cannot be started: a domain has {places} places (taken: {taken})")]
    TooMany {
        /// How many were asked for.
        nprocs: usize,
        /// How many are members of the domain now, this process included.
        taken: usize,
        /// How many there can be.
        places: usize,
    },
    /// There is no shared memory to start in.
    #[error("no shared memory for the processes: {0}")]
    Memory(BoxedError),
    /// A file for the output of the processes, or the way to pass it on, is not to be had. No process was started.
    #[error("no process was started: {0}")]
    Output(OutputError),
    /// To pass lines on (tee) takes a thread of this process, which the start method fork does not allow.
    #[error(
        "what the processes write cannot be passed on line by line (tee) with the start method fork, because it \
         takes a thread: use log_dir without tee, or another start method"
    )]
    TeeWithFork,
    /// A process could not be started.
    #[error("process {rank} cannot be started: {error}")]
    Process {
        /// Which one.
        rank: usize,
        /// Why.
        error: tensorferry_process::StartError,
    },
}

tensorferry_os::debug_as_display!(StartErrorKind);

impl From<OutputError> for StartErrorKind {
    fn from(error: OutputError) -> Self {
        Self::Output(error)
    }
}

impl<Args> StartError<Args> {
    /// The arguments, to try again or to drop.
    #[must_use]
    pub fn into_args(self) -> Args {
        self.args
    }
}

impl<Args> fmt::Debug for StartError<Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.kind, f)
    }
}

impl<Args> fmt::Display for StartError<Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<Args> Error for StartError<Args> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.kind.source()
    }
}

impl<Args> From<StartError<Args>> for StartErrorKind {
    /// Drops the arguments.
    fn from(error: StartError<Args>) -> Self {
        error.kind
    }
}

impl<Args> From<StartError<Args>> for SpawnError {
    /// Without the arguments.
    fn from(error: StartError<Args>) -> Self {
        Self::Start(error.kind)
    }
}

/// Why `spawn` has no values to return.
///
/// Displayed in a line for each failure. `Debug`, which is what a `main` that returns it prints, and `{:#}` add the
/// backtraces.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The processes could not be started.
    #[error(transparent)]
    Start(#[from] StartErrorKind),
    /// At least one process failed.
    #[error(transparent)]
    Failed(#[from] ProcessErrors),
    /// All processes succeeded, but a value has not arrived.
    #[error("the value of process {rank} has not arrived: {error}")]
    Value {
        /// Whose value.
        rank: usize,
        /// Why.
        error: BoxedError,
    },
    /// All processes succeeded, but what they wrote has not been kept whole.
    #[error("all processes succeeded, but {0}")]
    Output(OutputError),
    /// Waiting failed.
    #[error("waiting for the processes failed: {0}")]
    Wait(BoxedError),
}

impl fmt::Debug for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(errors) => fmt::Debug::fmt(errors, f),
            _ => fmt::Display::fmt(self, f),
        }
    }
}

/// Why a child did not do what it was asked for.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The function is not in the child's table.
    #[error(
        "this program has no function `{function}`; it has {}", if .known.is_empty() { String::from("none") } else { .known.join(", ") }
    )]
    Unknown {
        /// The function's path.
        function: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// The function is there, with other types.
    #[error(
        "`{function}` was to be called as {wanted}, but this program has it as {here}; start the same build"
    )]
    OtherTypes {
        /// The function's path.
        function: String,
        /// What the parent wants.
        wanted: String,
        /// What the child has.
        here: String,
    },
}

tensorferry_os::debug_as_display!(Refusal);
