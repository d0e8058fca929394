//! What `top` shows, before it is text.

use std::time::Instant;

use serde::Serialize;
use tensorferry_inspect::{FoundDomain, Snapshot, command_line, find, find_of, name_of_purpose};

/// Every domain that was looked at.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) domains: Vec<Domain>,
    /// Processes that could not be asked, because they belong to somebody else.
    pub(crate) n_unreadable_processes: usize,
    #[serde(skip)]
    pub(crate) made: Instant,
}

/// One domain.
#[derive(Debug, Serialize)]
pub(crate) struct Domain {
    /// Whoever has its file open.
    pub(crate) processes: Vec<Process>,
    /// What is in it; `None` where it could not be read.
    pub(crate) snapshot: Option<Snapshot>,
    /// Why it could not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// A process that has a domain's file open.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    /// What it was started with; empty if it has ended meanwhile.
    pub(crate) command: String,
}

impl Report {
    /// Looks at the domains of these processes, or of all.
    pub(crate) fn make(pids: &[u32]) -> anyhow::Result<Self> {
        let mut report = Self { domains: Vec::new(), n_unreadable_processes: 0, made: Instant::now() };
        if pids.is_empty() {
            let search = find()?;
            report.n_unreadable_processes = search.n_unreadable;
            report.domains.extend(search.domains.iter().map(Domain::of));
        }
        for pid in pids {
            for domain in find_of(*pid)?.iter().map(Domain::of) {
                report.add(domain);
            }
        }
        Ok(report)
    }

    /// Adds a domain of one more process, which may be among those that are there.
    fn add(&mut self, domain: Domain) {
        let id = domain.id();
        match self.domains.iter_mut().find(|other| id.is_some() && other.id() == id) {
            Some(known) => known.processes.extend(domain.processes),
            None => self.domains.push(domain),
        }
    }
}

impl Domain {
    fn of(found: &FoundDomain) -> Self {
        let process = |pid| Process { pid, command: command_line(pid).unwrap_or_default() };
        let processes = found.processes().into_iter().map(process).collect();
        match found.snapshot() {
            Ok(snapshot) => Self { processes, snapshot: Some(snapshot), error: None },
            Err(error) => Self { processes, snapshot: None, error: Some(error.to_string()) },
        }
    }

    pub(crate) fn id(&self) -> Option<u64> {
        self.snapshot.as_ref().map(|snapshot| snapshot.domain_id)
    }

    /// The command of a process that has the domain open.
    pub(crate) fn command(&self, pid: u32) -> &str {
        self.processes.iter().find(|process| process.pid == pid).map_or("", |process| &process.command)
    }

    /// The processes that have its file open and are no members.
    pub(crate) fn others(&self, snapshot: &Snapshot) -> impl Iterator<Item = &Process> {
        let members = snapshot.members.iter().filter_map(|member| member.pid).collect::<Vec<_>>();
        self.processes.iter().filter(move |process| !members.contains(&process.pid))
    }
}

/// What a monitor is, by the number in its block.
pub(crate) fn kind_of_monitor(purpose: u64) -> String {
    name_of_purpose(purpose).map_or_else(|| format!("purpose {purpose}"), str::to_owned)
}
