//! A stand-in for the heap: one ring and two blocks, and each process's holds on them.
//!
//! The accesses to headers are written after `tensorferry-storage/src/heap/hold.rs`, `heap/returns.rs` and
//! `arena.rs`; each function has the name of the one that it follows. `tests/orderings.rs` holds them against
//! those files.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use domain::Member;

use crate::StorageError;
use crate::atomic::{AtomicU32, AtomicU64, Guard, Ordering, may_go_on};
use crate::block::Block;
use crate::class::LINE_WORDS;
use crate::explore::clears_first;
use crate::header::{Header, SUSPECT};
use crate::pins::Pins;
use crate::record::{self, RECORD_WORDS};
use crate::ring_layout::{MAGIC, word};
use crate::slot::{SLOT_WORDS, word as slot};

/// Words of messages that are used: a message of a model has one reference or eight bytes.
const ROOM_WORDS: usize = 2;

/// The block that the ring lies in.
pub(crate) const RING: Place = Place { index: 0 };

/// Which block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) index: usize,
}

/// The memory that all processes of a model share.
#[derive(Debug)]
pub(crate) struct World {
    ring: Vec<AtomicU64>,
    /// The ring's futex words, which the library reaches as halves of its words 24 and 32.
    lines: [AtomicU32; 2],
    headers: [[AtomicU64; LINE_WORDS]; 2],
    bytes: [Guard; 2],
    /// Which blocks were returned: the words on the way from the owner to the header.
    summary: AtomicU64,
    extent_returns: AtomicU64,
    member_returns: AtomicU64,
}

impl World {
    /// With a ring of so many slots and no records that members with these bits send to and receive from; as
    /// `RingWords::format` leaves it.
    pub(crate) fn create(n_slots: usize, senders: u64, receivers: u64) -> Arc<Self> {
        Self::create_with_leases(n_slots, 0, senders, receivers)
    }

    /// As [`World::create`], with so many records.
    pub(crate) fn create_with_leases(
        n_slots: usize,
        n_records: usize,
        senders: u64,
        receivers: u64,
    ) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        let records = word::SLOTS + n_slots * SLOT_WORDS;
        let use_of = |index: usize| match (index.checked_sub(word::SLOTS), index.checked_sub(records)) {
            (_, Some(at)) => use_in(at % RECORD_WORDS, record::word::LENGTHS, record::word::ROOM),
            (Some(at), None) => use_in(at % SLOT_WORDS, slot::LENGTHS, slot::ROOM),
            (None, None) if index <= word::RETURNS => Use::State,
            (None, None) => Use::None,
        };
        let world = Arc::new(Self {
            ring: (0..records + n_records * RECORD_WORDS)
                .map(|index| match index {
                    word::MAGIC => AtomicU64::new(MAGIC),
                    word::N_SLOTS => AtomicU64::new(n_slots as u64),
                    word::N_RECORDS => AtomicU64::new(n_records as u64),
                    word::SENDERS => AtomicU64::new(senders),
                    word::RECEIVERS => AtomicU64::new(receivers),
                    _ => match use_of(index) {
                        Use::State => zero(),
                        Use::Message => AtomicU64::plain(),
                        Use::None => AtomicU64::padding(),
                    },
                })
                .collect(),
            lines: [AtomicU32::new(0), AtomicU32::new(0)],
            headers: std::array::from_fn(|_| std::array::from_fn(|_| zero())),
            bytes: std::array::from_fn(|_| Guard::new()),
            summary: zero(),
            extent_returns: zero(),
            member_returns: zero(),
        });
        world.lines.iter().for_each(AtomicU32::show);
        world
            .ring
            .iter()
            .enumerate()
            .filter(|(index, _)| use_of(*index) != Use::None)
            .for_each(|(_, word)| word.show());
        world.headers[1].iter().for_each(AtomicU64::show);
        for word in [&world.summary, &world.extent_returns, &world.member_returns] {
            word.show();
        }
        world
    }

    pub(crate) fn header(&self, index: usize) -> Header<'_> {
        Header::new(&self.headers[index])
    }

    pub(crate) fn ring(&self) -> &[AtomicU64] {
        &self.ring
    }

    pub(crate) fn futexes(&self) -> &[AtomicU32] {
        &self.lines
    }
}

/// What a word of the ring is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    State,
    /// Used like plain memory, relaxed though its accesses are.
    Message,
    None,
}

/// Of a word in a slot or a record whose message begins with these two.
fn use_in(at: usize, lengths: usize, room: usize) -> Use {
    match at {
        _ if at < lengths => Use::State,
        _ if at < room + ROOM_WORDS => Use::Message,
        _ => Use::None,
    }
}

/// One process's view.
#[derive(Clone, Debug)]
pub(crate) struct Heap {
    world: Arc<World>,
    me: Member,
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    pub(crate) pins: Pins,
    pub(crate) memory: Service,
    /// Private to its process, so of no interest to loom. Of the owner of block 1: it came back, and may be
    /// held by somebody still.
    is_pending: AtomicBool,
    /// Of the owner of block 1: it may be used again.
    is_free: AtomicBool,
}

/// Where the library wakes its service thread; here whoever has pins looks at them itself.
#[derive(Debug, Default)]
pub(crate) struct Service;

impl Service {
    pub(crate) fn wake_service_if_idle(&self) {}
}

impl Heap {
    pub(crate) fn of(world: &Arc<World>, slot: u8) -> Self {
        Self { world: Arc::clone(world), me: Member { slot, epoch: 1 }, inner: Arc::default() }
    }

    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    pub(crate) fn me(&self) -> Member {
        self.me
    }

    /// Nobody forks here.
    pub(crate) fn is_owning_process(&self) -> bool {
        true
    }

    pub(crate) fn check_owning_process(&self) -> Result<(), StorageError> {
        Ok(())
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }

    pub(crate) fn header(&self, place: Place) -> Option<Header<'_>> {
        Some(self.world.header(place.index))
    }

    /// Block 1, which was free. The ring is there already.
    pub(crate) fn allocate_block(&self, len_bytes: usize) -> Result<Block, StorageError> {
        let header = self.world.header(1);
        header.prepare(len_bytes);
        header.holders().store(self.me().bit(), Ordering::Release);
        Ok(Block::counted(self, 1))
    }

    /// Loom has no caches.
    pub(crate) fn prefetch_fresh(&self, _word: u64) -> bool {
        false
    }

    pub(crate) fn hold(&self, index: usize) -> Result<Block, StorageError> {
        let bad = |what| StorageError::BadReference { reference: index as u64, what };
        // Member 0 owns the blocks.
        let likely = 1;
        if !self.world.header(index).hold_if_held(self.me().bit(), likely) {
            return Err(bad("nobody holds the block"));
        }
        Ok(Block::counted(self, index))
    }

    /// The last handle is gone. Member 0 owns the blocks; an owner frees at once what nobody else holds.
    pub(crate) fn let_go(&self, index: usize) {
        let header = self.world.header(index);
        let me = self.me();
        if me.slot == 0 {
            let others = header.let_go(me.bit(), me.bit());
            if others == 0 && may_go_on() {
                self.inner.is_free.store(true, Ordering::Relaxed);
            }
            return;
        }
        if clears_first() {
            header.holders().fetch_and(!me.bit(), Ordering::SeqCst);
        }
        if header.returned().load(Ordering::SeqCst) == 0 {
            self.mark_returned_anew(index);
        }
        header.holders().fetch_and(!me.bit(), Ordering::SeqCst);
    }

    pub(crate) fn mark_returned_anew(&self, index: usize) {
        self.world.header(index).returned().store(1, Ordering::SeqCst);
        set_bit(&self.world.summary, index);
        self.hint_return();
    }

    fn hint_return(&self) {
        for word in [&self.world.extent_returns, &self.world.member_returns] {
            if word.load(Ordering::SeqCst) == 0 {
                word.store(1, Ordering::SeqCst);
            }
        }
    }

    /// For the owner: whether block `index` is free, as far as it can see now.
    pub(crate) fn collect(&self, index: usize) -> bool {
        let take = |word: &AtomicU64| word.load(Ordering::SeqCst) != 0 && word.swap(0, Ordering::SeqCst) != 0;
        if take(&self.world.member_returns)
            && take(&self.world.extent_returns)
            && self.world.summary.load(Ordering::SeqCst) != 0
            && self.world.summary.swap(0, Ordering::SeqCst) & 1 << index != 0
        {
            self.inner.is_pending.store(true, Ordering::Relaxed);
        }
        if self.inner.is_pending.swap(false, Ordering::Relaxed) {
            self.consider(index);
        }
        self.inner.is_free.load(Ordering::Relaxed)
    }

    /// A block was marked as returned: it is free, or to be looked at again.
    fn consider(&self, index: usize) {
        let header = self.world.header(index);
        if header.returned().load(Ordering::SeqCst) == 0 {
            return;
        }
        let is_held = header.holders().load(Ordering::SeqCst) != 0;
        self.inner.is_pending.store(is_held, Ordering::Relaxed);
        self.inner.is_free.fetch_or(!is_held, Ordering::Relaxed);
    }

    /// What a sweep does with the holder word of a block, when no message names it any more.
    pub(crate) fn sweep_block(&self, index: usize, dead: Member) {
        let header = self.world.header(index);
        if header.holders().load(Ordering::SeqCst) & dead.bit() != 0 {
            self.mark_returned_anew(index);
            crate::sweep_ring::suspect(header.holders(), dead);
        }
    }

    /// The scan has found that no message names the block.
    pub(crate) fn clear_unnamed(&self, index: usize) {
        let header = self.world.header(index);
        if header.holders().load(Ordering::SeqCst) & SUSPECT != 0 {
            self.mark_returned_anew(index);
            header.holders().fetch_and(!SUSPECT, Ordering::SeqCst);
        }
    }

    /// Writes a block's bytes: loom fails when anybody else may be reading or writing them.
    pub(crate) fn write_bytes(&self, index: usize) {
        if may_go_on() {
            self.world.bytes[index].write();
        }
    }

    /// Reads a block's bytes: loom fails when anybody may be writing them.
    pub(crate) fn read_bytes(&self, index: usize) {
        if may_go_on() {
            self.world.bytes[index].read();
        }
    }
}

fn set_bit(word: &AtomicU64, bit: usize) {
    let mask = 1_u64 << bit;
    if word.load(Ordering::SeqCst) & mask == 0 {
        word.fetch_or(mask, Ordering::SeqCst);
    }
}
