//! The resources that this process may use: address space, file size, memory, processors.
//!
//! A limit is read before it is reached, because reaching it is worse than an error: a file beyond
//! `RLIMIT_FSIZE` raises SIGXFSZ, and the kernel kills a process that needs memory beyond a cgroup's limit.
//! References: getrlimit(2), cgroups(7), proc_meminfo(5).

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

/// The soft limit of how many descriptors this process may have (`RLIMIT_NOFILE`), `None` when there is none.
#[must_use]
pub fn open_files() -> Option<u64> {
    soft_limit(Resource::RLIMIT_NOFILE)
}

fn soft_limit(which: Resource) -> Option<u64> {
    getrlimit(which).ok().map(|(soft, _hard)| soft).filter(|&soft| soft != nix::libc::RLIM_INFINITY)
}

/// The memory in bytes that could be allocated now: the lesser of `MemAvailable` and what the cgroups of this
/// process leave below their limits. `None` when neither can be read.
#[must_use]
pub fn available_memory_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| parse_mem_available(&text));
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let cgroup = cgroup_memory_left_bytes(Path::new("/sys/fs/cgroup"), &membership);
    machine.into_iter().chain(cgroup).min()
}

/// The number of processors that this process may keep busy: those of its affinity mask, cut by a cgroup's
/// CPU quota (rounded down, at least 1).
#[must_use]
pub fn usable_cpus() -> usize {
    let affinity = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // On Linux, `available_parallelism` considers the affinity mask and cgroup quotas (v1 and v2).
    affinity
}

/// Whether another process can run while this one keeps a processor busy, that is, whether the machine has
/// more than one. The affinity of this process says nothing about where others run. And two processes at once
/// can use a CPU quota of one, each half of the time.
#[must_use]
pub fn others_run_beside() -> bool {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").map(|list| count_cpus(&list));
    online.unwrap_or_else(|_| usable_cpus()) > 1
}

/// The size of a processor's second-level cache in bytes; on most machines no other processor shares it.
/// `None` where the kernel does not have it (sysfs, `Documentation/ABI/testing/sysfs-devices-system-cpu`).
#[must_use]
pub fn private_cache_bytes() -> Option<usize> {
    let text =
        |file: &str| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index2/{file}")).ok();
    (text("level")?.trim() == "2").then(|| parse_cache_size(&text("size")?)).flatten()
}

/// Parses a size such as `1024K`.
fn parse_cache_size(text: &str) -> Option<usize> {
    let kib = text.trim().strip_suffix('K')?.parse::<usize>().ok()?;
    kib.checked_mul(1 << 10).filter(|size| *size > 0)
}

/// Counts the processors in a list such as `0-3,8` (cpuset(7), "Formats").
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

/// The least room of all cgroups from a process's own up to the root of the hierarchy mounted at `root`.
/// `membership` is the process's `/proc/PID/cgroup`.
fn cgroup_memory_left_bytes(root: &Path, membership: &str) -> Option<u64> {
    let mut least = None;
    for (version, path) in parse_memory_cgroups(membership) {
        let base = match version {
            CgroupVersion::V1 => root.join("memory"),
            CgroupVersion::V2 => root.to_owned(),
        };
        // In a container, the path on the host may not exist below the mount. The mount's root is our cgroup
        // then.
        let mut at = base.join(path.trim_start_matches('/'));
        if !at.exists() {
            at.clone_from(&base);
        }
        while at.starts_with(&base) {
            if let Some(left) = memory_left_of(version, &at) {
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

/// The room of one cgroup below its limit; `None` when it has no limit. File pages that were not used
/// recently count as room, because the kernel drops them before it refuses an allocation.
fn memory_left_of(version: CgroupVersion, group: &Path) -> Option<u64> {
    let (limits, usage_name, inactive_name): (&[&str], _, _) = match version {
        CgroupVersion::V1 => (&["memory.limit_in_bytes"], "memory.usage_in_bytes", "total_inactive_file"),
        // Beyond `high` the kernel slows the group down until it is below again, which is as bad.
        CgroupVersion::V2 => (&["memory.max", "memory.high"], "memory.current", "inactive_file"),
    };
    let read = |name: &str| fs::read_to_string(group.join(name)).ok();
    let limit = limits.iter().filter_map(|name| parse_limit(&read(name)?)).min()?;
    let usage: u64 = read(usage_name)?.trim().parse().ok()?;
    let inactive = read("memory.stat").and_then(|text| parse_stat(&text, inactive_name)).unwrap_or(0);
    Some(limit.saturating_sub(usage.saturating_sub(inactive)))
}

/// One number of `memory.stat`: `name bytes` in each line.
fn parse_stat(text: &str, wanted: &str) -> Option<u64> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.find(|(name, _)| *name == wanted)?.1.trim().parse().ok()
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

/// Parses a limit. `max` (v2) and the huge number that v1 shows mean that there is none.
fn parse_limit(text: &str) -> Option<u64> {
    let limit: u64 = text.trim().parse().ok()?;
    (limit < 1 << 62).then_some(limit)
}

#[cfg(test)]
mod tests {
    use rustix::thread::CpuSet;

    use super::*;

    #[test]
    fn cache_sizes_are_those_of_sysfs() {
        assert_eq!(parse_cache_size("1024K\n"), Some(1 << 20));
        assert_eq!(["", "K", "0K", "12", "99999999999999999999K"].map(parse_cache_size), [None; 5]);
    }

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

    /// A directory with these files. It is removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn of(name: &str, files: &[(&str, &str)]) -> Self {
            let folder =
                Self(std::env::temp_dir().join(format!("tensorferry-{name}-{}", std::process::id())));
            for (path, text) in files {
                let path = folder.0.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            folder
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_tightest_group_of_version_2_decides() {
        let folder = Folder::of(
            "cgroup2",
            &[
                ("memory.stat", "anon 1\n"),
                ("pod/memory.max", "1000\n"),
                ("pod/memory.high", "max\n"),
                ("pod/memory.current", "700\n"),
                ("pod/memory.stat", "anon 500\ninactive_file 200\nactive_file 0\n"),
                ("pod/box/memory.max", "max\n"),
                ("pod/box/memory.high", "900\n"),
                ("pod/box/memory.current", "650\n"),
                ("pod/free/memory.max", "max\n"),
                ("pod/free/memory.current", "1\n"),
                ("alone/memory.max", "max\n"),
                ("alone/memory.current", "5\n"),
                ("over/memory.max", "10\n"),
                ("over/memory.current", "11\n"),
            ],
        );
        let left = |path: &str| cgroup_memory_left_bytes(&folder.0, &format!("0::{path}\n"));
        assert_eq!(left("/pod/box"), Some(250), "its own `high`");
        assert_eq!(left("/pod/free"), Some(500), "its parent's, without the files that can be dropped");
        assert_eq!(left("/alone"), None);
        assert_eq!(left("/over"), Some(0));
        assert_eq!(left("/of/the/host"), None, "the root of the mount has no limit");
    }

    #[test]
    fn a_container_sees_its_limit_at_the_root_of_its_mount() {
        let version_1 = Folder::of(
            "cgroup1",
            &[
                ("memory/memory.limit_in_bytes", "4096\n"),
                ("memory/memory.usage_in_bytes", "1096\n"),
                ("memory/memory.stat", "inactive_file 7\ntotal_inactive_file 96\n"),
            ],
        );
        let membership = "3:memory:/docker/abc\n0::/system.slice\n";
        assert_eq!(cgroup_memory_left_bytes(&version_1.0, membership), Some(3096));
        let version_2 = Folder::of("cgroup2-root", &[("memory.max", "4096\n"), ("memory.current", "96\n")]);
        assert_eq!(cgroup_memory_left_bytes(&version_2.0, "0::/docker/abc\n"), Some(4000));
    }

    #[test]
    fn available_memory_is_in_bytes() {
        assert_eq!(parse_mem_available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert!(available_memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn a_thread_that_is_bound_to_a_processor_may_use_one() {
        let bound = std::thread::spawn(|| {
            let mut first = CpuSet::new();
            let usable = rustix::thread::sched_getaffinity(None).unwrap();
            first.set((0..CpuSet::MAX_CPU).find(|cpu| usable.is_set(*cpu)).unwrap());
            rustix::thread::sched_setaffinity(None, &first).unwrap();
            usable_cpus()
        });
        assert_eq!(bound.join().unwrap(), 1);
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(["0", "0-1\n", "0-3,8", "", "x", "3-1"].map(count_cpus), [1, 2, 5, 0, 0, 0]);
    }
}
