//! Processes that were started together: waiting for them, stopping them, and their values.

use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_process::{
    Child, ChildProcess, Ended, OnDrop, OsError, SIGINT, SIGKILL, SIGTERM, Stage, out_of_memory_kills,
    wait_end,
};
use tensorferry_storage::Heap;

use crate::error::SpawnError;
use crate::failure::{ProcessError, ProcessErrors};
use crate::function::BoxedError;
use crate::options::Options;
use crate::output::OutputError;
use crate::stop::{Step, Stop};
use crate::tee::TeeThread;
use crate::values::{self, Results};

/// Processes that were started together, each with its index.
///
/// Dropping this value kills the processes that still run (SIGKILL), or waits for them if
/// [`Options::on_drop`] says so, and reaps them all. The processes never outlive this process, however it
/// ends.
///
/// # When a process fails
/// No thread watches the processes. A failure is detected, and the others are stopped, only inside
/// [`ProcessContext::join`] and the functions that call it ([`ProcessContext::take_values`],
/// [`ProcessContext::into_values`]). A program that does other work while its processes run, such as feeding
/// them through a queue, has three choices:
/// - Call `context.join_timeout(Duration::ZERO)?` now and then. It returns an error once all have ended and
///   one has failed. Until then each call continues to stop the others.
/// - Wait for the [sentinels](ProcessContext::sentinels) in an existing poll loop, and join when one is
///   readable.
/// - Move the context to a thread that joins. A context is `Send` if its values are.
///
/// A wait on a queue whose other ends are in the processes ends with an error once they are gone, without any
/// of this.
///
/// ```
/// use std::time::Duration;
/// use tensorferry_queue::Queue;
/// use tensorferry_spawn::{SpawnError, func, start_processes};
///
/// #[func]
/// fn work(rank: usize, jobs: Queue<u64>) -> Result<(), String> {
///     match jobs.get() {
///         Ok(job) if rank == 0 => Err(format!("job {job} is too much")),
///         _ => Ok(()),
///     }
/// }
///
/// let jobs = Queue::new(4)?;
/// let mut workers = start_processes(work, (jobs.clone(),), 2)?;
/// let end = loop {
///     // Do not wait while the queue is full: the worker that would make room may have failed.
///     let _ = jobs.put_nowait(7);
///     match workers.join_timeout(Duration::from_millis(1)) {
///         Ok(false) => {}
///         end => break end,
///     }
/// };
/// assert!(matches!(end, Err(SpawnError::Failed(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it ends the processes"]
pub struct ProcessContext<T> {
    children: Vec<Child>,
    /// The rank of the first child. The others follow.
    first_rank: usize,
    /// After the children, so that it is dropped when they are gone.
    tee: Option<TeeThread>,
    heap: Heap,
    results: Results<T>,
    values_are_taken: bool,
    grace_period: Option<Duration>,
    on_drop: OnDrop,
    stop: Option<Stop>,
    /// The signals that this context has sent to each child.
    stopped: Vec<Stopped>,
    /// The count of out-of-memory kills 10 ms after the start at the latest, to detect kills since then. The
    /// service thread reads it, because that takes the kernel some time. Empty if a process ends sooner than
    /// that.
    out_of_memory_kills: Arc<OnceLock<u64>>,
    /// The result, once all have ended.
    verdict: Option<Verdict>,
}

impl<T> fmt::Debug for ProcessContext<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.children.iter().map(|child| (child.name(), child.pid())).collect();
        f.debug_struct("ProcessContext")
            .field("first_rank", &self.first_rank)
            .field("names_and_pids", &names)
            .field("verdict", &self.verdict)
            .finish_non_exhaustive()
    }
}

/// The result, once all have ended.
#[derive(Debug)]
enum Verdict {
    Succeeded,
    Failed(ProcessErrors),
    /// All succeeded, but their output was not kept in full.
    Output(OutputError),
}

impl<T> ProcessContext<T> {
    pub(crate) fn new(
        children: Vec<Child>,
        first_rank: usize,
        heap: Heap,
        results: Results<T>,
        options: &Options,
        tee: Option<TeeThread>,
    ) -> Self {
        let stopped = vec![Stopped::default(); children.len()];
        let kills = Arc::default();
        let wanted: Weak<OnceLock<u64>> = Arc::downgrade(&kills);
        heap.domain().defer(move || {
            // Nobody asks any more about processes that have ended by now.
            if let Some(as_of_now) = wanted.upgrade() {
                out_of_memory_kills().into_iter().for_each(|kills| _ = as_of_now.set(kills));
            }
            true
        });
        heap.domain().wake_service_soon();
        Self {
            children,
            first_rank,
            tee,
            heap,
            results,
            values_are_taken: false,
            grace_period: options.grace_period,
            on_drop: options.on_drop,
            stop: None,
            stopped,
            out_of_memory_kills: kills,
            verdict: None,
        }
    }

    pub(crate) fn children(&self) -> &[Child] {
        &self.children
    }

    pub(crate) fn first_rank(&self) -> usize {
        self.first_rank
    }

    /// Reads the children's messages and checks which have ended. Waits as [`Child::update`].
    pub(crate) fn update(&mut self) -> Result<(), SpawnError> {
        let updated = self.children.iter_mut().try_for_each(|child| child.update().map(drop));
        updated.map_err(|error| SpawnError::Wait(error.into()))
    }

    /// The process IDs, in order of the index.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::pid).collect()
    }

    /// The processes, in order of the index: their identity, whether they are alive, and signals for each.
    #[must_use]
    pub fn processes(&self) -> Vec<ChildProcess> {
        self.children.iter().map(|child| child.process().clone()).collect()
    }

    /// The pidfds of the processes, in order of the index. Each is readable for poll(2), epoll(7) and the
    /// like once its process has ended, and stays readable. Nothing has to be read from them, and waiting for
    /// them does not affect [`ProcessContext::join`].
    #[must_use]
    pub fn sentinels(&self) -> Vec<BorrowedFd<'_>> {
        self.children.iter().map(|child| child.pidfd().as_fd()).collect()
    }

    /// Sends a signal to all processes that still run. A process that ends by this signal counts as failed.
    ///
    /// # Errors
    /// [`SpawnError::Signal`] with the first error. The signal has been sent to the others all the same.
    pub fn send_signal(&self, signal: i32) -> Result<(), SpawnError> {
        let mut sent = Ok(());
        for (rank, child) in (self.first_rank..).zip(&self.children) {
            let refused = |error: OsError| SpawnError::Signal { rank, signal, error: error.into() };
            sent = sent.and(child.send_signal(signal).map_err(refused));
        }
        sent
    }

    /// Sends SIGTERM to all processes that still run, which asks them to end.
    ///
    /// # Errors
    /// As [`ProcessContext::send_signal`].
    pub fn terminate(&self) -> Result<(), SpawnError> {
        self.send_signal(SIGTERM)
    }

    /// Sends SIGKILL to all processes that still run, which ends them.
    ///
    /// # Errors
    /// As [`ProcessContext::send_signal`].
    pub fn kill(&self) -> Result<(), SpawnError> {
        self.send_signal(SIGKILL)
    }

    /// Sends SIGINT to all processes that still run, as Ctrl-C does.
    ///
    /// # Errors
    /// As [`ProcessContext::send_signal`].
    pub fn interrupt(&self) -> Result<(), SpawnError> {
        self.send_signal(SIGINT)
    }

    /// Waits until all processes have ended, in any order. A second call returns the same result.
    ///
    /// When one fails, the others have the [grace period](ProcessContext::set_grace_period) to end by
    /// themselves. Then they get SIGTERM, and after the same period again SIGKILL. Without a grace period,
    /// SIGTERM comes at once and SIGKILL after 30 seconds. SIGTERM and SIGINT are unblocked when a process
    /// begins, even if this process blocks them to wait with sigwait(3).
    ///
    /// One clock applies to all processes. It starts when the first failure is seen. So stopping takes at
    /// most twice the grace period, however many processes there are and however they handle SIGTERM, plus
    /// the time that the kernel takes to end processes by SIGKILL.
    ///
    /// A process that waits in `put` for room in a queue does not end: get what it puts first, or close the
    /// queue.
    ///
    /// # Blocking
    /// In poll(2), until all processes have ended. With [`Options::tee`](crate::Options::tee) up to one
    /// second more, if nothing reads the output of this process.
    ///
    /// # Errors
    /// - [`SpawnError::Failed`] with every process that failed, the root cause first, once all have ended.
    /// - [`SpawnError::Output`] when all succeeded but their output was not kept in full. Only with
    ///   [`Options::tee`](crate::Options::tee).
    /// - [`SpawnError::Wait`] when waiting failed in the kernel.
    pub fn join(&mut self) -> Result<(), SpawnError> {
        while !self.join_until(None)? {}
        Ok(())
    }

    /// As [`ProcessContext::join`], for at most `timeout`. Returns true if all have ended and succeeded,
    /// false if the time is up. If the time-out interrupts the stopping of processes, the next call continues
    /// it.
    ///
    /// # Blocking
    /// As [`ProcessContext::join`], for at most `timeout`. If processes of
    /// [`StartMethod::Forkserver`](crate::StartMethod::Forkserver) are dead by then, until their server has
    /// reported how they ended, or for some hundredths of a second.
    ///
    /// # Errors
    /// As [`ProcessContext::join`].
    pub fn join_timeout(&mut self, timeout: Duration) -> Result<bool, SpawnError> {
        self.join_until(Instant::now().checked_add(timeout))
    }

    /// Replaces the [`Options::grace_period`](crate::Options::grace_period): how long the others have before
    /// SIGTERM once one has failed, and again before SIGKILL. A [`join`](ProcessContext::join) uses the value
    /// that is set when it sees the first failure.
    pub fn set_grace_period(&mut self, grace_period: Duration) {
        self.grace_period = Some(grace_period);
    }

    fn join_until(&mut self, deadline: Option<Instant>) -> Result<bool, SpawnError> {
        let wait_failed = |e: OsError| SpawnError::Wait(e.into());
        if deadline.is_some() || self.stop.is_some() || self.children.iter().any(has_failed) {
            // Who has ended by now is seen even if the time is up, and before anybody is stopped.
            wait_end(&mut self.children, Some(Duration::ZERO)).map_err(wait_failed)?;
        }
        loop {
            if self.children.iter().all(|child| child.exit().is_some()) {
                break;
            }
            let now = Instant::now();
            if self.stop.is_none() && self.children.iter().any(has_failed) {
                self.stop = Some(Stop::begin(now, self.grace_period));
            }
            if let Some(step) = self.stop.as_mut().and_then(|stop| stop.due(now)) {
                self.carry_out(step);
                continue;
            }
            if deadline.is_some_and(|deadline| deadline <= now) {
                return Ok(false);
            }
            let next = [deadline, self.stop.and_then(|stop| stop.deadline())].into_iter().flatten().min();
            let wait = next.map(|at| at.saturating_duration_since(now));
            wait_end(&mut self.children, wait).map_err(wait_failed)?;
        }
        if self.verdict.is_none() {
            // From here on, a put to or a get from these processes ends with an error.
            self.heap.domain().sweep_dead();
            self.heap.collect();
            let kept = self.tee.take().map_or(Ok(()), TeeThread::finish);
            self.verdict = Some(match (self.errors(), kept) {
                (Some(errors), _) => Verdict::Failed(errors),
                (None, Err(error)) => Verdict::Output(error),
                (None, Ok(())) => Verdict::Succeeded,
            });
        }
        match &self.verdict {
            Some(Verdict::Failed(errors)) => Err(errors.clone().into()),
            Some(Verdict::Output(error)) => Err(SpawnError::Output(error.clone())),
            Some(Verdict::Succeeded) | None => Ok(true),
        }
    }

    /// Signals the children that still run. A child that has reported the outcome of its function is about to
    /// exit, so it gets no SIGTERM and can finish its report. Errors are ignored: the next step, or the
    /// caller's time-out, follows anyway.
    fn carry_out(&mut self, step: Step) {
        for (child, stopped) in self.children.iter().zip(&mut self.stopped) {
            if child.exit().is_some() || (step == Step::Terminate && child.stage() >= Stage::Raised) {
                continue;
            }
            match step {
                Step::Terminate => stopped.terminated |= child.terminate().is_ok(),
                Step::Kill => stopped.killed |= child.kill().is_ok(),
            }
        }
    }

    fn out_of_memory_kills_since_start(&self) -> u64 {
        let then = self.out_of_memory_kills.get().copied();
        out_of_memory_kills().zip(then).map_or(0, |(now, then)| now.saturating_sub(then))
    }

    /// The independent failures. A child that reported nothing, and ended as this context's signals make it
    /// end, counts as stopped.
    fn errors(&self) -> Option<ProcessErrors> {
        let (mut failures, mut stopped) = (Vec::new(), Vec::new());
        for ((rank, child), sent) in (self.first_rank..).zip(&self.children).zip(&self.stopped) {
            match child.exit() {
                Some(exit) if !exit.is_success() => {
                    if exit.report.is_none() && sent.explains(exit.ended) {
                        stopped.push(rank);
                    } else {
                        let kills = || self.out_of_memory_kills_since_start();
                        failures.push(ProcessError::new(rank, child, exit, kills));
                    }
                }
                _ => {}
            }
        }
        ProcessErrors::new(failures, stopped)
    }
}

impl<T: Serialize + DeserializeOwned> ProcessContext<T> {
    /// Waits for all processes, and returns their values in order of the index.
    ///
    /// # Blocking
    /// Until all processes have ended, as [`ProcessContext::join`].
    ///
    /// # Errors
    /// As [`ProcessContext::join`], and [`SpawnError::Value`] when a value did not arrive. To get the values
    /// in spite of [`SpawnError::Output`], call [`ProcessContext::join`] and then
    /// [`ProcessContext::take_values`].
    pub fn into_values(mut self) -> Result<Vec<T>, SpawnError> {
        self.join()?;
        self.take_values()
    }

    /// Waits for all processes, and takes their values, in order of the index. Ignores
    /// [`SpawnError::Output`]: the values are available after it.
    ///
    /// ```
    /// use tensorferry_spawn::{Options, SpawnError, Tee, func};
    ///
    /// #[func]
    /// fn train(rank: usize) -> Result<usize, String> {
    ///     println!("trained");
    ///     Ok(rank + 1)
    /// }
    ///
    /// // Writing to this file fails as on a full disk (full(4)).
    /// let logs = std::env::temp_dir().join(format!("tensorferry-full-{}", std::process::id()));
    /// std::fs::create_dir_all(logs.join("0"))?;
    /// std::os::unix::fs::symlink("/dev/full", logs.join("0/stdout.log"))?;
    /// let mut training = Options::new().log_dir(&logs).tee(Tee::Stdout).start_processes(train, (), 1)?;
    /// assert!(matches!(training.join(), Err(SpawnError::Output(_))));
    /// assert_eq!(training.take_values()?, [1]);
    /// # std::fs::remove_dir_all(logs)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    /// Until all processes have ended, as [`ProcessContext::join`].
    ///
    /// # Errors
    /// - [`SpawnError::Failed`] and [`SpawnError::Wait`] as from [`ProcessContext::join`].
    /// - [`SpawnError::Value`] when a value did not arrive or cannot be read, or the values have been taken
    ///   already. The other values are dropped: [`ProcessContext::take_each_value`] returns them.
    pub fn take_values(&mut self) -> Result<Vec<T>, SpawnError> {
        self.take_each_value()?.into_iter().collect()
    }

    /// As [`ProcessContext::take_values`], but a value that cannot be read does not cost the others.
    ///
    /// # Blocking
    /// Until all processes have ended, as [`ProcessContext::join`].
    ///
    /// # Errors
    /// [`SpawnError::Failed`] and [`SpawnError::Wait`] as from [`ProcessContext::join`]. In place of a value,
    /// [`SpawnError::Value`] when it did not arrive, cannot be read, or has been taken already.
    pub fn take_each_value(&mut self) -> Result<Vec<Result<T, SpawnError>>, SpawnError> {
        match self.join() {
            Ok(()) | Err(SpawnError::Output(_)) => {}
            Err(error) => return Err(error),
        }
        let mut found: Vec<Option<Result<T, BoxedError>>> = self.children.iter().map(|_| None).collect();
        let mut why_missing = "another process has sent two".to_owned();
        if std::mem::replace(&mut self.values_are_taken, true) {
            why_missing = "it has been taken already".to_owned();
        } else {
            for _ in &self.children {
                // Every process put its value before it ended, so there is nothing to wait for.
                let (from, value) = values::take(&self.results);
                let index = from.and_then(|from| from.checked_sub(self.first_rank));
                match (index.and_then(|index| found.get_mut(index)), value) {
                    (Some(place), value) => *place = Some(value.map_err(Into::into)),
                    (None, Err(error)) => why_missing = error.to_string(),
                    (None, Ok(_)) => {}
                }
            }
        }
        let value_of = |(rank, found): (usize, Option<Result<T, BoxedError>>)| {
            let value = found.unwrap_or_else(|| Err(why_missing.as_str().into()));
            value.map_err(|error| SpawnError::Value { rank, error })
        };
        Ok((self.first_rank..).zip(found).map(value_of).collect())
    }
}

/// The signals that this context has sent to a process.
#[derive(Clone, Copy, Debug, Default)]
struct Stopped {
    terminated: bool,
    killed: bool,
}

impl Stopped {
    /// Whether these signals explain how the process ended. A process that handles SIGTERM ends with an exit
    /// code. Any other signal came from elsewhere, even if this context sent one too.
    fn explains(self, ended: Ended) -> bool {
        match ended {
            Ended::Signaled { signal: SIGTERM, .. } => self.terminated,
            Ended::Signaled { signal: SIGKILL, .. } => self.killed,
            Ended::Signaled { .. } => false,
            _ => self.terminated || self.killed,
        }
    }
}

/// Whether a process has failed: it has reported a failure, or has ended without success.
fn has_failed(child: &Child) -> bool {
    child.stage() == Stage::Raised || child.exit().is_some_and(|exit| !exit.is_success())
}

impl<T> Drop for ProcessContext<T> {
    fn drop(&mut self) {
        // Kill all of them first. The children's own drops then reap them one by one, or wait.
        if self.on_drop == OnDrop::Kill {
            for child in &self.children {
                let _ = child.kill();
            }
        }
    }
}
