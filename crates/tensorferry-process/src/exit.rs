//! How a child ended, as its parent sees it.

use std::fmt;
use std::time::Duration;

pub use tensorferry_os::child::Ended;
use tensorferry_os::child::{SIGABRT, signal_name};

use crate::error::ProtocolError;
use crate::{EXIT_CODE_RAISED, Report};

/// How far a child has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// The process exists.
    Started,
    /// It has connected to its parent.
    Entered,
    /// It has adopted everything that the payload refers to.
    Taken,
    /// Its entry has failed.
    Raised,
    /// Its entry has returned.
    Finished,
}

/// How a child ended: the kernel's status and the child's own report.
#[derive(Debug)]
#[non_exhaustive]
pub struct Exit {
    /// The kernel's status.
    pub ended: Ended,
    /// How far the child had come.
    pub stage: Stage,
    /// Why it failed, if it could report it: its entry panicked, failed or was refused, or a panic aborted
    /// the process.
    pub report: Option<Report>,
    /// When the parent last saw it alive (`CLOCK_MONOTONIC`). It ended some time after this. The exact time
    /// is unknown, because the kernel does not record when a process dies.
    pub alive_at: Duration,
    /// What was wrong with the child's messages, if anything.
    pub garbled: Option<ProtocolError>,
}

impl Exit {
    /// Whether the entry returned and the process then exited with 0. The entry's return alone suffices if
    /// the exit status is unknown. A process that exits with 0 before its entry has returned has not
    /// succeeded.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.stage == Stage::Finished
            && matches!(self.ended, Ended::Exited { code: 0 } | Ended::Lost | Ended::StatusUnavailable)
    }

    /// The exit code, or the negated signal number. `None` if the status is unknown.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        match self.ended {
            Ended::Exited { code } => Some(code),
            Ended::Signaled { signal, .. } => Some(-signal),
            Ended::Lost | Ended::StatusUnavailable => None,
        }
    }

    /// Adds the child's panics to the report if the process was aborted. The last panic is taken as the
    /// reason, the earlier ones as its possible causes.
    pub(crate) fn explain_abort(&mut self, mut panics: Vec<Report>) {
        let aborted = matches!(self.ended, Ended::Signaled { signal: SIGABRT, .. });
        if self.report.is_some() || !aborted {
            return;
        }
        if let Some(mut last) = panics.pop() {
            for earlier in panics.iter().rev() {
                last.add_link(&format!("earlier, {earlier}"));
            }
            self.report = Some(last);
        }
    }
}

/// One fragment: `exited with code 3` or `terminated by signal SIGKILL`, then what was missing, then the
/// report. The alternate form (`{:#}`) adds the report's backtrace. The exit code [`EXIT_CODE_RAISED`] is not
/// shown for a child that has reported its failure.
impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ended {
            Ended::Exited { code: EXIT_CODE_RAISED }
                if self.stage == Stage::Raised && self.report.is_some() =>
            {
                write!(f, "failed")?;
            }
            Ended::Exited { code } => write!(f, "exited with code {code}")?,
            Ended::Signaled { signal, core_dumped } => {
                let dumped = if core_dumped { " (core dumped)" } else { "" };
                write!(f, "terminated by signal {}{dumped}", signal_name(signal))?;
            }
            Ended::Lost => write!(
                f,
                "ended; its exit status is lost because SIGCHLD is ignored or another wait collected it"
            )?,
            Ended::StatusUnavailable => {
                write!(f, "ended; its exit status is unknown because its fork server was killed or stopped")?
            }
        }
        if self.stage == Stage::Started {
            write!(f, " before it began its work")?;
            if self.ended == (Ended::Exited { code: 0 }) {
                // Most likely it is another program, which did what it does.
                write!(f, ", as a program does that was not built with tensorferry")?;
            }
        } else if self.stage < Stage::Raised {
            write!(f, " before its function returned")?;
        }
        if let Some(garbled) = &self.garbled {
            write!(f, "; what it sent cannot be read: {garbled}")?;
        }
        match &self.report {
            Some(report) if f.alternate() => write!(f, ": {report:#}"),
            Some(report) => write!(f, ": {report}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ReportKind;

    fn exit(ended: Ended, stage: Stage) -> Exit {
        Exit { ended, stage, report: None, alive_at: Duration::ZERO, garbled: None }
    }

    #[test]
    fn success_needs_both_the_return_and_the_code() {
        assert!(exit(Ended::Exited { code: 0 }, Stage::Finished).is_success());
        assert!(!exit(Ended::Exited { code: 0 }, Stage::Taken).is_success());
        assert!(!exit(Ended::Exited { code: 3 }, Stage::Finished).is_success());
        assert!(exit(Ended::Lost, Stage::Finished).is_success());
    }

    #[test]
    fn an_end_is_told_in_words() {
        let killed = Ended::Signaled { signal: 9, core_dumped: false };
        assert_eq!(
            exit(killed, Stage::Taken).to_string(),
            "terminated by signal SIGKILL before its function returned"
        );
        let dumped = Ended::Signaled { signal: 11, core_dumped: true };
        assert_eq!(
            exit(dumped, Stage::Started).to_string(),
            "terminated by signal SIGSEGV (core dumped) before it began its work"
        );
        assert_eq!(exit(Ended::Exited { code: 123 }, Stage::Raised).to_string(), "exited with code 123");
        let mut raised = exit(Ended::Exited { code: EXIT_CODE_RAISED }, Stage::Raised);
        raised.report = Some(Report::new(ReportKind::Error, "no data"));
        assert_eq!(raised.to_string(), "failed: returned an error: no data");
    }

    #[test]
    fn panics_explain_an_abort_and_nothing_else() {
        let panics =
            || vec![Report::new(ReportKind::Panic, "first"), Report::new(ReportKind::Panic, "second")];
        let mut aborted = exit(Ended::Signaled { signal: SIGABRT, core_dumped: false }, Stage::Entered);
        aborted.explain_abort(panics());
        let report = aborted.report.unwrap();
        assert_eq!(report.message, "second");
        assert_eq!(report.chain, ["earlier, thread 'main' panicked: first"]);
        let mut killed = exit(Ended::Signaled { signal: 9, core_dumped: false }, Stage::Entered);
        killed.explain_abort(panics());
        assert_eq!(killed.report, None);
    }
}
