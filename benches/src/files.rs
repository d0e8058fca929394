//! What iceoryx2 keeps in files. The far side of a measurement is killed when it is over, so the near side
//! removes them.

use std::path::PathBuf;
use std::{fs, io};

/// How the names of shared memory begin in the measurement of this process, and the folder of everything
/// else.
#[must_use]
pub fn files_of(pid: u32) -> (String, PathBuf) {
    let name = format!("tensorferry_bench_{pid}_");
    let folder = std::env::temp_dir().join(&name);
    (name, folder)
}

/// Removes what the measurement of this process has left. That it has left nothing is no error.
///
/// # Errors
/// When the kernel refuses.
pub fn remove_files_of(pid: u32) -> io::Result<()> {
    let (prefix, folder) = files_of(pid);
    for entry in fs::read_dir("/dev/shm")? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            fs::remove_file(entry.path())?;
        }
    }
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_measurement_left_goes_and_no_others_does() {
        let (mine, others) = (u32::MAX - std::process::id(), u32::MAX - std::process::id() - 1);
        let left = |pid: u32| [PathBuf::from("/dev/shm").join(files_of(pid).0 + "x"), files_of(pid).1];
        for pid in [mine, others] {
            let [memory, folder] = left(pid);
            fs::write(memory, "x").unwrap();
            fs::create_dir_all(folder.join("nodes")).unwrap();
        }
        remove_files_of(mine).unwrap();
        assert!(left(mine).iter().all(|path| !path.exists()));
        assert!(left(others).iter().all(|path| path.exists()));
        remove_files_of(others).unwrap();
        remove_files_of(others).unwrap();
        assert!(left(others).iter().all(|path| !path.exists()));
    }
}
