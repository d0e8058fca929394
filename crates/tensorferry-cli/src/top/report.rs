//! What `top` shows, before it is text.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Instant;

use serde::Serialize;
use tensorferry_inspect::{
    FoundDomain, MonitorSnapshot, Snapshot, Status, command_line, find, name_of_purpose, process_status,
};

/// Every domain that was looked at.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) domains: Vec<Domain>,
    /// Processes that could not be asked, because they belong to somebody else.
    pub(crate) n_unreadable_processes: usize,
    /// Processes that were asked for and share nothing, or have ended.
    pub(crate) not_among_them: Vec<String>,
    #[serde(skip)]
    pub(crate) made: Instant,
}

/// That there is none of the processes that were asked for.
#[derive(Debug)]
pub(crate) struct AllEnded(String);

impl fmt::Display for AllEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AllEnded {}

/// One domain.
#[derive(Debug, Serialize)]
pub(crate) struct Domain {
    /// Whoever has its file open, and its members.
    pub(crate) processes: Vec<Process>,
    /// What is in it; `None` where it could not be read.
    pub(crate) snapshot: Option<Snapshot>,
    /// What each of its monitors is, in their order.
    pub(crate) monitor_kinds: Vec<String>,
    /// Why it could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// A process that has to do with a domain.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// That of its main thread.
    pub(crate) name: String,
    pub(crate) state: State,
    /// What it was started with.
    pub(crate) command: String,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Running,
    Stopped,
    Ended,
}

impl Report {
    /// Looks at the domains of these processes, or of all. An error if there is none of these processes.
    pub(crate) fn make(pids: &[u32]) -> anyhow::Result<Self> {
        let made = Instant::now();
        let search = find()?;
        let mut report = Self {
            domains: Vec::new(),
            n_unreadable_processes: search.n_unreadable,
            not_among_them: Vec::new(),
            made,
        };
        let is_wanted = |domain: &&FoundDomain| {
            pids.is_empty() || domain.processes().iter().any(|process| pids.contains(process))
        };
        report.domains.extend(search.domains.iter().filter(is_wanted).map(Domain::of));
        let shared: BTreeSet<u32> = search.domains.iter().flat_map(FoundDomain::processes).collect();
        let mut n_ended = 0;
        for pid in pids.iter().filter(|pid| !shared.contains(pid)) {
            let is_there = process_status(*pid).is_ok_and(|status| State::of(status.state) != State::Ended);
            n_ended += usize::from(!is_there);
            report.not_among_them.push(match is_there {
                true => format!("process {pid} shares nothing, or may not be asked"),
                false => format!("there is no process {pid}, or it has ended"),
            });
        }
        if n_ended == pids.len() && n_ended > 0 {
            return Err(AllEnded(report.not_among_them.join("; ")).into());
        }
        Ok(report)
    }
}

impl Domain {
    fn of(found: &FoundDomain) -> Self {
        let mut pids: BTreeSet<u32> = found.processes().into_iter().collect();
        let (snapshot, error) = match found.snapshot() {
            Ok(snapshot) => (Some(snapshot), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let members = snapshot.iter().flat_map(|snapshot| &snapshot.members);
        pids.extend(members.filter_map(|member| member.pid));
        let monitors = snapshot.iter().flat_map(|snapshot| &snapshot.monitors);
        let monitor_kinds = monitors.map(kind_of_monitor).collect();
        let processes = pids.into_iter().map(Process::of).collect();
        Self { processes, snapshot, monitor_kinds, error }
    }

    pub(crate) fn process(&self, pid: u32) -> Option<&Process> {
        self.processes.iter().find(|process| process.pid == pid)
    }

    /// The processes that have its file open and are no members.
    pub(crate) fn others(&self, snapshot: &Snapshot) -> impl Iterator<Item = &Process> {
        let members = snapshot.members.iter().filter_map(|member| member.pid).collect::<Vec<_>>();
        self.processes.iter().filter(move |process| !members.contains(&process.pid))
    }
}

impl Process {
    fn of(pid: u32) -> Self {
        let gone = || Status { name: String::new(), state: 'X' };
        let Status { name, state } = process_status(pid).unwrap_or_else(|_| gone());
        Self { pid, name, state: State::of(state), command: command_line(pid).unwrap_or_default() }
    }
}

impl State {
    fn of(state: char) -> Self {
        match state {
            'T' | 't' => Self::Stopped,
            'Z' | 'X' => Self::Ended,
            _ => Self::Running,
        }
    }
}

/// What a monitor is, by the number in its block.
fn kind_of_monitor(monitor: &MonitorSnapshot) -> String {
    let named = name_of_purpose(monitor.purpose).map(str::to_owned);
    named.unwrap_or_else(|| format!("purpose {}", monitor.purpose))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_those_of_the_kernel() {
        // proc_pid_stat(5), field 3.
        assert_eq!(['R', 'S', 'D', 'I'].map(State::of), [State::Running; 4]);
        assert_eq!(['T', 't'].map(State::of), [State::Stopped; 2]);
        assert_eq!(['Z', 'X'].map(State::of), [State::Ended; 2]);
    }
}
