//! Memory files, which hold device memory, tables and interprocess events.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FallocateFlags, MemfdFlags};

use crate::identity::Identity;
use crate::{Answer, Status};

const PREFIX: &str = "simcuda";

/// The purpose of a memory file. The name of the file contains it, so that every process can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Allocations of one process on one device.
    Malloc,
    /// A memory pool.
    Pool,
    /// One physical allocation of `cuMemCreate`.
    Vmm,
    /// An interprocess event.
    Event,
    /// Memory that a primary context takes for itself. It is only counted.
    Context,
}

impl Purpose {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Malloc, "malloc"),
        (Self::Pool, "pool"),
        (Self::Vmm, "vmm"),
        (Self::Event, "event"),
        (Self::Context, "context"),
    ];
}

/// The label in the name of a memory file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) world: String,
    pub(crate) purpose: Purpose,
    /// The device's number in the machine, not its ordinal in the process.
    pub(crate) device: usize,
    pub(crate) len_bytes: usize,
}

impl Label {
    fn name(&self) -> String {
        let purpose =
            Purpose::ALL.iter().find(|(purpose, _)| *purpose == self.purpose).map_or("", |(_, word)| word);
        format!("{PREFIX}:{}:{purpose}:{}:{}", self.world, self.device, self.len_bytes)
    }

    /// Reads a label from the target of a link in `/proc/PID/fd`.
    pub(crate) fn parse(target: &str) -> Option<Self> {
        let name = target.strip_prefix("/memfd:")?.trim_end_matches(" (deleted)");
        let mut parts = name.split(':');
        if parts.next()? != PREFIX {
            return None;
        }
        let world = parts.next()?.to_owned();
        let word = parts.next()?;
        let purpose = Purpose::ALL.iter().find(|(_, known)| *known == word)?.0;
        Some(Self {
            world,
            purpose,
            device: parts.next()?.parse().ok()?,
            len_bytes: parts.next()?.parse().ok()?,
        })
    }
}

/// An open memory file of the driver.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    file: File,
    inode: u64,
    label: Label,
}

impl MemoryFile {
    /// Makes a file. `extra_bytes` come before the payload that the label counts.
    pub(crate) fn create(label: Label, extra_bytes: usize) -> Answer<Self> {
        let file = File::from(rustix::fs::memfd_create(label.name(), MemfdFlags::CLOEXEC)?);
        let len_bytes = u64::try_from(label.len_bytes + extra_bytes).map_err(|_| Status::OUT_OF_MEMORY)?;
        rustix::fs::ftruncate(&file, len_bytes)?;
        Self::of(file)
    }

    /// Opens a descriptor of this process again, by its number. The caller keeps the descriptor.
    pub(crate) fn reopen(fd: i32) -> Answer<Self> {
        Self::open_path(&format!("/proc/self/fd/{fd}"))
    }

    /// Opens a descriptor of another process, if it is still the same file.
    pub(crate) fn open_of(owner: &Identity, fd: i32, inode: u64) -> Answer<Self> {
        if !owner.is_alive() {
            return Err(Status::INVALID_HANDLE);
        }
        let file =
            Self::open_path(&format!("/proc/{}/fd/{fd}", owner.pid)).map_err(|_| Status::INVALID_HANDLE)?;
        if file.inode == inode { Ok(file) } else { Err(Status::INVALID_HANDLE) }
    }

    /// Opens the memory file at this path in `/proc`.
    pub(crate) fn open_path(path: &str) -> Answer<Self> {
        // The name is checked first: opening any other file could have effects.
        let target = std::fs::read_link(path).map_err(|_| Status::INVALID_VALUE)?;
        Label::parse(&target.to_string_lossy()).ok_or(Status::INVALID_VALUE)?;
        Self::of(File::options().read(true).write(true).open(path)?)
    }

    fn of(file: File) -> Answer<Self> {
        let target = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        let label = Label::parse(&target.to_string_lossy()).ok_or(Status::INVALID_VALUE)?;
        Ok(Self { inode: file.metadata()?.ino(), file, label })
    }

    pub(crate) fn label(&self) -> &Label {
        &self.label
    }

    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    pub(crate) fn number(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Another descriptor of the same file, close-on-exec.
    pub(crate) fn share(&self) -> Answer<OwnedFd> {
        Ok(self.file.try_clone()?.into())
    }

    /// Gives whole pages inside the range back to the system.
    pub(crate) fn discard(&self, offset_bytes: u64, len_bytes: u64) {
        let begin = offset_bytes.next_multiple_of(4096);
        let end = (offset_bytes + len_bytes) & !4095;
        if begin < end {
            // If this fails, the pages stay allocated, which does no harm.
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = rustix::fs::fallocate(&self.file, flags, begin, end - begin);
        }
    }
}

impl AsFd for MemoryFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Every memory file of `world` that some process has open, each once: its label, and a path to open it with.
pub(crate) fn all_of(world: &str) -> Vec<(Label, String)> {
    let mut found: Vec<(u64, Label, String)> = Vec::new();
    let entries = |path: &str| std::fs::read_dir(path).into_iter().flatten().flatten();
    for process in entries("/proc").filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        for entry in entries(&format!("/proc/{process}/fd")) {
            let target = std::fs::read_link(entry.path()).unwrap_or_default();
            let Some(label) = Label::parse(&target.to_string_lossy()).filter(|label| label.world == world)
            else {
                continue;
            };
            let Ok(inode) = std::fs::metadata(entry.path()).map(|metadata| metadata.ino()) else { continue };
            if found.iter().all(|(known, ..)| *known != inode) {
                found.push((inode, label, entry.path().to_string_lossy().into_owned()));
            }
        }
    }
    found.into_iter().map(|(_, label, path)| (label, path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_tells_what_it_is_and_is_found_once() {
        let world = format!("labels-{}", std::process::id());
        let label = Label { world: world.clone(), purpose: Purpose::Vmm, device: 3, len_bytes: 8192 };
        let file = MemoryFile::create(label.clone(), 0).unwrap();
        let again = MemoryFile::reopen(file.number()).unwrap();
        assert_eq!((again.label(), again.inode()), (&label, file.inode()));
        assert_eq!(all_of(&world).len(), 1);
        assert!(all_of(&world[..world.len() - 1]).is_empty());
        drop((file, again));
        assert!(all_of(&world).is_empty());
    }

    #[test]
    fn other_descriptors_are_refused() {
        assert_eq!(MemoryFile::reopen(-1).err(), Some(Status::INVALID_VALUE));
        let other = File::open("/proc/self/stat").unwrap();
        assert_eq!(MemoryFile::reopen(other.as_raw_fd()).err(), Some(Status::INVALID_VALUE));
        assert_eq!(Label::parse("/memfd:simcuda:w:tape:0:1"), None);
    }
}
