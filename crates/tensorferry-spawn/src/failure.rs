//! How processes failed, and which failed first.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tensorferry_process::{Child, Ended, Exit, Report, SIGINT, SIGKILL, signal_name};

/// What ended a process early.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Cause {
    /// It panicked, returned an error, or was refused, and reported it.
    Raised(Box<Report>),
    /// It exited without a report.
    Exited {
        /// The exit code. 0 means that it exited before its function had returned.
        code: i32,
    },
    /// A signal ended it.
    Signaled {
        /// The signal number.
        signal: i32,
        /// Whether the kernel wrote a core dump.
        core_dumped: bool,
    },
    /// Its exit status is lost: SIGCHLD is ignored in this process, or another part of this process has
    /// collected the status.
    Lost,
    /// Its fork server was killed or stopped before it could report the status.
    StatusUnavailable,
}

/// The failure of one process. [`ProcessRaisedError`](crate::ProcessRaisedError) and
/// [`ProcessExitedError`](crate::ProcessExitedError) are its two kinds as separate types.
///
/// `Display` writes one line, and a line for each cause of an error. `Debug`, which a `main` that returns
/// this error prints, and `{:#}` add the backtrace. It implements the serde traits, so a process can forward
/// the failures of its own children.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProcessError {
    /// The index of the process.
    pub rank: usize,
    /// Its name: that of [`Options::name`](crate::Options::name) or of its function, followed by its index.
    /// For a [`Process`](crate::Process), that of [`Process::name`](crate::Process::name).
    pub name: String,
    /// Its process ID.
    pub pid: u32,
    /// What ended it.
    pub cause: Cause,
    /// When it failed, as precisely as is known (`CLOCK_MONOTONIC`): the time in its report, or the last time
    /// at which it was seen alive.
    pub at: Duration,
    /// For SIGKILL: how many processes the kernel's out-of-memory killer has ended on this machine since the
    /// start; otherwise 0. The kernel does not say which processes these were. So a number above 0 is a
    /// strong hint, not a proof.
    pub out_of_memory_kills: u64,
    pub(crate) exit_code: Option<i32>,
    /// False for a single process that was started without one.
    pub(crate) has_rank: bool,
    /// The exit code or signal in words, with the report. `ended_in_full` also has the backtrace.
    pub(crate) ended: String,
    pub(crate) ended_in_full: String,
}

impl ProcessError {
    /// Calls `out_of_memory_kills` only where it can matter.
    pub(crate) fn new(
        rank: usize,
        child: &Child,
        exit: &Exit,
        out_of_memory_kills: impl FnOnce() -> u64,
    ) -> Self {
        let cause = match (&exit.report, exit.ended) {
            (Some(report), _) => Cause::Raised(Box::new(report.clone())),
            (None, Ended::Exited { code }) => Cause::Exited { code },
            (None, Ended::Signaled { signal, core_dumped }) => Cause::Signaled { signal, core_dumped },
            (None, Ended::Lost) => Cause::Lost,
            (None, Ended::StatusUnavailable) => Cause::StatusUnavailable,
        };
        let at = exit.report.as_ref().map_or(exit.alive_at, |report| report.raised_at);
        let out_of_memory_kills = match cause {
            Cause::Signaled { signal: SIGKILL, .. } => out_of_memory_kills(),
            _ => 0,
        };
        Self {
            rank,
            name: child.name().to_owned(),
            pid: child.pid(),
            cause,
            at,
            out_of_memory_kills,
            exit_code: exit.code(),
            has_rank: child.rank().is_some(),
            ended: format!("{exit}"),
            ended_in_full: format!("{exit:#}"),
        }
    }

    /// The exit code, or the negated number of the signal that ended it, as in Python. `None` if it is
    /// unknown ([`Cause::Lost`] and [`Cause::StatusUnavailable`]). A process that reported a failure has an
    /// exit code too: 1, unless it ended in another way during the report.
    #[must_use]
    pub fn exit_code(&self) -> Option<i32> {
        self.exit_code
    }

    /// The name of the signal that ended it, as in signal(7): `SIGSEGV`.
    #[must_use]
    pub fn signal_name(&self) -> Option<Cow<'static, str>> {
        self.exit_code.filter(|code| *code < 0).map(|code| signal_name(code.saturating_neg()))
    }

    /// The status that a shell would have in `$?`: the exit code, or 128 plus the signal number. A program
    /// that ends like its child uses `ExitCode::from(error.shell_status())`. 1 if the code is unknown, or is
    /// 0 although the process failed.
    #[must_use]
    pub fn shell_status(&self) -> u8 {
        let status = self.exit_code.map(|code| if code < 0 { 128_i32.saturating_sub(code) } else { code });
        status.and_then(|status| u8::try_from(status).ok()).filter(|status| *status != 0).unwrap_or(1)
    }

    /// The process's report of its failure, if there is one.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match &self.cause {
            Cause::Raised(report) => Some(report),
            _ => None,
        }
    }
}

impl fmt::Display for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = if f.alternate() { &self.ended_in_full } else { &self.ended };
        match self.has_rank {
            true => write!(f, "process {} (`{}`, pid {}) {ended}", self.rank, self.name, self.pid)?,
            false => write!(f, "process `{}` (pid {}) {ended}", self.name, self.pid)?,
        }
        match self.out_of_memory_kills {
            0 => Ok(()),
            n => write!(
                f,
                "; the machine or its container may be out of memory: {n} of its processes were killed for that meanwhile"
            ),
        }
    }
}

impl fmt::Debug for ProcessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl Error for ProcessError {}

/// Every process that failed independently, the root cause first. It is displayed like [`ProcessError`], and
/// implements the serde traits too.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Told")]
pub struct ProcessErrors {
    // INVARIANT: not empty; ordered by time.
    failures: Vec<ProcessError>,
    stopped: Vec<usize>,
}

impl ProcessErrors {
    /// `None` if nothing failed.
    pub(crate) fn new(mut failures: Vec<ProcessError>, stopped: Vec<usize>) -> Option<Self> {
        failures.sort_by_key(|failure| (failure.at, failure.rank));
        if failures.is_empty() { None } else { Some(Self { failures, stopped }) }
    }

    /// All failures, the earliest first. A process that died without a report counts from the last time at
    /// which it was seen alive, because the other processes' errors are often consequences of its death.
    #[must_use]
    pub fn failures(&self) -> &[ProcessError] {
        &self.failures
    }

    /// The earliest failure.
    #[must_use]
    pub fn root_cause(&self) -> &ProcessError {
        &self.failures[0]
    }

    /// Whether SIGINT ended every process that did not succeed. Ctrl-C in a terminal sends it to parent and
    /// children alike. A program that handles Ctrl-C need not report each process then.
    #[must_use]
    pub fn is_interrupt(&self) -> bool {
        self.stopped.is_empty()
            && self
                .failures
                .iter()
                .all(|failure| matches!(failure.cause, Cause::Signaled { signal: SIGINT, .. }))
    }

    /// The indices of the processes that were stopped because of the failures.
    #[must_use]
    pub fn stopped(&self) -> &[usize] {
        &self.stopped
    }
}

/// [`ProcessErrors`] as received from another process, before the check that there is a failure.
#[derive(Deserialize)]
#[serde(rename = "ProcessErrors")]
struct Told {
    failures: Vec<ProcessError>,
    stopped: Vec<usize>,
}

impl TryFrom<Told> for ProcessErrors {
    type Error = &'static str;

    fn try_from(told: Told) -> Result<Self, Self::Error> {
        Self::new(told.failures, told.stopped).ok_or("errors of processes without a failure")
    }
}

impl fmt::Display for ProcessErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, failure) in self.failures.iter().enumerate() {
            if n > 0 {
                write!(f, "\nalso: ")?;
            }
            if f.alternate() {
                write!(f, "{failure:#}")?;
            } else {
                write!(f, "{failure}")?;
            }
        }
        if !self.stopped.is_empty() {
            write!(f, "\nstopped because of this: {:?}", self.stopped)?;
        }
        Ok(())
    }
}

impl fmt::Debug for ProcessErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl Error for ProcessErrors {}

/// All failures, the earliest first.
impl<'a> IntoIterator for &'a ProcessErrors {
    type Item = &'a ProcessError;
    type IntoIter = std::slice::Iter<'a, ProcessError>;

    fn into_iter(self) -> Self::IntoIter {
        self.failures.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SpawnError;
    use crate::{ProcessExitedError, ProcessRaisedError};

    fn failure(rank: usize, at_ms: u64) -> ProcessError {
        let at = Duration::from_millis(at_ms);
        let ended = String::from("exited with code 1");
        let cause = Cause::Exited { code: 1 };
        let (name, ended_in_full) = (format!("train {rank}"), format!("{ended}\n  backtrace:\n   0: train"));
        ProcessError {
            rank,
            name,
            pid: 100,
            cause,
            at,
            out_of_memory_kills: 0,
            exit_code: Some(1),
            has_rank: true,
            ended,
            ended_in_full,
        }
    }

    #[test]
    fn the_out_of_memory_killer_is_named_when_it_was_at_work() {
        let killed = ProcessError { out_of_memory_kills: 2, ..failure(0, 0) };
        assert!(
            killed.to_string().ends_with("2 of its processes were killed for that meanwhile"),
            "{killed}"
        );
        assert!(!failure(0, 0).to_string().contains("memory"));
    }

    #[test]
    fn a_shell_would_say_the_code_or_128_and_the_signal() {
        let status = |exit_code| ProcessError { exit_code, ..failure(0, 0) }.shell_status();
        assert_eq!([Some(123), Some(-2), Some(-9), None, Some(0)].map(status), [123, 130, 137, 1, 1]);
        let signal = ProcessError { exit_code: Some(-11), ..failure(0, 0) };
        assert_eq!(signal.signal_name().as_deref(), Some("SIGSEGV"));
        assert_eq!(failure(0, 0).signal_name(), None);
        // It may have come in a message.
        let odd = ProcessError { exit_code: Some(i32::MIN), ..failure(0, 0) };
        assert_eq!((odd.signal_name().as_deref(), odd.shell_status()), (Some("signal 2147483647"), 1));
    }

    #[test]
    fn an_interrupt_is_one_when_all_were_interrupted() {
        let interrupted = |rank| ProcessError {
            cause: Cause::Signaled { signal: SIGINT, core_dumped: false },
            exit_code: Some(-2),
            ..failure(rank, 0)
        };
        let errors = |failures| ProcessErrors::new(failures, Vec::new()).unwrap();
        assert!(errors(vec![interrupted(0), interrupted(1)]).is_interrupt());
        assert!(!errors(vec![interrupted(0), failure(1, 0)]).is_interrupt());
    }

    #[test]
    fn the_two_kinds_are_told_apart_and_travel() {
        let exited = ProcessExitedError::try_from(failure(3, 0)).unwrap();
        assert_eq!((exited.rank, exited.exit_code, &exited.signal_name), (3, Some(1), &None));
        assert_eq!(exited.to_string(), failure(3, 0).to_string());
        let back = ProcessRaisedError::try_from(failure(3, 0)).unwrap_err();
        assert_eq!(back, failure(3, 0));
        let bytes = postcard::to_stdvec(&exited).unwrap();
        assert_eq!(postcard::from_bytes::<ProcessExitedError>(&bytes).unwrap(), exited);
    }

    #[test]
    fn errors_travel_and_never_arrive_empty() {
        let raised = Cause::Signaled { signal: 9, core_dumped: false };
        let failures = vec![failure(0, 30), ProcessError { cause: raised, ..failure(1, 10) }];
        let errors = ProcessErrors::new(failures, vec![2]).unwrap();
        let bytes = postcard::to_stdvec(&errors).unwrap();
        let arrived: ProcessErrors = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(arrived, errors);
        assert_eq!(format!("{arrived:#}"), format!("{errors:#}"));
        let none = postcard::to_stdvec(&(Vec::<ProcessError>::new(), vec![2_usize])).unwrap();
        assert!(postcard::from_bytes::<ProcessErrors>(&none).is_err());
    }

    #[test]
    fn the_earliest_failure_is_the_root_cause_and_none_is_left_out() {
        let errors =
            ProcessErrors::new(vec![failure(0, 30), failure(1, 10), failure(2, 20)], vec![3]).unwrap();
        assert_eq!(errors.root_cause().rank, 1);
        assert_eq!((&errors).into_iter().map(|f| f.rank).collect::<Vec<_>>(), [1, 2, 0]);
        assert_eq!(
            errors.to_string(),
            "process 1 (`train 1`, pid 100) exited with code 1\nalso: process 2 (`train 2`, pid 100) exited with code 1\n\
             also: process 0 (`train 0`, pid 100) exited with code 1\nstopped because of this: [3]"
        );
        let in_full = format!("{errors:?}");
        assert_eq!(in_full.matches("backtrace").count(), 3, "{in_full}");
        assert_eq!(format!("{:?}", SpawnError::from(errors)), in_full, "what a failing main prints");
        assert_eq!(ProcessErrors::new(Vec::new(), Vec::new()), None);
    }
}
