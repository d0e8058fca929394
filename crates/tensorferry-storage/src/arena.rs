//! What a member knows privately about its own extents: which blocks are free.
//!
//! All of this can be rebuilt from the headers in shared memory ([`Arena::adopt`]), as happens when the owner
//! dies. No other process ever reads it.

mod populate;
mod runs;

use std::collections::{BTreeMap, VecDeque};
use std::hint::cold_path;
use std::sync::atomic::Ordering;

use tensorferry_domain::ExtentRun;
use tensorferry_os::mapping::PAGE_BYTES;

use crate::class::{Class, N_CLASSES, SLAB_BLOCKS};
use crate::free_list::{self, FreeList, Freed};
use crate::geometry::{Address, Place};
use crate::header::{Header, SUSPECT, SpanWord, line};
use crate::place::Places;
use crate::{HeapUsage, StorageError};

pub(crate) use runs::extents_for;

/// How many blocks that were returned while another member still held them each collection looks at again.
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
    /// How many blocks were handed out at least once. Only a slab has more than one.
    carved: usize,
    /// One bit for each block.
    free: u64,
    /// One bit for each block that was returned by one holder while another held it: these are looked at
    /// again now and then.
    pending: u64,
    /// Counted from the start of the span; for a slab this includes its page of headers.
    populated_bytes: usize,
}

/// Which free blocks an allocation accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Blocks that cost no more to write than fresh ones.
    Ripe,
    /// All free blocks.
    Any,
    /// All free blocks of the run that begins with this extent.
    Of(usize),
}

/// The private side of a heap.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    runs: BTreeMap<usize, Run>,
    /// Made with the first block: a process that has none touches no memory for it.
    classes: Vec<OfClass>,
    pending: VecDeque<Address>,
    has_suspects: bool,
    pub(crate) usage: HeapUsage,
}

/// The blocks of one class that can be handed out.
#[derive(Debug, Default)]
struct OfClass {
    free: FreeList,
    /// The slab that has blocks which were never handed out.
    carving: Option<Address>,
}

impl Arena {
    fn class_mut(&mut self, class: Class) -> &mut OfClass {
        if self.classes.is_empty() {
            cold_path();
            self.classes.resize_with(N_CLASSES, OfClass::default);
        }
        &mut self.classes[class.index()]
    }

    pub(crate) fn owns(&self, extent: usize) -> bool {
        self.runs.contains_key(&extent)
    }

    pub(crate) fn has_suspects(&self) -> bool {
        self.has_suspects
    }

    /// Takes a free block of the class that was in use before. With [`Wanted::Ripe`], only one that is worth
    /// using now.
    pub(crate) fn take_recycled(
        &mut self,
        places: Places<'_>,
        class: Class,
        len_bytes: usize,
        wanted: Wanted,
    ) -> Result<Option<Place>, StorageError> {
        // A block that cannot be populated now stays free, and the next one is tried.
        let (mut refused, mut first) = (Vec::new(), None);
        let place = loop {
            let free = &mut self.class_mut(class).free;
            let next = match wanted {
                Wanted::Ripe => free.take(|| free_list::distance(class)),
                Wanted::Any => free.take_any(),
                Wanted::Of(extent) => free.take_of(extent),
            };
            let Some(address) = next else { break None };
            match self.hand_out(places, address, len_bytes) {
                // An entry is stale when its run was given up; nothing else invalidates it.
                Ok(None) => {}
                Ok(place) => break place,
                Err(error) => {
                    cold_path();
                    refused.push(address);
                    first.get_or_insert(error);
                }
            }
        };
        let Some(error) = first else { return Ok(place) };
        refused.into_iter().for_each(|address| self.class_mut(class).free.put_unused(address));
        place.map_or(Err(error), |place| Ok(Some(place)))
    }

    /// Takes a free block of the smallest larger class that has one. Used when the address space is used up.
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

    /// Takes a block of the class that was never in use, from the runs that this member owns.
    pub(crate) fn take_fresh(
        &mut self,
        places: Places<'_>,
        class: Class,
        len_bytes: usize,
    ) -> Result<Option<Place>, StorageError> {
        let address = match self.class_mut(class).carving {
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
        self.class_mut(class).carving = more.then_some(address);
        self.hand_out(places, fresh, len_bytes).inspect_err(|_| self.class_mut(class).free.put_unused(fresh))
    }

    /// Takes back a block whose holder word was just found empty.
    #[inline]
    pub(crate) fn put_back(&mut self, places: Places<'_>, address: Address, header: Header<'_>) {
        let Some(span) = self.span_mut(places, address) else { return };
        let bit = 1 << address.index();
        if span.free & bit != 0 {
            return;
        }
        span.free |= bit;
        span.pending &= !bit;
        let class = span.word.class;
        let mut freed = Freed::Here;
        // Every other member that had the block has marked it.
        if header.returned().load(Ordering::Relaxed) != 0 {
            header.returned().store(0, Ordering::SeqCst);
            freed = Freed::Away;
        }
        self.usage.live_blocks = self.usage.live_blocks.saturating_sub(1);
        self.usage.live_bytes = self.usage.live_bytes.saturating_sub(header.len_bytes());
        self.class_mut(class).free.put(address, freed);
    }

    /// Looks at the blocks that remote holders returned.
    pub(crate) fn collect(&mut self, places: Places<'_>) {
        let runs: Vec<usize> = self.runs.keys().copied().collect();
        for extent in runs {
            if places.memory.take_extent_returns(extent) {
                self.collect_run(places, extent);
            }
        }
        self.look_at_pending(places, PENDING_LOOKS);
    }

    /// Looks at every block that came back while another member held it.
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

    /// Frees a block that was marked as returned, or notes that it has to be looked at again.
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
            self.put_back(places, address, header);
        } else if span.pending & bit == 0 {
            span.pending |= bit;
            self.has_suspects |= holders & SUSPECT != 0;
            self.pending.push_back(address);
        }
    }

    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
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

    /// What stays when the span is given back: a slab keeps its page of headers, because others may be
    /// reading it.
    fn kept_bytes(&self) -> usize {
        if self.word.class.is_slab() { PAGE_BYTES } else { 0 }
    }
}

/// The indexes of the bits that are set.
pub(crate) fn bits(word: u64) -> impl Iterator<Item = usize> {
    (0..64).filter(move |bit| word >> bit & 1 != 0)
}
