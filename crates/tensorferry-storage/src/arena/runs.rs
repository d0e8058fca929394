//! Runs of extents: taking them into use, adopting them, trimming them and giving them up.

use std::sync::atomic::Ordering;

use tensorferry_domain::{DomainError, ExtentRun};
use tensorferry_os::mapping::PAGE_BYTES;

use super::populate::publish_populated;
use super::{Arena, OfClass, Run, Span};
use crate::StorageError;
use crate::class::{Class, LINE_BYTES, SLAB_BLOCKS};
use crate::geometry::Address;
use crate::header::{SUSPECT, line};
use crate::place::Places;

impl Arena {
    /// Takes a run into use that was never used.
    pub(crate) fn add_fresh(&mut self, places: Places<'_>, run: ExtentRun) -> Result<(), StorageError> {
        places.open(run.first, places.head_len_bytes())?;
        let next_page = places.head_len_bytes() / PAGE_BYTES;
        self.runs.insert(run.first, Run { run, head_populated_bytes: 0, next_page, spans: Vec::new() });
        let marks = (places.first_span_line() * LINE_BYTES).next_multiple_of(PAGE_BYTES);
        self.populate_head(places, run.first, marks)
    }

    /// Takes a run into use that another member used before, and rebuilds from its headers which blocks are
    /// free.
    pub(crate) fn adopt(&mut self, places: Places<'_>, run: ExtentRun) -> Result<(), StorageError> {
        places.open(run.first, places.head_len_bytes())?;
        let first_line = places.first_span_line();
        let lines = places.lines_high_water(run.first);
        let run_pages = run.n_extents * places.extent_len_bytes() / PAGE_BYTES;
        let mut adopted = Run {
            run,
            head_populated_bytes: (lines * LINE_BYTES).next_multiple_of(PAGE_BYTES),
            next_page: places.pages_high_water(run.first).min(run_pages),
            spans: Vec::new(),
        };
        let mut populated_bytes = adopted.head_populated_bytes;
        // Applied only at the end, so that a run that cannot be read to its end counts for nothing.
        let (mut free, mut pending) = (Vec::new(), Vec::new());
        let (mut live_blocks, mut live_bytes, mut has_suspects) = (0, 0, false);
        let mut is_read_to_its_end = true;
        for index in first_line..lines {
            is_read_to_its_end = false;
            let Some(word) = places.span(run.first, index) else { break };
            if places.place_checked(Address::new(run.first, index, 0), word).is_err() {
                break;
            }
            let n_blocks = if word.class.is_slab() { SLAB_BLOCKS } else { 1 };
            let mut span = Span { word, carved: n_blocks, free: 0, pending: 0, populated_bytes: 0 };
            let claimed = places
                .head_line(run.first, index)
                .map_or(0, |l| l[line::POPULATED_BYTES].load(Ordering::Acquire));
            span.populated_bytes =
                usize::try_from(claimed).unwrap_or(0).min(word.class.span_pages() * PAGE_BYTES);
            populated_bytes += span.populated_bytes;
            places.open_range(places.start_of(run.first) + word.start_page * PAGE_BYTES, PAGE_BYTES)?;
            for block in 0..n_blocks {
                let address = Address::new(run.first, index, block);
                let place = places.place(address, word);
                let Some(header) = places.header(place.header_offset_bytes) else { continue };
                let holders = header.holders().load(Ordering::SeqCst);
                if holders == 0 {
                    header.returned().store(0, Ordering::SeqCst);
                    span.free |= 1 << block;
                    free.push((word.class, address));
                } else {
                    live_blocks += 1;
                    live_bytes += header.len_bytes().min(word.class.size_bytes() as u64);
                    has_suspects |= holders & SUSPECT != 0;
                    if header.returned().load(Ordering::SeqCst) != 0 {
                        span.pending |= 1 << block;
                        pending.push(address);
                    }
                }
            }
            adopted.spans.push(span);
            is_read_to_its_end = true;
        }
        if is_read_to_its_end {
            // Its last owner may have died after it had marked the pages of a span, and before it had marked
            // the span's line.
            let end = adopted.spans.last().map(|span| span.word.start_page + span.word.class.span_pages());
            adopted.next_page = end.unwrap_or(places.head_len_bytes() / PAGE_BYTES).min(run_pages);
        }
        self.usage.live_blocks += live_blocks;
        self.usage.live_bytes += live_bytes;
        self.usage.populated_bytes += populated_bytes as u64;
        self.has_suspects |= has_suspects;
        self.pending.extend(pending);
        places.memory.recount_populated(run.first, populated_bytes as u64);
        self.runs.insert(run.first, adopted);
        for (class, address) in free {
            self.class_mut(class).free.put_unused(address);
        }
        Ok(())
    }

    /// Forgets a run, and takes its blocks out of the free lists.
    pub(crate) fn give_up(&mut self, places: Places<'_>, extent: usize) {
        let Some(run) = self.runs.remove(&extent) else { return };
        for OfClass { free, carving } in &mut self.classes {
            carving.take_if(|address| address.extent() == extent);
            free.retain(|address| address.extent() != extent);
        }
        self.pending.retain(|address| address.extent() != extent);
        let mut populated_bytes = run.head_populated_bytes;
        for (index, span) in run.spans.iter().enumerate() {
            populated_bytes += span.populated_bytes;
            for block in (0..span.carved).filter(|block| span.free >> block & 1 == 0) {
                let address = Address::new(extent, places.first_span_line() + index, block);
                let header = places.header(places.place(address, span.word).header_offset_bytes);
                self.usage.live_blocks = self.usage.live_blocks.saturating_sub(1);
                let len_bytes = header.map_or(0, |header| header.len_bytes());
                self.usage.live_bytes = self.usage.live_bytes.saturating_sub(len_bytes);
            }
        }
        self.usage.populated_bytes = self.usage.populated_bytes.saturating_sub(populated_bytes as u64);
    }

    /// Gives whole free spans back to the system, until that makes `at_least_bytes` bytes. Returns how many
    /// bytes were given back.
    pub(crate) fn trim(&mut self, places: Places<'_>, at_least_bytes: u64) -> u64 {
        let mut trimmed = 0;
        for run in self.runs.values_mut() {
            if trimmed < at_least_bytes {
                trimmed += run.trim(places, at_least_bytes - trimmed);
            }
        }
        self.usage.populated_bytes = self.usage.populated_bytes.saturating_sub(trimmed);
        trimmed
    }

    /// As [`Arena::trim`], for all free spans of one run. It does not rely on what the last owner said was
    /// populated, because that owner may have died before it said so.
    pub(crate) fn trim_run(&mut self, places: Places<'_>, extent: usize) {
        if let Some(run) = self.runs.get_mut(&extent) {
            for span in run.spans.iter().filter(|span| span.is_free()) {
                let kept = span.kept_bytes();
                let offset = places.start_of(extent) + span.word.start_page * PAGE_BYTES + kept;
                // An error means that nothing was given back. The count below does not claim that it was.
                let _ = places.memory.punch_hole(offset, span.word.class.span_pages() * PAGE_BYTES - kept);
            }
            let trimmed = run.trim(places, u64::MAX);
            self.usage.populated_bytes = self.usage.populated_bytes.saturating_sub(trimmed);
        }
    }
}

impl Run {
    fn trim(&mut self, places: Places<'_>, at_least_bytes: u64) -> u64 {
        let (extent, start) = (self.run.first, places.start_of(self.run.first));
        let mut trimmed = 0_u64;
        for (index, span) in self.spans.iter_mut().enumerate() {
            let kept = span.kept_bytes();
            if trimmed >= at_least_bytes || !span.is_free() || span.populated_bytes <= kept {
                continue;
            }
            let offset = start + span.word.start_page * PAGE_BYTES + kept;
            let len_bytes = span.populated_bytes - kept;
            // Published before the hole is punched: if this process dies in between, the next owner populates
            // memory that is there already. The other way around, the next owner would rely on memory that is
            // gone.
            publish_populated(places, extent, places.first_span_line() + index, kept);
            if places.memory.punch_hole(offset, len_bytes).is_ok() {
                span.populated_bytes = kept;
                places.memory.count_returned_to_system(extent, len_bytes as u64);
                trimmed += len_bytes as u64;
            }
        }
        trimmed
    }
}

/// How many extents a block of this class needs, with the head before it.
pub(crate) fn extents_for(places: Places<'_>, class: Class) -> Result<usize, StorageError> {
    let first_page = class.align_page(places.head_len_bytes() / PAGE_BYTES);
    let bytes = (first_page + class.span_pages()) * PAGE_BYTES;
    let n_extents = bytes.div_ceil(places.extent_len_bytes());
    if n_extents > places.memory.layout().n_extents {
        return Err(DomainError::NoExtents {
            wanted: n_extents,
            n_extents: places.memory.layout().n_extents,
            extent_len_bytes: places.extent_len_bytes(),
        }
        .into());
    }
    Ok(n_extents)
}

#[cfg(test)]
mod tests {
    use tensorferry_domain::Domain;

    use super::*;
    use crate::Heap;
    use crate::header::head;

    #[test]
    fn a_run_whose_owner_died_between_its_two_marks_is_as_good_as_new() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let inner = heap.inner();
        let places = inner.places();
        let class = Class::holding(40 << 20).unwrap();
        let run = inner.memory.claim_extents(extents_for(places, class).unwrap()).unwrap();
        inner.arena().add_fresh(places, run).unwrap();
        // A new span stores this first: its pages are taken, and no line says by what.
        let end = class.align_page(places.head_len_bytes() / PAGE_BYTES) + class.span_pages();
        places.head_line(run.first, 0).unwrap()[head::PAGES_HIGH_WATER].store(end as u64, Ordering::Release);
        inner.arena().give_up(places, run.first);
        inner.memory.release_extents(run);
        // There is room for it nowhere else.
        assert_eq!(heap.allocate(40 << 20).unwrap().len_bytes(), 40 << 20);
    }
}
