//! Files of `/proc` that are small: what the kernel says about a process or the machine.
//!
//! The kernel makes the text anew for each first read, and says nothing about its length before. Reading with room for all of
//! it takes two reads, where reading like a file of unknown length takes eight.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Most such files fit at once.
const USUAL_LEN_BYTES: usize = 8 << 10;

/// What is read at most.
const MAX_LEN_BYTES: u64 = 1 << 20;

/// The text of a small file.
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
        // It has lines in the same order with the same names, whatever their numbers are by now.
        let names = |text: &str| {
            text.lines().map(|line| line.split(' ').next().map(str::to_owned)).collect::<Vec<_>>()
        };
        let path = "/proc/vmstat";
        assert_eq!(names(&read(path).unwrap()), names(&std::fs::read_to_string(path).unwrap()));
    }
}
