//! From a reference to memory: where headers and data lie in an extent.
//!
//! Another process may have written everything that is read here, so each number is checked before it becomes
//! an offset.

use std::hint::cold_path;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};

use tensorferry_domain::Memory;
use tensorferry_os::mapping::PAGE_BYTES;

use crate::StorageError;
use crate::class::{LINE_BYTES, LINE_WORDS};
use crate::geometry::{Address, Geometry, Place};
use crate::header::{Header, SpanWord, head, line, slab};

/// Memory is opened in steps of this size, so that growing costs few system calls.
const OPEN_STEP_BYTES: usize = 256 << 10;

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
    geometry: Geometry,
}

impl Deref for Places<'_> {
    type Target = Geometry;

    fn deref(&self) -> &Geometry {
        &self.geometry
    }
}

impl<'a> Places<'a> {
    #[inline]
    pub(crate) fn of(memory: &'a Memory) -> Self {
        Self { memory, geometry: Geometry::new(memory.layout()) }
    }

    /// Opens the first `end_bytes` bytes of an extent, rounded up to a step.
    pub(crate) fn open(&self, extent: usize, end_bytes: usize) -> Result<(), StorageError> {
        let end = end_bytes.next_multiple_of(OPEN_STEP_BYTES).min(self.extent_len_bytes());
        Ok(self.memory.data().open(extent, end)?)
    }

    /// Opens a range that may cover several extents of a run.
    #[inline]
    pub(crate) fn open_range(&self, offset_bytes: usize, len_bytes: usize) -> Result<(), StorageError> {
        if self.memory.data().is_open(offset_bytes, len_bytes) {
            return Ok(());
        }
        cold_path();
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
    #[inline]
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

    #[inline]
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
        let inside = header_offset_bytes - self.start_of(extent);
        let page = inside / PAGE_BYTES;
        // The head and the page, in one system call at most.
        let end = self.head_len_bytes().max((page + 1) * PAGE_BYTES);
        self.open(extent, end).map_err(NotFound::Unreadable)?;
        let address = if inside < self.head_len_bytes() {
            Address::new(extent, inside / LINE_BYTES, 0)
        } else {
            let index =
                (inside % PAGE_BYTES / LINE_BYTES).checked_sub(1).ok_or(NotFound::Bad("it is no header"))?;
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
}
