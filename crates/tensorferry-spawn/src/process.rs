//! One process by itself: what it is to be, and the handle on it once it runs.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_process::{Child, OnDrop, Redirect, SIGINT, SIGKILL, SIGTERM, StartMethod};

use crate::close::{CloseError, CloseErrorKind};
use crate::context::ProcessContext;
use crate::error::{SpawnError, StartError};
use crate::function::Function;
use crate::launch::{self, Alone};
use crate::options::Options;
use crate::output::{Outputs, Tee};
use crate::rank::{RANK, RankEnvironment};

/// A process about to be started, to call one function.
///
/// The function must have the attribute [`func`](crate::func); its index is 0. [`Process::start`] consumes this value, so a
/// process is started once.
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
#[derive(Debug)]
#[must_use = "nothing runs before `start`"]
pub struct Process<F, Args> {
    function: F,
    args: Args,
    rank: Option<usize>,
    options: Options,
    outputs: Outputs,
}

impl<F, Args> Process<F, Args>
where
    F: Function<Args>,
    Args: Serialize + DeserializeOwned,
{
    /// A process that will call `function` with index 0 and `args`, a tuple. Nothing is started.
    pub fn new(function: F, args: Args) -> Self {
        let options = Options::new().rank_environment(RankEnvironment::Inherited);
        Self { function, args, rank: None, options, outputs: Outputs::default() }
    }

    fn with(mut self, change: impl FnOnce(Options) -> Options) -> Self {
        self.options = change(self.options);
        self
    }

    /// What the process is called in reports and, cut to 15 bytes, by `ps`. Python's names by default: `Process-1` for the
    /// first process that this one starts, `Process-1:2` for the second that that one starts.
    pub fn name(self, name: impl Into<String>) -> Self {
        self.with(|options| options.name(name))
    }

    /// Sets the process's rank: the first argument of its function, its
    /// [`CurrentProcess::rank`](crate::CurrentProcess::rank), the variable `RANK`, and the number in errors. Without this
    /// call these are 0, `None`, the `RANK` of this process, and 0.
    ///
    /// The variable is set as by [`Process::env`], so the later of both calls wins. [`Process::start`] fails if `rank` does
    /// not fit into a `u32`.
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

    /// Another program to run; see [`Options::executable`].
    pub fn executable(self, path: impl Into<PathBuf>) -> Self {
        self.with(|options| options.executable(path))
    }

    /// Its working directory.
    pub fn current_dir(self, path: impl Into<PathBuf>) -> Self {
        self.with(|options| options.current_dir(path))
    }

    /// Its nice value; see [`Options::nice`].
    pub fn nice(self, value: i32) -> Self {
        self.with(|options| options.nice(value))
    }

    /// The processors that it may run on; see [`Options::cpus`].
    pub fn cpus(self, cpus: impl IntoIterator<Item = usize>) -> Self {
        self.with(|options| options.cpus(cpus))
    }

    /// Makes it daemonic; see [`Options::daemon`].
    pub fn daemon(self) -> Self {
        self.with(Options::daemon)
    }

    /// What happens when the handle of a process that still runs is dropped: [`OnDrop::Kill`] by default.
    pub fn on_drop(self, policy: OnDrop) -> Self {
        self.with(|options| options.on_drop(policy))
    }

    /// How it comes into being; see [`Options::start_method`].
    pub fn start_method(self, method: StartMethod) -> Self {
        self.with(|options| options.start_method(method))
    }

    /// Gives it a seed in the variable `TENSORFERRY_SEED`: [`rank_seed`](crate::rank_seed) of `base` and 0; see
    /// [`Options::seed`].
    pub fn seed(self, base: u64) -> Self {
        self.with(|options| options.seed(base))
    }

    /// Keeps what it writes in `stdout.log` and `stderr.log` in this folder, after what they hold already; see
    /// [`Options::log_dir`]. An output that [`Process::stdout`] or [`Process::stderr`] sends elsewhere is not kept.
    pub fn log_dir(self, dir: impl Into<PathBuf>) -> Self {
        self.with(|options| options.log_dir(dir))
    }

    /// Passes on what it writes to the same output of this process, each line after its name: `[Process-1] epoch 3`; see
    /// [`Options::tee`]. Not what [`Process::stdout`] or [`Process::stderr`] sends elsewhere.
    pub fn tee(self, choice: Tee) -> Self {
        self.with(|options| options.tee(choice))
    }

    /// How long it has to exit once it has said that its function failed, and again after SIGTERM; see
    /// [`Options::grace_period`].
    pub fn grace_period(self, grace_period: Duration) -> Self {
        self.with(|options| options.grace_period(grace_period))
    }

    /// Where its standard output goes. Its standard input is always `/dev/null`.
    pub fn stdout(mut self, to: impl Into<Redirect>) -> Self {
        self.outputs.stdout = to.into();
        self
    }

    /// Where its standard error goes.
    pub fn stderr(mut self, to: impl Into<Redirect>) -> Self {
        self.outputs.stderr = to.into();
        self
    }

    /// Starts it, and returns without waiting for it.
    ///
    /// # Errors
    /// As [`start_processes`](crate::start_processes): no process is left, and the arguments come back.
    pub fn start(self) -> Result<ProcessHandle<F::Value>, StartError<Args>> {
        let Self { function, args, rank, options, outputs } = self;
        match launch::launch(&options, function, &args, 1, Some(Alone { rank, outputs })) {
            Ok(context) => Ok(ProcessHandle { context }),
            Err(kind) => Err(StartError { args, kind }),
        }
    }
}

/// A process that was started by [`Process::start`]; it may have ended.
///
/// It never outlives this process. What dropping the handle does is said by [`Process::on_drop`].
#[derive(Debug)]
#[must_use = "dropping it ends the process"]
pub struct ProcessHandle<T> {
    // INVARIANT: of one process.
    context: ProcessContext<T>,
}

impl<T> ProcessHandle<T> {
    fn child(&self) -> &Child {
        &self.context.children()[0]
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        self.child().name()
    }

    /// Its process number.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child().pid()
    }

    /// Whether it may start no processes of its own; see [`Process::daemon`].
    #[must_use]
    pub fn is_daemon(&self) -> bool {
        self.child().process().is_daemon()
    }

    /// The descriptor that stands for it: readable, for poll(2), when it has ended, and from then on.
    #[must_use]
    pub fn sentinel(&self) -> BorrowedFd<'_> {
        self.child().pidfd().as_fd()
    }

    /// Whether it still runs.
    ///
    /// # Blocking
    /// Never, but for a dead one of [`StartMethod::Forkserver`] until its server has collected it, for two seconds at most.
    ///
    /// # Errors
    /// [`SpawnError::Wait`] when the kernel refuses to tell.
    pub fn is_alive(&mut self) -> Result<bool, SpawnError> {
        self.context.update()?;
        Ok(self.child().exit().is_none())
    }

    /// Its exit code, or minus the number of the signal that ended it; `None` while it runs, when something else in
    /// this process has collected its exit status, and when its fork server was killed or stopped before it could tell. 0
    /// alone is not success: a process that exits with 0 before its function has returned has failed, and
    /// [`ProcessHandle::join`] says so.
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

    /// Waits until it has ended. May be called again, with the same answer.
    ///
    /// # Blocking
    /// For as long as it takes, asleep in poll(2). One that has said that its function failed has 30 seconds to exit.
    ///
    /// # Errors
    /// - [`SpawnError::Failed`] when it has failed or was ended by a signal, whoever sent it.
    /// - [`SpawnError::Wait`] when the kernel refuses to wait.
    pub fn join(&mut self) -> Result<(), SpawnError> {
        self.context.join()
    }

    /// As [`ProcessHandle::join`], for at most `timeout`: whether it has ended.
    ///
    /// # Errors
    /// As [`ProcessHandle::join`].
    pub fn join_timeout(&mut self, timeout: Duration) -> Result<bool, SpawnError> {
        self.context.join_timeout(timeout)
    }

    /// Sends a signal. That it has ended is no error.
    ///
    /// # Errors
    /// [`SpawnError::Wait`] when the kernel refuses: it has changed its user, or there is no such signal.
    pub fn send_signal(&self, signal: i32) -> Result<(), SpawnError> {
        self.context.send_signal(signal)
    }

    /// Asks it to end: SIGTERM.
    ///
    /// # Errors
    /// As [`ProcessHandle::send_signal`].
    pub fn terminate(&self) -> Result<(), SpawnError> {
        self.send_signal(SIGTERM)
    }

    /// Ends it: SIGKILL.
    ///
    /// # Errors
    /// As [`ProcessHandle::send_signal`].
    pub fn kill(&self) -> Result<(), SpawnError> {
        self.send_signal(SIGKILL)
    }

    /// Does what Ctrl-C does: SIGINT.
    ///
    /// # Errors
    /// As [`ProcessHandle::send_signal`].
    pub fn interrupt(&self) -> Result<(), SpawnError> {
        self.send_signal(SIGINT)
    }
}

impl<T> ProcessHandle<T> {
    /// Gives back what this process keeps for it, which is two descriptors at most, and forgets it. Does not wait, and says
    /// nothing of how it ended: [`ProcessHandle::join`] does.
    ///
    /// # Errors
    /// [`CloseError`] with the handle, when it still runs.
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
    /// Waits until it has ended, and returns what its function returned.
    ///
    /// # Blocking
    /// As [`ProcessHandle::join`].
    ///
    /// # Errors
    /// As [`ProcessHandle::join`]; [`SpawnError::Value`] when the value has been lost on the way.
    pub fn into_value(mut self) -> Result<T, SpawnError> {
        self.join()?;
        let rank = self.context.first_rank();
        let value = self.context.into_values()?.pop();
        value.ok_or_else(|| SpawnError::Value { rank, error: "there is none".into() })
    }
}

impl<T> AsFd for ProcessHandle<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.sentinel()
    }
}
