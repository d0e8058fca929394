//! Requests for a scan: this process's own, and those of others who are stalled or have left.
//!
//! A block or a role may come back that only a scan can free of its suspicion (`sweep.rs`), and only the process that lets
//! go of it knows. That process scans soon. In case it is stopped before that, it posts a request in shared memory before
//! it lets go, and takes the request back only when a scan that began later has been finished; others scan for a request
//! that stands for too long.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tensorferry_domain::{Member, Memory};

/// How long another process wants the same scan before it counts as stalled.
const STALL_AFTER: Duration = Duration::from_millis(500);
/// How long until a scan is made once more for one that still does: it may have gone on for a moment in between.
const RESCAN_STALLED_AFTER: Duration = Duration::from_secs(8);

/// The requests that this process knows of.
#[derive(Debug, Default)]
pub(crate) struct ScanRequests {
    /// This process has let go of something since its last scan began.
    is_due: AtomicBool,
    /// How many threads are about to let go of something, or scan: until they are done, the request stays.
    n_busy: AtomicU32,
    others: Mutex<Vec<Standing>>,
}

/// Another process that wants a scan.
#[derive(Clone, Copy, Debug)]
struct Standing {
    member: Member,
    wanted: u64,
    /// Since when it is known, or was scanned for.
    since: Instant,
    pause: Duration,
}

/// For whom a scan is made, besides this process.
#[derive(Debug, Default)]
pub(crate) struct ForOthers {
    standing: Vec<(Member, u64)>,
    left: Option<u64>,
}

impl ForOthers {
    pub(crate) fn is_empty(&self) -> bool {
        self.standing.is_empty() && self.left.is_none()
    }
}

/// While this is there, other processes know that this one may want a scan.
#[derive(Debug)]
pub(crate) struct Announced<'a> {
    scan_requests: &'a ScanRequests,
    memory: &'a Memory,
}

impl ScanRequests {
    /// Says in shared memory that a scan may be wanted, from before something is let go of or a scan begins.
    pub(crate) fn announce<'a>(&'a self, memory: &'a Memory) -> Announced<'a> {
        self.n_busy.fetch_add(1, Ordering::SeqCst);
        memory.want_scan();
        Announced { scan_requests: self, memory }
    }

    /// This process is to scan, soon.
    pub(crate) fn set_due(&self) {
        self.is_due.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::SeqCst)
    }

    /// Whether this process was to scan. What is let go of from here on makes another scan due.
    pub(crate) fn take_due(&self) -> bool {
        self.is_due.swap(false, Ordering::SeqCst)
    }

    /// Others that a scan is to be made for now.
    pub(crate) fn of_others(&self, memory: &Memory) -> ForOthers {
        if memory.suspicions() == 0 {
            return ForOthers::default();
        }
        let now = Instant::now();
        let mut known = self.others();
        let wanting = memory.members_wanting_scans().map(|(member, wanted)| {
            let same = known.iter().find(|known| (known.member, known.wanted) == (member, wanted));
            same.copied().unwrap_or(Standing { member, wanted, since: now, pause: STALL_AFTER })
        });
        *known = wanting.collect();
        let due = known.iter().filter(|known| now.duration_since(known.since) >= known.pause);
        let standing = due.map(|known| (known.member, known.wanted)).collect();
        ForOthers { standing, left: memory.scans_left() }
    }

    /// A scan was finished that had begun after [`ScanRequests::of_others`] answered this.
    pub(crate) fn note_scanned(&self, memory: &Memory, answered: &ForOthers) {
        let now = Instant::now();
        for known in &mut *self.others() {
            if answered.standing.contains(&(known.member, known.wanted)) {
                (known.since, known.pause) = (now, RESCAN_STALLED_AFTER);
            }
        }
        if let Some(left) = answered.left {
            memory.note_scanned_for_leavers(left);
        }
    }

    fn others(&self) -> MutexGuard<'_, Vec<Standing>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Announced<'_> {
    /// Takes the request back if no scan is due, and no other thread is about to make one so.
    fn drop(&mut self) {
        self.scan_requests.n_busy.fetch_sub(1, Ordering::SeqCst);
        // In this order: whoever announces from here on counts up.
        let wanted = self.memory.scans_wanted();
        if self.scan_requests.n_busy.load(Ordering::SeqCst) == 0 && !self.scan_requests.is_due() {
            self.memory.note_scanned(wanted);
        }
    }
}
