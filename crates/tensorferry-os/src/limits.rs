//! What this process may use: address space, file size, memory, processors.
//!
//! Limits are read before they are met, because meeting them is worse than an error: a file beyond
//! `RLIMIT_FSIZE` raises SIGXFSZ, memory beyond a cgroup's limit gets the process killed. References:
//! getrlimit(2), cgroups(7), proc_meminfo(5).

use std::fs;
use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit};

/// The soft limit of address space in bytes (`RLIMIT_AS`), `None` when there is none.
#[must_use]
pub fn address_space_bytes() -> Option<u64> {
    soft_limit(Resource::RLIMIT_AS)
}

/// The soft limit of a file's size in bytes (`RLIMIT_FSIZE`), `None` when there is none.
#[must_use]
pub fn file_size_bytes() -> Option<u64> {
    soft_limit(Resource::RLIMIT_FSIZE)
}

fn soft_limit(which: Resource) -> Option<u64> {
    getrlimit(which).ok().map(|(soft, _hard)| soft).filter(|&soft| soft != nix::libc::RLIM_INFINITY)
}

/// The memory that could be taken now in bytes: `MemAvailable`, or what the cgroups of this process leave
/// below their limits, whichever is less. `None` when neither can be read.
#[must_use]
pub fn available_memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_mem_available(&text));
    let cgroup = cgroup_memory_left_bytes(Path::new("/sys/fs/cgroup"));
    machine.into_iter().chain(cgroup).min()
}

/// How many processors this process may keep busy: the affinity mask, cut by a cgroup's CPU quota (rounded
/// down, at least 1).
#[must_use]
pub fn usable_cpus() -> usize {
    let affinity = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // `available_parallelism` already looks at the affinity mask and at cgroup quotas (v1 and v2) on Linux.
    affinity
}

/// Whether another process can run while this one keeps a processor busy. A thread that is bound to one processor says
/// nothing about where others run; a quota of one does.
#[must_use]
pub fn others_run_beside() -> bool {
    if usable_cpus() > 1 {
        return true;
    }
    let is_bound = rustix::thread::sched_getaffinity(None).is_ok_and(|cpus| cpus.count() == 1);
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    is_bound && count_cpus(&online) > 1
}

/// How many processors a list such as `0-3,8` names (cpuset(7), "Formats").
fn count_cpus(list: &str) -> usize {
    let number = |text: &str| text.trim().parse::<usize>().ok();
    let of_range = |range: &str| match range.split_once('-') {
        Some((first, last)) => (number(last)? + 1).checked_sub(number(first)?),
        None => number(range).map(|_| 1),
    };
    list.split(',').filter_map(of_range).sum()
}

fn parse_mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemAvailable:"))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// The least room of any cgroup from this process's own up to the root of the hierarchy mounted at `root`.
fn cgroup_memory_left_bytes(root: &Path) -> Option<u64> {
    let membership = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mut least = None;
    for (version, path) in parse_memory_cgroups(&membership) {
        let (base, limit_name, usage_name) = match version {
            CgroupVersion::V1 => (root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
            CgroupVersion::V2 => (root.to_owned(), "memory.max", "memory.current"),
        };
        // In a container the path of the host may not exist below the mount; the mount's root is ours then.
        let mut at = base.join(path.trim_start_matches('/'));
        if !at.exists() {
            at.clone_from(&base);
        }
        while at.starts_with(&base) {
            let read = |name: &str| fs::read_to_string(at.join(name)).ok();
            if let (Some(limit), Some(usage)) = (
                read(limit_name).and_then(|t| parse_limit(&t)),
                read(usage_name).and_then(|t| t.trim().parse::<u64>().ok()),
            ) {
                let left = limit.saturating_sub(usage);
                least = Some(least.map_or(left, |l: u64| l.min(left)));
            }
            at = match at.parent() {
                Some(parent) => PathBuf::from(parent),
                None => break,
            };
        }
    }
    least
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CgroupVersion {
    V1,
    V2,
}

/// The lines of `/proc/PID/cgroup` that concern memory: `hierarchy:controllers:path`, with an empty list of
/// controllers for version 2.
fn parse_memory_cgroups(text: &str) -> Vec<(CgroupVersion, String)> {
    let mut found = Vec::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        if controllers.split(',').any(|c| c == "memory") {
            found.push((CgroupVersion::V1, path.to_owned()));
        } else if id == "0" && controllers.is_empty() {
            found.push((CgroupVersion::V2, path.to_owned()));
        }
    }
    found
}

/// `max` (v2) and the huge number that v1 shows for "no limit" mean none.
fn parse_limit(text: &str) -> Option<u64> {
    let limit: u64 = text.trim().parse().ok()?;
    (limit < 1 << 62).then_some(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_generations_of_cgroups_are_understood() {
        let v1 = "12:memory:/docker/abc\n11:cpu,cpuacct:/docker/abc\n";
        assert_eq!(parse_memory_cgroups(v1), [(CgroupVersion::V1, "/docker/abc".to_owned())]);
        let v2 = "0::/user.slice/a:b\n";
        assert_eq!(parse_memory_cgroups(v2), [(CgroupVersion::V2, "/user.slice/a:b".to_owned())]);
        let hybrid = "5:memory,hugetlb:/x\n0::/y\n";
        assert_eq!(parse_memory_cgroups(hybrid).len(), 2);
        assert!(parse_memory_cgroups("garbage\n").is_empty());
    }

    #[test]
    fn no_limit_is_no_number() {
        assert_eq!(parse_limit("max\n"), None);
        assert_eq!(parse_limit("9223372036854771712\n"), None);
        assert_eq!(parse_limit("1073741824\n"), Some(1 << 30));
    }

    #[test]
    fn available_memory_is_in_bytes() {
        assert_eq!(parse_mem_available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert!(available_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn there_is_a_processor() {
        assert!(usable_cpus() >= 1);
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(["0", "0-1\n", "0-3,8", "", "x", "3-1"].map(count_cpus), [1, 2, 5, 0, 0, 0]);
    }
}
