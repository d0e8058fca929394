//! Where a block goes when this process lets go of it: into the arena if this process owns the extent, and
//! otherwise back to its owner. Marks in shared memory tell the owner, and a death at any instruction leaves
//! them readable.

use std::sync::atomic::{AtomicU64, Ordering};

use tensorferry_domain::{ExtentOwner, ExtentRun, planted};

use super::Inner;
use crate::arena::Arena;
use crate::geometry::Place;
use crate::header::{Header, SUSPECT, line};
use crate::scan::is_scanning;

impl Inner {
    /// Lets go of a block: this process's last handle on it is gone.
    pub(super) fn let_go(&self, header: Header<'_>, place: Place) {
        let me = self.memory.me();
        let extent = place.address.extent();
        // A ring or a message names other blocks. If a dead member sent it, nothing else may name them. The
        // header is read last: this process is about to write it, and its line would otherwise come once for
        // the read and once for the write.
        let has_died = self.memory.suspicions() > 0;
        let names_others = has_died && header.kind().names_others();
        let may_want_scan =
            names_others || has_died && header.holders().load(Ordering::SeqCst) & SUSPECT != 0;
        // A scan has announced itself already.
        let announced = (may_want_scan && !is_scanning()).then(|| self.scan_requests.announce(&self.memory));
        if self.memory.extent_owner(extent) == ExtentOwner::Member(me) {
            let mut arena = self.arena();
            if arena.owns(extent) {
                // The likely case: all other members have let go already.
                let others = header.let_go(me.bit(), me.bit());
                if others == 0 {
                    arena.put_back(self.places(), place.address, header);
                    self.publish(&arena);
                }
                drop(arena);
                self.scan_after(others, names_others);
                drop(announced);
                return;
            }
        }
        if planted("drop-clears-before-mark") {
            header.holders().fetch_and(!me.bit(), Ordering::SeqCst);
        }
        self.mark_returned(header, place);
        let cleared = if planted("drop-keeps-bit") { 0 } else { me.bit() };
        let others = header.holders().fetch_and(!cleared, Ordering::SeqCst) & !me.bit();
        // The hint is given a second time: an owner that was about to give up the extent may have looked
        // between the mark and the clear. Either that owner sees this hint after it has given up the extent,
        // or this process sees here that the extent has no owner.
        if others == 0 && self.memory.hint_return(extent) == ExtentOwner::Nobody {
            self.adopt_orphan(extent);
        }
        self.scan_after(others, names_others);
        drop(announced);
    }

    /// Called after a block was let go of, with its remaining holders in `others`. Makes a scan due if only a
    /// scan can free more from here on. A drop that is part of a scan makes another scan due only if it was
    /// the very last: the real last holder left meanwhile, when it was not yet the last. Whether anything is
    /// suspect is read only now: the scan of a later sweep finds that the block was let go of.
    fn scan_after(&self, others: u64, names_others: bool) {
        let may_free_others = names_others && self.memory.may_have_suspects();
        if (others == 0 || !is_scanning()) && (may_free_others || others == SUSPECT) {
            // Where no service thread has been needed so far, the request stands, and others scan for it.
            self.scan_requests.set_due();
            if others == SUSPECT {
                self.memory.wake_service();
            }
        }
    }

    /// Marks a block as returned: the block, then its slab, its head, its extent and its owner, so that the
    /// owner finds it from the top down. The mark comes before the holder bit is cleared. If the block is
    /// marked already, this costs one load of a line that the caller is about to write anyway.
    #[inline]
    fn mark_returned(&self, header: Header<'_>, place: Place) {
        if header.returned().load(Ordering::SeqCst) == 0 {
            self.mark_returned_anew(place);
        }
    }

    /// As [`Inner::mark_returned`], but makes all marks even if the block is marked already: the process that
    /// marked it may have been killed before the other marks.
    pub(crate) fn mark_returned_anew(&self, place: Place) {
        let places = self.places();
        let Some(header) = places.header(place.header_offset_bytes) else { return };
        header.returned().store(1, Ordering::SeqCst);
        let address = place.address;
        let span = places.span(address.extent(), address.line());
        if span.is_some_and(|span| span.class.is_slab())
            && let Some(words) = places.head_line(address.extent(), address.line())
        {
            set_bit(&words[line::RETURNED], address.index());
        }
        if let Some(word) =
            places.summary(address.extent()).and_then(|summary| summary.get(address.line() / 64))
        {
            set_bit(word, address.line() % 64);
        }
        self.memory.hint_return(address.extent());
    }

    /// Called by the last holder of a block in an extent without an owner: gives its memory back.
    pub(crate) fn adopt_orphan(&self, extent: usize) {
        let mut arena = self.arena();
        if let Some(run) = self.memory.claim_released_at(extent) {
            self.adopt_and_trim(&mut arena, run);
        }
    }

    /// Gives up a run that this member has no use for.
    pub(super) fn give_back(&self, arena: &mut Arena, run: ExtentRun) {
        if let Some(run) = self.release(arena, run) {
            self.adopt_and_trim(arena, run);
        }
    }

    /// Releases a run. Returns it, claimed again, if another member returned a block in it meanwhile: that
    /// member saw this one as the owner, and left the block to it.
    fn release(&self, arena: &mut Arena, run: ExtentRun) -> Option<ExtentRun> {
        arena.give_up(self.places(), run.first);
        self.memory.release_extents(run);
        self.memory.take_extent_returns(run.first).then(|| self.memory.claim_released_at(run.first)).flatten()
    }

    /// Gives free memory in runs without an owner back to the system: runs of members that died or left,
    /// which no member has looked through since. Returns how many bytes it gave back.
    pub(super) fn trim_released(&self, arena: &mut Arena) -> u64 {
        let released =
            (0..self.memory.extents_high_water()).filter_map(|extent| self.memory.claim_released_at(extent));
        released.map(|run| self.adopt_and_trim(arena, run)).sum()
    }

    /// Takes over a run, gives its free memory to the system, and releases the run to any member. Blocks in
    /// it that are held stay as they are. Returns how many bytes were given back.
    pub(crate) fn adopt_and_trim(&self, arena: &mut Arena, run: ExtentRun) -> u64 {
        let mut given_back = 0;
        let mut mine = Some(run);
        while let Some(run) = mine {
            // Of this run alone, which is this process's meanwhile: others populate memory of theirs.
            let before = self.memory.populated_bytes_of(run);
            if arena.adopt(self.places(), run).is_ok() {
                arena.trim_run(self.places(), run.first);
            }
            given_back += before.saturating_sub(self.memory.populated_bytes_of(run));
            mine = self.release(arena, run);
        }
        self.publish(arena);
        given_back
    }
}

fn set_bit(word: &AtomicU64, bit: usize) {
    let mask = 1_u64 << (bit % 64);
    if word.load(Ordering::SeqCst) & mask == 0 {
        word.fetch_or(mask, Ordering::SeqCst);
    }
}
