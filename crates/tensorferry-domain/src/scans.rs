//! Requests for a scan of the messages that dead members sent.
//!
//! A member may let go of the last thing that names what a dead member sent. It then scans all messages soon,
//! because no other member knows that a scan is needed. It records a request before it lets go, so that other
//! members can make the scan if it is stopped (SIGSTOP) or has left.

use std::sync::atomic::Ordering;

use crate::layout::{header, slot};
use crate::member::Slot;
use crate::{Member, Memory, Phase};

impl Memory {
    /// Records that this member wants a scan. Call it before letting go of what makes the scan necessary.
    pub fn want_scan(&self) {
        if let Some(own) = self.slot(self.me().slot) {
            own.words[slot::SCANS_WANTED].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How many times this member has wanted a scan.
    #[must_use]
    pub fn scans_wanted(&self) -> u64 {
        self.slot(self.me().slot).map_or(0, |own| own.words[slot::SCANS_WANTED].load(Ordering::SeqCst))
    }

    /// Records that the requests up to `wanted`, a value of [`Memory::scans_wanted`], were served or were not
    /// necessary.
    pub fn note_scanned(&self, wanted: u64) {
        if let Some(own) = self.slot(self.me().slot) {
            own.words[slot::SCANS_DONE].fetch_max(wanted, Ordering::SeqCst);
        }
    }

    /// The other live members that have a scan request pending, each with the number of its requests. A
    /// running member soon makes the scan or requests another one. A pair that is unchanged later therefore
    /// belongs to a stopped member.
    pub fn members_wanting_scans(&self) -> impl Iterator<Item = (Member, u64)> + '_ {
        let me = self.me().slot;
        self.slots().filter(move |(index, _)| *index != me).filter_map(|(index, entry)| {
            let state = entry.state();
            let wanted = pending_request(entry).filter(|_| state.phase == Phase::Live)?;
            Some((Member { slot: index, epoch: state.epoch }, wanted))
        })
    }

    /// A count of members that left with a scan request pending, if any did since the last scan for such
    /// members. Pass it to [`Memory::note_scanned_for_leavers`] after a scan.
    #[must_use]
    pub fn scans_left(&self) -> Option<u64> {
        let done = self.header()[header::SCANS_LEFT_DONE].load(Ordering::SeqCst);
        let left = self.header()[header::SCANS_LEFT].load(Ordering::SeqCst);
        (left > done).then_some(left)
    }

    /// Records that a scan was made for the members that [`Memory::scans_left`] counted.
    pub fn note_scanned_for_leavers(&self, left: u64) {
        self.header()[header::SCANS_LEFT_DONE].fetch_max(left, Ordering::SeqCst);
    }

    /// Before this member leaves: passes on a request that it has not served.
    pub fn leave_scans(&self) {
        if self.slot(self.me().slot).and_then(pending_request).is_some() {
            self.header()[header::SCANS_LEFT].fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The number of requests of a member, if the last one was not served yet.
fn pending_request(entry: Slot<'_>) -> Option<u64> {
    let done = entry.words[slot::SCANS_DONE].load(Ordering::SeqCst);
    let wanted = entry.words[slot::SCANS_WANTED].load(Ordering::SeqCst);
    (wanted > done).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tensorferry_os::pidfd::PidFd;

    use super::*;
    use crate::Domain;

    #[test]
    fn what_a_member_wants_is_known_to_others_and_passed_on_when_it_leaves() {
        let domain = Domain::builder().address_space_bytes(64 << 20).create().unwrap();
        let admission = domain.admit(&PidFd::of_self().unwrap()).unwrap();
        let other = Domain::join(domain.fds().unwrap(), admission).unwrap();
        let (mine, theirs) = (Memory::over(Arc::clone(&domain)), Memory::over(Arc::clone(&other)));
        let wanting = || mine.members_wanting_scans().collect::<Vec<_>>();
        assert_eq!((wanting(), mine.scans_left()), (vec![], None));
        theirs.want_scan();
        theirs.want_scan();
        assert_eq!(wanting(), [(other.me(), 2)]);
        assert_eq!(theirs.members_wanting_scans().count(), 0, "not oneself");
        theirs.note_scanned(theirs.scans_wanted());
        assert_eq!(wanting(), []);
        // An older answer does not take a newer one back.
        theirs.note_scanned(1);
        assert_eq!(wanting(), []);
        theirs.leave_scans();
        assert_eq!(mine.scans_left(), None, "there is nothing left to do");
        theirs.want_scan();
        drop((theirs, other));
        assert_eq!((wanting(), mine.scans_left()), (vec![], Some(1)));
        mine.note_scanned_for_leavers(1);
        assert_eq!(mine.scans_left(), None);
    }
}
