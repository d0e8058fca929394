//! Every block of a domain that somebody holds, as its file says. Each number is checked before it becomes an
//! offset or a length: it may be anything.

use std::cell::Cell;

use tensorferry_domain::{DomainFile, ExtentRun, RunInfo};

use crate::StorageError;
use crate::class::{LINE_BYTES, LINE_WORDS, SLAB_BLOCKS};
use crate::geometry::{Address, Geometry, Place};
use crate::header::{Kind, SpanWord, head, kind_of, line};

/// The words of a block header or of a span's line.
type Line = [u64; LINE_WORDS];

/// What lies in a domain, for about twice as many bytes as its file has memory. What is honest lies in memory
/// and is read once or twice; what somebody has made up of holes comes to an end.
pub(super) struct Contents<'a> {
    pub(super) file: &'a DomainFile,
    left_bytes: Cell<u64>,
}

impl<'a> Contents<'a> {
    pub(super) fn of(file: &'a DomainFile) -> Result<Self, StorageError> {
        let left_bytes = Cell::new(file.allocated_bytes()?.saturating_mul(2).saturating_add(1 << 20));
        Ok(Self { file, left_bytes })
    }

    /// Words of the data area; `None` where it ends before they do, or enough was read.
    fn words(&self, offset_bytes: usize, n_words: usize) -> Result<Option<Vec<u64>>, StorageError> {
        let len_bytes = n_words as u64 * size_of::<u64>() as u64;
        if !self.spend(len_bytes) {
            return Ok(None);
        }
        Ok(self.file.data_words(offset_bytes, n_words)?)
    }

    /// Counts so many bytes as read; false where that is more than is left.
    pub(super) fn spend(&self, len_bytes: u64) -> bool {
        let left_bytes = self.left_bytes.get().checked_sub(len_bytes);
        left_bytes.inspect(|left_bytes| self.left_bytes.set(*left_bytes)).is_some()
    }
}

/// A block with holders.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) place: Place,
    pub(super) kind: Kind,
    /// The length that was asked for.
    pub(super) len_bytes: u64,
    /// Bits of members, and `SUSPECT`.
    pub(super) holders: u64,
}

impl Found {
    /// `None` for a block that nobody holds.
    fn read(place: Place, line: &Line) -> Option<Self> {
        let holders = line[line::HOLDERS];
        let len_bytes = line[line::LEN_BYTES].min(place.class.size_bytes() as u64);
        let kind = kind_of(line[line::KIND]);
        (holders != 0).then_some(Self { place, kind, len_bytes, holders })
    }

    /// Tells it from the other blocks that are there.
    pub(super) fn id(&self) -> u64 {
        self.place.header_offset_bytes as u64
    }

    /// Words of its data; `None` where it ends before they do.
    pub(super) fn words(
        &self,
        contents: &Contents<'_>,
        at_word: usize,
        n_words: usize,
    ) -> Result<Option<Vec<u64>>, StorageError> {
        if (at_word + n_words) * size_of::<u64>() > self.place.class.size_bytes() {
            return Ok(None);
        }
        contents.words(self.place.data_offset_bytes + at_word * size_of::<u64>(), n_words)
    }
}

/// Finds all of them, in the order in which their headers lie in each run.
pub(super) fn held_blocks(contents: &Contents<'_>, runs: &[RunInfo]) -> Result<Vec<Found>, StorageError> {
    let mut found = Vec::new();
    for info in runs {
        walk_run(contents, info.run, &mut found)?;
    }
    Ok(found)
}

fn walk_run(contents: &Contents<'_>, run: ExtentRun, found: &mut Vec<Found>) -> Result<(), StorageError> {
    let geometry = Geometry::new(contents.file.layout());
    let start = geometry.start_of(run.first);
    let Some(marks) = contents.words(start, LINE_WORDS)? else { return Ok(()) };
    let first = geometry.first_span_line();
    let n_lines = usize::try_from(marks[head::LINES_HIGH_WATER]).unwrap_or(0);
    let n_lines = n_lines.clamp(first, geometry.n_lines());
    let lines = contents.words(start + first * LINE_BYTES, (n_lines - first) * LINE_WORDS)?;
    // Spans follow each other in the order in which they were made.
    let mut end_page = 0;
    for (index, line) in (first..).zip(lines.unwrap_or_default().as_chunks::<LINE_WORDS>().0) {
        let Some(span) = SpanWord::unpack(line[line::SPAN]) else { break };
        let address = |block| Address::new(run.first, index, block);
        let Ok(place) = geometry.place_in(run, address(0), span) else { continue };
        if span.start_page < end_page {
            continue;
        }
        end_page = span.start_page + span.class.span_pages();
        if !span.class.is_slab() {
            found.extend(Found::read(place, line));
            continue;
        }
        let headers = contents.words(place.header_offset_bytes, SLAB_BLOCKS * LINE_WORDS)?;
        for (block, line) in headers.unwrap_or_default().as_chunks::<LINE_WORDS>().0.iter().enumerate() {
            found.extend(Found::read(geometry.place(address(block), span), line));
        }
    }
    Ok(())
}
