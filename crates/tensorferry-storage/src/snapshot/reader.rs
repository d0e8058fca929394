//! Reads the blocks of a domain from its file. Every number may be anything: each is checked before it
//! becomes an offset or a length.

use std::collections::BTreeMap;

use tensorferry_domain::{DomainFile, ExtentOwner, ExtentRun, MAX_MEMBERS, RunInfo};

use super::{MonitorSnapshot, QueueSnapshot, Snapshot};
use crate::StorageError;
use crate::class::{LINE_BYTES, LINE_WORDS, SLAB_BLOCKS};
use crate::geometry::{Address, Geometry, Place};
use crate::header::{Kind, SUSPECT, SpanWord, head, kind_of, line};
use crate::monitor_words::{LockState, MAGIC as MONITOR_MAGIC, Share, word as monitor};
use crate::record::{RECORD_WORDS, RecordState, RecordTag};
use crate::ring_layout::{MAGIC as RING_MAGIC, RingShape, word as ring};
use crate::slot::{SLOT_WORDS, SlotState, Tag};

/// Slots and records of a ring are read so many words at a time.
const CHUNK_WORDS: usize = 8 << 10;

/// The words of a block header or of a span's line.
type Line = [u64; LINE_WORDS];

/// Adds what the blocks of a domain say to a snapshot.
pub(super) struct Reader<'a> {
    file: &'a DomainFile,
    geometry: Geometry,
    snapshot: &'a mut Snapshot,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a DomainFile, snapshot: &'a mut Snapshot) -> Self {
        Self { file, geometry: Geometry::new(file.layout()), snapshot }
    }

    pub(super) fn read(mut self, runs: &[RunInfo]) -> Result<(), StorageError> {
        for info in runs {
            if let ExtentOwner::Member(owner) = info.owner {
                let owner = self.snapshot.members.iter_mut().find(|member| member.slot == owner.slot);
                if let Some(owner) = owner {
                    owner.owns_bytes = owner.owns_bytes.saturating_add(info.populated_bytes);
                }
            }
            self.read_run(info.run)?;
        }
        Ok(())
    }

    fn read_run(&mut self, run: ExtentRun) -> Result<(), StorageError> {
        let geometry = self.geometry;
        let start = geometry.start_of(run.first);
        let Some(marks) = self.file.data_words(start, LINE_WORDS)? else { return Ok(()) };
        let n_lines = usize::try_from(marks[head::LINES_HIGH_WATER]).unwrap_or(0);
        let n_lines = n_lines.clamp(geometry.first_span_line(), geometry.n_lines());
        let first = geometry.first_span_line();
        let lines_at = start + first * LINE_BYTES;
        let Some(words) = self.file.data_words(lines_at, (n_lines - first) * LINE_WORDS)? else {
            return Ok(());
        };
        for (index, line) in (first..).zip(words.as_chunks::<LINE_WORDS>().0) {
            let Some(span) = SpanWord::unpack(line[line::SPAN]) else { break };
            let Ok(place) = geometry.place_in(run, Address::new(run.first, index, 0), span) else { continue };
            if !span.class.is_slab() {
                self.visit(place, line)?;
                continue;
            }
            let words = self.file.data_words(place.header_offset_bytes, SLAB_BLOCKS * LINE_WORDS)?;
            for (block, line) in words.unwrap_or_default().as_chunks::<LINE_WORDS>().0.iter().enumerate() {
                self.visit(geometry.place(Address::new(run.first, index, block), span), line)?;
            }
        }
        Ok(())
    }

    fn visit(&mut self, place: Place, line: &Line) -> Result<(), StorageError> {
        let holders = line[line::HOLDERS];
        if holders == 0 {
            return Ok(());
        }
        let kind = kind_of(line[line::KIND]);
        let capacity_bytes = place.class.size_bytes() as u64;
        let len_bytes = line[line::LEN_BYTES].min(capacity_bytes);
        let held = &mut self.snapshot.held;
        let of_kind = match kind {
            Kind::Plain => &mut held.data,
            Kind::Ring => &mut held.queues,
            Kind::Message => &mut held.long_messages,
            Kind::Parcel => &mut held.arguments,
            Kind::Monitor => &mut held.monitors,
            Kind::Bundle => &mut held.bundles,
        };
        of_kind.add(len_bytes);
        if holders == SUSPECT {
            self.snapshot.in_doubt.add(len_bytes);
        }
        for member in self.snapshot.members.iter_mut().filter(|member| has_bit(holders, member.slot)) {
            member.holds.add(len_bytes);
            if holders & !SUSPECT == bit(member.slot) {
                member.holds_alone.add(len_bytes);
            }
        }
        match kind {
            Kind::Ring => {
                let queue = self.queue(place)?;
                self.snapshot.queues.extend(queue);
            }
            Kind::Monitor => {
                let monitor = self.monitor(place, holders)?;
                self.snapshot.monitors.extend(monitor);
            }
            Kind::Plain | Kind::Message | Kind::Parcel | Kind::Bundle => {}
        }
        Ok(())
    }

    fn queue(&self, place: Place) -> Result<Option<QueueSnapshot>, StorageError> {
        let Some(words) = self.words(place, 0, ring::SLOTS)? else { return Ok(None) };
        let number = |index: usize| usize::try_from(words[index]).unwrap_or(usize::MAX);
        let shape = RingShape { n_slots: number(ring::N_SLOTS), n_records: number(ring::N_RECORDS) };
        if words[ring::MAGIC] != RING_MAGIC || !shape.is_possible() {
            return Ok(None);
        }
        let mut waiting_items = 0;
        let mut leased = BTreeMap::<u8, usize>::new();
        let mut in_progress = 0;
        self.each_state(place, ring::SLOTS, shape.n_slots, SLOT_WORDS, |state| {
            let SlotState { owner, tag, .. } = SlotState::unpack(state);
            match tag {
                Tag::Ready => waiting_items += 1,
                Tag::Writing | Tag::Claimed | Tag::Moved => in_progress |= bit(owner),
                Tag::Free => {}
            }
        })?;
        self.each_state(place, shape.records_at(), shape.n_records, RECORD_WORDS, |state| {
            let RecordState { owner, tag, .. } = RecordState::unpack(state);
            match tag {
                RecordTag::Waiting => waiting_items += 1,
                RecordTag::Leased => *leased.entry(owner).or_default() += 1,
                RecordTag::Filling | RecordTag::Taking => in_progress |= bit(owner),
                RecordTag::Free => {}
            }
        })?;
        Ok(Some(QueueSnapshot {
            id: place.header_offset_bytes as u64,
            capacity_items: shape.n_slots,
            waiting_items,
            put_items: words[ring::TAIL],
            max_leases: shape.n_records,
            leased_items: leased.into_iter().collect(),
            senders: slots_of(words[ring::SENDERS]),
            receivers: slots_of(words[ring::RECEIVERS]),
            in_progress: slots_of(in_progress),
            is_closed: words[ring::CLOSED] != 0,
            sender_deaths: words[ring::SENDER_DEATHS],
            receiver_deaths: words[ring::RECEIVER_DEATHS],
        }))
    }

    /// Calls `visit` with the first word of each of `n` pieces of `piece_words` words, the first of which
    /// lies at word `at_word` of a block.
    fn each_state(
        &self,
        place: Place,
        at_word: usize,
        n: usize,
        piece_words: usize,
        mut visit: impl FnMut(u64),
    ) -> Result<(), StorageError> {
        let per_chunk = CHUNK_WORDS / piece_words;
        for first in (0..n).step_by(per_chunk) {
            let n_words = per_chunk.min(n - first) * piece_words;
            let Some(words) = self.words(place, at_word + first * piece_words, n_words)? else { break };
            words.chunks_exact(piece_words).for_each(|piece| visit(piece[0]));
        }
        Ok(())
    }

    fn monitor(&self, place: Place, holders: u64) -> Result<Option<MonitorSnapshot>, StorageError> {
        let Some(words) = self.words(place, 0, monitor::N_WORDS)? else { return Ok(None) };
        if words[monitor::MAGIC] != MONITOR_MAGIC {
            return Ok(None);
        }
        let is_member =
            |slot: u8, epoch: u32| self.snapshot.member(slot).is_some_and(|member| member.epoch == epoch);
        let locked_by = match LockState::unpack(words[monitor::LOCK]) {
            LockState::Held(owner) if is_member(owner.slot, owner.epoch) => Some(owner.slot),
            LockState::Held(_) | LockState::Free(_) => None,
        };
        let shares = (0..).zip(&words[monitor::SHARES..]).map(|(slot, word)| (slot, Share::unpack(*word)));
        let shares = shares.filter(|(slot, share)| share.count > 0 && is_member(*slot, share.epoch));
        Ok(Some(MonitorSnapshot {
            id: place.header_offset_bytes as u64,
            purpose: words[monitor::PURPOSE],
            locked_by,
            shares: shares.map(|(slot, share)| (slot, share.count)).collect(),
            holders: slots_of(holders),
            deaths: words[monitor::DEATHS],
        }))
    }

    /// Words of a block; `None` where the block ends before they do.
    fn words(&self, place: Place, at_word: usize, n_words: usize) -> Result<Option<Vec<u64>>, StorageError> {
        if (at_word + n_words) * 8 > place.class.size_bytes() {
            return Ok(None);
        }
        Ok(self.file.data_words(place.data_offset_bytes + at_word * 8, n_words)?)
    }
}

/// The bit of the member in this slot; none for a slot that no member has.
fn bit(slot: u8) -> u64 {
    if usize::from(slot) < MAX_MEMBERS { 1 << slot } else { 0 }
}

fn has_bit(members: u64, slot: u8) -> bool {
    members & bit(slot) != 0
}

/// The slots whose bits are set.
fn slots_of(members: u64) -> Vec<u8> {
    (0..64).filter(|slot| has_bit(members, *slot)).collect()
}
