//! Shared memory: the file, the room that it has, and what a process may have open.

use std::time::Instant;

use tensorferry_domain::{Domain, DomainError};
use tensorferry_os::limits;
use tensorferry_sharing::get_all_sharing_strategies;
use tensorferry_storage::Heap;

use super::finding::Finding;
use super::remedy;
use crate::bytes::bytes;

/// The address space of a domain that nothing limits.
const WHOLE_BYTES: usize = 1 << 40;
/// Less than this is little for tensors.
const LITTLE_BYTES: u64 = 64 << 20;
/// How much is populated to see whether it can be.
const PROBE_BYTES: usize = 16 << 20;
/// A process with fewer descriptors has none to spare: its own files, a domain, and some for each process
/// that it starts.
const FEW_DESCRIPTORS: u64 = 32;

pub(super) fn check() -> Vec<Finding> {
    let mut findings = Vec::new();
    match Domain::builder().create() {
        Err(error) => findings.push(no_domain(&error)),
        Ok(domain) => {
            let strategies = get_all_sharing_strategies();
            let names = strategies.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            findings.push(Finding::works("memory file", format!("sealed, by {names}")));
            findings.push(address_space(domain.layout().data_len_bytes));
            // What the address space has no room for cannot be had.
            findings.push(limit(domain.limit_bytes(), domain.layout().data_len_bytes as u64));
        }
    }
    findings.push(populate());
    findings.push(descriptors());
    findings
}

fn no_domain(error: &DomainError) -> Finding {
    let text = error.to_string();
    let otherwise = match error {
        DomainError::Os(error) if error.call().contains("/proc") => "mount /proc",
        _ => "allow memfd_create, fcntl with seals and locks, mmap and pidfd_open (seccomp)",
    };
    let fix = remedy::of(&text, otherwise);
    Finding::missing("memory file", text, fix)
}

fn address_space(len_bytes: usize) -> Finding {
    let check = "address space";
    let has = bytes(len_bytes as u64);
    if len_bytes >= WHOLE_BYTES {
        return Finding::works(check, format!("{has} for each domain"));
    }
    let whole = bytes(WHOLE_BYTES as u64);
    let fix = "raise the limits of address space and of a file's size (ulimit -v, ulimit -f)";
    Finding::limited(check, format!("{has} for each domain, {whole} where nothing limits it"), fix)
}

fn limit(limit_bytes: u64, address_space_bytes: u64) -> Finding {
    let check = "memory";
    let by_hand = "give each domain a limit (Domain::builder().limit_bytes)";
    if limit_bytes == u64::MAX {
        let what = "how much is available cannot be read, so that domains have no limit";
        return Finding::limited(check, what, format!("mount /proc, or {by_hand}"));
    }
    let has = bytes(limit_bytes.min(address_space_bytes));
    if address_space_bytes < limit_bytes {
        return Finding::works(check, format!("{has} for each domain: all of its address space"));
    }
    if limit_bytes < LITTLE_BYTES {
        let fix = "stop what uses memory, or raise the limit of the cgroup (memory.max, docker run --memory)";
        return Finding::limited(check, format!("{has} for each domain made now"), fix);
    }
    Finding::works(check, format!("{has} for each domain made now: nine tenths of what is available"))
}

fn populate() -> Finding {
    let check = "fresh memory";
    let start = Instant::now();
    let populated = Heap::current().and_then(|heap| heap.allocate(PROBE_BYTES));
    let took = start.elapsed();
    match populated {
        Ok(_) => Finding::works(check, format!("{} in {took:.1?}", bytes(PROBE_BYTES as u64))),
        Err(error) => {
            let text = error.to_string();
            let otherwise = "use Linux 5.14 or later, and allow madvise with MADV_POPULATE_WRITE (seccomp)";
            let fix = remedy::of(&text, otherwise);
            Finding::missing(check, text, fix)
        }
    }
}

fn descriptors() -> Finding {
    let check = "descriptors";
    let fix = "raise the limit (ulimit -n)";
    match limits::open_files() {
        None => Finding::works(check, "as many as there are"),
        Some(limit) if limit < FEW_DESCRIPTORS => {
            Finding::limited(check, format!("{limit} for each process, which are few"), fix)
        }
        Some(limit) => Finding::works(check, format!("{limit} for each process; a domain needs few")),
    }
}
