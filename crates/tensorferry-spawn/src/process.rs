//! A single process: its settings, and its handle once it runs.

use std::ffi::OsStr;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_process::{Child, ChildProcess, OnDrop, Redirect, SIGINT, SIGKILL, SIGTERM, StartMethod};
use tensorferry_queue::Source;
use tensorferry_queue::sealed::{Ends, Sealed, WaitsFor};

use crate::close::{CloseError, CloseErrorKind};
use crate::context::ProcessContext;
use crate::error::{SpawnError, StartError};
use crate::function::Function;
use crate::launch::{self, Alone};
use crate::options::Options;
use crate::output::{Outputs, Tee};
use crate::rank::{RANK, RankEnvironment};

/// A process to be started, which calls one function.
///
/// The function must have the attribute [`func`](crate::func). Its index is 0 unless [`Process::rank`] sets
/// it. [`Process::start`] consumes this value.
///
/// ```
/// use tensorferry_spawn::{Process, func};
///
/// #[func]
/// fn add(_rank: usize, a: u32, b: u32) -> Result<u32, String> {
///     a.checked_add(b).ok_or_else(|| String::from("too much"))
/// }
///
/// let process = Process::new(add, (1, 2)).name("adder").env("OMP_NUM_THREADS", "1").start()?;
/// assert_eq!(process.into_value()?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing runs before `start`"]
pub struct Process<F, Args> {
    function: F,
    args: Args,
    rank: Option<usize>,
    options: Options,
    outputs: Outputs,
}

/// Without the function, which has no `Debug`.
impl<F, Args: fmt::Debug> fmt::Debug for Process<F, Args> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { function: _, args, rank, options, outputs: _ } = self;
        f.debug_struct("Process")
            .field("name", &options.name)
            .field("rank", rank)
            .field("args", args)
            .finish_non_exhaustive()
    }
}

impl<F, Args> Process<F, Args>
where
    F: Function<Args>,
    Args: Serialize + DeserializeOwned,
{
    /// A process that will call `function` with its index and `args`, a tuple. Does not start it.
    pub fn new(function: F, args: Args) -> Self {
        let options = Options::new().rank_environment(RankEnvironment::Inherited);
        Self { function, args, rank: None, options, outputs: Outputs::default() }
    }

    fn with(mut self, change: impl FnOnce(Options) -> Options) -> Self {
        self.options = change(self.options);
        self
    }

    /// Sets its name, for reports and, cut to 15 bytes, for `ps`. Python's names by default: `Process-1` for
    /// the first process that this one starts, `Process-1:2` for the second process that `Process-1` starts.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.with(|options| options.name(name))
    }

    /// Sets the process's rank: the first argument of its function, its
    /// [`CurrentProcess::rank`](crate::CurrentProcess::rank), the variable `RANK`, and the number in errors.
    /// It is also the rank for [`Process::seed`] and [`Process::log_dir`].
    ///
    /// Without this call the function's argument and the number in errors are 0, there is no rank
    /// ([`CurrentProcess::rank`](crate::CurrentProcess::rank) is `None`), and the variable `RANK` is
    /// inherited from this process.
    ///
    /// The variable is set as by [`Process::env`], so the later of both calls wins. [`Process::start`] fails
    /// if `rank` does not fit into a `u32`.
    ///
    /// ```
    /// use tensorferry_spawn::{Process, SpawnError, func};
    ///
    /// #[func]
    /// fn fail(rank: usize) -> Result<(), String> {
    ///     Err(format!("rank {rank}, RANK {:?}", std::env::var("RANK")))
    /// }
    ///
    /// let Err(SpawnError::Failed(errors)) = Process::new(fail, ()).rank(3).start()?.into_value() else {
    ///     panic!("it fails");
    /// };
    /// let error = errors.root_cause();
    /// assert_eq!(error.rank, 3);
    /// assert_eq!(error.report().unwrap().message, r#"rank 3, RANK Ok("3")"#);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rank(mut self, rank: usize) -> Self {
        self.rank = Some(rank);
        self.env(RANK, rank.to_string())
    }

    /// Sets a variable in its environment; see [`Options::env`].
    pub fn env(self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.with(|options| options.env(name, value))
    }

    /// Removes a variable from its environment.
    pub fn env_remove(self, name: impl AsRef<OsStr>) -> Self {
        self.with(|options| options.env_remove(name))
    }

    /// Sets another program to run; see [`Options::executable`].
    pub fn executable(self, path: impl Into<PathBuf>) -> Self {
        self.with(|options| options.executable(path))
    }

    /// Sets its working directory; see [`Options::current_dir`].
    pub fn current_dir(self, path: impl Into<PathBuf>) -> Self {
        self.with(|options| options.current_dir(path))
    }

    /// Sets its nice value; see [`Options::nice`].
    pub fn nice(self, value: i32) -> Self {
        self.with(|options| options.nice(value))
    }

    /// Sets the processors that it may run on; see [`Options::cpus`].
    pub fn cpus(self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.with(|options| options.cpus(cpus))
    }

    /// Makes it daemonic; see [`Options::daemon`].
    pub fn daemon(self) -> Self {
        self.with(Options::daemon)
    }

    /// Sets what dropping the handle does to a process that still runs: [`OnDrop::Kill`] by default.
    pub fn on_drop(self, policy: OnDrop) -> Self {
        self.with(|options| options.on_drop(policy))
    }

    /// Sets how it is created; see [`Options::start_method`].
    pub fn start_method(self, method: StartMethod) -> Self {
        self.with(|options| options.start_method(method))
    }

    /// Gives it a seed in the variable `TENSORFERRY_SEED`: [`rank_seed`](crate::rank_seed) of `base` and its
    /// index; see [`Options::seed`].
    pub fn seed(self, base: u64) -> Self {
        self.with(|options| options.seed(base))
    }

    /// Writes its output to `stdout.log` and `stderr.log` in this directory; see [`Options::log_dir`].
    /// Existing files are appended to. An output that [`Process::stdout`] or [`Process::stderr`] redirects is
    /// not written there.
    pub fn log_dir(self, dir: impl Into<PathBuf>) -> Self {
        self.with(|options| options.log_dir(dir))
    }

    /// Forwards its output to the same output of this process. Each line begins with its name, as in
    /// `[Process-1] epoch 3`; see [`Options::tee`]. An output that [`Process::stdout`] or [`Process::stderr`]
    /// redirects is not forwarded.
    pub fn tee(self, choice: Tee) -> Self {
        self.with(|options| options.tee(choice))
    }

    /// Sets how long it has to exit once it has reported the failure of its function: twice this period, then
    /// it gets SIGKILL. It gets no SIGTERM, because it is about to exit. Without this call it has 30 seconds.
    pub fn grace_period(self, grace_period: Duration) -> Self {
        self.with(|options| options.grace_period(grace_period))
    }

    /// Sets where its standard output goes. Its standard input is always `/dev/null`.
    pub fn stdout(mut self, to: impl Into<Redirect>) -> Self {
        self.outputs.stdout = to.into();
        self
    }

    /// Sets where its standard error goes.
    pub fn stderr(mut self, to: impl Into<Redirect>) -> Self {
        self.outputs.stderr = to.into();
        self
    }

    /// Starts it, and returns without waiting for its end.
    ///
    /// # Errors
    /// As [`Options::start_processes`]. The arguments are returned.
    pub fn start(self) -> Result<ProcessHandle<F::Value>, StartError<Args>> {
        let Self { function, args, rank, options, outputs } = self;
        match launch::launch(&options, function, &args, 1, Some(Alone { rank, outputs })) {
            Ok(context) => Ok(ProcessHandle { context }),
            Err(kind) => Err(StartError { args, kind }),
        }
    }
}

/// A process that was started by [`Process::start`]. It may have ended.
///
/// It never outlives this process. [`Process::on_drop`] sets what dropping the handle does.
#[must_use = "dropping it ends the process"]
pub struct ProcessHandle<T> {
    // INVARIANT: of one process.
    context: ProcessContext<T>,
}

impl<T> fmt::Debug for ProcessHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessHandle")
            .field("name", &self.name())
            .field("pid", &self.pid())
            .field("exit", &self.child().exit())
            .finish_non_exhaustive()
    }
}

impl<T> Source for ProcessHandle<T> {}

impl<T> Sealed for ProcessHandle<T> {
    fn waits_for(&self) -> WaitsFor<'_> {
        WaitsFor::End(self)
    }
}

impl<T> Ends for ProcessHandle<T> {
    fn has_ended(&self) -> bool {
        // A pidfd that cannot be asked tells of no end later either, so the caller has to look.
        self.child().pidfd().is_dead().unwrap_or(true)
    }
}

impl<T> ProcessHandle<T> {
    fn child(&self) -> &Child {
        &self.context.children()[0]
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.child().name()
    }

    /// Its process ID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child().pid()
    }

    /// Whether it is forbidden to start processes of its own; see [`Process::daemon`].
    #[must_use]
    pub fn is_daemon(&self) -> bool {
        self.child().process().is_daemon()
    }

    /// Its identity, whether it is alive, and signals for it, also while another thread waits for its end.
    #[must_use]
    pub fn process(&self) -> ChildProcess {
        self.child().process().clone()
    }

    /// Its pidfd, which poll(2) reports as readable from the moment the process has ended.
    #[must_use]
    pub fn sentinel(&self) -> BorrowedFd<'_> {
        self.child().pidfd().as_fd()
    }

    /// Whether it still runs.
    ///
    /// # Blocking
    /// Not while it runs. For a dead process of [`StartMethod::Forkserver`], until its server has reaped it,
    /// for two seconds at most.
    ///
    /// # Errors
    /// [`SpawnError::Wait`] when the kernel does not report it.
    pub fn is_alive(&mut self) -> Result<bool, SpawnError> {
        self.context.update()?;
        Ok(self.child().exit().is_none())
    }

    /// The exit code, or the negated number of the signal that ended it. `None` in three cases: it still
    /// runs; its exit status is lost ([`Cause::Lost`](crate::Cause::Lost)); its fork server was killed or
    /// stopped before it could report the status
    /// ([`Cause::StatusUnavailable`](crate::Cause::StatusUnavailable)).
    ///
    /// 0 alone does not mean success: a process that exits with 0 before its function has returned has
    /// failed, and [`ProcessHandle::join`] reports it.
    ///
    /// # Blocking
    /// As [`ProcessHandle::is_alive`].
    ///
    /// # Errors
    /// As [`ProcessHandle::is_alive`].
    #[doc(alias = "exitcode")]
    pub fn exit_code(&mut self) -> Result<Option<i32>, SpawnError> {
        self.context.update()?;
        Ok(self.child().exit().and_then(|exit| exit.code()))
    }

    /// Waits until it has ended. A second call returns the same result.
    ///
    /// # Blocking
    /// In poll(2), until the process ends. A process that has reported the failure of its function has 30
    /// seconds to exit, or twice the [`Process::grace_period`]. With [`Process::tee`] up to one second more,
    /// if nothing reads the output of this process.
    ///
    /// # Errors
    /// - [`SpawnError::Failed`] when it has failed, or a signal ended it, from whatever source.
    /// - [`SpawnError::Output`] when it succeeded but its output was not kept in full. Only with
    ///   [`Process::tee`].
    /// - [`SpawnError::Wait`] when waiting failed in the kernel.
    pub fn join(&mut self) -> Result<(), SpawnError> {
        self.context.join()
    }

    /// As [`ProcessHandle::join`], for at most `timeout`. Returns true if it has ended and succeeded, false
    /// if the time is up.
    ///
    /// # Blocking
    /// As [`ProcessHandle::join`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`ProcessHandle::join`].
    pub fn join_timeout(&mut self, timeout: Duration) -> Result<bool, SpawnError> {
        self.context.join_timeout(timeout)
    }

    /// Sends a signal. Does nothing if it has ended.
    ///
    /// # Errors
    /// [`SpawnError::Signal`] when the kernel refuses: the process has changed its user, or the signal number
    /// is invalid.
    pub fn send_signal(&self, signal: i32) -> Result<(), SpawnError> {
        self.context.send_signal(signal)
    }

    /// Sends SIGTERM, which asks it to end.
    ///
    /// # Errors
    /// As [`ProcessHandle::send_signal`].
    pub fn terminate(&self) -> Result<(), SpawnError> {
        self.send_signal(SIGTERM)
    }

    /// Sends SIGKILL, which ends it.
    ///
    /// # Errors
    /// As [`ProcessHandle::send_signal`].
    pub fn kill(&self) -> Result<(), SpawnError> {
        self.send_signal(SIGKILL)
    }

    /// Sends SIGINT, as Ctrl-C does.
    ///
    /// # Errors
    /// As [`ProcessHandle::send_signal`].
    pub fn interrupt(&self) -> Result<(), SpawnError> {
        self.send_signal(SIGINT)
    }
}

impl<T> ProcessHandle<T> {
    /// Releases what this process keeps for it, two descriptors at most, and forgets it. Does not wait for
    /// its end, and does not report how it ended: [`ProcessHandle::join`] does.
    ///
    /// # Blocking
    /// As [`ProcessHandle::is_alive`].
    ///
    /// # Errors
    /// [`CloseError`], which returns the handle. Its kind is [`CloseErrorKind::Running`] while the process
    /// runs, and [`CloseErrorKind::Wait`] when the kernel does not report whether it does.
    #[expect(clippy::result_large_err, reason = "it gives the handle back, which is large")]
    pub fn close(mut self) -> Result<(), CloseError<T>> {
        match self.is_alive() {
            Ok(false) => Ok(()),
            Ok(true) => Err(CloseError { handle: self, kind: CloseErrorKind::Running }),
            Err(error) => Err(CloseError { handle: self, kind: CloseErrorKind::Wait(error.into()) }),
        }
    }
}

impl<T: Serialize + DeserializeOwned> ProcessHandle<T> {
    /// Waits until it has ended, and returns its function's value.
    ///
    /// # Blocking
    /// As [`ProcessHandle::join`].
    ///
    /// # Errors
    /// As [`ProcessHandle::join`], and [`SpawnError::Value`] when the value did not arrive. To get the value
    /// in spite of [`SpawnError::Output`], call [`ProcessHandle::take_value`].
    pub fn into_value(mut self) -> Result<T, SpawnError> {
        self.join()?;
        self.take_value()
    }

    /// Waits until it has ended, and takes its function's value. Ignores [`SpawnError::Output`]: the value is
    /// available after it.
    ///
    /// # Blocking
    /// As [`ProcessHandle::join`].
    ///
    /// # Errors
    /// [`SpawnError::Failed`] and [`SpawnError::Wait`] as from [`ProcessHandle::join`], and
    /// [`SpawnError::Value`] when the value did not arrive, cannot be read, or has been taken already.
    pub fn take_value(&mut self) -> Result<T, SpawnError> {
        let rank = self.context.first_rank();
        let value = self.context.take_each_value()?.pop();
        value.unwrap_or_else(|| Err(SpawnError::Value { rank, error: "there is none".into() }))
    }
}

/// For event loops that ask for it, as `AsyncFd` of tokio does.
#[expect(clippy::disallowed_types, reason = "the trait has it")]
impl<T> AsRawFd for ProcessHandle<T> {
    fn as_raw_fd(&self) -> std::os::fd::RawFd {
        self.sentinel().as_raw_fd()
    }
}

impl<T> AsFd for ProcessHandle<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sentinel()
    }
}
