//! Populating memory: the pages of a block are made present when they are first handed out.

use std::sync::atomic::Ordering;

use tensorferry_os::mapping::PAGE_BYTES;

use super::{Arena, Span};
use crate::StorageError;
use crate::class::{Class, LINE_BYTES};
use crate::geometry::{Address, Place};
use crate::header::{SpanWord, head, line, slab};
use crate::place::Places;

/// A slab is populated in steps of this size.
const POPULATE_STEP_BYTES: usize = 64 << 10;
fn damaged(places: Places<'_>, address: Address, what: &'static str) -> StorageError {
    let in_extent = address.line() * LINE_BYTES;
    StorageError::Damaged { offset_bytes: (places.start_of(address.extent()) + in_extent) as u64, what }
}

impl Arena {
    /// Marks a free block as taken, and makes sure that its memory is present. `None` if no block at this
    /// address is free.
    #[inline(always)]
    pub(super) fn hand_out(
        &mut self,
        places: Places<'_>,
        address: Address,
        len_bytes: usize,
    ) -> Result<Option<Place>, StorageError> {
        let bit = 1 << address.index();
        let Some(span) = self.span_mut(places, address) else { return Ok(None) };
        if span.free & bit == 0 {
            return Ok(None);
        }
        let (word, have_bytes) = (span.word, span.populated_bytes);
        let place = places.place(address, word);
        // Memory that another owner populated may not be open in this process yet.
        places.open_range(place.data_offset_bytes, len_bytes)?;
        let span_offset = places.start_of(address.extent()) + word.start_page * PAGE_BYTES;
        let needed_bytes = (place.data_offset_bytes - span_offset + len_bytes).next_multiple_of(PAGE_BYTES);
        if needed_bytes <= have_bytes {
            span.free &= !bit;
        } else {
            let populated_bytes = self.populate(places, address, word, have_bytes, needed_bytes)?;
            if let Some(span) = self.span_mut(places, address) {
                span.populated_bytes = populated_bytes;
                span.free &= !bit;
            }
        }
        self.usage.live_blocks += 1;
        self.usage.live_bytes += len_bytes as u64;
        Ok(Some(place))
    }

    /// Makes the first `needed_bytes` of a span present, which has `have_bytes`, and some more of a slab.
    /// Returns how many are present then.
    #[cold]
    fn populate(
        &mut self,
        places: Places<'_>,
        address: Address,
        word: SpanWord,
        have_bytes: usize,
        needed_bytes: usize,
    ) -> Result<usize, StorageError> {
        let extent = address.extent();
        let span_offset = places.start_of(extent) + word.start_page * PAGE_BYTES;
        let end = if word.class.is_slab() {
            let all = word.class.span_pages() * PAGE_BYTES;
            needed_bytes.next_multiple_of(POPULATE_STEP_BYTES).min(all)
        } else {
            needed_bytes
        };
        places.open_range(span_offset, end)?;
        places.memory.count_populated(extent, (end - have_bytes) as u64)?;
        if let Err(error) = places.memory.data().populate(span_offset + have_bytes, end - have_bytes) {
            places.memory.count_returned_to_system(extent, (end - have_bytes) as u64);
            return Err(error.into());
        }
        publish_populated(places, extent, address.line(), end);
        self.usage.populated_bytes += (end - have_bytes) as u64;
        self.usage.populate_calls += 1;
        Ok(end)
    }

    /// Commits a new span of the class at the end of one of the runs.
    pub(super) fn new_span(
        &mut self,
        places: Places<'_>,
        class: Class,
    ) -> Result<Option<Address>, StorageError> {
        let extent_pages = places.extent_len_bytes() / PAGE_BYTES;
        let (first_line, n_lines) = (places.first_span_line(), places.n_lines());
        let room = self.runs.iter().rev().find_map(|(&extent, run)| {
            let start = class.align_page(run.next_page);
            let fits = start + class.span_pages() <= run.run.n_extents * extent_pages;
            // A run of several extents holds one block and nothing else.
            let alone = run.run.n_extents == 1 || run.spans.is_empty();
            (fits && alone && first_line + run.spans.len() < n_lines).then_some((extent, start))
        });
        let Some((extent, start_page)) = room else { return Ok(None) };
        let word = SpanWord { class, start_page };
        let Some(run) = self.runs.get(&extent) else { return Ok(None) };
        let line_index = first_line + run.spans.len();
        self.populate_head(places, extent, ((line_index + 1) * LINE_BYTES).next_multiple_of(PAGE_BYTES))?;
        let address = Address::new(extent, line_index, 0);
        let missing = || damaged(places, address, "the head of the run is out of reach");
        let populated_bytes = if class.is_slab() {
            self.start_slab(places, address, word)?;
            PAGE_BYTES
        } else {
            0
        };
        let Some(run) = self.runs.get_mut(&extent) else { return Ok(None) };
        let words = places.head_line(extent, line_index).ok_or_else(missing)?;
        let marks = places.head_line(extent, 0).ok_or_else(missing)?;
        publish_populated(places, extent, line_index, populated_bytes);
        // The commit: from here on every scan sees the span. A line at or above the mark is seen by no scan,
        // and the next owner writes it anew.
        words[line::SPAN].store(word.pack(), Ordering::Release);
        run.next_page = start_page + class.span_pages();
        marks[head::PAGES_HIGH_WATER].store(run.next_page as u64, Ordering::Release);
        marks[head::LINES_HIGH_WATER].store(line_index as u64 + 1, Ordering::Release);
        run.spans.push(Span { word, carved: 0, free: 0, pending: 0, populated_bytes });
        self.usage.populated_bytes += populated_bytes as u64;
        Ok(Some(address))
    }

    /// Populates a slab's page of headers. It reads as zero, so none of its blocks is held.
    fn start_slab(
        &mut self,
        places: Places<'_>,
        address: Address,
        word: SpanWord,
    ) -> Result<(), StorageError> {
        let offset = places.start_of(address.extent()) + word.start_page * PAGE_BYTES;
        places.open_range(offset, PAGE_BYTES)?;
        places.memory.count_populated(address.extent(), PAGE_BYTES as u64)?;
        if let Err(error) = places.memory.data().populate(offset, PAGE_BYTES) {
            places.memory.count_returned_to_system(address.extent(), PAGE_BYTES as u64);
            return Err(error.into());
        }
        if let Some(first) = places.line_at(offset) {
            first[slab::LINE].store(address.line() as u64, Ordering::Release);
        }
        Ok(())
    }

    pub(super) fn populate_head(
        &mut self,
        places: Places<'_>,
        extent: usize,
        end_bytes: usize,
    ) -> Result<(), StorageError> {
        let Some(run) = self.runs.get_mut(&extent) else { return Ok(()) };
        let have = run.head_populated_bytes;
        if end_bytes > have {
            places.memory.count_populated(extent, (end_bytes - have) as u64)?;
            if let Err(error) =
                places.memory.data().populate(places.start_of(extent) + have, end_bytes - have)
            {
                places.memory.count_returned_to_system(extent, (end_bytes - have) as u64);
                return Err(error.into());
            }
            run.head_populated_bytes = end_bytes;
            self.usage.populated_bytes += (end_bytes - have) as u64;
        }
        Ok(())
    }
}

pub(super) fn publish_populated(places: Places<'_>, extent: usize, line_index: usize, len_bytes: usize) {
    if let Some(words) = places.head_line(extent, line_index) {
        words[line::POPULATED_BYTES].store(len_bytes as u64, Ordering::Release);
    }
}
