//! What a member knows privately about the extents that it owns: which blocks are free.
//!
//! All of this can be rebuilt from the headers in shared memory ([`Arena::adopt`]), which is what happens when
//! the owner dies. Nothing here is ever read by another process.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;

use tensorferry_domain::{DomainError, ExtentRun};
use tensorferry_os::mapping::PAGE_BYTES;

use crate::class::{Class, LINE_BYTES, N_CLASSES, SLAB_BLOCKS};
use crate::free_list::{self, FreeList, Freed};
use crate::header::{SUSPECT, SpanWord, head, line, slab};
use crate::place::{Address, Place, Places};
use crate::{HeapUsage, StorageError};

/// A slab is populated in steps of this size.
const POPULATE_STEP_BYTES: usize = 64 << 10;
/// How many blocks that somebody still held when they were returned are looked at again per collection.
const PENDING_LOOKS: usize = 64;

#[derive(Debug)]
struct Run {
    run: ExtentRun,
    head_populated_bytes: usize,
    next_page: usize,
    /// Index 0 is the first span line.
    spans: Vec<Span>,
}

#[derive(Debug)]
struct Span {
    word: SpanWord,
    /// Blocks that were handed out at least once; only a slab has more than one.
    carved: usize,
    /// One bit for each block.
    free: u64,
    /// Returned by one holder while others held it: looked at again now and then.
    pending: u64,
    /// From the start of the span, for a slab its page of headers included.
    populated_bytes: usize,
}

/// Which free blocks are good enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Those that cost no more to write than fresh ones.
    Ripe,
    /// All.
    Any,
    /// All of the run that begins with this extent.
    Of(usize),
}

/// The private side of a heap.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    runs: BTreeMap<usize, Run>,
    free: Vec<FreeList>,
    /// For each class the slab that has blocks which were never handed out.
    carving: Vec<Option<Address>>,
    pending: VecDeque<Address>,
    has_suspects: bool,
    pub(crate) usage: HeapUsage,
}

impl Arena {
    pub(crate) fn new() -> Self {
        Self {
            free: (0..N_CLASSES).map(|_| FreeList::default()).collect(),
            carving: vec![None; N_CLASSES],
            ..Self::default()
        }
    }

    pub(crate) fn owns(&self, extent: usize) -> bool {
        self.runs.contains_key(&extent)
    }

    pub(crate) fn has_suspects(&self) -> bool {
        self.has_suspects
    }

    /// A free block of the class that was in use before; with `wanted` of [`Wanted::Ripe`] one that it pays to use.
    pub(crate) fn take_recycled(
        &mut self,
        places: Places<'_>,
        class: Class,
        len_bytes: usize,
        wanted: Wanted,
    ) -> Result<Option<Place>, StorageError> {
        // What cannot be populated now stays, and the next one is tried.
        let (mut refused, mut first) = (Vec::new(), None);
        let place = loop {
            let free = &mut self.free[class.index()];
            let next = match wanted {
                Wanted::Ripe => free.take(|| free_list::distance(class)),
                Wanted::Any => free.take_any(),
                Wanted::Of(extent) => free.take_of(extent),
            };
            let Some(address) = next else { break None };
            // An entry is stale when its run was given up; nothing else invalidates it.
            if self.span_mut(places, address).is_none_or(|span| span.free & 1 << address.index() == 0) {
                continue;
            }
            match self.hand_out(places, address, len_bytes) {
                Ok(place) => break Some(place),
                Err(error) => {
                    refused.push(address);
                    first.get_or_insert(error);
                }
            }
        };
        refused.into_iter().for_each(|address| self.free[class.index()].put_unused(address));
        match (place, first) {
            (Some(place), _) => Ok(Some(place)),
            (None, Some(error)) => Err(error),
            (None, None) => Ok(None),
        }
    }

    /// A free block of the smallest larger class: for when the address space is used up.
    pub(crate) fn take_larger(
        &mut self,
        places: Places<'_>,
        class: Class,
        len_bytes: usize,
    ) -> Result<Option<Place>, StorageError> {
        for index in class.index() + 1..N_CLASSES {
            let Some(larger) = Class::from_index(index) else { break };
            if let Some(place) = self.take_recycled(places, larger, len_bytes, Wanted::Any)? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// A block of the class that was never in use, from the runs that this member owns.
    pub(crate) fn take_fresh(
        &mut self,
        places: Places<'_>,
        class: Class,
        len_bytes: usize,
    ) -> Result<Option<Place>, StorageError> {
        let address = match self.carving[class.index()] {
            Some(address) => address,
            None => match self.new_span(places, class)? {
                Some(address) => address,
                None => return Ok(None),
            },
        };
        let n_blocks = if class.is_slab() { SLAB_BLOCKS } else { 1 };
        let Some(span) = self.span_mut(places, address) else { return Ok(None) };
        let fresh = Address::new(address.extent(), address.line(), span.carved);
        span.carved += 1;
        span.free |= 1 << fresh.index();
        let more = span.carved < n_blocks;
        self.carving[class.index()] = more.then_some(address);
        match self.hand_out(places, fresh, len_bytes) {
            Ok(place) => Ok(Some(place)),
            Err(error) => {
                self.free[class.index()].put_unused(fresh);
                Err(error)
            }
        }
    }

    /// Starts to use a run that was never used.
    pub(crate) fn add_fresh(&mut self, places: Places<'_>, run: ExtentRun) -> Result<(), StorageError> {
        places.open(run.first, places.head_len_bytes())?;
        let next_page = places.head_len_bytes() / PAGE_BYTES;
        self.runs.insert(run.first, Run { run, head_populated_bytes: 0, next_page, spans: Vec::new() });
        let marks = (places.first_span_line() * LINE_BYTES).next_multiple_of(PAGE_BYTES);
        self.populate_head(places, run.first, marks)
    }

    /// Starts to use a run that another member used before: rebuilds from its headers what is free.
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
        // All of it at the end, so that a run which cannot be read to its end counts for nothing.
        let (mut free, mut pending) = (Vec::new(), Vec::new());
        let (mut blocks_live, mut bytes_live, mut has_suspects) = (0, 0, false);
        for index in first_line..lines {
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
                    blocks_live += 1;
                    bytes_live += header.len_bytes().min(word.class.size_bytes() as u64);
                    has_suspects |= holders & SUSPECT != 0;
                    if header.returned().load(Ordering::SeqCst) != 0 {
                        span.pending |= 1 << block;
                        pending.push(address);
                    }
                }
            }
            adopted.spans.push(span);
        }
        self.usage.blocks_live += blocks_live;
        self.usage.bytes_live += bytes_live;
        self.usage.bytes_populated += populated_bytes as u64;
        self.has_suspects |= has_suspects;
        self.pending.extend(pending);
        places.memory.recount_populated(run.first, populated_bytes as u64);
        self.runs.insert(run.first, adopted);
        for (class, address) in free {
            self.free[class.index()].put_unused(address);
        }
        Ok(())
    }

    /// Forgets a run; what of it is in free lists goes.
    pub(crate) fn give_up(&mut self, places: Places<'_>, extent: usize) {
        let Some(run) = self.runs.remove(&extent) else { return };
        for carving in &mut self.carving {
            carving.take_if(|address| address.extent() == extent);
        }
        for free in &mut self.free {
            free.retain(|address| address.extent() != extent);
        }
        self.pending.retain(|address| address.extent() != extent);
        let mut populated_bytes = run.head_populated_bytes;
        for (index, span) in run.spans.iter().enumerate() {
            populated_bytes += span.populated_bytes;
            for block in (0..span.carved).filter(|block| span.free >> block & 1 == 0) {
                let address = Address::new(extent, places.first_span_line() + index, block);
                let header = places.header(places.place(address, span.word).header_offset_bytes);
                self.usage.blocks_live = self.usage.blocks_live.saturating_sub(1);
                let len_bytes = header.map_or(0, |header| header.len_bytes());
                self.usage.bytes_live = self.usage.bytes_live.saturating_sub(len_bytes);
            }
        }
        self.usage.bytes_populated = self.usage.bytes_populated.saturating_sub(populated_bytes as u64);
    }

    /// Takes a block back whose holder word was just found empty.
    pub(crate) fn put_back(&mut self, places: Places<'_>, address: Address) {
        let Some(span) = self.span_mut(places, address) else { return };
        let bit = 1 << address.index();
        if span.free & bit != 0 {
            return;
        }
        span.free |= bit;
        span.pending &= !bit;
        let word = span.word;
        let place = places.place(address, word);
        let mut freed = Freed::Here;
        if let Some(header) = places.header(place.header_offset_bytes) {
            // Whoever else had it has said so.
            if header.returned().load(Ordering::Relaxed) != 0 {
                header.returned().store(0, Ordering::SeqCst);
                freed = Freed::Away;
            }
            self.usage.blocks_live = self.usage.blocks_live.saturating_sub(1);
            self.usage.bytes_live = self.usage.bytes_live.saturating_sub(header.len_bytes());
        }
        self.free[word.class.index()].put(address, freed);
    }

    /// Looks at what remote holders returned.
    pub(crate) fn collect(&mut self, places: Places<'_>) {
        let runs: Vec<usize> = self.runs.keys().copied().collect();
        for extent in runs {
            if places.memory.take_extent_returns(extent) {
                self.collect_run(places, extent);
            }
        }
        self.look_at_pending(places, PENDING_LOOKS);
    }

    /// Looks at every block that came back while somebody else held it.
    pub(crate) fn look_at_all_pending(&mut self, places: Places<'_>) {
        self.look_at_pending(places, usize::MAX);
    }

    fn look_at_pending(&mut self, places: Places<'_>, at_most: usize) {
        if at_most >= self.pending.len() {
            self.has_suspects = false;
        }
        for _ in 0..self.pending.len().min(at_most) {
            let Some(address) = self.pending.pop_front() else { break };
            let Some(span) = self.span_mut(places, address) else { continue };
            if span.pending & 1 << address.index() == 0 {
                continue;
            }
            span.pending &= !(1 << address.index());
            self.consider(places, address);
        }
    }

    fn collect_run(&mut self, places: Places<'_>, extent: usize) {
        let Some(summary) = places.summary(extent) else { return };
        for (index, word) in summary.iter().enumerate() {
            if word.load(Ordering::SeqCst) == 0 {
                continue;
            }
            for bit in bits(word.swap(0, Ordering::SeqCst)) {
                let line_index = index * 64 + bit;
                let Some(span) = places.span(extent, line_index) else { continue };
                if !span.class.is_slab() {
                    self.consider(places, Address::new(extent, line_index, 0));
                    continue;
                }
                let Some(words) = places.head_line(extent, line_index) else { continue };
                for block in bits(words[line::RETURNED].swap(0, Ordering::SeqCst)) {
                    self.consider(places, Address::new(extent, line_index, block));
                }
            }
        }
    }

    /// A block was marked as returned: free it, or remember to look again.
    fn consider(&mut self, places: Places<'_>, address: Address) {
        let Some(span) = self.span_mut(places, address) else { return };
        let bit = 1_u64.checked_shl(u32::try_from(address.index()).unwrap_or(u32::MAX)).unwrap_or(0);
        if address.index() >= span.carved || span.free & bit != 0 {
            return;
        }
        let place = places.place(address, span.word);
        let Some(header) = places.header(place.header_offset_bytes) else { return };
        if header.returned().load(Ordering::SeqCst) == 0 {
            return;
        }
        let holders = header.holders().load(Ordering::SeqCst);
        if holders == 0 {
            self.put_back(places, address);
        } else if span.pending & bit == 0 {
            span.pending |= bit;
            self.has_suspects |= holders & SUSPECT != 0;
            self.pending.push_back(address);
        }
    }

    /// Gives whole free spans back to the system until `at_least_bytes` came together. Returns how many bytes did.
    pub(crate) fn trim(&mut self, places: Places<'_>, at_least_bytes: u64) -> u64 {
        let mut trimmed = 0;
        for run in self.runs.values_mut() {
            if trimmed < at_least_bytes {
                trimmed += run.trim(places, at_least_bytes - trimmed);
            }
        }
        self.usage.bytes_populated = self.usage.bytes_populated.saturating_sub(trimmed);
        trimmed
    }

    /// As [`Arena::trim`], for all of one run, whatever its last owner said was populated: it may have died in between.
    pub(crate) fn trim_run(&mut self, places: Places<'_>, extent: usize) {
        if let Some(run) = self.runs.get_mut(&extent) {
            for span in run.spans.iter().filter(|span| span.is_free()) {
                let kept = span.kept_bytes();
                let offset = places.start_of(extent) + span.word.start_page * PAGE_BYTES + kept;
                // An error means that nothing was given back, which the count below does not claim.
                let _ = places.memory.punch_hole(offset, span.word.class.span_pages() * PAGE_BYTES - kept);
            }
            let trimmed = run.trim(places, u64::MAX);
            self.usage.bytes_populated = self.usage.bytes_populated.saturating_sub(trimmed);
        }
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Marks a free block as taken and makes sure that its memory is there.
    fn hand_out(
        &mut self,
        places: Places<'_>,
        address: Address,
        len_bytes: usize,
    ) -> Result<Place, StorageError> {
        let line_index = address.line();
        let Some(span) = self.span_mut(places, address) else {
            return Err(StorageError::BadReference { reference: 0, what: "the run was given up" });
        };
        let word = span.word;
        let place = places.place(address, word);
        let span_offset = places.start_of(address.extent()) + word.start_page * PAGE_BYTES;
        // What another owner populated may still be closed here.
        places.open_range(place.data_offset_bytes, len_bytes)?;
        let needed = (place.data_offset_bytes - span_offset + len_bytes).next_multiple_of(PAGE_BYTES);
        let have = span.populated_bytes;
        if needed > have {
            let end = if word.class.is_slab() {
                needed.next_multiple_of(POPULATE_STEP_BYTES).min(word.class.span_pages() * PAGE_BYTES)
            } else {
                needed
            };
            places.open_range(span_offset, end)?;
            places.memory.count_populated(address.extent(), (end - have) as u64)?;
            if let Err(error) = places.memory.data().populate(span_offset + have, end - have) {
                places.memory.count_returned_to_system(address.extent(), (end - have) as u64);
                return Err(error.into());
            }
            publish_populated(places, address.extent(), line_index, end);
            self.usage.bytes_populated += (end - have) as u64;
            self.usage.populate_calls += 1;
            if let Some(span) = self.span_mut(places, address) {
                span.populated_bytes = end;
            }
        }
        if let Some(span) = self.span_mut(places, address) {
            span.free &= !(1 << address.index());
        }
        self.usage.blocks_live += 1;
        self.usage.bytes_live += len_bytes as u64;
        Ok(place)
    }

    /// Commits a new span of the class at the end of one of the runs.
    fn new_span(&mut self, places: Places<'_>, class: Class) -> Result<Option<Address>, StorageError> {
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
        let missing = || StorageError::BadReference { reference: 0, what: "the head of the run is closed" };
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
        // The commit: from here on every scan sees the span. A line above the mark is seen by nobody, and the
        // next owner writes it anew.
        words[line::SPAN].store(word.pack(), Ordering::Release);
        run.next_page = start_page + class.span_pages();
        marks[head::PAGES_HIGH_WATER].store(run.next_page as u64, Ordering::Release);
        marks[head::LINES_HIGH_WATER].store(line_index as u64 + 1, Ordering::Release);
        run.spans.push(Span { word, carved: 0, free: 0, pending: 0, populated_bytes });
        self.usage.bytes_populated += populated_bytes as u64;
        Ok(Some(address))
    }

    /// Populates a slab's page of headers, which reads as zero: no block of it is held.
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

    fn populate_head(
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
            self.usage.bytes_populated += (end_bytes - have) as u64;
        }
        Ok(())
    }

    fn span_mut(&mut self, places: Places<'_>, address: Address) -> Option<&mut Span> {
        let index = address.line().checked_sub(places.first_span_line())?;
        self.runs.get_mut(&address.extent())?.spans.get_mut(index)
    }
}

impl Span {
    fn is_free(&self) -> bool {
        self.free.count_ones() as usize == self.carved
    }

    /// A slab's page of headers stays when its blocks are given back: others may be reading it.
    fn kept_bytes(&self) -> usize {
        if self.word.class.is_slab() { PAGE_BYTES } else { 0 }
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
            // Said before it is done: the next owner populates what is there already rather than nothing.
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

/// How many extents a block of this class needs when it does not fit into one.
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

fn publish_populated(places: Places<'_>, extent: usize, line_index: usize, len_bytes: usize) {
    if let Some(words) = places.head_line(extent, line_index) {
        words[line::POPULATED_BYTES].store(len_bytes as u64, Ordering::Release);
    }
}

/// The indexes of the bits that are set.
pub(crate) fn bits(word: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |bit| word >> bit & 1 != 0)
}
