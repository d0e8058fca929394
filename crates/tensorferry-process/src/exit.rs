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
    /// It has found its parent.
    Entered,
    /// It has adopted what the payload refers to.
    Taken,
    /// Its entry has failed.
    Raised,
    /// Its entry has returned.
    Finished,
}

/// How a child ended: what the kernel says and what the child said.
#[derive(Debug)]
#[non_exhaustive]
pub struct Exit {
    /// What the kernel says.
    pub ended: Ended,
    /// How far the child had come.
    pub stage: Stage,
    /// Why it failed, if it could say so: its entry panicked, failed or was refused, or a panic aborted it.
    pub report: Option<Report>,
    /// When the parent last saw it alive (`CLOCK_MONOTONIC`): it ended some time after this. Nobody knows better, because
    /// the kernel does not keep the moment of a death.
    pub alive_at: Duration,
    /// What was wrong with the bytes that the child sent, if anything.
    pub garbled: Option<ProtocolError>,
}

impl Exit {
    /// Whether the entry returned and the process then exited with 0, or nobody can tell how it exited. A process that exits with 0 before its entry
    /// has returned has not done its work.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.stage == Stage::Finished
            && matches!(self.ended, Ended::Exited { code: 0 } | Ended::Lost | Ended::StatusUnavailable)
    }

    /// The exit code, or minus the number of the signal; `None` when it is lost.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        match self.ended {
            Ended::Exited { code } => Some(code),
            Ended::Signaled { signal, .. } => Some(-signal),
            Ended::Lost | Ended::StatusUnavailable => None,
        }
    }

    /// Adds what the child said about its panics, when the process was aborted: the last panic is the one, those
    /// before it may be why.
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

/// One fragment: `exited with code 3`, `terminated by signal SIGKILL`; what was missing; then the report. The alternate
/// form (`{:#}`) adds the report's backtrace. That a child which has said why it failed then exits with
/// [`EXIT_CODE_RAISED`] goes without saying.
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
            Ended::Lost => {
                write!(f, "ended, and how is lost because SIGCHLD is ignored or another wait took it")?
            }
            Ended::StatusUnavailable => {
                write!(f, "ended, and how is unknown because its fork server was killed or stopped")?
            }
        }
        if self.stage == Stage::Started {
            write!(f, " before it entered")?;
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
            "terminated by signal SIGSEGV (core dumped) before it entered"
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
