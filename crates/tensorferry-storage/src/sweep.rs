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

use std::sync::atomic::Ordering;

use tensorferry_domain::{Member, planted};

use crate::geometry::Place;
use crate::header::{Header, Kind};
use crate::heap::{Heap, Inner};
use crate::monitor::words_of;
use crate::scan::resolve_suspects;
use crate::sweep_ring::{suspect, sweep_ring};
use crate::walk::{Unreadable, each_block, hold_of_kind};

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
fn sweep_contents(heap: &Heap, place: Place, header: Header<'_>, dead: &[Member]) -> Result<(), Unreadable> {
    let ended_in_order = |dead| heap.domain().has_announced_end(dead);
    if let Some(block) = hold_of_kind(heap, place, header, Kind::Ring)? {
        dead.iter().for_each(|&dead| sweep_ring(&block, dead, ended_in_order(dead)));
    }
    let holders = header.holders().load(Ordering::SeqCst);
    // Only those that held a monitor count as its deaths.
    for &dead in dead.iter().filter(|dead| holders & dead.bit() != 0) {
        if let Some(block) = hold_of_kind(heap, place, header, Kind::Monitor)?
            && let Some(monitor) = words_of(&block)
            && !planted("sweep-forgets-monitors")
        {
            monitor.sweep(dead, ended_in_order(dead));
        }
    }
    Ok(())
}
