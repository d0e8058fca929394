//! The identity of the process and driver that a handle came from. A later process with the same number has
//! another identity.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// A driver in a process. Several drivers in one process have different identities, as processes do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) pid: u32,
    /// The start time of the process, in clock ticks since boot: field 22 of proc_pid_stat(5).
    pub(crate) start_ticks: u64,
    pub(crate) instance: u32,
}

/// The drivers of this process that are not dropped yet.
static LIVING: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

impl Identity {
    /// The identity of a new driver of this process. Dropping the driver calls [`Identity::end`].
    pub(crate) fn begin() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let instance = NEXT.fetch_add(1, Ordering::Relaxed);
        LIVING.lock().unwrap_or_else(PoisonError::into_inner).insert(instance);
        let pid = std::process::id();
        Self { pid, start_ticks: start_ticks(pid).unwrap_or(0), instance }
    }

    pub(crate) fn end(self) {
        LIVING.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.instance);
    }

    /// Whether the process runs and the driver in it still exists.
    pub(crate) fn is_alive(&self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks) && has_instance(self.pid, self.instance)
    }
}

/// Whether a process with this number and this low half of its start time runs.
pub(crate) fn runs(pid: u32, start_low: u32) -> bool {
    start_ticks(pid).is_some_and(|start| start & 0xffff_ffff == u64::from(start_low))
}

/// Whether a running process still has this driver. For other processes this cannot be known, and the answer
/// is true.
pub(crate) fn has_instance(pid: u32, instance: u32) -> bool {
    pid != std::process::id() || LIVING.lock().unwrap_or_else(PoisonError::into_inner).contains(&instance)
}

/// The start time of the process with this number. `None` if there is no such process, or if it has ended and
/// was not reaped.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in parentheses, which may contain anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    (!matches!(state, "Z" | "X")).then(|| fields.nth(18)?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_lives_as_long_as_its_driver_and_its_process() {
        let identity = Identity::begin();
        assert!(identity.start_ticks > 0 && identity.is_alive());
        assert!(
            !Identity { start_ticks: identity.start_ticks + 1, ..identity }.is_alive(),
            "another process"
        );
        assert!(!Identity { pid: 0, ..identity }.is_alive());
        identity.end();
        assert!(!identity.is_alive());
    }
}
