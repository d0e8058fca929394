//! An arena: one sparse memory file with many allocations, and a table in it that importers read too.
//!
//! ```text
//! | table: slot, slot, ..., kept          | payload: allocations                         (sparse) |
//!   slot: offset, length, state, importers
//!   kept: how many bytes do not go back to the device
//! ```
//!
//! Only the owner allocates. Small allocations share a granule of 2 MiB, and an importer maps whole granules,
//! as the real driver is said to do.
#![expect(
    clippy::cast_possible_truncation,
    reason = "words are 64 bits wide here, and importer words are cut on purpose"
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::identity::Identity;
use crate::mapping::Mapping;
use crate::memory_file::{Label, MemoryFile, Purpose};
use crate::token::Token;
use crate::{Answer, Status};

/// The granularity of memory: 2 MiB.
pub(crate) const GRANULE_BYTES: usize = 2 << 20;
/// Virtual size only; the file is sparse.
const PAYLOAD_BYTES: usize = 16 << 30;
const TABLE_BYTES: usize = GRANULE_BYTES;
const SLOT_WORDS: usize = 16;
/// One less than there is room for: the last word of the table holds the kept bytes.
const N_SLOTS: usize = TABLE_BYTES / 8 / SLOT_WORDS - 1;
const KEPT: usize = TABLE_BYTES / 8 - 1;
const N_IMPORTERS: usize = SLOT_WORDS - 3;
const SMALL_ALIGN_BYTES: usize = 512;
/// The lengths of the parts at the beginning and at the end of an allocation that have contents before
/// anything is written to it.
pub(crate) const KEPT_BEGIN_BYTES: usize = 1 << 20;
pub(crate) const KEPT_END_BYTES: usize = 4096;

// The words of a slot.
const OFFSET: usize = 0;
const LEN: usize = 1;
/// Twice the generation, plus one while the allocation lives.
const STATE: usize = 2;
/// From here on: process number in the high half, low half of its start time; 0 for none.
const IMPORTERS: usize = 3;

/// The table of slots of an arena, mapped.
#[derive(Debug)]
struct Table {
    file: MemoryFile,
    words: Mapping,
}

impl Table {
    fn of(file: MemoryFile) -> Answer<Self> {
        let words = Mapping::of_file(&file, 0, TABLE_BYTES)?;
        Ok(Self { file, words })
    }

    fn get(&self, slot: u32, word: usize) -> Answer<u64> {
        let slot = usize::try_from(slot).ok().filter(|&slot| slot < N_SLOTS).ok_or(Status::INVALID_VALUE)?;
        Ok(self.words.word(slot * SLOT_WORDS + word)?.load(SeqCst))
    }

    fn set(&self, slot: u32, word: usize, value: u64) {
        if let Ok(word) = self.words.word(slot as usize * SLOT_WORDS + word) {
            word.store(value, SeqCst);
        }
    }

    /// How many bytes of the payload count as used, however many of them are free.
    fn kept(&self) -> Answer<u64> {
        Ok(self.words.word(KEPT)?.load(SeqCst))
    }

    /// Whether the slot still holds the allocation of this generation.
    fn is_live(&self, slot: u32, generation: u64) -> bool {
        self.get(slot, STATE) == Ok(generation * 2 + 1)
    }

    /// Replaces the first importer word that equals `old`.
    fn swap_importer(&self, slot: u32, old: u64, new: u64) {
        for i in IMPORTERS..IMPORTERS + N_IMPORTERS {
            let Ok(word) = self.words.word(slot as usize * SLOT_WORDS + i) else { return };
            if word.compare_exchange(old, new, SeqCst, SeqCst).is_ok() {
                return;
            }
        }
    }
}

/// An arena of this process, or one of another process whose pool was imported.
#[derive(Debug)]
pub(crate) struct Arena {
    table: Table,
    /// `None` if this process does not allocate in it.
    payload: Option<Arc<Mapping>>,
    /// Whether memory that was used once stays counted as used.
    keeps: bool,
    used: Mutex<Used>,
}

/// The allocations of an arena, and how far they have ever reached.
#[derive(Debug, Default)]
struct Used {
    /// By offset: length and slot.
    allocations: BTreeMap<usize, (usize, u32)>,
    /// The end of the highest allocation that there ever was. Memory behind it was never used.
    end: usize,
}

impl Used {
    /// The first free range.
    fn find(&self, len_bytes: usize, align: usize) -> Answer<Range<usize>> {
        let mut offset = 0_usize;
        for (&begin, &(len, _)) in &self.allocations {
            if offset.next_multiple_of(align) + len_bytes <= begin {
                break;
            }
            offset = begin + len;
        }
        let offset = offset.next_multiple_of(align);
        let end = offset.checked_add(len_bytes).filter(|&end| end <= PAYLOAD_BYTES);
        Ok(offset..end.ok_or(Status::OUT_OF_MEMORY)?)
    }
}

/// The length of an allocation after rounding, and its alignment.
fn rounded(len_bytes: usize) -> Answer<(usize, usize)> {
    let align = if len_bytes <= GRANULE_BYTES / 2 { SMALL_ALIGN_BYTES } else { GRANULE_BYTES };
    Ok((len_bytes.checked_next_multiple_of(align).ok_or(Status::OUT_OF_MEMORY)?, align))
}

/// A new allocation of an arena.
#[derive(Debug)]
pub(crate) struct Allocated {
    pub(crate) slot: u32,
    pub(crate) address: u64,
    /// The part of it that was never used before, as offsets from its beginning.
    pub(crate) fresh: Range<usize>,
}

impl Arena {
    /// Makes an arena in which this process allocates. If it `keeps`, memory that was used once stays counted
    /// as used.
    pub(crate) fn create(world: &str, purpose: Purpose, device: usize, keeps: bool) -> Answer<Self> {
        let label = Label { world: world.to_owned(), purpose, device, len_bytes: PAYLOAD_BYTES };
        let table = Table::of(MemoryFile::create(label, TABLE_BYTES)?)?;
        let payload = Mapping::of_file(&table.file, TABLE_BYTES, PAYLOAD_BYTES)?;
        Ok(Self { table, payload: Some(Arc::new(payload)), keeps, used: Mutex::default() })
    }

    /// The arena of another process, from a descriptor of its file.
    pub(crate) fn import(file: MemoryFile) -> Answer<Self> {
        Ok(Self { table: Table::of(file)?, payload: None, keeps: false, used: Mutex::default() })
    }

    pub(crate) fn file(&self) -> &MemoryFile {
        &self.table.file
    }

    pub(crate) fn payload(&self) -> Option<&Arc<Mapping>> {
        self.payload.as_ref()
    }

    fn used(&self) -> MutexGuard<'_, Used> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more bytes of the device an allocation would take.
    pub(crate) fn growth_bytes(&self, len_bytes: usize) -> Answer<usize> {
        if !self.keeps {
            return Ok(len_bytes);
        }
        let (rounded, align) = rounded(len_bytes)?;
        let used = self.used();
        let end = used.find(rounded, align)?.end.max(used.end);
        Ok(end.next_multiple_of(GRANULE_BYTES) - used.end.next_multiple_of(GRANULE_BYTES))
    }

    /// Allocates.
    pub(crate) fn allocate(&self, len_bytes: usize) -> Answer<Allocated> {
        let payload = self.payload.as_ref().ok_or(Status::NOT_SUPPORTED)?;
        let (rounded, align) = rounded(len_bytes)?;
        let mut used = self.used();
        let Range { start: offset, end } = used.find(rounded, align)?;
        let is_free = |slot: &u32| self.table.get(*slot, STATE).is_ok_and(|state| state % 2 == 0);
        let slot = (0..N_SLOTS as u32).find(is_free).ok_or(Status::OUT_OF_MEMORY)?;
        used.allocations.insert(offset, (rounded, slot));
        let fresh = used.end.clamp(offset, offset + len_bytes) - offset..len_bytes;
        used.end = used.end.max(end);
        if self.keeps {
            // Pools take whole granules from the device.
            self.table.words.word(KEPT)?.store(used.end.next_multiple_of(GRANULE_BYTES) as u64, SeqCst);
        }
        self.table.set(slot, OFFSET, offset as u64);
        self.table.set(slot, LEN, len_bytes as u64);
        for importer in 0..N_IMPORTERS {
            self.table.set(slot, IMPORTERS + importer, 0);
        }
        let generation = self.table.get(slot, STATE)? / 2 + 1;
        self.table.set(slot, STATE, generation * 2 + 1);
        Ok(Allocated { slot, address: payload.address() + offset as u64, fresh })
    }

    /// Frees an allocation. Returns whether a process that runs still had it open.
    pub(crate) fn free(&self, slot: u32) -> Answer<bool> {
        let mut used = self.used();
        let offset = self.table.get(slot, OFFSET)?;
        let (len_bytes, _) = used.allocations.remove(&(offset as usize)).ok_or(Status::INVALID_VALUE)?;
        let state = self.table.get(slot, STATE)?;
        self.table.set(slot, STATE, state & !1);
        // The next user of the memory finds the old contents, except in long ranges, which would take much
        // real memory.
        if let Some(len_bytes) = len_bytes.checked_sub(KEPT_BEGIN_BYTES + KEPT_END_BYTES) {
            let begin = TABLE_BYTES as u64 + offset + KEPT_BEGIN_BYTES as u64;
            self.table.file.discard(begin, len_bytes as u64);
        }
        let importers = (0..N_IMPORTERS).filter_map(|i| self.table.get(slot, IMPORTERS + i).ok());
        Ok(importers.filter(|&importer| importer != 0).any(is_running))
    }

    /// The token by which other processes find an allocation.
    pub(crate) fn token(&self, owner: Identity, slot: u32) -> Answer<Token> {
        Ok(Token::new(owner, &self.table.file, slot, self.table.get(slot, STATE)? / 2))
    }
}

/// How many bytes of its device an arena takes; `path` is the path of its file.
pub(crate) fn used_bytes(path: &str) -> usize {
    let Ok(file) = MemoryFile::open_path(path) else { return 0 };
    let Ok(table) = Table::of(file) else { return 0 };
    let live = |slot: &u32| table.get(*slot, STATE).is_ok_and(|state| state % 2 == 1);
    let lengths = (0..N_SLOTS as u32).filter(live).filter_map(|slot| table.get(slot, LEN).ok());
    let allocated: u64 = lengths.sum();
    usize::try_from(allocated.max(table.kept().unwrap_or(0))).unwrap_or(0)
}

/// One allocation of another process, mapped in this one.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) token: Token,
    pub(crate) address: u64,
    pub(crate) len_bytes: usize,
    pub(crate) payload: Arc<Mapping>,
    table: Table,
    importer: u64,
}

impl Import {
    /// Opens the allocation that the token names.
    ///
    /// # Errors
    /// INVALID_HANDLE if its process is gone; INVALID_VALUE if that has freed it.
    pub(crate) fn open(token: Token, by: Identity) -> Answer<Self> {
        Self::in_file(MemoryFile::open_of(&token.owner, token.fd, token.inode)?, token, by)
    }

    /// As [`Import::open`], in a file that came as a descriptor.
    pub(crate) fn in_file(file: MemoryFile, token: Token, by: Identity) -> Answer<Self> {
        let table = Table::of(file)?;
        let offset = table.get(token.slot, OFFSET)? as usize;
        let len_bytes = table.get(token.slot, LEN)? as usize;
        // Whole granules, which is what the real driver maps.
        let begin = offset / GRANULE_BYTES * GRANULE_BYTES;
        let end = offset
            .checked_add(len_bytes)
            .filter(|&end| end <= PAYLOAD_BYTES)
            .ok_or(Status::INVALID_HANDLE)?;
        if !table.is_live(token.slot, token.generation) {
            return Err(Status::INVALID_VALUE);
        }
        let len = end.next_multiple_of(GRANULE_BYTES) - begin;
        let payload = Arc::new(Mapping::of_file(&table.file, TABLE_BYTES + begin, len)?);
        let importer = u64::from(by.pid) << 32 | by.start_ticks & 0xffff_ffff;
        table.swap_importer(token.slot, 0, importer);
        let address = payload.address() + (offset - begin) as u64;
        Ok(Self { token, address, len_bytes, payload, table, importer })
    }

    /// Whether the exporter has freed the allocation meanwhile.
    pub(crate) fn is_freed(&self) -> bool {
        !self.table.is_live(self.token.slot, self.token.generation)
    }

    pub(crate) fn device(&self) -> usize {
        self.table.file.label().device
    }

    pub(crate) fn world(&self) -> &str {
        &self.table.file.label().world
    }
}

impl Drop for Import {
    fn drop(&mut self) {
        if !self.is_freed() {
            self.table.swap_importer(self.token.slot, self.importer, 0);
        }
    }
}

/// Whether the process of an importer word runs.
fn is_running(importer: u64) -> bool {
    crate::identity::runs((importer >> 32) as u32, importer as u32)
}
