//! Finding domains by the processes that have their files open.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use tensorferry_domain::DomainFile;
use tensorferry_os::open_files::{self, OpenMemoryFile, Status};
use tensorferry_sharing::Backing;
use tensorferry_storage::Snapshot;

use crate::InspectError;

/// A domain that some process has open.
#[derive(Clone, Debug)]
pub struct FoundDomain {
    /// Each with the file as it has it.
    openers: Vec<(u32, OpenMemoryFile)>,
}

/// What [`find`] has found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Search {
    /// The domains, in order of the lowest number of a process that has each of them open.
    pub domains: Vec<FoundDomain>,
    /// How many processes were not asked, because this one may not inspect them. They may share domains that
    /// are not among these.
    pub n_unreadable: usize,
}

impl FoundDomain {
    /// The processes that have its file open, in ascending order: its members, and those that hold it for
    /// others, as a fork server does. Numbers are those of this process's PID namespace.
    #[must_use]
    pub fn processes(&self) -> Vec<u32> {
        self.openers.iter().map(|(pid, _)| *pid).collect()
    }

    /// What is in the domain now.
    ///
    /// # Errors
    /// [`InspectError::Gone`] when all these processes have ended or left it,
    /// [`DomainError::WrongVersion`](tensorferry_domain::DomainError::WrongVersion) where they use another
    /// version of the library, or the kernel's error.
    pub fn snapshot(&self) -> Result<Snapshot, InspectError> {
        Ok(Snapshot::read(&DomainFile::open(self.open()?)?)?)
    }

    /// The file, from the first process that still has it.
    fn open(&self) -> Result<OwnedFd, InspectError> {
        let mut refused = None;
        for (_, file) in &self.openers {
            match file.open() {
                Ok(file) => return Ok(file),
                // It has ended, or closed the file.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                // Another one may let it be opened.
                Err(error) => refused = Some(error),
            }
        }
        Err(match refused {
            Some(error) => InspectError::Domain(error.into()),
            None => InspectError::Gone { processes: self.processes() },
        })
    }
}

/// Finds the domains of all processes that this one may inspect: those of the same user in this PID
/// namespace, or all for root (`PTRACE_MODE_READ_FSCREDS`, ptrace(2)). Takes longer the
/// more processes and open files there are.
///
/// # Errors
/// [`InspectError::NoProcesses`].
pub fn find() -> Result<Search, InspectError> {
    let mut search = Search::default();
    let mut known = BTreeMap::new();
    for pid in open_files::processes().map_err(|error| InspectError::NoProcesses { error })? {
        match open_files::memory_files_of(pid, Backing::FILE_NAME) {
            Ok(files) => note(&mut search.domains, &mut known, pid, files),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => search.n_unreadable += 1,
            // It has ended meanwhile.
            Err(_) => {}
        }
    }
    Ok(search)
}

/// Finds the domains that one process has open. [`FoundDomain::processes`] are this one then.
///
/// # Errors
/// [`InspectError::Process`].
pub fn find_of(pid: u32) -> Result<Vec<FoundDomain>, InspectError> {
    let files = open_files::memory_files_of(pid, Backing::FILE_NAME)
        .map_err(|error| InspectError::Process { pid, error })?;
    let mut domains = Vec::new();
    note(&mut domains, &mut BTreeMap::new(), pid, files);
    Ok(domains)
}

/// What a process is called and does, as `/proc` has it.
///
/// # Errors
/// [`InspectError::Process`] when it has ended.
pub fn process_status(pid: u32) -> Result<Status, InspectError> {
    open_files::status(pid).map_err(|error| InspectError::Process { pid, error })
}

/// What a process was started with, with a space between arguments.
///
/// # Errors
/// [`InspectError::Process`] when it has ended.
pub fn command_line(pid: u32) -> Result<String, InspectError> {
    open_files::command_line(pid).map_err(|error| InspectError::Process { pid, error })
}

/// Adds what a process has open. `known` says where the domain of each file is.
fn note(
    domains: &mut Vec<FoundDomain>,
    known: &mut BTreeMap<(u64, u64), usize>,
    pid: u32,
    files: Vec<OpenMemoryFile>,
) {
    for file in files {
        let index = *known.entry(file.file_id).or_insert(domains.len());
        match domains.get_mut(index) {
            Some(domain) => domain.openers.push((pid, file)),
            None => domains.push(FoundDomain { openers: vec![(pid, file)] }),
        }
    }
}
