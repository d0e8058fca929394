//! Visiting every block of the domain, also those of others, and holding what was found.

use std::sync::atomic::Ordering;

use crate::StorageError;
use crate::block::Block;
use crate::class::{LINE_BYTES, SLAB_BLOCKS};
use crate::geometry::{Address, Place};
use crate::header::{Header, Kind};
use crate::heap::Heap;
use crate::place::Places;
use crate::reference::{Grant, Reference};

/// A block exists and cannot be opened for reading.
#[derive(Debug)]
pub(crate) struct Unreadable;

/// Visits every block of the domain that somebody holds, be it a dead member. What nobody holds nobody can
/// take any more, and most headers of a slab are of that kind. Returns whether all blocks could be reached.
pub(crate) fn each_block(places: Places<'_>, visit: &mut dyn FnMut(Place, Header<'_>)) -> bool {
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
                let header = places.header(first.header_offset_bytes + index * LINE_BYTES);
                if let Some(header) = header.filter(is_held) {
                    visit(places.place(Address::new(extent, line, index), span), header);
                }
            }
        }
    }
    all_reached
}

fn is_held(header: &Header<'_>) -> bool {
    header.holders().load(Ordering::SeqCst) != 0
}

/// Holds a block that the walk found, if it has a holder and is of this kind. The kind and the generation
/// come from one load, so a block that is reused in between is not taken for what it was.
pub(crate) fn hold_of_kind(
    heap: &Heap,
    place: Place,
    header: Header<'_>,
    kind: Kind,
) -> Result<Option<Block>, Unreadable> {
    let (found, generation) = header.kind_and_generation();
    if found == kind { hold_found(heap, place, header, generation) } else { Ok(None) }
}

/// As [`hold_of_kind`], for a block of any kind.
pub(crate) fn hold_as_found(
    heap: &Heap,
    place: Place,
    header: Header<'_>,
) -> Result<Option<Block>, Unreadable> {
    hold_found(heap, place, header, header.generation())
}

fn hold_found(
    heap: &Heap,
    place: Place,
    header: Header<'_>,
    generation: u32,
) -> Result<Option<Block>, Unreadable> {
    if header.holders().load(Ordering::SeqCst) == 0 {
        return Ok(None);
    }
    let generation = generation & crate::reference::GENERATION_MASK;
    let grant = Grant::Frozen;
    hold_if_there(heap, Reference { header_offset_bytes: place.header_offset_bytes, generation, grant })
}

/// Holds the block that a reference names; `None` when the block is gone or was reused.
pub(crate) fn hold_if_there(heap: &Heap, reference: Reference) -> Result<Option<Block>, Unreadable> {
    match heap.hold(reference) {
        Ok(block) => Ok(Some(block)),
        Err(error) if matches!(*error, StorageError::Domain(_)) => Err(Unreadable),
        Err(_) => Ok(None),
    }
}
