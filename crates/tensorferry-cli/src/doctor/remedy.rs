//! What to do about an error, by what the kernel has said.

/// The remedy of an error that has one whatever was tried: a limit that was reached. `None` for others.
pub(super) fn of_limit(error: &str) -> Option<&'static str> {
    let of = [
        // EMFILE, ENFILE.
        ("(os error 24)", "raise the limit of descriptors (ulimit -n)"),
        ("(os error 23)", "the machine has no descriptor left: raise fs.file-max"),
        // EAGAIN of a thread or a process.
        ("(os error 11)", "raise the limit of processes and threads (ulimit -u, pids.max)"),
        ("RLIMIT_AS", "raise the limits of address space and of a file's size (ulimit -v, ulimit -f)"),
        ("(os error 27)", "raise the limit of a file's size (ulimit -f)"),
        (
            "(os error 12)",
            "free memory, or raise the limit of the cgroup (memory.max) or of address space (ulimit -v)",
        ),
        ("out of shared memory", "free memory, or raise the limit of the cgroup (memory.max)"),
    ];
    of.into_iter().find(|(text, _)| error.contains(text)).map(|(_, remedy)| remedy)
}

/// As [`of_limit`], with what to do where no limit was reached.
pub(super) fn of(error: &str, otherwise: &'static str) -> &'static str {
    of_limit(error).unwrap_or(otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_was_reached_is_named() {
        let error = std::io::Error::from_raw_os_error(24).to_string();
        assert!(of(&error, "else").contains("ulimit -n"));
        assert_eq!(of("memfd_create failed: Operation not permitted (os error 1)", "else"), "else");
    }
}
