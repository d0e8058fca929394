//! What the queues and monitors of a domain say, and what each block counts for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use tensorferry_domain::{DomainFile, ExtentOwner, MAX_MEMBERS, RunInfo};

use super::walk::{Contents, Found, held_blocks};
use super::{Amount, BlockKind, BlockSnapshot, MemberState, MonitorSnapshot, QueueSnapshot, Snapshot};
use crate::StorageError;
use crate::arena::bits;
use crate::header::{Kind, SUSPECT};
use crate::message::{MAX_HANDLES, table};
use crate::monitor_words::{LastOwner, LockState, MAGIC as MONITOR_MAGIC, Share, word as monitor};
use crate::record::{RECORD_WORDS, RecordState, RecordTag, word as record};
use crate::reference::Reference;
use crate::ring_layout::{MAGIC as RING_MAGIC, RingShape, word as ring};
use crate::slot::{SLOT_WORDS, SlotLengths, SlotState, Tag, word as slot};

/// Slots and records of a ring are read so many words at a time.
const CHUNK_WORDS: usize = 8 << 10;
/// How many of the longest blocks are named one by one.
const N_LONGEST: usize = 16;

/// Adds what the blocks of a domain say to a snapshot.
pub(super) struct Reader<'a> {
    contents: Contents<'a>,
    snapshot: &'a mut Snapshot,
    blocks: Vec<Found>,
    /// Where a header lies among the blocks.
    by_header: HashMap<usize, usize>,
    /// What is known of each block beyond its header.
    facts: Vec<Facts>,
    /// The blocks that each long message and each bundle names, once it was read. Many queues may have it.
    lists: HashMap<usize, Rc<[usize]>>,
}

/// What messages and bundles say of a block.
#[derive(Clone, Copy, Default)]
struct Facts {
    /// The first queue in which a message waits that names it.
    waits_in: Option<u32>,
    /// A lease names it: if its owner dies, that message waits again.
    is_leased: bool,
    /// The holders of bundles that name it. They use it, and only the maker of a bundle holds it.
    users: u64,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        file: &'a DomainFile,
        runs: &[RunInfo],
        snapshot: &'a mut Snapshot,
    ) -> Result<Self, StorageError> {
        for info in runs {
            if let ExtentOwner::Member(owner) = info.owner
                && let Some(owner) = snapshot.members.iter_mut().find(|member| member.slot == owner.slot)
            {
                owner.owns_bytes = owner.owns_bytes.saturating_add(info.populated_bytes);
            }
        }
        let contents = Contents::of(file)?;
        let blocks = held_blocks(&contents, runs)?;
        let by_header = blocks.iter().enumerate();
        let by_header = by_header.map(|(index, block)| (block.place.header_offset_bytes, index)).collect();
        let facts = vec![Facts::default(); blocks.len()];
        Ok(Self { contents, snapshot, blocks, by_header, facts, lists: HashMap::new() })
    }

    pub(super) fn read(mut self) -> Result<(), StorageError> {
        for index in 0..self.blocks.len() {
            let block = self.blocks[index];
            match block.kind {
                Kind::Ring => self.read_queue(block)?,
                Kind::Monitor => {
                    let monitor = self.monitor(block)?;
                    self.snapshot.monitors.extend(monitor);
                }
                Kind::Bundle => {
                    for &named in &*self.named_by(index)? {
                        self.facts[named].users |= block.holders;
                    }
                }
                Kind::Plain | Kind::Message | Kind::Parcel => {}
            }
        }
        for index in 0..self.blocks.len() {
            self.count(index);
        }
        self.name_longest();
        Ok(())
    }

    fn count(&mut self, index: usize) {
        let Found { kind, len_bytes, holders, .. } = self.blocks[index];
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
        let Facts { waits_in, is_leased, users } = self.facts[index];
        let is_promised = waits_in.is_some() || is_leased;
        if holders == SUSPECT && !is_promised && users & !SUSPECT == 0 {
            self.snapshot.in_doubt.add(len_bytes);
        }
        for member in self.snapshot.members.iter_mut().filter(|member| has_bit(holders, member.slot)) {
            member.holds.add(len_bytes);
            if !is_promised && (holders | users) & !SUSPECT == bit(member.slot) {
                member.holds_alone.add(len_bytes);
            }
        }
    }

    fn name_longest(&mut self) {
        let mut order: Vec<usize> = (0..self.blocks.len()).collect();
        let by_length = |&index: &usize| std::cmp::Reverse(self.blocks[index].len_bytes);
        if order.len() > N_LONGEST {
            order.select_nth_unstable_by_key(N_LONGEST, by_length);
            order.truncate(N_LONGEST);
        }
        order.sort_by_key(by_length);
        let queues = &self.snapshot.queues;
        let name = |index: usize| {
            let block = &self.blocks[index];
            let queue = self.facts[index].waits_in.and_then(|queue| queues.get(queue as usize));
            BlockSnapshot {
                id: block.id(),
                kind: BlockKind::of(block.kind),
                len_bytes: block.len_bytes,
                holders: slots_of(block.holders),
                waits_in: queue.map(|queue| queue.id),
            }
        };
        let longest = order.into_iter().map(name).collect();
        self.snapshot.longest = longest;
    }

    fn read_queue(&mut self, block: Found) -> Result<(), StorageError> {
        let Some(words) = block.words(&self.contents, 0, ring::SLOTS)? else { return Ok(()) };
        let number = |index: usize| usize::try_from(words[index]).unwrap_or(usize::MAX);
        let shape = RingShape::new(number(ring::N_SLOTS), number(ring::N_RECORDS));
        if words[ring::MAGIC] != RING_MAGIC || !shape.is_possible() {
            return Ok(());
        }
        let mut waiting_items = 0;
        let (mut references, mut of_leases) = (Vec::new(), Vec::new());
        let mut leased = BTreeMap::<u8, usize>::new();
        let mut in_progress = 0;
        self.each_piece::<SLOT_WORDS>(block, ring::SLOTS, shape.n_slots, |words| {
            let SlotState { owner, tag, .. } = SlotState::unpack(words[slot::STATE]);
            match tag {
                Tag::Ready => {
                    waiting_items += 1;
                    references.extend(references_at(&words[slot::ROOM..], words[slot::LENGTHS]));
                }
                Tag::Writing | Tag::Claimed | Tag::Moved => in_progress |= bit(owner),
                Tag::Free => {}
            }
        })?;
        self.each_piece::<RECORD_WORDS>(block, shape.records_at(), shape.n_records, |words| {
            let RecordState { owner, tag, .. } = RecordState::unpack(words[record::STATE]);
            match tag {
                RecordTag::Waiting => {
                    waiting_items += 1;
                    references.extend(references_at(&words[record::ROOM..], words[record::LENGTHS]));
                }
                RecordTag::Leased => {
                    *leased.entry(owner).or_default() += 1;
                    of_leases.extend(references_at(&words[record::ROOM..], words[record::LENGTHS]));
                }
                RecordTag::Filling | RecordTag::Taking => in_progress |= bit(owner),
                RecordTag::Free => {}
            }
        })?;
        let queue = u32::try_from(self.snapshot.queues.len()).unwrap_or(u32::MAX);
        let mut waiting = Amount::default();
        for index in self.named_through(&references)? {
            waiting.add(self.blocks[index].len_bytes);
            self.facts[index].waits_in.get_or_insert(queue);
        }
        for index in self.named_through(&of_leases)? {
            self.facts[index].is_leased = true;
        }
        self.snapshot.queues.push(QueueSnapshot {
            id: block.id(),
            capacity_items: shape.n_slots,
            waiting_items,
            waiting,
            put_items: words[ring::TAIL],
            max_leases: shape.n_records,
            leased_items: leased.into_iter().collect(),
            senders: slots_of(words[ring::SENDERS]),
            receivers: slots_of(words[ring::RECEIVERS]),
            in_progress: slots_of(in_progress),
            is_closed: words[ring::CLOSED] != 0,
            sender_deaths: words[ring::SENDER_DEATHS],
            receiver_deaths: words[ring::RECEIVER_DEATHS],
        });
        Ok(())
    }

    /// The blocks that these references name, each once, and what those name: a long message has a table, and
    /// so has a bundle, in which there is no other one. What lies in a queue that is named is that queue's.
    fn named_through(&mut self, references: &[u64]) -> Result<HashSet<usize>, StorageError> {
        let mut named = HashSet::new();
        let mut open: Vec<usize> = references.iter().filter_map(|&word| self.block_of(word)).collect();
        while let Some(index) = open.pop() {
            if named.insert(index) && matches!(self.blocks[index].kind, Kind::Message | Kind::Bundle) {
                open.extend_from_slice(&self.named_by(index)?);
            }
        }
        Ok(named)
    }

    /// The block that a reference names, among the blocks.
    fn block_of(&self, reference: u64) -> Option<usize> {
        let at = Reference::unpack(reference)?.header_offset_bytes;
        self.by_header.get(&at).copied()
    }

    /// The blocks that a block with a table names.
    fn named_by(&mut self, index: usize) -> Result<Rc<[usize]>, StorageError> {
        if let Some(named) = self.lists.get(&index) {
            // To go through it again is work too, if less than to read it: a byte for each word.
            let is_enough_left = self.contents.spend(named.len() as u64);
            return Ok(if is_enough_left { named.clone() } else { Rc::default() });
        }
        let references = self.references_in(self.blocks[index])?;
        let named: Rc<[usize]> = references.into_iter().filter_map(|word| self.block_of(word)).collect();
        self.lists.insert(index, named.clone());
        Ok(named)
    }

    /// The references of a block that has a table.
    fn references_in(&self, block: Found) -> Result<Vec<u64>, StorageError> {
        let Some(words) = block.words(&self.contents, 0, table::ROOM)? else { return Ok(Vec::new()) };
        let n_references = usize::try_from(words[table::N_REFERENCES]).unwrap_or(0).min(MAX_HANDLES);
        Ok(block.words(&self.contents, table::ROOM, n_references)?.unwrap_or_default())
    }

    /// Calls `visit` with each of `n` pieces of a block, the first of which lies at word `at_word`.
    fn each_piece<const WORDS: usize>(
        &self,
        block: Found,
        at_word: usize,
        n: usize,
        mut visit: impl FnMut(&[u64; WORDS]),
    ) -> Result<(), StorageError> {
        let per_chunk = CHUNK_WORDS / WORDS;
        for first in (0..n).step_by(per_chunk) {
            let n_words = per_chunk.min(n - first) * WORDS;
            let Some(words) = block.words(&self.contents, at_word + first * WORDS, n_words)? else { break };
            words.as_chunks::<WORDS>().0.iter().for_each(&mut visit);
        }
        Ok(())
    }

    fn monitor(&self, block: Found) -> Result<Option<MonitorSnapshot>, StorageError> {
        let Some(words) = block.words(&self.contents, 0, monitor::N_WORDS)? else { return Ok(None) };
        if words[monitor::MAGIC] != MONITOR_MAGIC {
            return Ok(None);
        }
        let is_member = |slot: u8, epoch: u32| {
            let member = self.snapshot.member(slot).filter(|member| member.epoch == epoch);
            member.is_some_and(|member| member.state == MemberState::Live)
        };
        let (locked_by, left_by) = match LockState::unpack(words[monitor::LOCK]) {
            LockState::Held(owner) if is_member(owner.slot, owner.epoch) => (Some(owner.slot), None),
            LockState::Held(_) => (None, Some(LastOwner::Died)),
            LockState::Free(LastOwner::Released) => (None, None),
            LockState::Free(how) => (None, Some(how)),
        };
        let shares = (0..).zip(&words[monitor::SHARES..]).map(|(slot, word)| (slot, Share::unpack(*word)));
        let shares = shares.filter(|(slot, share)| share.count > 0 && is_member(*slot, share.epoch));
        Ok(Some(MonitorSnapshot {
            id: block.id(),
            purpose: words[monitor::PURPOSE],
            locked_by,
            left_by,
            shares: shares.map(|(slot, share)| (slot, share.count)).collect(),
            holders: slots_of(block.holders),
            deaths: words[monitor::DEATHS],
        }))
    }
}

impl BlockKind {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Plain => Self::Data,
            Kind::Ring => Self::Queue,
            Kind::Message => Self::LongMessage,
            Kind::Parcel => Self::Arguments,
            Kind::Monitor => Self::Monitor,
            Kind::Bundle => Self::Bundle,
        }
    }
}

/// The references of a message in a slot or in a record.
fn references_at(room: &[u64], lengths: u64) -> Vec<u64> {
    let n_references = SlotLengths::unpack(lengths).n_references;
    room.get(..n_references).unwrap_or_default().to_vec()
}

/// The bit of the member in this slot; none for a slot that no member has.
fn bit(slot: u8) -> u64 {
    if usize::from(slot) < MAX_MEMBERS { 1 << slot } else { 0 }
}

fn has_bit(members: u64, slot: u8) -> bool {
    members & bit(slot) != 0
}

/// The slots of members whose bits are set.
fn slots_of(members: u64) -> Vec<u8> {
    bits(members).take_while(|slot| *slot < MAX_MEMBERS).filter_map(|slot| u8::try_from(slot).ok()).collect()
}
