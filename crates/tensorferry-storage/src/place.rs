//! From a reference to memory: where headers and data lie in an extent.
//!
//! ```text
//! run of extents, offset 0
//! | head: line 0 (marks) | summary of returns | a line for each span | pages: span, span, ... |
//! slab:  | page of headers: line 0 (the slab), lines 1..=63 (its blocks) | block 0 | block 1 | ... |
//! alone: | data |                               its span's line is the block's header
//! ```
//!
//! The head is 1/128 of an extent. Another process may have written everything that is read here, so each
//! number is checked before it becomes an offset.

use std::sync::atomic::{AtomicU64, Ordering};

use tensorferry_domain::{ExtentRun, Memory};
use tensorferry_os::mapping::PAGE_BYTES;

use crate::StorageError;
use crate::class::{Class, LINE_BYTES, LINE_WORDS, SLAB_BLOCKS};
use crate::header::{Header, SpanWord, head, line, slab};

/// An extent is this many times as long as its head.
pub(crate) const HEAD_FRACTION: usize = 128;
/// Memory is opened in steps of this size, so that growing costs few system calls.
const OPEN_STEP_BYTES: usize = 256 << 10;

/// Where a block lies, as offsets in the data area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) header_offset_bytes: usize,
    pub(crate) data_offset_bytes: usize,
    pub(crate) address: Address,
    /// The size class of its span.
    pub(crate) class: Class,
}

/// Where a block lies, in the terms of its owner: extent, line and index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    extent: u32,
    line: u16,
    index: u16,
}

impl Address {
    /// A number that does not fit becomes the largest one, which is still too large: no domain has as many
    /// extents, no head as many lines, and no slab as many blocks.
    pub(crate) fn new(extent: usize, line: usize, index: usize) -> Self {
        Self {
            extent: extent.try_into().unwrap_or(u32::MAX),
            line: line.try_into().unwrap_or(u16::MAX),
            index: index.try_into().unwrap_or(u16::MAX),
        }
    }

    /// The first extent of its run.
    pub(crate) fn extent(self) -> usize {
        usize::try_from(self.extent).unwrap_or(usize::MAX)
    }

    /// Its span's line in the head.
    pub(crate) fn line(self) -> usize {
        self.line.into()
    }

    /// Which block of the slab; 0 for a block that stands alone.
    pub(crate) fn index(self) -> usize {
        self.index.into()
    }
}

/// Why a reference leads nowhere.
#[derive(Debug)]
pub(crate) enum NotFound {
    /// No honest reference leads there, or its block is gone.
    Bad(&'static str),
    /// The memory that it leads to cannot be opened at this moment.
    Unreadable(StorageError),
}

impl NotFound {
    /// Turns this into the error that names the reference.
    pub(crate) fn into_error(self, bad: impl Fn(&'static str) -> StorageError) -> StorageError {
        match self {
            Self::Bad(what) => bad(what),
            Self::Unreadable(error) => error,
        }
    }
}

/// A view of one domain's data area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places<'a> {
    pub(crate) memory: &'a Memory,
}

impl<'a> Places<'a> {
    pub(crate) fn extent_len_bytes(&self) -> usize {
        self.memory.layout().extent_len_bytes
    }

    pub(crate) fn head_len_bytes(&self) -> usize {
        self.extent_len_bytes() / HEAD_FRACTION
    }

    pub(crate) fn n_lines(&self) -> usize {
        self.head_len_bytes() / LINE_BYTES
    }

    pub(crate) fn n_summary_words(&self) -> usize {
        self.n_lines() / 64
    }

    pub(crate) fn first_span_line(&self) -> usize {
        1 + self.n_summary_words().div_ceil(LINE_WORDS)
    }

    pub(crate) fn start_of(&self, extent: usize) -> usize {
        extent << self.extent_shift()
    }

    /// The length of an extent is a power of two. A shift avoids a division by a number that is not known
    /// when compiling, which is slow.
    fn extent_shift(&self) -> u32 {
        self.extent_len_bytes().trailing_zeros()
    }

    fn extent_of(&self, offset_bytes: usize) -> usize {
        offset_bytes >> self.extent_shift()
    }

    /// Opens the first `end_bytes` bytes of an extent, rounded up to a step.
    pub(crate) fn open(&self, extent: usize, end_bytes: usize) -> Result<(), StorageError> {
        let end = end_bytes.next_multiple_of(OPEN_STEP_BYTES).min(self.extent_len_bytes());
        Ok(self.memory.data().open(extent, end)?)
    }

    /// Opens a range that may cover several extents of a run.
    pub(crate) fn open_range(&self, offset_bytes: usize, len_bytes: usize) -> Result<(), StorageError> {
        let end = offset_bytes + len_bytes;
        let mut at = offset_bytes;
        while at < end {
            let extent = self.extent_of(at);
            let until = end.min(self.start_of(extent + 1));
            self.open(extent, until - self.start_of(extent))?;
            at = until;
        }
        Ok(())
    }

    /// One line of the data area, as words.
    pub(crate) fn line_at(&self, offset_bytes: usize) -> Option<&'a [AtomicU64; LINE_WORDS]> {
        self.memory.data().words(offset_bytes, LINE_WORDS)?.first_chunk()
    }

    /// Line `index` of the head of a run.
    pub(crate) fn head_line(&self, extent: usize, index: usize) -> Option<&'a [AtomicU64; LINE_WORDS]> {
        if index >= self.n_lines() {
            return None;
        }
        self.line_at(self.start_of(extent) + index * LINE_BYTES)
    }

    /// The bitmap of the lines that have returned blocks, as words.
    pub(crate) fn summary(&self, extent: usize) -> Option<&'a [AtomicU64]> {
        self.memory.data().words(self.start_of(extent) + LINE_BYTES, self.n_summary_words())
    }

    /// The span that the line describes.
    pub(crate) fn span(&self, extent: usize, index: usize) -> Option<SpanWord> {
        if index < self.first_span_line() {
            return None;
        }
        SpanWord::unpack(self.head_line(extent, index)?[line::SPAN].load(Ordering::Acquire))
    }

    /// How many lines of the head are in use, as the head says, clamped to what is possible.
    pub(crate) fn lines_high_water(&self, extent: usize) -> usize {
        self.head_mark(extent, head::LINES_HIGH_WATER).clamp(self.first_span_line(), self.n_lines())
    }

    /// How many pages of the run are in use, as the head says.
    pub(crate) fn pages_high_water(&self, extent: usize) -> usize {
        self.head_mark(extent, head::PAGES_HIGH_WATER).max(self.head_len_bytes() / PAGE_BYTES)
    }

    fn head_mark(&self, extent: usize, word: usize) -> usize {
        let mark = self.head_line(extent, 0).map_or(0, |line| line[word].load(Ordering::Acquire));
        usize::try_from(mark).unwrap_or(0)
    }

    /// Where a block of a span lies. The numbers are the owner's own, or the caller has checked them.
    pub(crate) fn place(&self, address: Address, span: SpanWord) -> Place {
        let start = self.start_of(address.extent());
        let span_offset = start + span.start_page * PAGE_BYTES;
        let capacity_bytes = span.class.size_bytes();
        if span.class.is_slab() {
            Place {
                header_offset_bytes: span_offset + (1 + address.index()) * LINE_BYTES,
                data_offset_bytes: span_offset + PAGE_BYTES + address.index() * capacity_bytes,
                address,
                class: span.class,
            }
        } else {
            Place {
                header_offset_bytes: start + address.line() * LINE_BYTES,
                data_offset_bytes: span_offset,
                address,
                class: span.class,
            }
        }
    }

    pub(crate) fn header(&self, header_offset_bytes: usize) -> Option<Header<'a>> {
        self.line_at(header_offset_bytes).map(Header::new)
    }

    /// Finds the block whose header is said to lie at this offset. Opens the memory that it has to read.
    ///
    /// # Errors
    /// [`NotFound::Bad`] where no honest reference leads, [`NotFound::Unreadable`] where the kernel does not
    /// let this process read now.
    pub(crate) fn find(&self, header_offset_bytes: usize) -> Result<Place, NotFound> {
        let extent = self.extent_of(header_offset_bytes);
        let run = self.memory.run_starting_at(extent).ok_or(NotFound::Bad("its extent is not in use"))?;
        let unreadable = NotFound::Bad("its extent cannot be opened");
        self.open(extent, self.head_len_bytes()).map_err(NotFound::Unreadable)?;
        let inside = header_offset_bytes - self.start_of(extent);
        let address = if inside < self.head_len_bytes() {
            Address::new(extent, inside / LINE_BYTES, 0)
        } else {
            let page = inside / PAGE_BYTES;
            let index =
                (inside % PAGE_BYTES / LINE_BYTES).checked_sub(1).ok_or(NotFound::Bad("it is no header"))?;
            self.open(extent, (page + 1) * PAGE_BYTES).map_err(NotFound::Unreadable)?;
            let first = self.line_at(self.start_of(extent) + page * PAGE_BYTES).ok_or(unreadable)?;
            let line = usize::try_from(first[slab::LINE].load(Ordering::Acquire))
                .map_err(|_| NotFound::Bad("it is in no slab"))?;
            Address::new(extent, line, index)
        };
        let span = self.span(extent, address.line()).ok_or(NotFound::Bad("it is in no span"))?;
        let place = self.place_in(run, address, span).map_err(NotFound::Bad)?;
        if place.header_offset_bytes != header_offset_bytes {
            return Err(NotFound::Bad("its span lies elsewhere"));
        }
        Ok(place)
    }

    /// As [`Self::place`], for numbers that another process wrote.
    pub(crate) fn place_checked(&self, address: Address, span: SpanWord) -> Result<Place, &'static str> {
        let run = self.memory.run_starting_at(address.extent()).ok_or("its span lies outside")?;
        self.place_in(run, address, span)
    }

    fn place_in(&self, run: ExtentRun, address: Address, span: SpanWord) -> Result<Place, &'static str> {
        let pages_left = run.n_extents * (self.extent_len_bytes() / PAGE_BYTES);
        let end = span.start_page.checked_add(span.class.span_pages());
        if end.is_none_or(|end| end > pages_left) || span.start_page < self.head_len_bytes() / PAGE_BYTES {
            return Err("its span lies outside");
        }
        if span.class.is_slab() && address.index() >= SLAB_BLOCKS {
            return Err("the slab has no such block");
        }
        Ok(self.place(address, span))
    }
}
