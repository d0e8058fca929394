//! Whether running this program again would come back to this library.
//!
//! In a Python extension it would not: the running program is the interpreter, and this library is a file that the
//! interpreter has loaded. The kernel knows which file each address of the process comes from.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The running program, whatever has happened to its file since it started.
pub(crate) const OWN_EXECUTABLE: &str = "/proc/self/exe";

/// `Err((program, library))` when the running program is another file than the one that holds this library.
///
/// When it cannot be told, the answer is that it is the same: then a child that is not ours never enters, which is
/// told as such.
pub(crate) fn check_is_ours() -> Result<(), (PathBuf, PathBuf)> {
    static LIBRARY: OnceLock<Option<PathBuf>> = OnceLock::new();
    match LIBRARY.get_or_init(foreign_library) {
        None => Ok(()),
        Some(library) => Err((std::fs::read_link(OWN_EXECUTABLE).unwrap_or_default(), library.clone())),
    }
}

/// The file that holds this library, when that is not the running program.
fn foreign_library() -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let library = mapped_file(&maps, crate::entry::own_address())?;
    // The link's text and the map's are made by the same function of the kernel. The inode decides where a file
    // system shows two names for one file.
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
        // Permissions, offset and device, then the inode; the path begins at the first slash and may hold spaces.
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
