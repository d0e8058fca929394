//! Where a block goes when this process lets go of it: into the arena if it is ours, and otherwise back to its owner, who is told
//! by marks that a death at any instruction leaves readable.

use std::sync::atomic::{AtomicU64, Ordering};

use tensorferry_domain::{ExtentOwner, ExtentRun, planted};

use super::Inner;
use crate::arena::Arena;
use crate::header::{Kind, SUSPECT, line};
use crate::place::Place;
use crate::sweep::is_scanning;

impl Inner {
    /// This process's last handle on a block is gone.
    pub(super) fn let_go(&self, place: Place) {
        let Some(header) = self.places().header(place.header_offset_bytes) else { return };
        let me = self.memory.me();
        let extent = place.address.extent();
        // With a ring or a message goes what it names; what the dead had sent is named by nothing else. The header is asked last:
        // it is about to be written, and its line would come once for the look and once for the change.
        let suspicions = self.memory.suspicions() > 0;
        let names_others = suspicions && header.kind() != Kind::Plain;
        let may_want_scan =
            names_others || suspicions && header.holders().load(Ordering::SeqCst) & SUSPECT != 0;
        // A scan has announced itself.
        let announced = (may_want_scan && !is_scanning()).then(|| self.scan_requests.announce(&self.memory));
        if self.memory.extent_owner(extent) == ExtentOwner::Member(me) {
            let mut arena = self.arena();
            if arena.owns(extent) {
                // By now everybody else has often let go.
                let others = header.let_go(me.bit(), me.bit());
                if others == 0 {
                    arena.put_back(self.places(), place.address);
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
        self.mark_returned(place);
        let cleared = if planted("drop-keeps-bit") { 0 } else { me.bit() };
        let others = header.holders().fetch_and(!cleared, Ordering::SeqCst) & !me.bit();
        // Told once more: an owner that was about to give the extent up may have looked between the mark and the clear. Either
        // it sees the hint after it has given up, or we see that nobody owns the extent.
        if others == 0 && self.memory.hint_return(extent) == ExtentOwner::Nobody {
            self.adopt_orphan(extent);
        }
        self.scan_after(others, names_others);
        drop(announced);
    }

    /// A block was let go of, and `others` still hold it: whether only a scan can go on from here. A scan's own drop asks
    /// for another one only when it was the very last, because the real last holder has gone meanwhile and was not.
    fn scan_after(&self, others: u64, names_others: bool) {
        if (others == 0 || !is_scanning()) && (names_others || others == SUSPECT) {
            self.scan_requests.set_due();
            if others == SUSPECT {
                self.memory.wake_service();
            }
        }
    }

    /// Marks a block as returned: the block, then its slab, its head, its extent and its owner, so that the owner
    /// finds it from the top down. Comes before the holder bit is cleared; a block that is marked already costs
    /// one load of a line that the caller is about to write anyway.
    pub(crate) fn mark_returned(&self, place: Place) {
        let places = self.places();
        let Some(header) = places.header(place.header_offset_bytes) else { return };
        if header.returned().load(Ordering::SeqCst) == 0 {
            self.mark_returned_anew(place);
        }
    }

    /// As [`Inner::mark_returned`], also when the block says that it is marked: whoever said so may have been killed
    /// before the other marks.
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

    /// The last holder of a block in an extent that nobody owns gives its memory back.
    pub(crate) fn adopt_orphan(&self, extent: usize) {
        let mut arena = self.arena();
        if let Some(run) = self.memory.claim_released_at(extent) {
            self.adopt_and_trim(&mut arena, run);
        }
    }

    /// Gives a run up that this member has no use for.
    pub(super) fn give_back(&self, arena: &mut Arena, run: ExtentRun) {
        if let Some(run) = self.release(arena, run) {
            self.adopt_and_trim(arena, run);
        }
    }

    /// Releases a run. It is this member's again when somebody returned a block in it meanwhile, who saw us as the owner
    /// and left it to us.
    fn release(&self, arena: &mut Arena, run: ExtentRun) -> Option<ExtentRun> {
        arena.give_up(self.places(), run.first);
        self.memory.release_extents(run);
        self.memory.take_extent_returns(run.first).then(|| self.memory.claim_released_at(run.first)).flatten()
    }

    /// Gives back to the system what is free in runs that nobody owns: what the dead and the gone left behind, and nobody has
    /// looked through since. Returns how many bytes came together.
    pub(super) fn trim_released(&self, arena: &mut Arena) -> u64 {
        let released =
            (0..self.memory.extents_high_water()).filter_map(|extent| self.memory.claim_released_at(extent));
        released.map(|run| self.adopt_and_trim(arena, run)).sum()
    }

    /// Takes a run over, gives its free memory to the system, and the run itself to whoever needs it next. Blocks in it
    /// that are held stay as they are. Returns how many bytes came together.
    pub(crate) fn adopt_and_trim(&self, arena: &mut Arena, run: ExtentRun) -> u64 {
        let before = self.memory.populated_bytes();
        let mut mine = Some(run);
        while let Some(run) = mine {
            if arena.adopt(self.places(), run).is_ok() {
                arena.trim_run(self.places(), run.first);
            }
            mine = self.release(arena, run);
        }
        self.publish(arena);
        before.saturating_sub(self.memory.populated_bytes())
    }
}

fn set_bit(word: &AtomicU64, bit: usize) {
    let mask = 1_u64 << (bit % 64);
    if word.load(Ordering::SeqCst) & mask == 0 {
        word.fetch_or(mask, Ordering::SeqCst);
    }
}
