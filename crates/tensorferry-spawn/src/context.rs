//! Processes that were started together: waiting for them, stopping them, and what they return.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use tensorferry_process::{
    Child, ChildProcess, Ended, OnDrop, SIGINT, SIGKILL, SIGTERM, Stage, out_of_memory_kills, wait_end,
};
use tensorferry_storage::Heap;

use crate::call::Results;
use crate::error::SpawnError;
use crate::failure::{ProcessError, ProcessErrors};
use crate::options::Options;
use crate::output::OutputError;
use crate::stop::{Step, Stop};
use crate::tee::TeeThread;

/// Processes that were started together, each with its index.
///
/// They belong to this value: dropping it kills those that still run (SIGKILL), or waits for them where
/// [`Options::on_drop`] says so, and collects them all. They never outlive this process either, however it ends.
///
/// # When a process fails
/// Nothing happens by itself: that a process has failed is seen, and the others are stopped, inside of
/// [`ProcessContext::join`] and what calls it ([`ProcessContext::take_values`], [`ProcessContext::into_values`]). There is no
/// thread that looks. So a program that is busy with something else while its processes run, as one that feeds them through a
/// queue, does one of these:
/// - It joins without waiting now and then: `context.join_timeout(Duration::ZERO)?` is an error when all have ended and one
///   has failed, and carries on with the stopping of the others until then.
/// - It waits for the [sentinels](ProcessContext::sentinels) in the poll loop that it has anyway, and joins when one is readable.
/// - It gives the context to a thread that joins: a context is `Send` where the values are.
///
/// Who waits on a queue to which the processes have the other ends is told when they are gone, without any of this.
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
///     // Full is no reason to wait: who would make room may have failed.
///     let _ = jobs.put_nowait(7);
///     match workers.join_timeout(Duration::from_millis(1)) {
///         Ok(false) => {}
///         end => break end,
///     }
/// };
/// assert!(matches!(end, Err(SpawnError::Failed(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it ends the processes"]
pub struct ProcessContext<T> {
    children: Vec<Child>,
    /// The rank of the first child. The others follow.
    first_rank: usize,
    /// After the children, so that it is dropped when they are gone.
    tee: Option<TeeThread>,
    heap: Heap,
    results: Results<T>,
    grace_period: Option<Duration>,
    on_drop: OnDrop,
    stop: Option<Stop>,
    /// Scope we have sent a signal.
    stopped: Vec<Stopped>,
    /// As of 10 ms after the start at the latest, to tell whether the out-of-memory killer came by. Read by the service thread,
    /// because the kernel takes some time to count; not there where a process ends sooner than that.
    out_of_memory_kills: Arc<OnceLock<u64>>,
    /// The answer, once all have ended.
    verdict: Option<Verdict>,
}

/// How it went, once all have ended.
#[derive(Debug)]
enum Verdict {
    Succeeded,
    Failed(ProcessErrors),
    /// All succeeded, and what they wrote is not whole.
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
        let as_of_now: Arc<OnceLock<u64>> = Arc::clone(&kills);
        heap.domain().defer(move || {
            out_of_memory_kills().into_iter().for_each(|kills| _ = as_of_now.set(kills));
            true
        });
        heap.domain().wake_service_soon();
        Self {
            children,
            first_rank,
            tee,
            heap,
            results,
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

    /// Reads what they have said and looks who has ended, without waiting.
    pub(crate) fn update(&mut self) -> Result<(), SpawnError> {
        let updated = self.children.iter_mut().try_for_each(|child| child.update().map(drop));
        updated.map_err(|error| SpawnError::Wait(error.into()))
    }

    /// The process numbers, in order of the index.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::pid).collect()
    }

    /// The processes, in order of the index: who they are, whether they live, signals for one of them.
    #[must_use]
    pub fn processes(&self) -> Vec<ChildProcess> {
        self.children.iter().map(|child| child.process().clone()).collect()
    }

    /// The descriptors that stand for the processes, in order of the index: each is readable, for poll(2) and what is built
    /// on it, when its process has ended, and stays so. Nothing has to be read from them, and waiting for them takes
    /// nothing away from [`ProcessContext::join`].
    #[must_use]
    pub fn sentinels(&self) -> Vec<BorrowedFd<'_>> {
        self.children.iter().map(|child| child.pidfd().as_fd()).collect()
    }

    /// Sends a signal to all that still run. That they then end by it is a failure like any other.
    ///
    /// # Errors
    /// [`SpawnError::Wait`] with the first refusal; the others have been sent it all the same.
    pub fn send_signal(&self, signal: i32) -> Result<(), SpawnError> {
        let mut refused = None;
        for child in &self.children {
            refused = refused.or(child.send_signal(signal).err());
        }
        refused.map_or(Ok(()), |error| Err(SpawnError::Wait(error.into())))
    }

    /// Asks all that still run to end: SIGTERM.
    ///
    /// # Errors
    /// As [`ProcessContext::send_signal`].
    pub fn terminate(&self) -> Result<(), SpawnError> {
        self.send_signal(SIGTERM)
    }

    /// Ends all that still run: SIGKILL.
    ///
    /// # Errors
    /// As [`ProcessContext::send_signal`].
    pub fn kill(&self) -> Result<(), SpawnError> {
        self.send_signal(SIGKILL)
    }

    /// Does to all that still run what Ctrl-C does: SIGINT.
    ///
    /// # Errors
    /// As [`ProcessContext::send_signal`].
    pub fn interrupt(&self) -> Result<(), SpawnError> {
        self.send_signal(SIGINT)
    }

    /// Waits until all processes have ended, in whatever order. May be called again, with the same answer.
    ///
    /// When one fails, the others have the [grace period](ProcessContext::set_grace_period) to end by themselves, then they
    /// get SIGTERM, then they have as long again, then they get SIGKILL. Where there is none, SIGTERM comes at once and
    /// SIGKILL after 30 seconds. Processes begin with SIGTERM and SIGINT not blocked, also where this one waits for them by
    /// sigwait(3) and so has them blocked.
    ///
    /// There is one clock for all of them, which starts when the first failure is seen. So the stopping takes twice the grace
    /// period at most, however many processes there are and whatever they do with SIGTERM, and then as long as the kernel
    /// takes to end processes by SIGKILL.
    ///
    /// # Blocking
    /// For as long as it takes, asleep in poll(2); with [`Options::tee`](crate::Options::tee) for a second more at the end,
    /// when nobody reads the output of this process.
    ///
    /// # Errors
    /// - [`SpawnError::Failed`] with every process that failed, the root cause first, once all have ended.
    /// - [`SpawnError::Output`] when all succeeded but a file of [`Options::tee`](crate::Options::tee) could not be written.
    /// - [`SpawnError::Wait`] when the kernel refuses to wait.
    pub fn join(&mut self) -> Result<(), SpawnError> {
        while !self.join_until(None)? {}
        Ok(())
    }

    /// As [`ProcessContext::join`], for at most `timeout`: whether all have ended, and succeeded. A stopping that the
    /// time-out interrupts goes on in the next call.
    ///
    /// # Blocking
    /// As [`ProcessContext::join`], for at most `timeout`.
    ///
    /// # Errors
    /// As [`ProcessContext::join`].
    pub fn join_timeout(&mut self, timeout: Duration) -> Result<bool, SpawnError> {
        self.join_until(Instant::now().checked_add(timeout))
    }

    /// How long the others have once one has failed, before they get SIGTERM, and again before SIGKILL: instead of that of
    /// [`Options::grace_period`](crate::Options::grace_period). What counts is the grace period at the moment at which a
    /// [`join`](ProcessContext::join) sees the first failure.
    pub fn set_grace_period(&mut self, grace_period: Duration) {
        self.grace_period = Some(grace_period);
    }

    fn join_until(&mut self, deadline: Option<Instant>) -> Result<bool, SpawnError> {
        let wait_failed = |e: tensorferry_process::OsError| SpawnError::Wait(e.into());
        self.update()?;
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
            // Whoever puts to them or gets from them from here on is told that they are gone.
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

    /// Signals those that still run. One that has said how its function went is on its way out and may finish telling,
    /// until SIGKILL. Refusals are left: the next step, or the caller's time-out, comes all the same.
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

    /// Every failure of a process by itself. One that ended without a word, and as our signals make it end, was stopped.
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
    /// Waits for all processes for as long as it takes, and returns their values in order of the index.
    ///
    /// # Blocking
    /// Until all processes have ended.
    ///
    /// # Errors
    /// As [`ProcessContext::join`]; [`SpawnError::Value`] when a value has been lost on the way. Where values matter more than
    /// what the processes wrote, [`SpawnError::Output`] need not cost them: call [`ProcessContext::join`] and then
    /// [`ProcessContext::take_values`].
    pub fn into_values(mut self) -> Result<Vec<T>, SpawnError> {
        self.join()?;
        self.take_values()
    }

    /// Waits for all processes for as long as it takes, and takes their values, in order of the index. What they wrote plays
    /// no part: after [`SpawnError::Output`] the values are still here.
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
    /// // The kernel says of this file that the disk is full (full(4)).
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
    /// Until all processes have ended.
    ///
    /// # Errors
    /// - [`SpawnError::Failed`] and [`SpawnError::Wait`] as from [`ProcessContext::join`].
    /// - [`SpawnError::Value`] when a value has been lost on the way, or the values have been taken already.
    pub fn take_values(&mut self) -> Result<Vec<T>, SpawnError> {
        match self.join() {
            Ok(()) | Err(SpawnError::Output(_)) => {}
            Err(error) => return Err(error),
        }
        let mut values: Vec<Option<T>> = self.children.iter().map(|_| None).collect();
        for (rank, _) in (self.first_rank..).zip(&self.children) {
            // All have put their value before they ended: nothing is waited for.
            let (from, value) =
                self.results.get_nowait().map_err(|e| SpawnError::Value { rank, error: e.into() })?;
            let index = from.checked_sub(self.first_rank);
            if let Some(place) = index.and_then(|index| values.get_mut(index)) {
                *place = Some(value);
            }
        }
        let missing = |rank| SpawnError::Value { rank, error: "another process has sent two".into() };
        (self.first_rank..).zip(values).map(|(rank, value)| value.ok_or_else(|| missing(rank))).collect()
    }
}

/// What we have sent to a process.
#[derive(Clone, Copy, Debug, Default)]
struct Stopped {
    terminated: bool,
    killed: bool,
}

impl Stopped {
    /// Whether that is why it ended so. A signal that is not ours was somebody else's, even if ours came as well; with an
    /// exit code a process ends that handles SIGTERM.
    fn explains(self, ended: Ended) -> bool {
        match ended {
            Ended::Signaled { signal: SIGTERM, .. } => self.terminated,
            Ended::Signaled { signal: SIGKILL, .. } => self.killed,
            Ended::Signaled { .. } => false,
            _ => self.terminated || self.killed,
        }
    }
}

/// Whether a process has failed, be it that it has ended or that it has said so.
fn has_failed(child: &Child) -> bool {
    child.stage() == Stage::Raised || child.exit().is_some_and(|exit| !exit.is_success())
}

impl<T> Drop for ProcessContext<T> {
    fn drop(&mut self) {
        // All at once; the children's own drops then collect one after the other, or wait.
        if self.on_drop == OnDrop::Kill {
            for child in &self.children {
                let _ = child.kill();
            }
        }
    }
}
