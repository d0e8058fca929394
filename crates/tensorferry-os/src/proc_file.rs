//! Reading small files of `/proc`, which the kernel writes about a process or the machine.
//!
//! The kernel makes the text anew for each first read, and does not tell its length before. With room for all
//! of the text, reading takes two system calls; as a file of unknown length it takes eight.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Most of these files fit at once.
const USUAL_LEN_BYTES: usize = 8 << 10;

/// The most bytes that are read.
const MAX_LEN_BYTES: u64 = 1 << 20;

/// Reads the text of a small file.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = Vec::with_capacity(USUAL_LEN_BYTES);
    File::open(path)?.take(MAX_LEN_BYTES).read_to_end(&mut text)?;
    String::from_utf8(text).map_err(|_| io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_whole() {
        // The lines have the same names in the same order, whatever their numbers are by now.
        let names = |text: &str| {
            text.lines().map(|line| line.split(' ').next().map(str::to_owned)).collect::<Vec<_>>()
        };
        let path = "/proc/vmstat";
        assert_eq!(names(&read(path).unwrap()), names(&std::fs::read_to_string(path).unwrap()));
    }
}
