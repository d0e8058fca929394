//! How processes are started.

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

/// Settings for processes that are started together.
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
/// let options = Options::new().name("train").env("OMP_NUM_THREADS", "1").grace_period(Duration::from_secs(5));
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
    /// The defaults: named after the function, the environment of this process with `RANK`, `LOCAL_RANK` and `WORLD_SIZE`
    /// of their own, no grace period.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What the processes are called: the name and their index, `train 0`, in reports and by `ps`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets a variable in the environment of all of them. A name that is none (an empty one, or one with `=` in it) is an error of
    /// the start.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((None, name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Sets a variable in the environment of one of them.
    #[must_use]
    pub fn env_of(mut self, rank: usize, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.environment.push((Some(rank), name.as_ref().to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes a variable from the environment of all of them.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.environment.push((None, name.as_ref().to_owned(), None));
        self
    }

    /// What `RANK`, `LOCAL_RANK` and `WORLD_SIZE` say: [`RankEnvironment::Indices`] by default. A variable that is set or
    /// removed by name wins.
    #[must_use]
    pub fn rank_environment(mut self, choice: RankEnvironment) -> Self {
        self.rank_environment = choice;
        self
    }

    /// Keeps what the processes write: standard output of process 0 goes to `0/stdout.log` in this folder, its standard
    /// error to `0/stderr.log`, and so on. Folders are made where they are missing; what a file holds already stays.
    ///
    /// The processes write to the files themselves, so what they have written is there even if this process is killed. A
    /// full disk is an error of their own writes, and a panic in `println!`. With [`Options::tee`] this process writes
    /// the files; see there.
    #[must_use]
    pub fn log_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.log_dir = Some(dir.into());
        self
    }

    /// Passes on what the processes write to the same output of this process, each line after the name of its process:
    /// `[train 0] epoch 3`. Without [`Options::log_dir`] there is no file.
    ///
    /// What is passed on goes through a pipe for each output and one thread of this process, which ends when the processes
    /// have ended, in [`ProcessContext::join`] or when the context is dropped. What a process had written when it was
    /// killed still arrives; what is in a pipe (64 KiB) when *this* process is killed is lost. A line longer than 16 KiB
    /// comes in pieces, and one that nothing ends is ended. The pipe is closed when the processes have ended: what their
    /// own children write after that is an error to them.
    ///
    /// An output of this process that nobody reads holds up the processes, but their end for no longer than a second: then
    /// the lines that are left go to the files only. A file that cannot be written, as on a full disk, does not hold up the
    /// processes; [`ProcessContext::join`] tells.
    ///
    /// Not with [`StartMethod::Fork`], which the thread is in the way of.
    #[must_use]
    pub fn tee(mut self, choice: Tee) -> Self {
        self.tee = choice;
        self
    }

    /// Another program to run: one that links this library and has the function registered. Needed where the running
    /// program is not ours, as in a Python extension. For [`StartMethod::Spawn`] only.
    #[must_use]
    pub fn executable(mut self, path: impl Into<PathBuf>) -> Self {
        self.executable = Some(path.into());
        self
    }

    /// The working directory of the processes. A relative path is relative to that of this process.
    #[must_use]
    pub fn current_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.current_dir = Some(path.into());
        self
    }

    /// The nice value of the processes, from -20 to 19 (19 runs only when others do not want to; setpriority(2)).
    #[must_use]
    pub fn nice(mut self, value: i32) -> Self {
        self.nice = Some(value);
        self
    }

    /// The processors that the processes may run on, by number from 0 (sched_setaffinity(2)).
    #[must_use]
    pub fn cpus(mut self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.cpus = Some(cpus.into_iter().collect());
        self
    }

    /// What happens to processes that still run when their context is dropped: [`OnDrop::Kill`] by default.
    #[must_use]
    pub fn on_drop(mut self, policy: OnDrop) -> Self {
        self.on_drop = policy;
        self
    }

    /// Makes the processes daemonic, as Python's `daemon=True`: they may not start processes of their own, which would be
    /// [`StartError::Daemonic`](tensorferry_process::StartError::Daemonic) there.
    ///
    /// In Python, daemonic processes are also ended when their parent ends in good order, and the others are waited for then.
    /// Here no process outlives its parent, daemonic or not, however that ends. Who wants a process waited for holds its
    /// handle and says [`OnDrop::Wait`]; a daemonic one is killed all the same.
    #[must_use]
    pub fn daemon(mut self) -> Self {
        self.is_daemon = true;
        self
    }

    /// Gives each process a seed of its own, in the variable `TENSORFERRY_SEED`, as a decimal number:
    /// [`rank_seed`](crate::rank_seed) of `base` and its `RANK`, so that the processes of several machines differ too. A
    /// process without one does not have the variable, also where this process has it.
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

    /// How the processes come into being: [`get_start_method`](crate::get_start_method) by default.
    #[must_use]
    pub fn start_method(mut self, method: StartMethod) -> Self {
        self.start_method = Some(method);
        self
    }

    /// How long the other processes have to end by themselves once one has failed, and again between SIGTERM and
    /// SIGKILL. Without it, SIGTERM comes at once and SIGKILL after 30 seconds.
    #[must_use]
    pub fn grace_period(mut self, grace_period: Duration) -> Self {
        self.grace_period = Some(grace_period);
        self
    }

    /// Starts `nprocs` processes that call `function` with their index and `args`, and returns without waiting for them.
    ///
    /// One process is executed after the other, and none is waited for meanwhile: what takes time in a new process happens in
    /// all of them at once.
    ///
    /// # Errors
    /// As [`start_processes`].
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
    /// # Errors
    /// As [`spawn`].
    pub fn spawn<F, Args>(&self, function: F, args: Args, nprocs: usize) -> Result<Vec<F::Value>, SpawnError>
    where
        F: Function<Args>,
        Args: Serialize + DeserializeOwned,
    {
        self.start_processes(function, args, nprocs).map_err(SpawnError::from)?.into_values()
    }
}

/// Starts `nprocs` processes, each of which calls `function` with its index and `args`, waits for all of them, and
/// returns their values in order of the index. From 0 to 62 processes: a domain has 63 members, and this process is one.
///
/// `args` is a tuple: `(queue, tensor)`, `(queue,)` for one, `()` for none. It travels by serde, once to each process,
/// with tensors, queues and shared values by handle; what can be in one place only, like a `TensorMut` or a sole end of a queue,
/// is refused for more than one process. The function must have the attribute [`func`](crate::func).
///
/// A stack overflow ends a process by SIGSEGV without the message that Rust prints elsewhere, because the function is
/// entered before Rust's own start-up has prepared for that.
///
/// The processes find their index in `RANK` and `LOCAL_RANK` and their number in `WORLD_SIZE`; see
/// [`Options::rank_environment`].
///
/// The first failure stops the others; see [`Options::grace_period`].
///
/// # Blocking
/// Until all processes have ended.
///
/// # Errors
/// - [`SpawnError::Start`] when they could not be started, with none left.
/// - [`SpawnError::Failed`] with every process that failed, the root cause first.
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

/// Starts `nprocs` processes, each of which calls `function` with its index and `args`, and returns
/// without waiting for them. Arguments as for [`spawn`].
///
/// # Errors
/// [`StartError`] gives the arguments back. Its kind is
/// - [`StartErrorKind::NotRegistered`], [`StartErrorKind::Arguments`], [`StartErrorKind::TooMany`],
///   [`StartErrorKind::Memory`] or [`StartErrorKind::Output`] before any process exists;
/// - [`StartErrorKind::Process`] when one of them cannot be started; the others have been killed and collected.
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
