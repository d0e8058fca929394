//! What this process says about itself.

use std::fs;

use anyhow::Context as _;
use rustix::time::{ClockId, clock_gettime};

/// The clock that all processes share, in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// How often this process touched a page that was not mapped yet.
///
/// # Errors
/// When the kernel does not tell.
pub fn minor_faults() -> anyhow::Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name, in brackets, may hold anything.
    let after_name = stat.rsplit_once(") ").context("no name in /proc/self/stat")?.1;
    Ok(after_name.split(' ').nth(7).context("no count of faults in /proc/self/stat")?.parse()?)
}

/// Memory that belongs to this process alone.
///
/// # Errors
/// When the kernel does not tell.
pub fn private_bytes() -> anyhow::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}

/// How many descriptors are open.
///
/// # Errors
/// When the kernel does not tell.
pub fn open_descriptors() -> anyhow::Result<usize> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells() {
        let (faults, private) = (minor_faults().unwrap(), private_bytes().unwrap());
        let held = vec![1_u8; 8 << 20];
        assert!(minor_faults().unwrap() > faults);
        assert!(private_bytes().unwrap() > private);
        assert!(open_descriptors().unwrap() >= 3);
        assert!(now_ns() > 0 && held[4096] == 1);
    }
}
