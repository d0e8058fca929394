//! Whether the running program is the file that contains this library, so that executing it again reaches
//! this library.
//!
//! In a Python extension it is not: the running program is the interpreter, and this library is a file that
//! the interpreter has loaded. The kernel records which file each address of the process comes from.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The running program, even if its file has been renamed or removed since it started.
pub(crate) const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// Returns `Err((program, library))` if the running program is not the file that contains this library.
///
/// Returns `Ok` if this cannot be determined. A child of another program then never enters, and the parent
/// reports that.
pub(crate) fn check_is_ours() -> Result<(), (PathBuf, PathBuf)> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    match LIBRARY.get_or_init(foreign_library) {
        None => Ok(()),
        Some(library) => Err((std::fs::read_link(OWN_EXECUTABLE).unwrap_or_default(), library.clone())),
    }
}

/// The file that contains this library, if that is not the running program.
fn foreign_library() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let library = mapped_file(&maps, crate::entry::own_address())?;
    // The kernel uses the same function for the text of the link and of the map. The inode decides where a
    // file system shows one file under two names.
    let program = std::fs::read_link(OWN_EXECUTABLE).ok()?;
    let inode = std::fs::metadata(OWN_EXECUTABLE).ok()?.ino();
    if library.path == program || library.inode == inode { None } else { Some(library.path.to_owned()) }
}

#[derive(Debug, PartialEq, Eq)]
struct MappedFile<'a> {
    inode: u64,
    path: &'a Path,
}

/// The file that is mapped at an address, according to the text of `/proc/PID/maps` (proc_pid_maps(5)).
fn mapped_file(maps: &str, address: usize) -> Option<MappedFile<'_>> {
    maps.lines().find_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        if !(start..end).contains(&address) {
            return None;
        }
        // Permissions, offset and device come first, then the inode. The path begins at the first slash and
        // may contain spaces.
        let inode = rest.split_ascii_whitespace().nth(3)?.parse().ok()?;
        let path = &rest[rest.find('/')?..];
        Some(MappedFile { inode, path: Path::new(path) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
55d0a0000000-55d0a0010000 r--p 00000000 fe:01 42 /usr/bin/my program
55d0a0010000-55d0a0020000 r-xp 00010000 fe:01 42 /usr/bin/my program
7f0000000000-7f0000001000 rw-p 00000000 00:00 0
7f0000001000-7f0000002000 r-xp 00000000 fe:01 77 /usr/lib/extension.so (deleted)
";

    #[test]
    fn an_address_leads_to_its_file() {
        let program = mapped_file(MAPS, 0x55d0_a001_0000).unwrap();
        assert_eq!(program, MappedFile { inode: 42, path: Path::new("/usr/bin/my program") });
        let library = mapped_file(MAPS, 0x7f00_0000_1fff).unwrap();
        assert_eq!(library, MappedFile { inode: 77, path: Path::new("/usr/lib/extension.so (deleted)") });
        assert_eq!(mapped_file(MAPS, 0x7f00_0000_0000), None, "no file is mapped there");
        assert_eq!(mapped_file(MAPS, 0x1000), None);
        assert_eq!(mapped_file("garbage", 0), None);
    }

    #[test]
    fn this_test_program_is_ours() {
        assert_eq!(check_is_ours(), Ok(()));
    }
}
