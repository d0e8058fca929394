//! Options for starting processes.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_process::{OnDrop, StartMethod};

use crate::context::ProcessContext;
#[cfg(doc)]
use crate::error::StartErrorKind;
use crate::error::{SpawnError, StartError};
use crate::function::Function;
use crate::launch;
use crate::output::Tee;
use crate::rank::RankEnvironment;

/// Options for processes that are started together.
///
/// ```
/// use std::time::Duration;
/// use tensorferry_spawn::{Options, func};
///
/// #[func]
/// fn train(rank: usize, rate: f32) -> Result<f32, String> {
///     Ok(rate * rank as f32)
/// }
///
/// let options = Options::new().name("train").env("OMP_NUM_THREADS", "1");
/// let options = options.grace_period(Duration::from_secs(5));
/// let rates = options.spawn(train, (0.1,), 4)?;
/// # Ok::<(), tensorferry_spawn::SpawnError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) name: Option<String>,
    pub(crate) environment: Vec<(Option<usize>, OsString, Option<OsString>)>,
    pub(crate) executable: Option<PathBuf>,
    pub(crate) grace_period: Option<Duration>,
    pub(crate) rank_environment: RankEnvironment,
    pub(crate) log_dir: Option<PathBuf>,
    pub(crate) tee: Tee,
    pub(crate) current_dir: Option<PathBuf>,
    pub(crate) nice: Option<i32>,
    pub(crate) cpus: Option<Vec<usize>>,
    pub(crate) on_drop: OnDrop,
    pub(crate) is_daemon: bool,
    pub(crate) seed: Option<u64>,
    pub(crate) start_method: Option<StartMethod>,
}

impl Options {
    /// The defaults: named after the function, the environment of this process with its own `RANK`,
    /// `LOCAL_RANK` and `WORLD_SIZE`, no grace period.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of the processes, for reports and for `ps`. The index of the process follows it, as in
    /// `train 0`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets a variable in the environment of all processes. The start fails if the name is empty or contains
    /// `=`, or if name or value contains a zero byte.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((None, name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Sets a variable in the environment of the process with index `rank`.
    #[must_use]
    pub fn env_of(mut self, rank: usize, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((Some(rank), name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes a variable from the environment of all processes.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.environment.push((None, name.as_ref().to_owned(), None));
        self
    }

    /// Sets the contents of `RANK`, `LOCAL_RANK` and `WORLD_SIZE`: [`RankEnvironment::Indices`] by default. A
    /// variable that is set or removed by name takes precedence.
    #[must_use]
    pub fn rank_environment(mut self, choice: RankEnvironment) -> Self {
        self.rank_environment = choice;
        self
    }

    /// Writes the output of the processes to files in this directory: standard output of process 0 to
    /// `0/stdout.log`, its standard error to `0/stderr.log`, and so on. Missing directories are created.
    /// Existing files are appended to.
    ///
    /// The processes write to the files themselves, so their output is there even if this process is killed.
    /// A full disk is an error of their own writes, and a panic in `println!`. With [`Options::tee`] this
    /// process writes the files; see there.
    #[must_use]
    pub fn log_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.log_dir = Some(dir.into());
        self
    }

    /// Forwards the output of the processes to the same output of this process. Each line begins with the
    /// name of its process: `[train 0] epoch 3`. Without [`Options::log_dir`] no file is written.
    ///
    /// There is a pipe for each output. One thread of this process reads them. It ends after the processes,
    /// in [`ProcessContext::join`] or when the context is dropped. Output that a process wrote before it was
    /// killed still arrives. Output in a pipe (64 KiB) is lost if *this* process is killed. A line longer
    /// than 16 KiB may be split, and an unterminated last line gets a line feed. The pipes are closed when
    /// the processes have ended. A later write of their own children fails.
    ///
    /// If nothing reads an output of this process, the processes block on their writes. Their end is delayed
    /// by one second at most; then the remaining lines go to the files only. A file that cannot be written,
    /// as on a full disk, does not block the processes. [`ProcessContext::join`] reports it.
    ///
    /// Not possible with [`StartMethod::Fork`], because of the thread ([`StartErrorKind::TeeWithFork`]).
    #[must_use]
    pub fn tee(mut self, choice: Tee) -> Self {
        self.tee = choice;
        self
    }

    /// Sets another program to run. It must link this library and have the function registered. Needed where
    /// the running program does not contain this library, as in a Python extension. For
    /// [`StartMethod::Spawn`] only.
    #[must_use]
    pub fn executable(mut self, path: impl Into<PathBuf>) -> Self {
        self.executable = Some(path.into());
        self
    }

    /// Sets the working directory of the processes. A relative path is relative to that of this process.
    #[must_use]
    pub fn current_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.current_dir = Some(path.into());
        self
    }

    /// Sets the nice value of the processes, from -20 (most favorable) to 19 (least favorable;
    /// setpriority(2)).
    #[must_use]
    pub fn nice(mut self, value: i32) -> Self {
        self.nice = Some(value);
        self
    }

    /// Sets the processors that the processes may run on, by number from 0 (sched_setaffinity(2)).
    #[must_use]
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.cpus = Some(cpus.into_iter().collect());
        self
    }

    /// Sets what dropping the context does to processes that still run: [`OnDrop::Kill`] by default.
    #[must_use]
    pub fn on_drop(mut self, policy: OnDrop) -> Self {
        self.on_drop = policy;
        self
    }

    /// Makes the processes daemonic, as Python's `daemon=True`. They may not start processes of their own:
    /// the start fails there with [`ProcessStartError::Daemonic`](crate::ProcessStartError::Daemonic).
    ///
    /// In Python, a parent that exits normally also ends its daemonic processes and waits for the others.
    /// Here no process outlives its parent, daemonic or not, however the parent ends. To wait for a process,
    /// keep its handle with [`OnDrop::Wait`]. A daemonic process is killed all the same.
    #[must_use]
    pub fn daemon(mut self) -> Self {
        self.is_daemon = true;
        self
    }

    /// Gives each process its own seed, in the variable `TENSORFERRY_SEED`, as a decimal number:
    /// [`rank_seed`](crate::rank_seed) of `base` and its `RANK`. So the seeds also differ between machines.
    /// Without this option the variable is removed, even if this process has it.
    ///
    /// ```
    /// use tensorferry_spawn::{Options, func, rank_seed};
    ///
    /// #[func]
    /// fn seed(_rank: usize) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
    ///     Ok(std::env::var("TENSORFERRY_SEED")?.parse()?)
    /// }
    ///
    /// assert_eq!(Options::new().seed(7).spawn(seed, (), 2)?, [rank_seed(7, 0), rank_seed(7, 1)]);
    /// # Ok::<(), tensorferry_spawn::SpawnError>(())
    /// ```
    #[must_use]
    pub fn seed(mut self, base: u64) -> Self {
        self.seed = Some(base);
        self
    }

    /// Sets how the processes are created: [`get_start_method`](crate::get_start_method) by default.
    #[must_use]
    pub fn start_method(mut self, method: StartMethod) -> Self {
        self.start_method = Some(method);
        self
    }

    /// Sets how long the other processes have to end by themselves once one has failed, and again between
    /// SIGTERM and SIGKILL. Without it, SIGTERM comes at once and SIGKILL after 30 seconds.
    #[must_use]
    pub fn grace_period(mut self, grace_period: Duration) -> Self {
        self.grace_period = Some(grace_period);
        self
    }

    /// Starts `nprocs` processes that call `function` with their index and `args`. Returns without waiting
    /// for their end.
    ///
    /// The processes are executed one after the other, and none is waited for in between. So their start-up
    /// work overlaps. [`StartMethod::Fork`] is the exception: each start waits until the child holds its
    /// parent's shared memory.
    ///
    /// # Errors
    /// [`StartError`], which returns the arguments. These kinds occur before any process exists:
    /// - [`StartErrorKind::NotRegistered`] when the function does not have the attribute
    ///   [`func`](crate::func).
    /// - [`StartErrorKind::TeeWithFork`] for [`Options::tee`] with [`StartMethod::Fork`].
    /// - [`StartErrorKind::Memory`] when there is no shared memory.
    /// - [`StartErrorKind::TooMany`] when the domain does not have room for `nprocs` more members.
    /// - [`StartErrorKind::Output`] when [`Options::log_dir`] or [`Options::tee`] cannot be set up.
    /// - [`StartErrorKind::Arguments`] when the arguments cannot be sent.
    ///
    /// [`StartErrorKind::Process`] occurs when one of the processes cannot be started. The others have been
    /// killed and reaped then.
    pub fn start_processes<F, Args>(
        &self,
        function: F,
        args: Args,
        nprocs: usize,
    ) -> Result<ProcessContext<F::Value>, StartError<Args>>
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned,
    {
        match launch::launch(self, function, &args, nprocs, None) {
            Ok(context) => Ok(context),
            Err(kind) => Err(StartError { args, kind }),
        }
    }

    /// As [`Options::start_processes`], and waits for the values, in order of the index.
    ///
    /// # Blocking
    /// Until all processes have ended, as [`ProcessContext::join`].
    ///
    /// # Errors
    /// - [`SpawnError::Start`] with a kind of [`Options::start_processes`] when they could not be started.
    ///   None remains.
    /// - [`SpawnError::Failed`] with every process that failed, the root cause first.
    /// - [`SpawnError::Output`] when all succeeded but their output was not kept in full. Only with
    ///   [`Options::tee`]. To get the values in spite of it, use [`ProcessContext::take_values`].
    /// - [`SpawnError::Value`] when all succeeded but a value did not arrive.
    /// - [`SpawnError::Wait`] when waiting failed in the kernel.
    pub fn spawn<F, Args>(&self, function: F, args: Args, nprocs: usize) -> Result<Vec<F::Value>, SpawnError>
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned,
    {
        self.start_processes(function, args, nprocs).map_err(SpawnError::from)?.into_values()
    }
}

/// Starts `nprocs` processes, each of which calls `function` with its index and `args`. Waits for all of
/// them, and returns their values in order of the index. `nprocs` is from 0 to 62: a domain has 63 members,
/// and this process is one.
///
/// `args` is a tuple: `(queue, tensor)`, `(queue,)` for one argument, `()` for none. It is serialized once
/// for each process. Tensors, queues and shared values in it are sent as handles. A value that can be in one
/// place only, such as a `TensorMut` or a sole end of a queue, is refused for more than one process. The
/// function must have the attribute [`func`](crate::func).
///
/// A stack overflow ends a process by SIGSEGV, without the message that Rust prints elsewhere. The function
/// is entered before Rust's own start-up code, which prepares for that.
///
/// The processes find their index in `RANK` and `LOCAL_RANK`, and the number of processes in `WORLD_SIZE`;
/// see [`Options::rank_environment`].
///
/// The first failure stops the others; see [`Options::grace_period`].
///
/// # Blocking
/// Until all processes have ended, as [`ProcessContext::join`].
///
/// # Errors
/// - [`SpawnError::Start`] with a kind of [`start_processes`] when they could not be started. None remains.
/// - [`SpawnError::Failed`] with every process that failed, the root cause first.
/// - [`SpawnError::Value`] when all succeeded but a value did not arrive.
/// - [`SpawnError::Wait`] when waiting failed in the kernel.
///
/// # Examples
/// ```
/// #[tensorferry_spawn::func]
/// fn square(rank: usize, offset: u64) -> Result<u64, String> {
///     Ok((rank as u64 + offset).pow(2))
/// }
///
/// assert_eq!(tensorferry_spawn::spawn(square, (10,), 3)?, [100, 121, 144]);
/// # Ok::<(), tensorferry_spawn::SpawnError>(())
/// ```
pub fn spawn<F, Args>(function: F, args: Args, nprocs: usize) -> Result<Vec<F::Value>, SpawnError>
where
    F: Function<Args>,
    Args: Serialize + DeserializeOwned,
{
    Options::new().spawn(function, args, nprocs)
}

/// Starts `nprocs` processes, each of which calls `function` with its index and `args`. Returns without
/// waiting for their end. For the arguments see [`spawn`].
///
/// # Errors
/// As [`Options::start_processes`], except [`StartErrorKind::Output`] and [`StartErrorKind::TeeWithFork`]:
/// these need options.
pub fn start_processes<F, Args>(
    function: F,
    args: Args,
    nprocs: usize,
) -> Result<ProcessContext<F::Value>, StartError<Args>>
where
    F: Function<Args>,
    Args: Serialize + DeserializeOwned,
{
    Options::new().start_processes(function, args, nprocs)
}
