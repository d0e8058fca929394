//! After a death: giving back what the dead member held, but not the blocks that its messages still name.
//!
//! If a sweeper dies, another sweeper can repeat every step from the beginning. The order matters:
//!
//! 1. In every ring: a slot that the dead member was writing is skipped, a message that it was taking is
//!    ready again, its roles end, and all waiting processes look again. In every monitor that it held: its
//!    lock is free, and all waiting processes look again.
//! 2. In every block that it held: its holder bit turns into SUSPECT, in one compare-and-swap. A suspect
//!    block is not reused. A block that could not be opened in the first step keeps the bit, and the sweep is
//!    repeated.
//! 3. A scan of all rings and messages discards the messages of rings without receivers, and finds the blocks
//!    that messages of the dead member still name. All other blocks are no longer suspect. A block that a
//!    living process takes meanwhile carries that process's bit. If that process dies too, the scan has not
//!    seen what it sent. So each sweep increments a word of the domain before it marks anything, and a scan
//!    that began before the last increment clears nothing and begins again. A scan that finds no mark at all
//!    records that value of the word; until the next increment nobody has to ask for a scan. The sweep
//!    increments the word a second time after its last mark, because a scan may have passed a block just
//!    before it was marked.
//! 4. In its extents: free memory goes back to the system, and any member may claim them.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tensorferry_domain::{Member, planted};

use crate::StorageError;
use crate::attachments::RoleCounts;
use crate::block::Block;
use crate::class::{LINE_BYTES, SLAB_BLOCKS};
use crate::header::{Header, Kind, SUSPECT};
use crate::heap::{Heap, Inner};
use crate::message::references_in;
use crate::monitor::words_of;
use crate::parcel::{self, Abandoned};
use crate::place::{Address, Place, Places};
use crate::record::RecordTag;
use crate::reference::{Grant, Reference};
use crate::ring_layout::{RingWords, SlotState};
use crate::sweep_ring::{suspect, sweep_ring, wake_all};

thread_local! {
    /// Set while this thread holds and drops blocks only to look at them.
    static SCANNING: Cell<bool> = const { Cell::new(false) };
}

/// Whether a drop on this thread belongs to a scan. Such a drop must not ask for another scan.
pub(crate) fn is_scanning() -> bool {
    SCANNING.get()
}

/// The interval at which a process handles its pins and suspects, while it has any and while it sends.
const TICK: Duration = Duration::from_millis(100);

/// How often a scan is begun again because another member died meanwhile.
const MAX_SCANS: usize = 16;

/// Sweeps for these dead members. Returns whether every block could be reached.
pub(crate) fn sweep(inner: &Inner, dead: &[Member]) -> bool {
    let Some(heap) = inner.heap() else { return false };
    let places = inner.places();
    inner.memory.count_suspicion();
    let bits = dead.iter().fold(0, |bits, dead| bits | dead.bit());
    let (mut all_opened, mut held) = (true, Vec::new());
    let all_reached = each_block(places, &mut |place, header| {
        if sweep_contents(&heap, place, header, dead).is_err() {
            // The bit stays: by it a monitor is found when the sweep is repeated.
            all_opened = false;
        } else if header.holders().load(Ordering::SeqCst) & bits != 0 {
            held.push(place);
        }
    });
    if !planted("sweep-forgets-bits") {
        held.into_iter().for_each(|place| mark_suspect(inner, place, dead));
    }
    // A scan that has found nothing suspect meanwhile did not see all marks.
    inner.memory.count_suspicion();
    if !all_reached || !all_opened {
        return false;
    }
    resolve_suspects(inner, &heap);
    if planted("sweep-keeps-extents") {
        return true;
    }
    let mut runs = dead.iter().flat_map(|&dead| inner.memory.take_over(dead));
    loop {
        // The lock is taken for each run by itself, so that an allocation does not wait for all runs.
        let mut arena = inner.arena();
        let Some(run) = runs.next() else { return true };
        inner.adopt_and_trim(&mut arena, run);
    }
}

/// Makes a block suspect that the dead members held. They hold nothing new.
fn mark_suspect(inner: &Inner, place: Place, dead: &[Member]) {
    if let Some(header) = inner.places().header(place.header_offset_bytes) {
        inner.mark_returned_anew(place);
        dead.iter().for_each(|&dead| suspect(header.holders(), dead));
    }
}

/// Ends what the dead members were doing in this block, if it is a ring or a monitor.
fn sweep_contents(heap: &Heap, place: Place, header: Header<'_>, dead: &[Member]) -> Result<(), Closed> {
    if let Some(block) = hold_of_kind(heap, place, header, Kind::Ring)? {
        dead.iter().for_each(|&dead| sweep_ring(&block, dead));
    }
    let holders = header.holders().load(Ordering::SeqCst);
    // Only those that held a monitor count as its deaths.
    for &dead in dead.iter().filter(|dead| holders & dead.bit() != 0) {
        if let Some(block) = hold_of_kind(heap, place, header, Kind::Monitor)?
            && let Some(monitor) = words_of(&block)
            && !planted("sweep-forgets-monitors")
        {
            monitor.sweep(dead, heap.domain().has_announced_end(dead));
        }
    }
    Ok(())
}

/// Handles pins, parcels, suspects and returned blocks. Returns how long until it has to be called again, if
/// at all.
pub(crate) fn tick(inner: &Inner) -> Option<Duration> {
    let _one_at_a_time = inner.collecting.lock().unwrap_or_else(PoisonError::into_inner);
    look_after(inner)
}

/// The tick's work. Returns until when it has to be done again.
fn look_after(inner: &Inner) -> Option<Duration> {
    // A process that sends often must not wake the service thread for each message. So the thread goes idle
    // only after a tick in which nothing was sent.
    let is_used = inner.pins.take_use();
    if inner.pins.any() || inner.bundles.any() {
        inner.retire_pins();
    }
    let waits_for_opening = inner.posted.retire(&inner.memory);
    if !inner.has_suspects() || inner.scan_requests.until_unasked(&inner.memory).is_zero() {
        resolve_known_suspects(inner);
    } else {
        resolve_requested(inner);
    }
    let mut arena = inner.arena();
    if inner.memory.take_returns() {
        arena.collect(inner.places());
        inner.publish(&arena);
    }
    drop(arena);
    if is_used || waits_for_opening || inner.pins.any() || inner.scan_requests.is_due() {
        return Some(TICK);
    }
    inner.has_suspects().then(|| inner.scan_requests.until_unasked(&inner.memory).max(TICK))
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
fn resolve_requested(inner: &Inner) {
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
fn resolve_suspects(inner: &Inner, heap: &Heap) -> bool {
    let announced = inner.scan_requests.announce(&inner.memory);
    inner.scan_requests.take_due();
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
    /// Clears the marks that nothing names, and records it if none is left. Returns false when the scan is too
    /// old to decide.
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

/// What messages name: the header offsets of blocks, and of rings by the role that is on its way.
#[derive(Default)]
struct Named {
    blocks: HashSet<usize>,
    senders: HashSet<usize>,
    receivers: HashSet<usize>,
    /// Messages, parcels and bundles that were found on the way, each with its place.
    tables: Vec<(Kind, Place)>,
    /// The blocks that are suspect themselves, or may have a suspect role.
    marked: Vec<Place>,
    /// The bundles, each with its generation, of which all contents are among the blocks. Many messages may
    /// name one bundle.
    bundles: HashSet<(usize, u32)>,
}

/// A block exists and cannot be opened for reading.
#[derive(Debug)]
struct Closed;

impl Named {
    /// Reads all messages, after discarding those of rings without receivers, or fails: what cannot be read
    /// may name any block.
    ///
    /// A process that takes a message holds what it names before it frees the slot. What a bundle names it
    /// does not hold, but the bundle itself. So the tables that living members hold are read after all rings:
    /// a process that has taken a bundle out of a ring meanwhile is seen to hold it. That a bundle is made
    /// meanwhile does not matter, because its maker lives and holds what it names.
    fn scan(places: Places<'_>, heap: &Heap) -> Result<Self, Closed> {
        let mut named = Self::default();
        let mut outcome = Ok(());
        let all_reached = each_block(places, &mut |place, header| {
            if outcome.is_ok() {
                outcome = named.visit(heap, place, header);
            }
        });
        outcome?;
        if !all_reached {
            return Err(Closed);
        }
        for (kind, place) in named.take_tables() {
            named.visit_table(heap, kind, place)?;
        }
        Ok(named)
    }

    /// The tables that were found on the way, in the order in which they are to be read. Parcels first: one
    /// that was opened since may be gone by now, freed by another scan. Whoever opened it then has the
    /// bundles that were in it, and is found there.
    fn take_tables(&mut self) -> Vec<(Kind, Place)> {
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_by_key(|(kind, _)| *kind != Kind::Parcel);
        tables
    }

    fn visit(&mut self, heap: &Heap, place: Place, header: Header<'_>) -> Result<(), Closed> {
        let holders = header.holders().load(Ordering::SeqCst);
        if holders & SUSPECT != 0 || header.kind() == Kind::Ring {
            self.marked.push(place);
        }
        if let Some(block) = hold_of_kind(heap, place, header, Kind::Ring)? {
            let Some(ring) = RingWords::of(&block) else { return Ok(()) };
            discard_lost(&ring);
            // Slots first, then records: a message moves from a slot to a record, and never back.
            for reference in ring.slots().flat_map(|slot| slot.references()) {
                self.add(heap, reference)?;
            }
            for reference in ring.records().flat_map(|record| record.references()) {
                self.add(heap, reference)?;
            }
        }
        // What nobody holds, not even a dead member, nobody can take any more.
        if let kind @ (Kind::Message | Kind::Parcel | Kind::Bundle) = header.kind()
            && header.holders().load(Ordering::SeqCst) != 0
        {
            self.tables.push((kind, place));
        }
        Ok(())
    }

    /// Reads a table that a living member holds: a message is being written or opened, a parcel is kept, a
    /// bundle is in use. And a parcel that somebody has just opened.
    fn visit_table(&mut self, heap: &Heap, kind: Kind, place: Place) -> Result<(), Closed> {
        let Some(header) = heap.header(place.header_offset_bytes) else { return Err(Closed) };
        let is_held = || header.holders().load(Ordering::SeqCst) & !SUSPECT != 0;
        if kind != Kind::Parcel && !is_held() {
            return Ok(());
        }
        // While it is held it is no other parcel.
        let Some(block) = hold_of_kind(heap, place, header, kind)? else { return Ok(()) };
        if kind == Kind::Parcel && !block.is_held_by_others() {
            match parcel::decide(header.opened(), || block.is_held_by_others()) {
                Abandoned::NamesNothing => return Ok(()),
                Abandoned::IsOpened => {}
                Abandoned::WasOpened => heap.inner().scan_requests.set_due(),
            }
        }
        self.add_table(heap, &block)?;
        drop(block);
        // The last holder may have let go while this scan held the block too, and so was not the last one.
        // Then no process has asked for the scan that no longer finds this table.
        if !is_held() {
            heap.inner().scan_requests.set_due();
        }
        Ok(())
    }

    fn add(&mut self, heap: &Heap, word: u64) -> Result<(), Closed> {
        let Some(reference) = Reference::unpack(word) else { return Ok(()) };
        self.add_one(reference);
        match reference.grant {
            Grant::Message => match hold_if_there(heap, reference)? {
                Some(block) => self.add_table(heap, &block),
                None => Ok(()),
            },
            Grant::Bundle => self.add_bundle(heap, reference),
            _ => Ok(()),
        }
    }

    /// Adds what a bundle names, which is no other one.
    fn add_bundle(&mut self, heap: &Heap, reference: Reference) -> Result<(), Closed> {
        let id = (reference.header_offset_bytes, reference.generation);
        if self.bundles.contains(&id) {
            return Ok(());
        }
        let Some(bundle) = hold_if_there(heap, reference)? else { return Ok(()) };
        self.bundles.insert(id);
        references_in(&bundle)
            .into_iter()
            .filter_map(Reference::unpack)
            .for_each(|reference| self.add_one(reference));
        Ok(())
    }

    /// Adds what a table names, and what the bundles name that it names.
    fn add_table(&mut self, heap: &Heap, block: &Block) -> Result<(), Closed> {
        for reference in references_in(block).into_iter().filter_map(Reference::unpack) {
            self.add_one(reference);
            if reference.grant == Grant::Bundle {
                self.add_bundle(heap, reference)?;
            }
        }
        Ok(())
    }

    fn add_one(&mut self, reference: Reference) {
        let at = reference.header_offset_bytes;
        self.blocks.insert(at);
        if let Grant::Ring(role) = reference.grant {
            if role.sends {
                self.senders.insert(at);
            }
            if role.receives {
                self.receivers.insert(at);
            }
        }
    }
}

/// Discards the messages of a ring without receivers. A living sender does so itself, but nobody does it for
/// a dead one, and what its messages name would stay for as long as the ring.
fn discard_lost(ring: &RingWords<'_>) {
    if ring.receivers().load(Ordering::SeqCst) != 0 {
        return;
    }
    for slot in ring.slots() {
        let state = slot.state();
        if state == SlotState::ready(state.lap) {
            slot.change(state, SlotState::free(state.lap + 1));
        }
    }
    for record in ring.records() {
        let state = record.state();
        if state.tag == RecordTag::Waiting {
            record.change(state, state.freed());
        }
    }
}

/// Holds a block that the walk found, if it has a holder and is of this kind. The kind and the generation
/// come from one load, so a block that is reused in between is not taken for what it was.
fn hold_of_kind(heap: &Heap, place: Place, header: Header<'_>, kind: Kind) -> Result<Option<Block>, Closed> {
    let (found, generation) = header.kind_and_generation();
    if found == kind { hold_found(heap, place, header, generation) } else { Ok(None) }
}

/// As [`hold_of_kind`], for a block of any kind.
fn hold_as_found(heap: &Heap, place: Place, header: Header<'_>) -> Result<Option<Block>, Closed> {
    hold_found(heap, place, header, header.generation())
}

fn hold_found(
    heap: &Heap,
    place: Place,
    header: Header<'_>,
    generation: u32,
) -> Result<Option<Block>, Closed> {
    if header.holders().load(Ordering::SeqCst) == 0 {
        return Ok(None);
    }
    let generation = generation & crate::reference::GENERATION_MASK;
    let grant = Grant::Frozen;
    hold_if_there(heap, Reference { header_offset_bytes: place.header_offset_bytes, generation, grant })
}

/// Holds the block that a reference names; `None` when the block is gone or was reused.
fn hold_if_there(heap: &Heap, reference: Reference) -> Result<Option<Block>, Closed> {
    match heap.hold(reference) {
        Ok(block) => Ok(Some(block)),
        Err(error) if matches!(*error, StorageError::Domain(_)) => Err(Closed),
        Err(_) => Ok(None),
    }
}

/// Visits every block of the domain that was ever in use. Returns whether all of them could be reached.
fn each_block(places: Places<'_>, visit: &mut dyn FnMut(Place, Header<'_>)) -> bool {
    let mut all_reached = true;
    for extent in 0..places.memory.extents_high_water() {
        if places.memory.run_starting_at(extent).is_none() {
            continue;
        }
        if places.open(extent, places.head_len_bytes()).is_err() {
            all_reached = false;
            continue;
        }
        for line in places.first_span_line()..places.lines_high_water(extent) {
            let Some(span) = places.span(extent, line) else { break };
            let Ok(first) = places.place_checked(Address::new(extent, line, 0), span) else { continue };
            if places.open_range(first.header_offset_bytes, LINE_BYTES).is_err() {
                all_reached = false;
                continue;
            }
            let n_blocks = if span.class.is_slab() { SLAB_BLOCKS } else { 1 };
            for index in 0..n_blocks {
                let place = places.place(Address::new(extent, line, index), span);
                if let Some(header) = places.header(place.header_offset_bytes) {
                    visit(place, header);
                }
            }
        }
    }
    all_reached
}

#[cfg(test)]
mod tests {
    use tensorferry_domain::Domain;
    use tensorferry_os::pidfd::PidFd;

    use super::*;
    use crate::attachments::Attachment;
    use crate::reference::Role;
    use crate::{Bundle, Consumers, Deadline, OutgoingHandle, OutgoingHandles, Parcel, Ring};

    #[test]
    fn the_service_thread_rests_after_a_beat_in_which_nothing_was_sent() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = Ring::create(&heap, 1, 0).unwrap();
        let block = heap.allocate(64).unwrap().freeze();
        // The service thread waits meanwhile.
        let _one_at_a_time = heap.inner().collecting.lock().unwrap();
        for _ in 0..3 {
            let handles = OutgoingHandles::from_iter(OutgoingHandle::frozen(&block));
            ring.put(b"", handles, Deadline::Now).unwrap();
            ring.take(Consumers::Multi, Deadline::Now).unwrap();
            assert_eq!(look_after(heap.inner()), Some(TICK), "more may be sent soon");
            assert!(!heap.inner().pins.any(), "although nothing is pinned");
        }
        assert_eq!(look_after(heap.inner()), None);
    }

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

    #[test]
    fn a_bundle_that_a_message_of_a_dead_process_names_is_looked_at_ever_more_seldom() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let bundle = Bundle::pack(&heap, b"", OutgoingHandles::new()).unwrap();
        let at = bundle.block().unwrap().header_offset_bytes();
        // It is named, and nobody has a handle on it but its keeper.
        let named = OutgoingHandles::from_iter([OutgoingHandle::bundle(&bundle)]);
        let mut parcel = Parcel::pack(&heap, b"", named).unwrap();
        drop(parcel.take_handles());
        let holders = || heap.header(at).unwrap().holders();
        heap.inner().memory.count_suspicion();
        holders().fetch_or(SUSPECT, Ordering::SeqCst);
        drop(bundle);
        // The service thread waits meanwhile.
        let _one_at_a_time = heap.inner().collecting.lock().unwrap();
        for _ in 0..3 {
            while !heap.inner().scan_requests.until_unasked(&heap.inner().memory).is_zero() {
                std::thread::yield_now();
            }
            assert!(look_after(heap.inner()) >= Some(TICK));
            assert!(!heap.inner().scan_requests.is_due(), "nobody has let go of anything");
            assert_ne!(holders().load(Ordering::SeqCst) & SUSPECT, 0, "it is named");
        }
        drop(parcel);
        assert!(heap.inner().scan_requests.is_due(), "somebody has let go of it");
        // The first one scans, the second one finds what the scan has freed.
        let _ = (look_after(heap.inner()), look_after(heap.inner()));
        assert_eq!(heap.stats().own.live_blocks, 0);
    }
}
