//! Who wants a scan for what the dead have sent.
//!
//! Who lets go of something that may be the last to name what a dead member had sent looks through all messages soon
//! afterwards, because nobody else knows of it. It says so before it lets go. Then others can do it where it stands still
//! meanwhile (SIGSTOP), or has left.

use std::sync::atomic::Ordering;

use crate::layout::{header, slot};
use crate::member::Slot;
use crate::{Member, Memory, Phase};

impl Memory {
    /// Says that this member wants a scan: before it lets go of what makes one necessary.
    pub fn want_scan(&self) {
        if let Some(own) = self.slot(self.me().slot) {
            own.words[slot::SCANS_WANTED].fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How often this member has wanted a scan.
    #[must_use]
    pub fn scans_wanted(&self) -> u64 {
        self.slot(self.me().slot).map_or(0, |own| own.words[slot::SCANS_WANTED].load(Ordering::SeqCst))
    }

    /// Says that what was wanted up to [`Memory::scans_wanted`] was done, or was not necessary.
    pub fn note_scanned(&self, wanted: u64) {
        if let Some(own) = self.slot(self.me().slot) {
            own.words[slot::SCANS_DONE].fetch_max(wanted, Ordering::SeqCst);
        }
    }

    /// The other live members who want a scan that they have not made yet, each with how often it has wanted one. Who runs makes
    /// it soon, or wants another one: the same twice is from one who stands still.
    pub fn members_wanting_scans(&self) -> impl Iterator<Item = (Member, u64)> + '_ {
        let me = self.me().slot;
        self.slots().filter(move |(index, _)| *index != me).filter_map(|(index, entry)| {
            let state = entry.state();
            let wanted = pending_request(entry).filter(|_| state.phase == Phase::Live)?;
            Some((Member { slot: index, epoch: state.epoch }, wanted))
        })
    }

    /// Members who wanted a scan and have left without it, if there are any since the last one that was made for such: to be
    /// told to [`Memory::note_scanned_for_leavers`] after a scan.
    #[must_use]
    pub fn scans_left(&self) -> Option<u64> {
        let done = self.header()[header::SCANS_LEFT_DONE].load(Ordering::SeqCst);
        let left = self.header()[header::SCANS_LEFT].load(Ordering::SeqCst);
        (left > done).then_some(left)
    }

    /// Says that a scan was made for those of [`Memory::scans_left`].
    pub fn note_scanned_for_leavers(&self, left: u64) {
        self.header()[header::SCANS_LEFT_DONE].fetch_max(left, Ordering::SeqCst);
    }

    /// Before this member leaves: passes on what it has not done.
    pub fn leave_scans(&self) {
        if self.slot(self.me().slot).and_then(pending_request).is_some() {
            self.header()[header::SCANS_LEFT].fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// How often a scan was wanted, where the last time it was not made yet.
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
