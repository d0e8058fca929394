//! The kernel: its version, and what newer ones do better.

use std::fs;
use std::time::Duration;

use tensorferry_os::mapping::{PAGE_BYTES, page_bytes};
use tensorferry_os::pidfd::PidFd;
use tensorferry_queue::{Queue, WaitAnyError, wait_timeout};

use super::finding::Finding;

/// The oldest one that has everything that is needed: `MADV_POPULATE_WRITE` of madvise(2).
const OLDEST: (u32, u32) = (5, 14);

/// The kernel's version.
pub(super) fn version() -> Finding {
    let check = "kernel";
    let Ok(release) = fs::read_to_string("/proc/sys/kernel/osrelease") else {
        return Finding::missing(check, "/proc cannot be read", "mount /proc (mount -t proc proc /proc)");
    };
    let release = release.trim();
    match parse(release) {
        Some(version) if version < OLDEST => Finding::missing(
            check,
            format!("Linux {release}"),
            format!("use Linux {}.{} or later", OLDEST.0, OLDEST.1),
        ),
        _ => Finding::works(check, format!("Linux {release}")),
    }
}

/// The size of its pages.
pub(super) fn pages() -> Finding {
    of_pages(page_bytes())
}

fn of_pages(page_bytes: usize) -> Finding {
    let (check, what) = ("pages", format!("{} KiB", page_bytes / 1024));
    if page_bytes == PAGE_BYTES {
        return Finding::works(check, what);
    }
    let fix = format!("use a kernel with pages of {} KiB", PAGE_BYTES / 1024);
    Finding::missing(check, what, fix)
}

/// What some kernels have, and some filters of system calls forbid.
pub(super) fn check() -> Vec<Finding> {
    vec![identity(), wait_for_several()]
}

fn identity() -> Finding {
    let check = "process identity";
    let identity = PidFd::of_self().and_then(|own| own.identity());
    match identity {
        Err(error) => Finding::missing(
            check,
            error.to_string(),
            "allow pidfd_open and fstat (seccomp), and use Linux 5.3 or later",
        ),
        Ok(identity) if !identity.is_known() => Finding::missing(
            check,
            "processes cannot be told from later ones with the same number",
            "mount /proc, or use Linux 6.9 or later",
        ),
        Ok(identity) if identity.inode == 0 => Finding::limited(
            check,
            "processes are told apart by the time of their start, which takes some system calls more",
            "use Linux 6.9 or later",
        ),
        Ok(_) => Finding::works(check, "by pidfd"),
    }
}

fn wait_for_several() -> Finding {
    let check = "waiting for several queues";
    let fix = "use Linux 5.16 or later, and allow futex_waitv (seccomp)";
    let queues = || Ok::<_, tensorferry_queue::StorageError>([Queue::<u8>::new(1)?, Queue::<u8>::new(1)?]);
    match queues() {
        Err(error) => Finding::missing(check, error.to_string(), "see above"),
        Ok([one, other]) => match wait_timeout(&[&one, &other], Duration::from_millis(1)) {
            Ok(_) | Err(WaitAnyError::TimedOut) => Finding::works(check, "futex_waitv"),
            Err(error) => Finding::limited(check, error.to_string(), fix),
        },
    }
}

/// The first two numbers of a release such as `6.18.0-rc1+`.
fn parse(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Verdict;

    #[test]
    fn pages_of_another_size_are_missing() {
        assert_eq!(of_pages(4096).verdict, Verdict::Works);
        let large = of_pages(65_536);
        assert_eq!((large.verdict, large.what.as_str()), (Verdict::Missing, "64 KiB"));
        assert_eq!(large.fix.unwrap(), "use a kernel with pages of 4 KiB");
    }

    #[test]
    fn releases_are_understood() {
        assert_eq!(parse("6.18.5"), Some((6, 18)));
        assert_eq!(parse("5.14-generic"), Some((5, 14)));
        assert_eq!(["", "x", "6", "6.x"].map(parse), [None; 4]);
    }
}
