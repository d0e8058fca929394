//! Why processes could not be started, or did not return their values.

use std::error::Error;
use std::fmt;

use crate::failure::ProcessErrors;
use crate::function::BoxedError;
use crate::output::OutputError;

/// Processes that could not be started, and the reason. Processes that had already been started were killed
/// and reaped.
#[non_exhaustive]
pub struct StartError<Args> {
    /// The arguments. Exclusive tensors in them are intact, unless a process had received them already.
    pub args: Args,
    /// The reason.
    pub kind: StartErrorKind,
}

/// Why processes could not be started.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum StartErrorKind {
    /// The function is not registered. No process was started.
    #[error("`{function}` cannot be spawned because it is not registered: {hint}")]
    NotRegistered {
        /// The function's path, or its type.
        function: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// The arguments cannot be sent. No process was started.
    #[error("the arguments of `{function}` for process {rank} cannot be sent: {error}")]
    Arguments {
        /// The function's path.
        function: String,
        /// The index of the process that they were for.
        rank: usize,
        /// The error of serde or the transport.
        error: BoxedError,
    },
    /// The domain does not have room for that many processes. No process was started.
    #[error("the domain has no room for {nprocs} more: {taken} of its {places} places are taken")]
    TooMany {
        /// The requested number.
        nprocs: usize,
        /// How many members the domain has now, including this process.
        taken: usize,
        /// How many it can have.
        places: usize,
    },
    /// There is no shared memory for the processes. No process was started.
    #[error("no shared memory for the processes: {0}")]
    Memory(BoxedError),
    /// A log file cannot be opened, or the pipes or the thread for [`Options::tee`](crate::Options::tee)
    /// cannot be created. No process was started.
    #[error("no process was started: {0}")]
    Output(OutputError),
    /// [`Options::tee`](crate::Options::tee) needs a thread in this process, which the start method fork does
    /// not allow. No process was started.
    #[error(
        "what the processes write cannot be passed on line by line (tee) with the start method fork, because it \
         takes a thread: use log_dir without tee, or another start method"
    )]
    TeeWithFork,
    /// A process could not be started. Those that had already been started were killed and reaped.
    #[error("process `{name}` cannot be started: {error}")]
    Process {
        /// Its index.
        rank: usize,
        /// Its name.
        name: String,
        /// The reason.
        error: crate::ProcessStartError,
    },
}

tensorferry_os::debug_as_display!(StartErrorKind);

impl From<OutputError> for StartErrorKind {
    fn from(error: OutputError) -> Self {
        Self::Output(error)
    }
}

impl<Args> StartError<Args> {
    /// The arguments, for example to try again.
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
    /// Drops the arguments.
    fn from(error: StartError<Args>) -> Self {
        Self::Start(error.kind)
    }
}

/// Why processes did not return their values.
///
/// `Display` writes a line for each failure. `Debug`, which a `main` that returns this error prints, and
/// `{:#}` add the backtraces.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The processes could not be started.
    #[error(transparent)]
    Start(#[from] StartErrorKind),
    /// At least one process failed.
    #[error(transparent)]
    Failed(#[from] ProcessErrors),
    /// All processes succeeded, but a value did not arrive.
    #[error("the value of process {rank} has not arrived: {error}")]
    Value {
        /// The index of the process.
        rank: usize,
        /// The reason.
        error: BoxedError,
    },
    /// All processes succeeded, but their output was not kept in full.
    #[error("all processes succeeded, but {0}")]
    Output(OutputError),
    /// Waiting failed.
    #[error("waiting for the processes failed: {0}")]
    Wait(BoxedError),
    /// The kernel refused a signal.
    #[error("signal {signal} could not be sent to process {rank}: {error}")]
    Signal {
        /// The index of the process.
        rank: usize,
        /// The signal.
        signal: i32,
        /// The reason.
        error: BoxedError,
    },
}

impl fmt::Debug for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(errors) => fmt::Debug::fmt(errors, f),
            _ => fmt::Display::fmt(self, f),
        }
    }
}

/// Why a child refused its order.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The child's program has no function with this path.
    #[error(
        "this program has no function `{function}`; it has {}", if .known.is_empty() { String::from("none") } else { .known.join(", ") }
    )]
    Unknown {
        /// The function's path.
        function: String,
        /// The functions that it has.
        known: Vec<&'static str>,
    },
    /// The function exists there, but with other types.
    #[error(
        "`{function}` was to be called as {wanted}, but this program has it as {here}; start the same build"
    )]
    OtherTypes {
        /// The function's path.
        function: String,
        /// The types that the parent uses.
        wanted: String,
        /// The types that the child has.
        here: String,
    },
}

tensorferry_os::debug_as_display!(Refusal);
