//! Every block of a domain that somebody holds, as its file says. Each number is checked before it becomes an
//! offset or a length: it may be anything.

use tensorferry_domain::{DomainFile, ExtentRun, RunInfo};

use crate::StorageError;
use crate::class::{LINE_BYTES, LINE_WORDS, SLAB_BLOCKS};
use crate::geometry::{Address, Geometry, Place};
use crate::header::{Kind, SpanWord, head, kind_of, line};

/// The words of a block header or of a span's line.
type Line = [u64; LINE_WORDS];

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
        file: &DomainFile,
        at_word: usize,
        n_words: usize,
    ) -> Result<Option<Vec<u64>>, StorageError> {
        if (at_word + n_words) * size_of::<u64>() > self.place.class.size_bytes() {
            return Ok(None);
        }
        Ok(file.data_words(self.place.data_offset_bytes + at_word * size_of::<u64>(), n_words)?)
    }
}

/// Finds all of them, in the order in which their headers lie in each run.
pub(super) fn held_blocks(file: &DomainFile, runs: &[RunInfo]) -> Result<Vec<Found>, StorageError> {
    let mut found = Vec::new();
    for info in runs {
        walk_run(file, info.run, &mut found)?;
    }
    Ok(found)
}

fn walk_run(file: &DomainFile, run: ExtentRun, found: &mut Vec<Found>) -> Result<(), StorageError> {
    let geometry = Geometry::new(file.layout());
    let start = geometry.start_of(run.first);
    let Some(marks) = file.data_words(start, LINE_WORDS)? else { return Ok(()) };
    let first = geometry.first_span_line();
    let n_lines = usize::try_from(marks[head::LINES_HIGH_WATER]).unwrap_or(0);
    let n_lines = n_lines.clamp(first, geometry.n_lines());
    let lines = file.data_words(start + first * LINE_BYTES, (n_lines - first) * LINE_WORDS)?;
    for (index, line) in (first..).zip(lines.unwrap_or_default().as_chunks::<LINE_WORDS>().0) {
        let Some(span) = SpanWord::unpack(line[line::SPAN]) else { break };
        let address = |block| Address::new(run.first, index, block);
        let Ok(place) = geometry.place_in(run, address(0), span) else { continue };
        if !span.class.is_slab() {
            found.extend(Found::read(place, line));
            continue;
        }
        let headers = file.data_words(place.header_offset_bytes, SLAB_BLOCKS * LINE_WORDS)?;
        for (block, line) in headers.unwrap_or_default().as_chunks::<LINE_WORDS>().0.iter().enumerate() {
            found.extend(Found::read(geometry.place(address(block), span), line));
        }
    }
    Ok(())
}
