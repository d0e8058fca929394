//! What other processes have open, as `/proc` shows it (proc_pid_fd(5)).
//!
//! A process sees the descriptors of another one if it may inspect it (`PTRACE_MODE_READ_FSCREDS`,
//! ptrace(2)): where both belong to one user, and root always.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{Error, Result, memfd, proc_file};

/// A memory file that some process has open.
#[derive(Clone, Debug)]
pub struct OpenMemoryFile {
    /// Device and inode. Equal pairs mean the same file.
    pub file_id: (u64, u64),
    path: PathBuf,
}

impl OpenMemoryFile {
    /// Opens the file for reading. Its memory lives at least as long as the descriptor. Never waits, whatever
    /// lies under the descriptor by now.
    ///
    /// # Errors
    /// ENOENT when the process has ended or closed the file, or has something else under this descriptor by
    /// now; EACCES; EMFILE.
    pub fn open(&self) -> Result<OwnedFd> {
        let failed = |error: io::Error| Error::new(format!("open of {}", self.path.display()), error);
        // A pipe or a device that has taken the descriptor would be waited for.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(|error| match error {
            // A socket, which cannot be opened.
            Errno::NXIO => failed(io::ErrorKind::NotFound.into()),
            error => failed(error.into()),
        })?;
        if memfd::file_id(&file)? == self.file_id {
            Ok(file)
        } else {
            Err(failed(io::ErrorKind::NotFound.into()))
        }
    }
}

/// The numbers of all processes that `/proc` shows, in ascending order.
///
/// # Errors
/// ENOENT where `/proc` is not mounted, ESRCH where it is that of another PID namespace (pid_namespaces(7)).
pub fn processes() -> Result<Vec<u32>> {
    let failed = |error| Error::new("reading /proc", error);
    let own = fs::read_link("/proc/self").map_err(failed)?;
    if own.to_str() != Some(&std::process::id().to_string()) {
        return Err(Error::new(
            "finding this process in /proc, which is of another PID namespace",
            Errno::SRCH,
        ));
    }
    let mut processes = Vec::new();
    for entry in fs::read_dir("/proc").map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        processes.extend(name.to_str().and_then(|name| name.parse::<u32>().ok()));
    }
    processes.sort_unstable();
    Ok(processes)
}

/// The memory files with this name that a process has open, each once. What it closes meanwhile may be among
/// them or not.
///
/// # Errors
/// EACCES when this process may not inspect it, ENOENT when it has ended.
pub fn memory_files_of(pid: u32, name: &str) -> Result<Vec<OpenMemoryFile>> {
    let folder = format!("/proc/{pid}/fd");
    let failed = |error| Error::new(format!("reading {folder}"), error);
    // The file has no link, and never had one.
    let target = PathBuf::from(format!("/memfd:{name} (deleted)"));
    let mut found = Vec::new();
    let mut known = HashSet::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if fs::read_link(&path).is_ok_and(|link| link == target)
            && let Ok(file) = fs::metadata(&path)
        {
            let file_id = (file.dev(), file.ino());
            // A name proves nothing: anything that was deleted at the root of a mount can have this one.
            if file.is_file() && known.insert(file_id) {
                found.push(OpenMemoryFile { file_id, path });
            }
        }
    }
    Ok(found)
}

/// What a process is called, and what it does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// The name of its main thread, of at most 15 bytes: that of its program, unless it was changed.
    pub name: String,
    /// The state of its main thread, as proc_pid_stat(5) has it: `R` running, `S` and `D` asleep, `T` and `t`
    /// stopped, `Z` and `X` ended.
    pub state: char,
}

/// Asks what a process does.
///
/// # Errors
/// ENOENT when there is no such process, or ESRCH when it ends meanwhile.
pub fn status(pid: u32) -> Result<Status> {
    let path = format!("/proc/{pid}/stat");
    let failed = |error: io::Error| Error::new(format!("reading {path}"), error);
    let text = proc_file::read(&path).map_err(failed)?;
    // The name is in parentheses, and may have some itself.
    let name = text.split_once('(').and_then(|(_, rest)| rest.rsplit_once(") "));
    let status =
        name.and_then(|(name, rest)| Some(Status { name: name.to_owned(), state: rest.chars().next()? }));
    status.ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))
}

/// What a process was started with: its arguments, with a space between them, and what is no character as
/// U+FFFD. Where it has none, as a thread of the kernel or a process that is ending, its name.
///
/// # Errors
/// ENOENT when the process has ended, or ESRCH when it ends meanwhile.
pub fn command_line(pid: u32) -> Result<String> {
    let read = |file: &str| {
        let path = format!("/proc/{pid}/{file}");
        proc_file::read(&path).map_err(|error| Error::new(format!("reading {path}"), error))
    };
    let arguments = read("cmdline")?;
    let line = arguments.trim_end_matches('\0').replace('\0', " ");
    if line.is_empty() { Ok(read("comm")?.trim_end().to_owned()) } else { Ok(line) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, AsRawFd as _};

    use super::*;

    #[test]
    fn a_memory_file_is_found_once_by_its_name_and_can_be_read() {
        let file = memfd::create_sealed("open_files test", 4096).unwrap();
        rustix::io::pwrite(&file, &[7; 8], 0).unwrap();
        let _copy = file.as_fd().try_clone_to_owned().unwrap();
        let found = memory_files_of(std::process::id(), "open_files test").unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].file_id, memfd::file_id(&file).unwrap());
        let opened = found[0].open().unwrap();
        let mut bytes = [0; 8];
        memfd::read_exact_at(&opened, &mut bytes, 0).unwrap();
        assert_eq!(bytes, [7; 8]);
        assert!(rustix::io::pwrite(&opened, &[0], 0).is_err(), "it is for reading");
        let other = OpenMemoryFile { file_id: (0, 0), ..found[0].clone() };
        assert_eq!(other.open().unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(memory_files_of(std::process::id(), "open_files").unwrap().len(), 0);
        // A socket has taken the descriptor.
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", socket.as_raw_fd()));
        let taken = OpenMemoryFile { path, ..found[0].clone() };
        assert_eq!(taken.open().unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn this_process_is_among_all_and_has_a_command_line() {
        let me = std::process::id();
        let all = processes().unwrap();
        assert!(all.contains(&me) && all.is_sorted());
        let name = std::env::args().next().unwrap();
        assert!(command_line(me).unwrap().starts_with(&name));
        let status = status(me).unwrap();
        assert!(name.contains(&status.name) && "RS".contains(status.state), "{status:?}");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        let nobody = u32::MAX;
        assert_eq!(memory_files_of(nobody, "").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(command_line(nobody).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(status(nobody).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
