//! Memory that is a file without a name.
//!
//! Only its descriptors and mappings keep a memfd alive. When the last one goes, however its process ends,
//! the kernel frees the file (memfd_create(2)). Its size does not depend on the mount options of `/dev/shm`.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};

use crate::descriptor::off_standard_streams;
use crate::{Error, Result};

/// Creates a sparse memory file of `len_bytes` and seals it against every change of size.
///
/// After this, no process that holds the descriptor can shrink the file (which would turn loads into SIGBUS)
/// or grow it: `F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL`. The content stays writable. `name` is shown in
/// `/proc/PID/maps` and has no other meaning.
///
/// # Errors
/// The kernel's error of memfd_create(2), ftruncate(2) or fcntl(2). The caller checks `RLIMIT_FSIZE` first
/// ([`crate::limits::file_size_bytes`]), because a file beyond it raises SIGXFSZ.
pub fn create_sealed(name: &str, len_bytes: u64) -> Result<OwnedFd> {
    let fd = create(name)?;
    rustix::fs::ftruncate(&fd, len_bytes)
        .map_err(|e| Error::new(format!("ftruncate of a memfd to {len_bytes} bytes"), e))?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(|e| Error::new("fcntl(F_ADD_SEALS)", e))?;
    Ok(fd)
}

/// Creates an empty memory file that can be sealed.
pub(crate) fn create(name: &str) -> Result<OwnedFd> {
    let base = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // MFD_NOEXEC_SEAL (Linux 6.3) keeps the file from ever being executed. Older kernels answer EINVAL.
    rustix::fs::memfd_create(name, base | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| rustix::fs::memfd_create(name, base))
        .map_err(|e| Error::new("memfd_create", e))
        .and_then(off_standard_streams)
}

/// Whether the file can never change its size. Only then is its mapping safe from SIGBUS.
///
/// # Errors
/// EINVAL of fcntl(2) when `fd` is not a memory file.
pub fn is_size_sealed(fd: impl AsFd) -> Result<bool> {
    let seals = rustix::fs::fcntl_get_seals(fd).map_err(|e| Error::new("fcntl(F_GET_SEALS)", e))?;
    Ok(seals.contains(SealFlags::SHRINK | SealFlags::GROW))
}

/// The size of the file in bytes.
///
/// # Errors
/// The kernel's error of fstat(2).
pub fn len_bytes(fd: impl AsFd) -> Result<u64> {
    let stat = rustix::fs::fstat(fd).map_err(|e| Error::new("fstat", e))?;
    Ok(u64::try_from(stat.st_size).unwrap_or(0))
}

/// The memory that the file has allocated, in bytes. Holes do not count.
///
/// # Errors
/// The kernel's error of fstat(2).
pub fn allocated_bytes(fd: impl AsFd) -> Result<u64> {
    let stat = rustix::fs::fstat(fd).map_err(|e| Error::new("fstat", e))?;
    Ok(u64::try_from(stat.st_blocks).unwrap_or(0) * 512)
}

/// Gives the pages of a range back to the system (fallocate(2)). They read as zero afterwards.
///
/// # Errors
/// The kernel's error of fallocate(2).
pub fn punch_hole(fd: impl AsFd, offset_bytes: u64, len_bytes: u64) -> Result<()> {
    rustix::fs::fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset_bytes, len_bytes)
        .map_err(|e| Error::new(format!("fallocate(PUNCH_HOLE) of {len_bytes} bytes at {offset_bytes}"), e))
}

/// Reads bytes of the file without mapping it (pread(2)).
///
/// # Errors
/// The kernel's error of pread(2); EIO when the file ends before the range does.
pub fn read_exact_at(fd: impl AsFd, bytes: &mut [u8], offset_bytes: u64) -> Result<()> {
    let len_bytes = bytes.len();
    let read = rustix::io::retry_on_intr(|| rustix::io::pread(&fd, &mut *bytes, offset_bytes));
    let whole = read.and_then(|n| if n == len_bytes { Ok(()) } else { Err(rustix::io::Errno::IO) });
    whole.map_err(|e| Error::new(format!("pread of {len_bytes} bytes at {offset_bytes}"), e))
}

/// Device and inode of the file behind a descriptor. Equal pairs mean the same file.
///
/// # Errors
/// The kernel's error of fstat(2).
pub fn file_id(fd: impl AsFd) -> Result<(u64, u64)> {
    let stat = rustix::fs::fstat(fd).map_err(|e| Error::new("fstat", e))?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_memfd_cannot_change_its_size() {
        let fd = create_sealed("test", 1 << 20).unwrap();
        assert!(is_size_sealed(&fd).unwrap());
        assert_eq!(len_bytes(&fd).unwrap(), 1 << 20);
        assert!(rustix::fs::ftruncate(&fd, 4096).is_err(), "shrinking must be refused");
        assert!(rustix::fs::ftruncate(&fd, 1 << 21).is_err(), "growing must be refused");
    }

    #[test]
    fn bytes_are_copied_out_whole_or_not_at_all() {
        let fd = create_sealed("test", 4096).unwrap();
        rustix::io::pwrite(&fd, &[7; 8], 100).unwrap();
        let mut bytes = [0; 10];
        read_exact_at(&fd, &mut bytes, 99).unwrap();
        assert_eq!(bytes, [0, 7, 7, 7, 7, 7, 7, 7, 7, 0]);
        assert_eq!(read_exact_at(&fd, &mut bytes, 4090).unwrap_err().raw_os_error(), Some(5));
    }

    #[test]
    fn an_ordinary_file_is_not_sealed() {
        let (read, _write) = rustix::pipe::pipe().unwrap();
        assert!(is_size_sealed(&read).is_err());
    }

    #[test]
    fn a_punched_hole_gives_its_pages_back() {
        let fd = create_sealed("test", 1 << 20).unwrap();
        rustix::io::pwrite(&fd, &[7; 8192], 0).unwrap();
        assert_eq!(allocated_bytes(&fd).unwrap(), 8192);
        punch_hole(&fd, 0, 8192).unwrap();
        assert_eq!(allocated_bytes(&fd).unwrap(), 0);
    }
}
