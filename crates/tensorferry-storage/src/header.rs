//! Block headers in shared memory: the words that say who holds a block.
//!
//! Every member may read every header at any moment. So headers never move, and a span never changes its
//! shape: a line that is a header once is a header for the life of the domain.

use crate::atomic::{AtomicU64, Ordering, prefetch_to_write};
use crate::class::{Class, LINE_WORDS};

/// Word indexes in a line of the head of an extent or of a slab's page of headers.
pub(crate) mod line {
    /// Of a span's line: what the span is. Zero until it is committed, then never changed.
    pub(crate) const SPAN: usize = 0;
    /// Of a block's line: 1 when a remote holder returned it. Of a slab's line: one such bit for each block.
    pub(crate) const RETURNED: usize = 1;
    /// One bit for each member that holds the block, and [`super::SUSPECT`].
    pub(crate) const HOLDERS: usize = 2;
    /// `kind:32 | generation:32`.
    pub(crate) const KIND: usize = 3;
    /// The length that was asked for, in bytes.
    pub(crate) const LEN_BYTES: usize = 4;
    /// Of a span's line: how much of the span is populated from its start, in bytes.
    pub(crate) const POPULATED_BYTES: usize = 5;
    /// Of a parcel: 1 while it is being opened, 2 once its packer took it back, or a scan after the packer's
    /// death, 3 once its opener holds what it names.
    pub(crate) const OPENED: usize = 6;
}

/// Word indexes in the first line of a run's head.
pub(crate) mod head {
    /// Lines of the head in use: scans stop here.
    pub(crate) const LINES_HIGH_WATER: usize = 0;
    /// Pages of the run in use, counted from its start.
    pub(crate) const PAGES_HIGH_WATER: usize = 1;
}

/// Word indexes in the first line of a slab's page of headers.
pub(crate) mod slab {
    /// The slab's line in the head of the extent.
    pub(crate) const LINE: usize = 0;
}

/// Set in a holder word when a member that held the block has died: a message of a dead member may still name
/// the block.
pub(crate) const SUSPECT: u64 = 1 << 63;

/// What a block is used for, so that a sweeper knows where to look for references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes.
    Plain,
    /// A ring of slots.
    Ring,
    /// A message too long for its slot: a table of references, then bytes.
    Message,
    /// A message outside of any ring, of the same form; it can be opened once.
    Parcel,
    /// A lock, with the words that it protects.
    Monitor,
    /// A table of references, then bytes, which keeps what it names for as long as somebody holds it.
    Bundle,
}

impl Kind {
    /// Whether blocks of this kind have references to others.
    pub(crate) fn names_others(self) -> bool {
        match self {
            Self::Ring | Self::Message | Self::Parcel | Self::Bundle => true,
            Self::Plain | Self::Monitor => false,
        }
    }
}

/// What a span is, as its line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpanWord {
    pub(crate) class: Class,
    pub(crate) start_page: usize,
}

const COMMITTED: u64 = 1;

impl SpanWord {
    /// `start page:40 | class:16 | committed:8`.
    pub(crate) fn pack(self) -> u64 {
        (self.start_page as u64) << 24 | (self.class.index() as u64) << 8 | COMMITTED
    }

    /// `None` for a word that was never committed or makes no sense.
    #[inline]
    pub(crate) fn unpack(word: u64) -> Option<Self> {
        if word & 0xff != COMMITTED {
            return None;
        }
        let class = Class::from_index(usize::try_from(word >> 8 & 0xffff).ok()?)?;
        let start_page = usize::try_from(word >> 24).ok()?;
        Some(Self { class, start_page })
    }
}

/// The words of a header.
pub(crate) type HeaderWords = [AtomicU64; LINE_WORDS];

/// The header of one block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header<'a> {
    words: &'a HeaderWords,
}

impl<'a> Header<'a> {
    #[inline]
    pub(crate) fn new(words: &'a HeaderWords) -> Self {
        Self { words }
    }

    #[inline]
    pub(crate) fn words(&self) -> &'a HeaderWords {
        self.words
    }

    #[inline]
    pub(crate) fn holders(&self) -> &'a AtomicU64 {
        &self.words[line::HOLDERS]
    }

    #[inline]
    pub(crate) fn returned(&self) -> &'a AtomicU64 {
        &self.words[line::RETURNED]
    }

    #[inline]
    pub(crate) fn generation(&self) -> u32 {
        generation_of(self.words[line::KIND].load(Ordering::Acquire))
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        kind_of(self.words[line::KIND].load(Ordering::Acquire))
    }

    /// The kind and the generation from one load, so that they belong to the same use of the block.
    #[inline]
    pub(crate) fn kind_and_generation(&self) -> (Kind, u32) {
        let word = self.words[line::KIND].load(Ordering::Acquire);
        (kind_of(word), generation_of(word))
    }

    pub(crate) fn opened(&self) -> &'a AtomicU64 {
        &self.words[line::OPENED]
    }

    #[inline]
    pub(crate) fn len_bytes(&self) -> u64 {
        self.words[line::LEN_BYTES].load(Ordering::Relaxed)
    }

    /// Writes everything but the holders, and returns the new generation. Nobody holds the block yet, so
    /// nobody reads it.
    pub(crate) fn prepare(&self, len_bytes: usize) -> u32 {
        self.words[line::LEN_BYTES].store(len_bytes as u64, Ordering::Relaxed);
        self.words[line::RETURNED].store(0, Ordering::Relaxed);
        self.words[line::OPENED].store(0, Ordering::Relaxed);
        let generation = self.generation().wrapping_add(1);
        self.words[line::KIND].store(u64::from(generation), Ordering::Release);
        generation
    }

    /// Stores the kind of the block, once its contents are complete. Only for its holder.
    pub(crate) fn set_kind(&self, kind: Kind) {
        let number: u64 = match kind {
            Kind::Plain => 0,
            Kind::Ring => 1,
            Kind::Message => 2,
            Kind::Parcel => 3,
            Kind::Monitor => 4,
            Kind::Bundle => 5,
        };
        self.words[line::KIND].store(number << 32 | u64::from(self.generation()), Ordering::Release);
    }

    /// Announces that the holder word will change soon.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_to_write(self.holders());
    }

    /// Adds `bit` if somebody holds the block, and returns false otherwise. A block that somebody holds
    /// cannot be reused, so after this it stays what it is. First tries a compare-and-swap from `likely` (0
    /// for no guess) without reading the word: otherwise its line would come here twice, once for the read
    /// and once for the change.
    #[inline]
    pub(crate) fn hold_if_held(&self, bit: u64, likely: u64) -> bool {
        let is_likely = likely != 0
            && self
                .holders()
                .compare_exchange(likely, likely | bit, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        let add = |holders: u64| (holders != 0).then_some(holders | bit);
        is_likely || self.holders().fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_ok()
    }

    /// Takes `bit` away, and returns the remaining holders. First tries `likely`, as [`Header::hold_if_held`]
    /// does.
    #[inline]
    pub(crate) fn let_go(&self, bit: u64, likely: u64) -> u64 {
        let others = likely & !bit;
        if self.holders().compare_exchange(likely, others, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            return others;
        }
        self.holders().fetch_and(!bit, Ordering::SeqCst) & !bit
    }
}

fn generation_of(kind_word: u64) -> u32 {
    let bytes = kind_word.to_le_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

pub(crate) fn kind_of(kind_word: u64) -> Kind {
    match kind_word >> 32 {
        1 => Kind::Ring,
        2 => Kind::Message,
        3 => Kind::Parcel,
        4 => Kind::Monitor,
        5 => Kind::Bundle,
        _ => Kind::Plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_survive_their_word() {
        for (index, start_page) in [(0, 0), (131, (1 << 28) - 1), (7, 12_345)] {
            let span = SpanWord { class: Class::from_index(index).unwrap(), start_page };
            assert_eq!(SpanWord::unpack(span.pack()), Some(span));
        }
        assert_eq!(SpanWord::unpack(0), None);
        assert_eq!(SpanWord::unpack(0xffff << 8 | 1), None, "no such class");
    }

    #[test]
    fn a_block_that_nobody_holds_cannot_be_held_by_reference() {
        let words = [const { AtomicU64::new(0) }; LINE_WORDS];
        let header = Header::new(&words);
        for likely in [0, 1, 8] {
            header.holders().store(0, Ordering::SeqCst);
            assert!(!header.hold_if_held(2, likely));
            assert_eq!(header.holders().load(Ordering::SeqCst), 0);
            header.holders().store(1, Ordering::SeqCst);
            assert!(header.hold_if_held(2, likely));
            assert_eq!(header.holders().load(Ordering::SeqCst), 3);
        }
    }

    #[test]
    fn letting_go_tells_who_is_left() {
        let words = [const { AtomicU64::new(0) }; LINE_WORDS];
        let header = Header::new(&words);
        for (before, others) in [(2, 0), (3, 1), (1, 1), (0, 0), (SUSPECT | 2, SUSPECT)] {
            for likely in [2, 3] {
                header.holders().store(before, Ordering::SeqCst);
                assert_eq!(header.let_go(2, likely), others);
                assert_eq!(header.holders().load(Ordering::SeqCst), others);
            }
        }
    }

    #[test]
    fn preparing_moves_the_generation_and_forgets_the_kind() {
        let words = [const { AtomicU64::new(0) }; LINE_WORDS];
        let header = Header::new(&words);
        header.prepare(10);
        header.set_kind(Kind::Ring);
        assert_eq!((header.generation(), header.kind(), header.len_bytes()), (1, Kind::Ring, 10));
        header.prepare(20);
        assert_eq!((header.generation(), header.kind()), (2, Kind::Plain));
    }
}
