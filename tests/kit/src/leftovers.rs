//! What a test may leave behind: descriptors, mappings, children, names in `/dev/shm`.

use std::collections::BTreeSet;
use std::fs;

use tensorferry::Heap;

use crate::until;

/// What this process has at one moment.
#[derive(Debug)]
pub struct Leftovers {
    n_descriptors: usize,
    n_mappings: usize,
    children: BTreeSet<u32>,
    shared_names: BTreeSet<String>,
}

impl Leftovers {
    /// Looks around.
    #[must_use]
    pub fn look() -> Self {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        Self {
            n_descriptors: fs::read_dir("/proc/self/fd").unwrap().count(),
            n_mappings: n_mappings_in(&maps),
            children: children(),
            // Other programs may use the place; ours would have this in its name.
            shared_names: names_in("/dev/shm")
                .into_iter()
                .filter(|name| name.contains("tensorferry"))
                .collect(),
        }
    }

    /// How many descriptors were open, the one for looking included.
    #[must_use]
    pub fn n_descriptors(&self) -> usize {
        self.n_descriptors
    }

    /// How many mappings of domains there were; a domain has two.
    #[must_use]
    pub fn n_mappings(&self) -> usize {
        self.n_mappings
    }

    /// How many children there were.
    #[must_use]
    pub fn n_children(&self) -> usize {
        self.children.len()
    }

    /// Expects so many descriptors less.
    pub fn forget_descriptors(&mut self, n_descriptors: usize) {
        self.n_descriptors -= n_descriptors;
    }

    /// Waits until this process has nothing that it had not then. A thread that lets go of the last handle on
    /// a domain may need a moment to do so.
    #[track_caller]
    pub fn wait_nothing_more(&self) {
        let mut last = Self::look();
        let gone = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("nothing is left", || {
                last = Self::look();
                last.is_within(self)
            });
        }));
        assert!(gone.is_ok(), "before: {self:?}\nafter: {last:?}\nopen: {:?}", open_descriptors());
    }
}

/// Runs a test, and waits until everything is as before: descriptors, mappings, children, blocks. `warm_up`
/// leaves what a process has that has done the like once: its domain, memory for blocks of each size, the
/// thread that starts processes.
#[track_caller]
pub fn leaving_nothing(warm_up: impl FnOnce(), test: impl FnOnce()) {
    warm_up();
    let live_blocks = || {
        let heap = Heap::current().unwrap();
        heap.collect();
        heap.stats().own.live_blocks
    };
    let (before, n_live_before) = (Leftovers::look(), live_blocks());
    test();
    before.wait_nothing_more();
    until("no block is left", || live_blocks() <= n_live_before);
}

impl Leftovers {
    fn is_within(&self, before: &Self) -> bool {
        self.n_descriptors <= before.n_descriptors
            && self.n_mappings <= before.n_mappings
            && self.children.is_subset(&before.children)
            && self.shared_names.is_subset(&before.shared_names)
    }
}

/// How many descriptors this process or a child has open.
pub(crate) fn n_descriptors_of(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// How many of them are for processes.
pub(crate) fn n_pidfds_of(pid: u32) -> usize {
    let names = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let is_pidfd = |target: std::path::PathBuf| target.to_string_lossy().contains("pidfd");
    names.filter(|entry| fs::read_link(entry.path()).is_ok_and(is_pidfd)).count()
}

/// How many mappings of domains `maps` has (proc_pid_maps(5)). What was opened of one has a line of its own,
/// which goes on where the line before it ends, in memory and in the file; more of those are no leftovers.
fn n_mappings_in(maps: &str) -> usize {
    let pieces = maps.lines().filter(|line| line.contains("memfd:tensorferry")).map(Piece::parse);
    let mut last = None;
    pieces.filter(|piece| last.replace(*piece).is_none_or(|last| !piece.continues(last))).count()
}

/// A line about a part of a memory file.
#[derive(Clone, Copy)]
struct Piece {
    start: u64,
    end: u64,
    offset_bytes: u64,
    inode: u64,
}

impl Piece {
    /// `start-end permissions offset device inode name`.
    fn parse(line: &str) -> Self {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next().and_then(|range| range.split_once('-')).unwrap();
        let [offset, inode] = [fields.nth(1).unwrap(), fields.nth(1).unwrap()];
        let hex = |digits: &str| u64::from_str_radix(digits, 16).unwrap();
        Self { start: hex(start), end: hex(end), offset_bytes: hex(offset), inode: inode.parse().unwrap() }
    }

    fn continues(self, last: Self) -> bool {
        let len_bytes = last.end - last.start;
        self.inode == last.inode
            && self.start == last.end
            && self.offset_bytes == last.offset_bytes + len_bytes
    }
}

fn children() -> BTreeSet<u32> {
    let me = std::process::id();
    names_in("/proc")
        .into_iter()
        .filter_map(|name| name.parse().ok())
        .filter(|&pid| parent_of(pid) == Some(me))
        .collect()
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn names_in(folder: &str) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn open_descriptors() -> Vec<String> {
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some(fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_of_a_mapping_are_one() {
        let maps = "\
1000-2000 rw-s 00000000 00:01 7 /memfd:tensorferry (deleted)
2000-4000 ---s 00003000 00:01 7 /memfd:tensorferry (deleted)
4000-5000 rw-s 00005000 00:01 7 /memfd:tensorferry (deleted)
5000-9000 ---s 00006000 00:01 7 /memfd:tensorferry (deleted)
9000-a000 rw-s 0000a000 00:01 8 /memfd:tensorferry (deleted)
b000-c000 rw-s 0000b000 00:01 8 /memfd:tensorferry (deleted)
c000-d000 rw-p 0000c000 00:01 9 /usr/lib/libc.so
";
        // The tables; the memory, of which a part is open; another domain's, which begins where the memory
        // ends; and a piece with a hole before it.
        assert_eq!(n_mappings_in(maps), 4);
    }
}
