//! Snapshots of files in which somebody has written what no member writes.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use tensorferry_domain::{Domain, DomainFile};
use tensorferry_os::memfd;

use super::{Amount, Snapshot};
use crate::block::Block;
use crate::class::Class;
use crate::header::{SUSPECT, line};
use crate::message::{MAX_HANDLES, table};
use crate::ring_layout::word as ring;
use crate::slot::{SLOT_WORDS, SlotState, word as slot};
use crate::{Bundle, Deadline, FrozenBlock, Heap, OutgoingHandle, OutgoingHandles, Ring};

const PAGE_BYTES: usize = 4096;

fn heap() -> Heap {
    Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap()
}

fn naming(block: &FrozenBlock) -> OutgoingHandles {
    OutgoingHandle::frozen(block).into_iter().collect()
}

/// A copy of a domain's file, to be written over. Pages without a bit set are holes.
struct Forgery {
    file: File,
    data_at: usize,
}

impl Forgery {
    fn of(heap: &Heap) -> Self {
        let layout = heap.domain().layout();
        let mut bytes = vec![0; layout.file_len_bytes()];
        memfd::read_exact_at(heap.domain(), &mut bytes, 0).unwrap();
        let file = File::from(memfd::create_sealed("copy", bytes.len() as u64).unwrap());
        for (number, page) in (0..).zip(bytes.as_chunks::<PAGE_BYTES>().0) {
            if page != &[0; PAGE_BYTES] {
                file.write_all_at(page, number * PAGE_BYTES as u64).unwrap();
            }
        }
        Self { file, data_at: layout.data_offset_bytes }
    }

    fn set(&self, offset_bytes: usize, word: u64) {
        let at = (self.data_at + offset_bytes) as u64;
        self.file.write_all_at(&word.to_ne_bytes(), at).unwrap();
    }

    fn set_in_header(&self, block: &Block, word: usize, value: u64) {
        self.set(block.header_offset_bytes() + word * size_of::<u64>(), value);
    }

    fn set_in_data(&self, block: &Block, word: usize, value: u64) {
        self.set(block.data_offset_bytes() + word * size_of::<u64>(), value);
    }

    fn read(&self) -> Snapshot {
        Snapshot::read(&DomainFile::open(self.file.try_clone().unwrap().into()).unwrap()).unwrap()
    }
}

/// The state word of a slot, in a ring.
fn state_at(index: usize) -> usize {
    ring::SLOTS + index * SLOT_WORDS + slot::STATE
}

#[test]
fn holes_are_read_for_a_while_only_and_memory_to_its_end() {
    const N_SLOTS: usize = 100_000;
    let heap = heap();
    let queue = Ring::create(&heap, N_SLOTS, 0).unwrap();
    let block = queue.attachment().block();
    let forgery = Forgery::of(&heap);
    for index in [0, N_SLOTS - 1] {
        forgery.set_in_data(block, state_at(index), SlotState::ready(0).pack());
    }
    let waiting = || forgery.read().queues[0].waiting_items;
    assert_eq!(waiting(), 1, "the last slot lies behind 25 MB of holes");
    let hole = (state_at(1), state_at(N_SLOTS - 1));
    let zeroes = vec![0; (hole.1 - hole.0) * size_of::<u64>()];
    let at = forgery.data_at + block.data_offset_bytes() + hole.0 * size_of::<u64>();
    forgery.file.write_all_at(&zeroes, at as u64).unwrap();
    assert_eq!(waiting(), 2);
}

#[test]
fn a_queue_ends_where_its_block_ends_whatever_it_claims() {
    let heap = heap();
    let queue = Ring::create(&heap, 4, 0).unwrap();
    let block = queue.attachment().block();
    let forgery = Forgery::of(&heap);
    let capacity_bytes = Class::holding(block.len_bytes()).unwrap().size_bytes();
    let behind = state_at(100);
    assert!(behind * size_of::<u64>() > capacity_bytes);
    forgery.set_in_data(block, behind, SlotState::ready(0).pack());
    forgery.set_in_data(block, ring::N_SLOTS, 200);
    let [queue] = &forgery.read().queues[..] else { panic!("one queue") };
    assert_eq!((queue.capacity_items, queue.waiting_items), (200, 0));
}

#[test]
fn no_block_is_longer_than_its_class() {
    let heap = heap();
    let blocks = [100, 100_000].map(|len_bytes| heap.allocate(len_bytes).unwrap().freeze());
    let forgery = Forgery::of(&heap);
    for block in &blocks {
        forgery.set_in_header(block.block().unwrap(), line::LEN_BYTES, u64::MAX);
    }
    let now = forgery.read();
    assert_eq!(now.held.data, Amount { blocks: 2, bytes: 128 + (112 << 10) });
    assert_eq!((now.longest[0].len_bytes, now.longest[1].len_bytes), (112 << 10, 128));
    assert_eq!(now.members[0].holds_alone, now.held.data);
}

#[test]
fn a_table_names_no_more_than_a_message_can() {
    let heap = heap();
    let block = heap.allocate(100).unwrap().freeze();
    // There is room for more references than the most.
    let payload = vec![0; (MAX_HANDLES + 10) * size_of::<u64>()];
    let bundle = Bundle::pack(&heap, &payload, naming(&block)).unwrap();
    let (named, list) = (block.block().unwrap(), bundle.block().unwrap());
    let reference = list.words()[table::ROOM].load(std::sync::atomic::Ordering::Relaxed);
    let forgery = Forgery::of(&heap);
    forgery.set_in_header(named, line::HOLDERS, SUSPECT);
    forgery.set_in_data(list, table::ROOM, 0);
    let in_doubt_if_last = |at: usize, n_references: u64| {
        forgery.set_in_data(list, table::ROOM + at, reference);
        forgery.set_in_data(list, table::N_REFERENCES, n_references);
        let in_doubt = forgery.read().in_doubt.blocks;
        forgery.set_in_data(list, table::ROOM + at, 0);
        in_doubt
    };
    let most = MAX_HANDLES as u64;
    assert_eq!(in_doubt_if_last(MAX_HANDLES - 1, most), 0, "the bundle names it");
    assert_eq!(in_doubt_if_last(MAX_HANDLES, most + 1), 1, "one too many");
    assert_eq!(in_doubt_if_last(0, u64::MAX), 0, "as many as there may be are read");
}

#[test]
fn a_long_list_in_many_queues_is_followed_for_a_while_only() {
    const N_QUEUES: usize = 400;
    let heap = heap();
    let block = heap.allocate(100).unwrap().freeze();
    // It names one block again and again, so that a little memory makes for a long way.
    let again = (0..10_000).filter_map(|_| OutgoingHandle::frozen(&block)).collect();
    let bundle = Bundle::pack(&heap, b"", again).unwrap();
    let queues = [(); N_QUEUES].map(|()| Ring::create(&heap, 1, 0).unwrap());
    for queue in &queues {
        let list = OutgoingHandles::from_iter([OutgoingHandle::bundle(&bundle)]);
        queue.put(b"", list, Deadline::Now).unwrap();
    }
    let now = heap.snapshot().unwrap();
    assert_eq!(now.queues[0].waiting.blocks, 2);
    let followed = now.queues.iter().filter(|queue| queue.waiting.blocks == 2).count();
    assert!((60..N_QUEUES).contains(&followed), "{followed}");
}

#[test]
fn what_is_promised_or_used_is_not_in_doubt() {
    let heap = heap();
    let ring = Arc::new(Ring::create_with_leases(&heap, 2, 1, 0).unwrap());
    let blocks = [100, 200, 300, 400].map(|len_bytes| heap.allocate(len_bytes).unwrap().freeze());
    let [leased, waiting, bundled, lone] = &blocks;
    for block in [leased, waiting] {
        ring.put(b"", naming(block), Deadline::Now).unwrap();
    }
    let lease = ring.take_leased(Deadline::Now).unwrap();
    let bundle = Bundle::pack(&heap, b"", naming(bundled)).unwrap();
    let list = bundle.block().unwrap();
    let forgery = Forgery::of(&heap);
    assert_eq!(forgery.read().in_doubt, Amount::default(), "this member holds all");
    for block in &blocks {
        forgery.set_in_header(block.block().unwrap(), line::HOLDERS, SUSPECT);
    }
    assert_eq!(forgery.read().in_doubt, Amount { blocks: 1, bytes: 400 }, "{lone:?}");
    // Who made the bundle is dead too, and nobody else has it.
    forgery.set_in_header(list, line::HOLDERS, SUSPECT);
    let bytes = 400 + 300 + list.len_bytes() as u64;
    assert_eq!(forgery.read().in_doubt, Amount { blocks: 3, bytes });
    // Nobody holds what is left.
    for block in &blocks {
        forgery.set_in_header(block.block().unwrap(), line::HOLDERS, 0);
    }
    assert_eq!(forgery.read().held.data, Amount::default());
    drop((lease, bundle));
}
