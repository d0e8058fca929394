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

/// Reads the text of a small file. Names of processes and threads are bytes, which the kernel also cuts at
/// the 15th; what is no character becomes U+FFFD.
pub(crate) fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = Vec::with_capacity(USUAL_LEN_BYTES);
    File::open(path)?.take(MAX_LEN_BYTES).read_to_end(&mut text)?;
    Ok(String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_was_cut_inside_a_character_can_be_read() {
        // 16 bytes, of which the kernel keeps 15.
        std::thread::Builder::new()
            .name("Trainingsprozeß".to_owned())
            .spawn(|| {
                let stat = read("/proc/thread-self/stat").unwrap();
                assert!(stat.contains("(Trainingsproze\u{fffd}) "), "{stat}");
            })
            .unwrap()
            .join()
            .unwrap();
    }

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
