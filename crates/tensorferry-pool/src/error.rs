//! Why a task has no value, and why a pool has failed.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use tensorferry_reduce::{DecodeError, EncodeError};
use tensorferry_spawn::{ProcessError, Report, SpawnError, StartErrorKind};
use tensorferry_storage::{RingPutError, RingTakeError, StorageError};

/// Why a task has no value.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The function returned an error or panicked, its arguments could not be read, or its value could not be
    /// sent. Its worker lives on.
    #[error(transparent)]
    Raised(Box<TaskRaisedError>),
    /// The worker died, or exited, in the middle of the task.
    #[error(transparent)]
    WorkerDied(Box<WorkerDiedError>),
    /// The value arrived, but it is not what the function returns.
    #[error("the value of `{function}` cannot be read: {error}")]
    Value {
        /// The function's path.
        function: &'static str,
        /// What is wrong with it.
        error: Arc<DecodeError>,
    },
    /// The task was not accepted.
    #[error("the task was not accepted: {0}")]
    Submit(SubmitErrorKind),
    /// The pool was terminated or dropped before the task was done.
    #[error("the pool was terminated before the task was done")]
    Terminated,
    /// The pool has failed.
    #[error(transparent)]
    Pool(Arc<PoolError>),
}

tensorferry_storage::debug_as_display!(TaskError);

/// A function that failed in a worker. The worker lives on.
///
/// `Display` writes one line, and a line for each cause; `{:#}` adds the backtrace of a panic.
#[derive(Clone)]
#[non_exhaustive]
pub struct TaskRaisedError {
    /// The function's path.
    pub function: &'static str,
    /// The index of the worker.
    pub worker: usize,
    /// The worker's process ID.
    pub pid: u32,
    /// Message, place and stack of a panic; message and causes of an error.
    pub report: Report,
}

tensorferry_storage::debug_as_display!(TaskRaisedError);

impl fmt::Display for TaskRaisedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` in worker {} (pid {}) ", self.function, self.worker, self.pid)?;
        fmt::Display::fmt(&self.report, f)
    }
}

impl Error for TaskRaisedError {}

/// A worker that died, or exited, in the middle of a task. Another one has taken its place.
#[derive(Clone)]
#[non_exhaustive]
pub struct WorkerDiedError {
    /// The path of the function that it called.
    pub function: &'static str,
    /// How many workers have died over the task.
    pub tries: u16,
    /// How the last of them ended: its index, name and process ID, exit code or signal, and a report if there
    /// is one. `None` if that is not known.
    pub process: Option<ProcessError>,
}

tensorferry_storage::debug_as_display!(WorkerDiedError);

impl fmt::Display for WorkerDiedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a worker died in the middle of `{}`", self.function)?;
        if self.tries > 1 {
            write!(f, ", in {} tries", self.tries)?;
        }
        self.process.as_ref().map_or(Ok(()), |process| write!(f, ": {process}"))
    }
}

impl Error for WorkerDiedError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.process.as_ref().map(|process| process as _)
    }
}

/// Why a pool could not be started, or has failed as a whole.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// A pool has at least one process.
    #[error("a pool has at least one process")]
    NoProcesses,
    /// The start method fork is not for pools: a worker is replaced while the pool's own thread runs.
    #[error(
        "the workers of a pool cannot be forked, because one that dies is replaced beside other threads: use the \
         start method spawn or forkserver"
    )]
    Fork,
    /// There is no shared memory for the pool.
    #[error("no shared memory for the pool: {0}")]
    Memory(StorageError),
    /// The thread of the pool could not be started.
    #[error("the pool's thread cannot be started: {0}")]
    Thread(std::io::Error),
    /// A worker could not be started.
    #[error("worker {worker} of the pool cannot be started: {error}")]
    Start {
        /// Its index.
        worker: usize,
        /// The reason.
        error: StartErrorKind,
    },
    /// The initializer cannot be called.
    #[error("the pool's initializer cannot be called: {0}")]
    Initializer(SubmitErrorKind),
    /// A worker failed before it took its first task, and said why: in an initializer, or because it cannot
    /// read the task. Or eight in a row were killed before they could take tasks.
    #[error("a worker of the pool ended before it took a task: {0}")]
    Ended(SpawnError),
    /// The workers' answers cannot be read.
    #[error("the answers of the pool's workers cannot be read: {0}")]
    Answers(RingTakeError),
}

tensorferry_storage::debug_as_display!(PoolError);

/// A task that was not accepted, and the arguments.
#[non_exhaustive]
pub struct SubmitError<Args> {
    /// The arguments.
    pub args: Args,
    /// The reason.
    pub kind: SubmitErrorKind,
}

/// Why a task was not accepted.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitErrorKind {
    /// The function is not registered.
    #[error("{0}")]
    NotRegistered(Arc<StartErrorKind>),
    /// The arguments cannot be sent.
    #[error("the arguments cannot be sent: {0}")]
    Arguments(Arc<EncodeError>),
    /// The arguments hold something exclusive, but another worker has to get them if the first one dies.
    #[error(
        "the arguments hold something exclusive, and another worker has to get them if the first one dies: freeze() a \
         tensor, clone the sender"
    )]
    NotRepeatable,
    /// The arguments hold more handles than one message can have.
    #[error("the arguments hold {0} handles, at most 65535 are possible (a bundle is one)")]
    TooManyHandles(usize),
    /// The queue of tasks was full until the deadline.
    #[error("the queue of tasks is full: as many wait for a worker as it holds")]
    Full,
    /// The pool is closed.
    #[error("the pool is closed")]
    Closed,
    /// The pool was terminated.
    #[error("the pool was terminated")]
    Terminated,
    /// The pool has failed.
    #[error("{0}")]
    Pool(Arc<PoolError>),
    /// The queue of tasks has failed otherwise.
    #[error("the queue of tasks has failed: {0}")]
    Queue(Arc<RingPutError>),
}

tensorferry_storage::debug_as_display!(SubmitErrorKind);

/// An item of [`Pool::map`](crate::Pool::map) for which there is no value. Of several, the one that comes
/// first among the items.
#[derive(Clone, thiserror::Error)]
#[error("item {index}: {error}")]
#[non_exhaustive]
pub struct MapError {
    /// Its place among the items, from 0.
    pub index: usize,
    /// What happened to it.
    pub error: TaskError,
}

tensorferry_storage::debug_as_display!(MapError);

impl From<Arc<PoolError>> for TaskError {
    fn from(error: Arc<PoolError>) -> Self {
        Self::Pool(error)
    }
}

impl From<SubmitErrorKind> for TaskError {
    fn from(kind: SubmitErrorKind) -> Self {
        match kind {
            SubmitErrorKind::Terminated => Self::Terminated,
            SubmitErrorKind::Pool(error) => Self::Pool(error),
            kind => Self::Submit(kind),
        }
    }
}

impl<Args> SubmitError<Args> {
    /// The arguments, for example to try again.
    #[must_use]
    pub fn into_args(self) -> Args {
        self.args
    }
}

impl<Args> fmt::Debug for SubmitError<Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.kind, f)
    }
}

impl<Args> fmt::Display for SubmitError<Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.kind, f)
    }
}

impl<Args> Error for SubmitError<Args> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.kind.source()
    }
}

impl<Args> From<SubmitError<Args>> for TaskError {
    /// Drops the arguments.
    fn from(error: SubmitError<Args>) -> Self {
        error.kind.into()
    }
}
