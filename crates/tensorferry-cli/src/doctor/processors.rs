//! Processors: whether it pays to wait without sleeping.

use tensorferry_os::limits;

use super::finding::Finding;

pub(super) fn check() -> Finding {
    let check = "processors";
    let usable = limits::usable_cpus();
    if limits::others_run_beside() {
        Finding::works(check, format!("{usable} to use; who waits spins first where that pays"))
    } else {
        Finding::limited(
            check,
            "one, so that each message costs a wake-up: some microseconds instead of less than one",
            "give the machine two processors",
        )
    }
}
