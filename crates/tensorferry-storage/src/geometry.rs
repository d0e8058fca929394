//! Where things lie in an extent. Only numbers: nothing here reads memory.
//!
//! ```text
//! run of extents, offset 0
//! | head: line 0 (marks) | summary of returns | a line for each span | pages: span, span, ... |
//! slab:  | page of headers: line 0 (the slab), lines 1..=63 (its blocks) | block 0 | block 1 | ... |
//! alone: | data |                               its span's line is the block's header
//! ```
//!
//! The head is 1/128 of an extent.

use tensorferry_domain::{ExtentRun, Layout};
use tensorferry_os::mapping::PAGE_BYTES;

use crate::class::{Class, LINE_BYTES, LINE_WORDS, SLAB_BLOCKS};
use crate::header::SpanWord;

/// An extent is this many times as long as its head.
pub(crate) const HEAD_FRACTION: usize = 128;

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
    #[inline]
    pub(crate) fn new(extent: usize, line: usize, index: usize) -> Self {
        Self {
            extent: extent.try_into().unwrap_or(u32::MAX),
            line: line.try_into().unwrap_or(u16::MAX),
            index: index.try_into().unwrap_or(u16::MAX),
        }
    }

    /// The first extent of its run.
    #[inline]
    pub(crate) fn extent(self) -> usize {
        usize::try_from(self.extent).unwrap_or(usize::MAX)
    }

    /// Its span's line in the head.
    #[inline]
    pub(crate) fn line(self) -> usize {
        self.line.into()
    }

    /// Which block of the slab; 0 for a block that stands alone.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.index.into()
    }
}

/// The geometry of a domain's extents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    extent_len_bytes: usize,
}

impl Geometry {
    #[inline]
    pub(crate) fn new(layout: &Layout) -> Self {
        Self { extent_len_bytes: layout.extent_len_bytes }
    }

    #[inline]
    pub(crate) fn extent_len_bytes(&self) -> usize {
        self.extent_len_bytes
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

    #[inline]
    pub(crate) fn start_of(&self, extent: usize) -> usize {
        extent << self.extent_shift()
    }

    /// The length of an extent is a power of two. A shift avoids a division by a number that is not known
    /// when compiling, which is slow.
    #[inline]
    fn extent_shift(&self) -> u32 {
        self.extent_len_bytes().trailing_zeros()
    }

    #[inline]
    pub(crate) fn extent_of(&self, offset_bytes: usize) -> usize {
        offset_bytes >> self.extent_shift()
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

    /// As [`Self::place`], for numbers that another process wrote.
    pub(crate) fn place_in(
        &self,
        run: ExtentRun,
        address: Address,
        span: SpanWord,
    ) -> Result<Place, &'static str> {
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
