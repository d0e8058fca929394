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
            n_mappings: maps.lines().filter(|line| line.contains("memfd:tensorferry")).count(),
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

    /// How many domains were mapped, in pieces.
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
