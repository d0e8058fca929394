//! What messages name, as one pass over all blocks of the domain finds it.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use crate::block::Block;
use crate::geometry::Place;
use crate::header::{Header, Kind, SUSPECT};
use crate::heap::Heap;
use crate::message::references_in;
use crate::parcel::{self, Abandoned};
use crate::place::Places;
use crate::record::RecordTag;
use crate::reference::{Grant, Reference};
use crate::ring_layout::RingWords;
use crate::slot::SlotState;
use crate::walk::{Unreadable, each_block, hold_if_there, hold_of_kind};

/// What messages name: the header offsets of blocks, and of rings by the role that is on its way.
#[derive(Default)]
pub(crate) struct Named {
    pub(crate) blocks: HashSet<usize>,
    pub(crate) senders: HashSet<usize>,
    pub(crate) receivers: HashSet<usize>,
    /// Messages, parcels and bundles that were found on the way, each with its place.
    tables: Vec<(Kind, Place)>,
    /// The blocks that are suspect themselves, or may have a suspect role.
    pub(crate) marked: Vec<Place>,
    /// The bundles, each with its generation, of which all contents are among the blocks. Many messages may
    /// name one bundle.
    bundles: HashSet<(usize, u32)>,
}

impl Named {
    /// Reads all messages, after discarding those of rings without receivers, or fails: what cannot be read
    /// may name any block.
    ///
    /// A process that takes a message holds what it names before it frees the slot. What a bundle names it
    /// does not hold, but the bundle itself. So the tables that living members hold are read after all rings:
    /// a process that has taken a bundle out of a ring meanwhile is seen to hold it. That a bundle is made
    /// meanwhile does not matter, because its maker lives and holds what it names.
    pub(crate) fn scan(places: Places<'_>, heap: &Heap) -> Result<Self, Unreadable> {
        let mut named = Self::default();
        let mut outcome = Ok(());
        let all_reached = each_block(places, &mut |place, header| {
            if outcome.is_ok() {
                outcome = named.visit(heap, place, header);
            }
        });
        outcome?;
        if !all_reached {
            return Err(Unreadable);
        }
        for (kind, place) in named.take_tables() {
            named.visit_table(heap, kind, place)?;
        }
        Ok(named)
    }

    /// The tables that were found on the way, in the order in which they are to be read. Parcels first: one
    /// that was opened since may be gone by now, freed by another scan. Whoever opened it then has the
    /// bundles that were in it, and is found there.
    pub(crate) fn take_tables(&mut self) -> Vec<(Kind, Place)> {
        let mut tables = std::mem::take(&mut self.tables);
        tables.sort_by_key(|(kind, _)| *kind != Kind::Parcel);
        tables
    }

    pub(crate) fn visit(&mut self, heap: &Heap, place: Place, header: Header<'_>) -> Result<(), Unreadable> {
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
    pub(crate) fn visit_table(&mut self, heap: &Heap, kind: Kind, place: Place) -> Result<(), Unreadable> {
        let Some(header) = heap.header(place.header_offset_bytes) else { return Err(Unreadable) };
        let is_held = || header.holders().load(Ordering::SeqCst) & !SUSPECT != 0;
        if kind != Kind::Parcel && !is_held() {
            return Ok(());
        }
        // While it is held it is no other parcel.
        let Some(block) = hold_of_kind(heap, place, header, kind)? else { return Ok(()) };
        if kind == Kind::Parcel && !block.is_held_by_others() {
            match parcel::decide(header.opened(), || block.is_held_by_others()) {
                Abandoned::NamesNothing => return Ok(()),
                Abandoned::BeingOpened => {}
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

    fn add(&mut self, heap: &Heap, word: u64) -> Result<(), Unreadable> {
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
    fn add_bundle(&mut self, heap: &Heap, reference: Reference) -> Result<(), Unreadable> {
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
    fn add_table(&mut self, heap: &Heap, block: &Block) -> Result<(), Unreadable> {
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
            ring.lost().store(1, Ordering::SeqCst);
            slot.change(state, SlotState::free_after(state.lap));
        }
    }
    for record in ring.records() {
        let state = record.state();
        if state.tag == RecordTag::Waiting {
            ring.lost().store(1, Ordering::SeqCst);
            record.change(state, state.freed());
        }
    }
}
