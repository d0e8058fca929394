//! Requests for a scan: this process's own, and those of processes that are stalled or have left.
//!
//! Some blocks and roles that come back can be freed of suspicion only by a scan (`sweep.rs`), and only the
//! process that lets go of them knows that. That process scans soon. It may be stopped before that. So it
//! posts a request in shared memory before it lets go, and takes the request back only when a scan that began
//! later has finished. Other processes scan for a request that has stood for too long.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tensorferry_domain::{Member, Memory};

/// How long another process has to want the same scan before it counts as stalled.
const STALL_AFTER: Duration = Duration::from_millis(500);
/// How long until another scan is made for a process that is still stalled. It may have run for a moment in
/// between.
const RESCAN_STALLED_AFTER: Duration = Duration::from_secs(8);

/// The first and the longest pause between two scans for what is suspect, while nobody has died and nobody
/// has let go of anything.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// The requests that this process knows of.
#[derive(Debug, Default)]
pub(crate) struct ScanRequests {
    /// When this process scans for what it knows to be suspect, though nobody has asked.
    unasked: Mutex<Unasked>,
    /// This process has let go of something since its last scan began.
    is_due: AtomicBool,
    /// How many threads are about to let go of something, or are scanning. The request stays until they are
    /// done.
    n_busy: AtomicU32,
    others: Mutex<Vec<Standing>>,
}

/// Scans that nobody has asked for. Whoever lets go of the last thing that names a suspect block asks for a
/// scan, so these are for the case that its request was lost with it. What names the block may live long, as
/// a bundle does whose maker has ended.
#[derive(Debug, Default)]
struct Unasked {
    /// The count of suspicions at the last of them.
    suspicions: u64,
    /// When it was, and how long until the next.
    last: Option<(Instant, Duration)>,
}

/// Another process that wants a scan.
#[derive(Clone, Copy, Debug)]
struct Standing {
    member: Member,
    wanted: u64,
    /// When it was first seen, or last scanned for.
    since: Instant,
    pause: Duration,
}

/// The other processes for which a scan is made.
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

/// While this value exists, other processes see that this one may want a scan.
#[derive(Debug)]
pub(crate) struct Announced<'a> {
    scan_requests: &'a ScanRequests,
    memory: &'a Memory,
}

impl ScanRequests {
    /// Posts a request in shared memory. Called before something is let go of, and before a scan begins.
    pub(crate) fn announce<'a>(&'a self, memory: &'a Memory) -> Announced<'a> {
        self.n_busy.fetch_add(1, Ordering::SeqCst);
        memory.want_scan();
        Announced { scan_requests: self, memory }
    }

    /// Notes that this process has to scan soon.
    pub(crate) fn set_due(&self) {
        self.is_due.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_due(&self) -> bool {
        self.is_due.load(Ordering::SeqCst)
    }

    /// Notes that a scan begins, so that none is due. What is let go of from here on makes another one due.
    pub(crate) fn clear_due(&self) {
        // A swap, which acquires what was done before the flag was set that it takes.
        self.is_due.swap(false, Ordering::SeqCst);
    }

    /// How long until a scan for what is suspect that nobody has asked for; zero after another death.
    pub(crate) fn until_unasked(&self, memory: &Memory) -> Duration {
        let unasked = self.unasked();
        match unasked.last {
            Some((at, pause)) if unasked.suspicions == memory.suspicions() => {
                pause.saturating_sub(at.elapsed())
            }
            _ => Duration::ZERO,
        }
    }

    /// Notes that such a scan begins.
    pub(crate) fn note_unasked(&self, memory: &Memory) {
        let mut unasked = self.unasked();
        let suspicions = memory.suspicions();
        let pause = match unasked.last {
            Some((_, pause)) if unasked.suspicions == suspicions => (pause * 2).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        *unasked = Unasked { suspicions, last: Some((Instant::now(), pause)) };
    }

    fn unasked(&self) -> MutexGuard<'_, Unasked> {
        self.unasked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The other processes for which a scan is to be made now.
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

    /// Notes that a scan was finished which had begun after [`ScanRequests::of_others`] returned `answered`.
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
    /// Takes the request back, unless a scan is due or another thread is about to make one due.
    fn drop(&mut self) {
        self.scan_requests.n_busy.fetch_sub(1, Ordering::SeqCst);
        // Read first: a thread that announces from here on increments it.
        let wanted = self.memory.scans_wanted();
        if self.scan_requests.n_busy.load(Ordering::SeqCst) == 0 && !self.scan_requests.is_due() {
            self.memory.note_scanned(wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use tensorferry_domain::Domain;

    use super::*;
    use crate::Heap;

    #[test]
    fn scans_that_nobody_has_asked_for_become_rare_until_somebody_dies() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let memory = &heap.inner().memory;
        let requests = ScanRequests::default();
        assert_eq!(requests.until_unasked(memory), Duration::ZERO);
        let pause = || requests.unasked().last.unwrap().1;
        let pauses = [(); 8].map(|()| {
            requests.note_unasked(memory);
            assert!(requests.until_unasked(memory) <= pause());
            pause().as_millis()
        });
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 3200, 6400, 8000]);
        memory.count_suspicion();
        assert_eq!(requests.until_unasked(memory), Duration::ZERO, "what it left has to be looked at");
        requests.note_unasked(memory);
        assert_eq!(pause(), FIRST_PAUSE);
    }
}
