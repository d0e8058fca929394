//! A scan: which blocks the messages of dead members still name. All others are no longer suspect.
//!
//! `sweep.rs` says how it belongs to a sweep; it is made again when somebody has let go of what may have been
//! the last to name a suspect block (`scan_requests.rs`).

use std::cell::Cell;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::attachments::RoleCounts;
use crate::geometry::Place;
use crate::header::{Kind, SUSPECT};
use crate::heap::{Heap, Inner};
use crate::named::Named;
use crate::ring_layout::RingWords;
use crate::sweep_ring::wake_all;
use crate::walk::{hold_as_found, hold_of_kind};

/// How often a scan is begun again because another member died meanwhile.
const MAX_SCANS: usize = 16;

thread_local! {
    /// Set while this thread holds and drops blocks only to look at them.
    static SCANNING: Cell<bool> = const { Cell::new(false) };
}

/// Whether a drop on this thread belongs to a scan. Such a drop must not ask for another scan.
pub(crate) fn is_scanning() -> bool {
    SCANNING.get()
}

/// Scans, but only if this process knows of a suspect, or of a process that wants a scan.
pub(crate) fn resolve_known_suspects(inner: &Inner) {
    if inner.has_suspects() {
        inner.scan_requests.note_unasked(&inner.memory);
        inner.scan_requests.set_due();
    }
    resolve_requested(inner);
}

/// Scans, but only if this process has let go of something that needs it, or if another process wants a scan
/// and cannot make it.
pub(crate) fn resolve_requested(inner: &Inner) {
    let _one_at_a_time = inner.resolving.lock().unwrap_or_else(PoisonError::into_inner);
    let of_others = inner.scan_requests.of_others(&inner.memory);
    let is_wanted = inner.scan_requests.is_due() || !of_others.is_empty();
    if is_wanted && let Some(heap) = inner.heap() {
        if resolve_suspects(inner, &heap) {
            inner.scan_requests.note_scanned(&inner.memory, &of_others);
        }
        let mut arena = inner.arena();
        arena.look_at_all_pending(inner.places());
        inner.publish(&arena);
    }
}

/// Makes a scan, and clears each SUSPECT bit that no message justifies. If members keep dying meanwhile, or
/// something cannot be read, the rest is left to the next tick. Returns whether nothing is left.
pub(crate) fn resolve_suspects(inner: &Inner, heap: &Heap) -> bool {
    let announced = inner.scan_requests.announce(&inner.memory);
    inner.scan_requests.clear_due();
    SCANNING.set(true);
    let mut finished = false;
    for _ in 0..MAX_SCANS {
        let scan = Scan { inner, heap, suspicions: inner.memory.suspicions() };
        // What cannot be read may name any block.
        let Ok(named) = Named::scan(inner.places(), heap) else { break };
        finished = scan.clear_unnamed(&named);
        if finished {
            break;
        }
    }
    SCANNING.set(false);
    if !finished {
        inner.scan_requests.set_due();
    }
    drop(announced);
    finished
}

/// One scan, with the count of suspicions when it began.
struct Scan<'a> {
    inner: &'a Inner,
    heap: &'a Heap,
    suspicions: u64,
}

impl Scan<'_> {
    /// Clears the marks that nothing names, and records it if none is left. Returns false when the scan is
    /// too old to decide.
    fn clear_unnamed(&self, named: &Named) -> bool {
        let mut any_left = false;
        let in_time = named.marked.iter().all(|place| self.clear_one(*place, named, &mut any_left));
        if in_time && !any_left {
            self.inner.memory.note_all_clear(self.suspicions);
        }
        in_time
    }

    fn clear_one(&self, place: Place, named: &Named, any_left: &mut bool) -> bool {
        let at = place.header_offset_bytes;
        let Some(header) = self.inner.places().header(at) else { return true };
        let mut in_time = true;
        if header.holders().load(Ordering::SeqCst) & SUSPECT != 0
            && !named.blocks.contains(&at)
            // The block is held while its mark is off. So it cannot be reused before the mark is known to
            // have been old, and if this process is killed here, its own bit leads a sweeper to the
            // block. A block that was reused already is not held.
            && let Ok(Some(_held)) = hold_as_found(self.heap, place, header)
        {
            self.inner.mark_returned_anew(place);
            in_time = self.clear(header.holders());
        }
        let ring = hold_of_kind(self.heap, place, header, Kind::Ring);
        *any_left |= ring.is_err() || header.holders().load(Ordering::SeqCst) & SUSPECT != 0;
        if let Ok(Some(block)) = ring
            && let Some(ring) = RingWords::of(&block)
        {
            let sends: fn(&RoleCounts) -> bool = |counts| counts.sends > 0;
            let receives: fn(&RoleCounts) -> bool = |counts| counts.receives > 0;
            for (word, named, is_attached) in
                [(ring.senders(), &named.senders, sends), (ring.receivers(), &named.receivers, receives)]
            {
                if word.load(Ordering::SeqCst) & SUSPECT != 0 && !named.contains(&at) {
                    let attachments = &self.inner.attachments;
                    let clear = || self.clear(word);
                    in_time = in_time && attachments.clear_mark(self.heap, at, word, is_attached, clear);
                    if ring.receivers().load(Ordering::SeqCst) == 0 && ring.has_messages() {
                        // The next scan discards them.
                        self.inner.scan_requests.set_due();
                    }
                    wake_all(&ring);
                }
                *any_left |= word.load(Ordering::SeqCst) & SUSPECT != 0;
            }
        }
        in_time
    }

    /// Clears the mark, unless it may have been made since the scan began. A sweeper counts before it makes a
    /// mark, so a mark that was there while the count was still the same is old. Making a mark always changes
    /// the word.
    fn clear(&self, word: &AtomicU64) -> bool {
        let mut seen = word.load(Ordering::SeqCst);
        loop {
            if self.inner.memory.suspicions() != self.suspicions {
                return false;
            }
            if seen & SUSPECT == 0 {
                // Another scan has cleared it meanwhile, and answers for that.
                return true;
            }
            match word.compare_exchange(seen, seen & !SUSPECT, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        // The word may have changed and come back to the same value, if this process was stopped in between
        // for as long as a sweep and a newcomer in the dead member's slot take.
        let in_time = self.inner.memory.suspicions() == self.suspicions;
        if !in_time {
            word.fetch_or(SUSPECT, Ordering::SeqCst);
            // Another scan may have found nothing suspect while this mark was off.
            self.inner.memory.count_suspicion();
        }
        in_time
    }
}

#[cfg(test)]
mod tests {
    use tensorferry_domain::Domain;
    use tensorferry_os::pidfd::PidFd;

    use super::*;
    use crate::attachments::Attachment;
    use crate::block::Block;
    use crate::reference::{Grant, Reference, Role};
    use crate::sweep::sweep;
    use crate::walk::each_block;
    use crate::{Bundle, Consumers, Deadline, OutgoingHandle, OutgoingHandles, Parcel, Ring};

    #[test]
    fn nobody_asks_for_a_scan_once_nothing_is_suspect() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let inner = heap.inner();
        let admission = heap.domain().admit(&PidFd::of_self().unwrap()).unwrap();
        let dead = Heap::attach(heap.domain().fds().unwrap(), admission).unwrap();
        let drop_one = || drop(Bundle::pack(&heap, b"", OutgoingHandles::new()).unwrap());
        // The service threads wait meanwhile.
        let _no_ticks = [inner, dead.inner()].map(|inner| inner.collecting.lock().unwrap());
        drop_one();
        assert!(!inner.scan_requests.is_due(), "nobody has died");

        let ring = Ring::create(&dead, 1, 0).unwrap();
        let grant = Grant::Ring(Role { sends: false, receives: true });
        let word = ring.attachment().block().reference(grant);
        let received = heap.hold(Reference::unpack(word).unwrap()).unwrap();
        let receiver =
            Ring::attach(Attachment::new(received, Role { sends: false, receives: true })).unwrap();
        let sent = dead.allocate(64).unwrap().freeze();
        ring.put(b"", OutgoingHandle::frozen(&sent).into_iter().collect(), Deadline::Now).unwrap();
        let before = inner.memory.suspicions();
        assert!(sweep(inner, &[dead.me()]));
        inner.memory.note_all_clear(before + 1);
        assert!(
            inner.memory.may_have_suspects(),
            "a scan while the sweep was marking has not seen all marks"
        );
        drop_one();
        assert!(inner.scan_requests.is_due(), "it might have named what is suspect");
        assert!(resolve_suspects(inner, &heap));
        assert!(inner.memory.may_have_suspects(), "the message is still there");

        drop(receiver.take(Consumers::Multi, Deadline::Now).unwrap());
        assert!(resolve_suspects(inner, &heap));
        assert!(!inner.memory.may_have_suspects());
        drop_one();
        assert!(!inner.scan_requests.is_due(), "a scan would find nothing");
    }

    #[test]
    fn collecting_takes_off_the_marks_that_a_disturbed_sweep_has_left() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = Ring::create(&heap, 1, 0).unwrap();
        let words = RingWords::of(ring.attachment().block()).unwrap();
        heap.inner().memory.count_suspicion();
        words.receivers().fetch_or(SUSPECT, Ordering::SeqCst);
        heap.collect();
        assert_eq!(words.receivers().load(Ordering::SeqCst), heap.me().bit());
    }

    #[test]
    fn a_parcel_that_is_opened_between_two_reads_of_a_scan_while_another_one_frees_it_loses_nothing() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let inner = heap.inner();
        let block = heap.allocate(64).unwrap().freeze();
        let bundle =
            Bundle::pack(&heap, b"", OutgoingHandles::from_iter(OutgoingHandle::frozen(&block))).unwrap();
        let named = OutgoingHandles::from_iter([OutgoingHandle::bundle(&bundle)]);
        let mut parcel = Parcel::pack(&heap, b"", named).unwrap();
        let id = parcel.id();
        let parcel_at = Reference::unpack(id).unwrap().header_offset_bytes;
        let places = [block.block().unwrap(), bundle.block().unwrap()].map(Block::header_offset_bytes);
        // The service thread waits meanwhile.
        let _one_at_a_time = inner.collecting.lock().unwrap();
        // Their maker is killed.
        inner.memory.count_suspicion();
        let holders = |at| heap.header(at).unwrap().holders();
        for at in [places[0], places[1], parcel_at] {
            holders(at).fetch_or(SUSPECT, Ordering::SeqCst);
        }
        drop(parcel.take_handles());
        drop((parcel, bundle, block, inner.bundles.take_all()));
        let scan = Scan { inner, heap: &heap, suspicions: inner.memory.suspicions() };
        let mut found = Named::default();
        each_block(inner.places(), &mut |place, header| found.visit(&heap, place, header).unwrap());
        let mut tables = found.take_tables().into_iter();
        let (kind, place) = tables.next().unwrap();
        found.visit_table(&heap, kind, place).unwrap();
        // This scan stands still. Somebody opens the parcel, and another scan frees that.
        let opened = Parcel::open(&heap, id);
        assert!(resolve_suspects(inner, &heap));
        assert_eq!(holders(parcel_at).load(Ordering::SeqCst), 0);
        for (kind, place) in tables {
            found.visit_table(&heap, kind, place).unwrap();
        }
        scan.clear_unnamed(&found);
        let is_kept = holders(places[0]).load(Ordering::SeqCst) == SUSPECT;
        assert_eq!(is_kept, opened.is_ok(), "whoever has the bundle has what it names");
    }
}
