//! The blocks of a domain in which processes describe device memory to each other: see docs/WIRE.md, *Device
//! memory*.
//!
//! The holder bits of such a block say which processes need the device memory. Every number in a block is
//! checked before it is used.

use std::sync::atomic::{AtomicU64, Ordering};

use tensorferry_domain::Member;
use tensorferry_storage::{BlockId, Heap, SharedBlock, StorageError};

use crate::device::Uuid;
use crate::raw::{IPC_HANDLE_LEN_BYTES, IpcHandle};
use crate::strategy::CudaStrategy;

mod event;
mod timeline;

pub(crate) use event::{EventControl, Record};
pub(crate) use timeline::{N_EVENTS, TimelineControl};

const HANDLE_WORDS: usize = IPC_HANDLE_LEN_BYTES / 8;
/// `text` in the low four bytes, the version in the high four.
const fn magic(text: [u8; 4], version: u32) -> u64 {
    (version as u64) << 32 | u32::from_le_bytes(text) as u64
}

const MAGIC: usize = 0;

mod slab {
    pub(super) const MAGIC: u64 = super::magic(*b"SLAB", 2);
    pub(super) const LEN_BYTES: usize = 1;
    pub(super) const UUID: usize = 2;
    pub(super) const OWNER: usize = 4;
    pub(super) const RETIRED: usize = 5;
    pub(super) const STRATEGY: usize = 6;
    pub(super) const POOL: usize = 7;
    pub(super) const HANDLE: usize = 8;
    pub(super) const N_WORDS: usize = HANDLE + super::HANDLE_WORDS;
}

mod pool {
    pub(super) const MAGIC: u64 = super::magic(*b"POOL", 1);
    pub(super) const OWNER: usize = 1;
    pub(super) const N_WORDS: usize = 2;
}

mod storage {
    pub(super) const MAGIC: u64 = super::magic(*b"DEVS", 1);
    pub(super) const SLAB: usize = 1;
    pub(super) const OFFSET_BYTES: usize = 2;
    pub(super) const LEN_BYTES: usize = 3;
    pub(super) const USERS: usize = 4;
    pub(super) const N_WORDS: usize = 5;
}

/// Set in a storage's users for good: a process died while it used the memory.
const LEFT_BEHIND: u64 = 1 << 63;

/// By what means streams wait for a point of another process, or for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// None: each point is reached before another process learns of it.
    Nothing,
    /// Events of the driver.
    Events,
    /// Semaphores in the block.
    Semaphores,
}

impl Means {
    const fn code(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Events => 1,
            Self::Semaphores => 2,
        }
    }

    /// By an unknown means nothing can be waited for.
    fn from_code(code: u64) -> Self {
        let all = [Self::Events, Self::Semaphores];
        all.into_iter().find(|means| means.code() == code).unwrap_or(Self::Nothing)
    }
}

/// A block of a known kind.
#[derive(Clone, Debug)]
pub(crate) struct Control(SharedBlock);

impl Control {
    fn create(heap: &Heap, n_words: usize, magic: u64, words: &[(usize, u64)]) -> Result<Self, StorageError> {
        let control = Self(heap.allocate_zeroed(n_words * 8)?.share());
        for &(index, value) in words {
            control.word(index).store(value, Ordering::Relaxed);
        }
        control.word(MAGIC).store(magic, Ordering::Release);
        Ok(control)
    }

    fn check(block: SharedBlock, n_words: usize, magic: u64) -> Option<Self> {
        let control = Self(block);
        (control.0.words().len() >= n_words && control.word(MAGIC).load(Ordering::Acquire) == magic)
            .then_some(control)
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        // Its length was checked when the block was received.
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        self.0.words().get(index).unwrap_or(&NOWHERE)
    }

    fn load(&self, index: usize) -> u64 {
        self.word(index).load(Ordering::Acquire)
    }

    fn load_len(&self, index: usize) -> usize {
        usize::try_from(self.load(index)).unwrap_or(usize::MAX)
    }

    pub(crate) fn block(&self) -> &SharedBlock {
        &self.0
    }

    pub(crate) fn id(&self) -> BlockId {
        self.0.id()
    }

    pub(crate) fn heap(&self) -> Option<&Heap> {
        self.0.heap()
    }

    /// Whether this is the only handle: no other process, no message and no clone here holds the block.
    pub(crate) fn is_sole(&self) -> bool {
        self.0.is_sole()
    }

    /// Whether the member whose number is in this word is proven to be gone. Also notices a death that no
    /// process has noticed yet.
    fn is_member_gone(&self, index: usize) -> bool {
        self.is_gone(self.load(index))
    }

    /// Whether the member in this word is gone.
    fn is_gone(&self, word: u64) -> bool {
        self.heap().is_none_or(|heap| heap.domain().is_gone(unpack_member(word)))
    }

    fn handle_at(&self, at: usize) -> IpcHandle {
        let mut bytes = [0; IPC_HANDLE_LEN_BYTES];
        for (chunk, word) in bytes.chunks_exact_mut(8).zip(at..) {
            chunk.copy_from_slice(&self.load(word).to_le_bytes());
        }
        IpcHandle(bytes)
    }

    fn is_owner_live(&self, index: usize) -> bool {
        self.heap().is_some_and(|heap| heap.domain().is_live(unpack_member(self.load(index))))
    }
}

fn pack_member(member: Member) -> u64 {
    u64::from(member.slot) << 32 | u64::from(member.epoch)
}

fn unpack_member(word: u64) -> Member {
    let bytes = word.to_le_bytes();
    let epoch = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    Member { slot: bytes[4], epoch }
}

/// Device memory that crosses into a process as one descriptor.
#[derive(Clone, Debug)]
pub(crate) struct SlabControl(pub(crate) Control);

impl SlabControl {
    /// `handle` is what other processes open the memory by, or zeros if they use a descriptor. `pool` is the
    /// name of the pool that the memory is from, or 0.
    pub(crate) fn create(
        heap: &Heap,
        uuid: Uuid,
        len_bytes: usize,
        strategy: CudaStrategy,
        handle: &IpcHandle,
        pool: u64,
    ) -> Result<Self, StorageError> {
        let [first, second] = uuid.to_words();
        let mut words = vec![
            (slab::STRATEGY, strategy.code()),
            (slab::POOL, pool),
            (slab::LEN_BYTES, len_bytes as u64),
            (slab::UUID, first),
            (slab::UUID + 1, second),
            (slab::OWNER, pack_member(heap.domain().me())),
        ];
        words.extend((slab::HANDLE..).zip(handle_words(handle)));
        Control::create(heap, slab::N_WORDS, slab::MAGIC, &words).map(Self)
    }

    /// A staged slab: its memory follows in the same block. No process owns it in particular, so it is
    /// retired from the beginning, and no process caches it.
    pub(crate) fn create_staged(heap: &Heap, uuid: Uuid, len_bytes: usize) -> Result<Self, StorageError> {
        let [first, second] = uuid.to_words();
        let words = [
            (slab::LEN_BYTES, len_bytes as u64),
            (slab::UUID, first),
            (slab::UUID + 1, second),
            (slab::OWNER, pack_member(heap.domain().me())),
            (slab::STRATEGY, CudaStrategy::Staged.code()),
            (slab::RETIRED, 1),
        ];
        let n_words = slab::N_WORDS + len_bytes.div_ceil(8);
        Control::create(heap, n_words, slab::MAGIC, &words).map(Self)
    }

    /// The memory of a staged slab.
    pub(crate) fn staged_words(&self) -> &[AtomicU64] {
        self.0.0.words().get(slab::N_WORDS..).unwrap_or(&[])
    }

    pub(crate) fn check(block: SharedBlock) -> Option<Self> {
        Control::check(block, slab::N_WORDS, slab::MAGIC).map(Self)
    }

    pub(crate) fn name(&self) -> u64 {
        self.0.block().name()
    }

    pub(crate) fn len_bytes(&self) -> usize {
        self.0.load_len(slab::LEN_BYTES)
    }

    pub(crate) fn uuid(&self) -> Uuid {
        Uuid::from_words([self.0.load(slab::UUID), self.0.load(slab::UUID + 1)])
    }

    /// The strategy; `None` for an unknown number.
    pub(crate) fn strategy(&self) -> Option<CudaStrategy> {
        CudaStrategy::from_code(self.0.load(slab::STRATEGY))
    }

    /// The handle by which other processes open it, unless they use a descriptor.
    pub(crate) fn handle(&self) -> IpcHandle {
        self.0.handle_at(slab::HANDLE)
    }

    /// The pool's name in the descriptor store.
    pub(crate) fn pool_name(&self) -> u64 {
        self.0.load(slab::POOL)
    }

    /// The owner, as a number.
    pub(crate) fn owner_word(&self) -> u64 {
        self.0.load(slab::OWNER)
    }

    /// Whether the process that made the slab is proven to be gone. Also notices a death that no process has
    /// noticed yet.
    pub(crate) fn is_owner_gone(&self) -> bool {
        self.0.is_member_gone(slab::OWNER)
    }

    /// Called by the owner, which gives the slab up. No new tensor will lie in it, so processes need not
    /// cache it.
    pub(crate) fn retire(&self) {
        self.0.word(slab::RETIRED).store(1, Ordering::Release);
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.0.load(slab::RETIRED) != 0 || !self.0.is_owner_live(slab::OWNER)
    }
}

/// A pool that slabs are from. The descriptor store has its descriptor under the name of this block.
#[derive(Clone, Debug)]
pub(crate) struct PoolControl(pub(crate) Control);

impl PoolControl {
    pub(crate) fn create(heap: &Heap) -> Result<Self, StorageError> {
        let words = [(pool::OWNER, pack_member(heap.domain().me()))];
        Control::create(heap, pool::N_WORDS, pool::MAGIC, &words).map(Self)
    }

    pub(crate) fn name(&self) -> u64 {
        self.0.block().name()
    }
}

/// A part of a slab: the memory of one tensor and its views.
#[derive(Clone, Debug)]
pub(crate) struct StorageControl(pub(crate) Control);

impl StorageControl {
    pub(crate) fn create(
        heap: &Heap,
        slab: &SlabControl,
        offset_bytes: usize,
        len_bytes: usize,
    ) -> Result<Self, StorageError> {
        let words = [
            (storage::SLAB, slab.name()),
            (storage::OFFSET_BYTES, offset_bytes as u64),
            (storage::LEN_BYTES, len_bytes as u64),
        ];
        Control::create(heap, storage::N_WORDS, storage::MAGIC, &words).map(Self)
    }

    pub(crate) fn check(block: SharedBlock) -> Option<Self> {
        Control::check(block, storage::N_WORDS, storage::MAGIC).map(Self)
    }

    /// The offset and length in `slab`, in bytes. `slab_len_bytes` is the length of the slab. `None` if the
    /// part does not lie inside it.
    pub(crate) fn range_in(&self, slab: &SlabControl, slab_len_bytes: usize) -> Option<(usize, usize)> {
        let (offset_bytes, len_bytes) =
            (self.0.load_len(storage::OFFSET_BYTES), self.0.load_len(storage::LEN_BYTES));
        let is_inside = self.0.load(storage::SLAB) == slab.name()
            && offset_bytes.is_multiple_of(crate::pool::ALIGN_BYTES)
            && offset_bytes.checked_add(len_bytes).is_some_and(|end| end <= slab_len_bytes);
        is_inside.then_some((offset_bytes, len_bytes))
    }

    /// Marks the memory as used by a device of this member. Must be called before the device gets the work.
    pub(crate) fn mark_used(&self, me: Member) {
        let before = self.0.word(storage::USERS).fetch_or(me.bit(), Ordering::SeqCst);
        if before & me.bit() != 0 {
            // A process that had this member's slot before died while it used the memory. Its mark cannot be
            // told from this one later.
            self.0.word(storage::USERS).fetch_or(LEFT_BEHIND, Ordering::SeqCst);
        }
    }

    /// Clears the mark: no device uses the memory for this member any more.
    pub(crate) fn unmark_used(&self, me: Member) {
        self.0.word(storage::USERS).fetch_and(!me.bit(), Ordering::SeqCst);
    }

    /// Whether a member has marked the memory and not cleared its mark. If no process holds the storage any
    /// more, that member has died, and its device may still use the memory.
    pub(crate) fn is_used(&self) -> bool {
        self.0.word(storage::USERS).load(Ordering::SeqCst) != 0
    }
}

fn handle_words(IpcHandle(bytes): &IpcHandle) -> impl Iterator<Item = u64> {
    let (chunks, _) = bytes.as_chunks::<8>();
    chunks.iter().map(|chunk| u64::from_le_bytes(*chunk))
}

#[cfg(test)]
#[path = "../../tensorferry-domain/src/wire_tests/table.rs"]
#[expect(dead_code, reason = "the tables of other crates have more forms")]
mod table;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_blocks_are_as_the_document_says() {
        table::check_bytes(
            "Slab block",
            slab::N_WORDS * 8,
            &[
                ("magic", MAGIC, 8),
                ("len_bytes", slab::LEN_BYTES, 8),
                ("uuid", slab::UUID, 16),
                ("owner", slab::OWNER, 8),
                ("retired", slab::RETIRED, 8),
                ("strategy", slab::STRATEGY, 8),
                ("pool", slab::POOL, 8),
                ("handle", slab::HANDLE, IPC_HANDLE_LEN_BYTES),
            ],
        );
        table::check_bytes(
            "Pool block",
            pool::N_WORDS * 8,
            &[("magic", MAGIC, 8), ("owner", pool::OWNER, 8)],
        );
        assert_eq!(pool::MAGIC.to_le_bytes(), *b"POOL\x01\0\0\0");
        table::check_bytes(
            "Storage block",
            storage::N_WORDS * 8,
            &[
                ("magic", MAGIC, 8),
                ("slab", storage::SLAB, 8),
                ("offset_bytes", storage::OFFSET_BYTES, 8),
                ("len_bytes", storage::LEN_BYTES, 8),
                ("users", storage::USERS, 8),
            ],
        );
        assert_eq!(slab::MAGIC.to_le_bytes(), *b"SLAB\x02\0\0\0");
        assert_eq!(storage::MAGIC.to_le_bytes(), *b"DEVS\x01\0\0\0");
    }

    fn slab_of(heap: &Heap) -> SlabControl {
        let (uuid, handle) = (Uuid::from_bytes([7; 16]), IpcHandle([3; IPC_HANDLE_LEN_BYTES]));
        SlabControl::create(heap, uuid, 4096, CudaStrategy::Legacy, &handle, 0).unwrap()
    }

    #[test]
    fn members_survive_their_word() {
        let member = Member { slot: 62, epoch: u32::MAX };
        assert_eq!(unpack_member(pack_member(member)), member);
    }

    #[test]
    fn a_mark_of_somebody_who_died_is_not_taken_for_ones_own() {
        let heap = Heap::create(tensorferry_domain::Domain::builder().address_space_bytes(1 << 30)).unwrap();
        let slab = slab_of(&heap);
        let storage = StorageControl::create(&heap, &slab, 0, 256).unwrap();
        let [dead, me] = [1, 2].map(|epoch| Member { slot: 3, epoch });
        storage.mark_used(me);
        storage.unmark_used(me);
        assert!(!storage.is_used());
        storage.mark_used(dead);
        storage.mark_used(me);
        storage.unmark_used(me);
        assert!(storage.is_used(), "somebody died at it");
    }
}
