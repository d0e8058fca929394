//! Memory that nobody can write any more, because the kernel forbids it (`F_SEAL_WRITE`, fcntl_seals(2const),
//! memfd_create(2)).
//!
//! # Safety
//!
//! Two things are lent: `&mut [u8]` of a file that no other process has yet, and `&[u8]` of a file that is
//! sealed against writing and shrinking. The kernel grants that seal only while no writable mapping of the
//! file exists anywhere and nothing has its pages pinned, and refuses write(2), writable mappings and holes
//! from then on. A seal cannot be taken back. So the bytes do not change, whoever has the descriptor and
//! whatever it is up to, and no load reaches beyond the end of the file.
//!
//! A file with holes is refused: to read one allocates memory, which may fail by a signal. A driver that
//! makes memory writable without asking for its seals breaks all this: udmabuf did, in a race, until the end
//! of 2024, for those who may open its device.
#![expect(unsafe_code, reason = "maps memory files and lends their bytes")]

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use memmap2::{Advice, Mmap, MmapMut, MmapOptions};
use rustix::fs::{SealFlags, SeekFrom};
use rustix::io::Errno;

use crate::{Error, Result, limits, memfd};

/// What makes the bytes constant.
const SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::SHRINK);

/// The file system of memory files of small pages (linux/magic.h).
const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;

/// A memory file that is sealed against writing, mapped for reading.
#[derive(Debug)]
pub struct SealedMemory {
    fd: OwnedFd,
    /// INVARIANT: a private mapping of all of a file that has [`SEALS`]. `None` for a file without bytes.
    map: Option<Mmap>,
}

impl SealedMemory {
    /// Makes a file of `len_bytes`, has `fill` write it in place, and seals it. The bytes are zero at first.
    /// The memory is there before `fill` is called. `name` is what `/proc/PID/maps` shows.
    ///
    /// # Errors
    /// ENOMEM when the machine or the cgroup has not as much memory to spare. EFBIG beyond `RLIMIT_FSIZE`.
    /// EBUSY when the file is still mapped for writing, or pinned: by a process that another thread has
    /// forked at that moment, or by what `fill` has given the bytes to (a device, io_uring). Otherwise the
    /// kernel's error of memfd_create(2), ftruncate(2), mmap(2), madvise(2) or fcntl(2).
    pub fn create(name: &str, len_bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<Self> {
        let what = || format!("making a sealed memory file of {len_bytes} bytes");
        if limits::file_size_bytes().is_some_and(|limit| len_bytes as u64 > limit) {
            return Err(Error::new(what(), Errno::FBIG));
        }
        // In a cgroup that has too little left the kernel would kill a process instead of failing the call.
        if limits::available_memory_bytes().is_some_and(|available| len_bytes as u64 > available) {
            return Err(Error::new(what(), Errno::NOMEM));
        }
        let fd = memfd::create(name)?;
        if len_bytes == 0 {
            fill(&mut []);
        } else {
            let size = len_bytes as u64;
            rustix::fs::ftruncate(&fd, size)
                .map_err(|e| Error::new(format!("ftruncate to {size} bytes"), e))?;
            // Before it is mapped, so that no load or store of `fill` can reach beyond the end.
            rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)
                .map_err(|e| Error::new("fcntl(F_ADD_SEALS) against another size", e))?;
            fill(&mut writable(&fd, len_bytes)?);
        }
        rustix::fs::fcntl_add_seals(&fd, SEALS | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|e| Error::new("fcntl(F_ADD_SEALS) against writing", e))?;
        Self::from_fd(fd)
    }

    /// Maps a file that came from another process, which need not be trusted.
    ///
    /// # Errors
    /// EPERM when it is not sealed against writing and shrinking, or has holes. EINVAL when it is no memory
    /// file of small pages. Otherwise the kernel's error of mmap(2).
    pub fn from_fd(fd: OwnedFd) -> Result<Self> {
        let no_memory_file = || Error::new("taking what is no memory file (memfd_create)", Errno::INVAL);
        let seals = rustix::fs::fcntl_get_seals(&fd).map_err(|_| no_memory_file())?;
        if rustix::fs::fstatfs(&fd).map_err(|e| Error::new("fstatfs", e))?.f_type != TMPFS_MAGIC {
            return Err(no_memory_file());
        }
        for (seal, against) in [(SealFlags::WRITE, "writing"), (SealFlags::SHRINK, "shrinking")] {
            if !seals.contains(seal) {
                let call = format!("taking a memory file that is not sealed against {against}");
                return Err(Error::new(call, Errno::PERM));
            }
        }
        let len_bytes = memfd::len_bytes(&fd)?;
        // Not by its blocks, some of which may lie behind its end. The position is nobody's.
        let hole = rustix::fs::seek(&fd, SeekFrom::Hole(0)).or_else(|e| match e {
            // Without bytes there is none.
            Errno::NXIO => Ok(len_bytes),
            e => Err(Error::new("lseek(SEEK_HOLE)", e)),
        })?;
        if hole < len_bytes {
            let call = format!("taking a memory file of {len_bytes} bytes with a hole at {hole}");
            return Err(Error::new(call, Errno::PERM));
        }
        let failed = |error| Error::new(format!("mmap of a sealed file of {len_bytes} bytes"), error);
        let Ok(len) = usize::try_from(len_bytes) else { return Err(failed(Errno::NOMEM.into())) };
        // SAFETY: what is behind a mapping must not change while it is lent as `&[u8]`. The file is sealed
        // against writing and shrinking, which was checked above and cannot be undone (see the head of this
        // module). The mapping is private, so what this process might write elsewhere is no part of it.
        let map =
            (len > 0).then(|| unsafe { MmapOptions::new().len(len).map_copy_read_only(fd.as_raw_fd()) });
        Ok(Self { fd, map: map.transpose().map_err(failed)? })
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }
}

impl AsFd for SealedMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Maps a file that only the caller has, for writing. It is sealed against shrinking, or nobody else does.
fn writable(fd: &OwnedFd, len_bytes: usize) -> Result<MmapMut> {
    let failed = |error| Error::new(format!("mmap of {len_bytes} bytes for writing"), error);
    // SAFETY: what is behind a mapping must not be accessed by others while it is lent as `&mut [u8]`. The
    // file has no name, its descriptor was made by the caller and was given to nobody, and this is its only
    // mapping in this process. It is as long as the mapping, and stays so. A process that another thread
    // forks meanwhile has the descriptor, or even the mapping, and knows neither; one that may trace this
    // process can open the file by /proc, and is trusted not to, as it could write into this process itself
    // (docs/SAFETY.md).
    let map = unsafe { MmapOptions::new().len(len_bytes).map_mut(fd.as_raw_fd()) }.map_err(failed)?;
    // A process that another thread forks meanwhile must not have a writable mapping: it would be in the way
    // of the seal.
    map.advise(Advice::DontFork).map_err(failed)?;
    // All of it is there from here on: running out of memory is an error and no signal, and there are no
    // holes.
    let failed = |error| Error::new(format!("madvise(MADV_POPULATE_WRITE) of {len_bytes} bytes"), error);
    map.advise(Advice::PopulateWrite).map_err(failed)?;
    Ok(map)
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;
    use rustix::io::pwrite;

    use super::*;

    #[test]
    fn nobody_can_change_what_is_sealed() {
        let sealed = SealedMemory::create("test", 10_000, |bytes| bytes[9_999] = 7).unwrap();
        assert_eq!((sealed.bytes().len(), sealed.bytes()[9_999], sealed.bytes()[0]), (10_000, 7, 0));
        assert_eq!(pwrite(&sealed, &[1], 0), Err(Errno::PERM));
        assert_eq!(rustix::fs::ftruncate(&sealed, 0), Err(Errno::PERM));
        let punched = memfd::punch_hole(&sealed, 0, 4096).unwrap_err();
        assert_eq!(punched.raw_os_error(), Some(Errno::PERM.raw_os_error()));
        // SAFETY: the mapping is refused, so that nothing is lent.
        let mapped = unsafe { MmapOptions::new().len(4096).map_mut(sealed.fd.as_raw_fd()) };
        assert!(mapped.is_err());
        assert!(rustix::fs::fcntl_add_seals(&sealed, SealFlags::empty()).is_err(), "no seal is added");
    }

    #[test]
    fn the_same_memory_is_read_through_another_descriptor() {
        let sealed = SealedMemory::create("test", 4096, |bytes| bytes.fill(3)).unwrap();
        let other = SealedMemory::from_fd(sealed.as_fd().try_clone_to_owned().unwrap()).unwrap();
        drop(sealed);
        assert!(other.bytes().iter().all(|byte| *byte == 3));
    }

    #[test]
    fn what_others_could_still_write_is_refused() {
        let unsealed = memfd::create_sealed("test", 4096).unwrap();
        let error = SealedMemory::from_fd(unsealed).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()), "{error}");
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert!(SealedMemory::from_fd(read).unwrap_err().to_string().contains("no memory file"));
        let growing = memfd::create("test").unwrap();
        rustix::fs::fcntl_add_seals(&growing, SealFlags::WRITE).unwrap();
        assert!(SealedMemory::from_fd(growing).unwrap_err().to_string().contains("against shrinking"));
        let holes = memfd::create("test").unwrap();
        rustix::fs::ftruncate(&holes, 1 << 40).unwrap();
        rustix::fs::fcntl_add_seals(&holes, SEALS).unwrap();
        let error = SealedMemory::from_fd(holes).unwrap_err();
        assert!(error.to_string().contains("a hole at 0"), "{error}");
        // With as many blocks as it is long, behind its end.
        let behind = memfd::create("test").unwrap();
        rustix::fs::ftruncate(&behind, 1 << 20).unwrap();
        let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&behind, keep, 1 << 20, 1 << 20).unwrap();
        pwrite(&behind, &[1; 4096], 0).unwrap();
        rustix::fs::fcntl_add_seals(&behind, SEALS).unwrap();
        let error = SealedMemory::from_fd(behind).unwrap_err();
        assert!(error.to_string().contains("a hole at 4096"), "{error}");
        // Sealed against new writers only: whoever has a writable mapping goes on.
        let future = memfd::create("test").unwrap();
        rustix::fs::ftruncate(&future, 4096).unwrap();
        let mut writer = writable(&future, 4096).unwrap();
        rustix::fs::fcntl_add_seals(&future, SealFlags::FUTURE_WRITE | SealFlags::SHRINK).unwrap();
        assert!(SealedMemory::from_fd(future).is_err());
        writer[0] = 1;
    }

    #[test]
    fn a_file_of_large_pages_whose_holes_nobody_sees_is_refused() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
        // Its pages are not taken before it is mapped or filled.
        let large = match rustix::fs::memfd_create("test", flags) {
            Ok(large) => large,
            Err(error) => {
                println!("NOT RUN: needs memory files of large pages: {error}");
                return;
            }
        };
        let len_bytes = rustix::fs::fstatfs(&large).unwrap().f_bsize.cast_unsigned();
        rustix::fs::ftruncate(&large, len_bytes).unwrap();
        rustix::fs::fcntl_add_seals(&large, SEALS).unwrap();
        assert_eq!(rustix::fs::seek(&large, SeekFrom::Hole(0)), Ok(len_bytes), "none, it says");
        let error = SealedMemory::from_fd(large).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::INVAL.raw_os_error()), "{error}");
        assert!(error.call().contains("no memory file"), "{error}");
    }

    #[test]
    fn memory_that_is_not_there_is_an_error() {
        let error = SealedMemory::create("test", 1 << 50, |_| unreachable!()).unwrap_err();
        assert!(error.is_out_of_memory(), "{error}");
        // It was found before anything was made, and by no allocation that the kernel would kill for.
        assert!(error.call().contains("making a sealed memory file"), "{error}");
    }

    #[test]
    fn nothing_at_all_is_sealed_too() {
        let empty = SealedMemory::create("test", 0, |bytes| assert!(bytes.is_empty())).unwrap();
        assert_eq!(empty.bytes(), []);
        assert_eq!(pwrite(&empty, &[1], 0), Err(Errno::PERM));
    }
}
