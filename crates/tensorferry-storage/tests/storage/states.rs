//! Exclusive, frozen and shared blocks: which state may turn into which.

use std::sync::Barrier;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tensorferry_storage::{Consumers, Deadline, OutgoingHandle, Parcel, Ring, SharedBlock};

use crate::heap;

#[test]
fn a_frozen_block_thaws_only_when_nobody_else_holds_it() {
    let heap = heap();
    let mut block = heap.allocate(100).unwrap();
    block.bytes_mut().fill(3);
    let frozen = block.freeze();
    let clone = frozen.clone();
    let frozen = frozen.try_into_exclusive().expect_err("a clone holds it");
    drop(clone);
    let mut block = frozen.try_into_exclusive().unwrap();
    assert_eq!(block.bytes(), [3; 100]);
}

#[test]
fn a_message_on_its_way_keeps_a_block_from_thawing() {
    let heap = heap();
    let ring = Ring::create(&heap, 2, 0).unwrap();
    let frozen = heap.allocate_zeroed(100).unwrap().freeze();
    let handles = OutgoingHandle::frozen(&frozen).into_iter().collect();
    ring.put(b"", handles, Deadline::Now).unwrap();
    let frozen = frozen.try_into_exclusive().expect_err("it is in the ring");
    drop(ring.take(Consumers::Multi, Deadline::Now).unwrap());
    heap.collect();
    assert!(frozen.try_into_exclusive().is_ok());
}

#[test]
fn a_block_that_was_given_away_is_empty_here_and_whole_there() {
    let heap = heap();
    let ring = Ring::create(&heap, 2, 0).unwrap();
    let mut block = heap.allocate(100).unwrap();
    block.bytes_mut().fill(9);
    let handles = OutgoingHandle::exclusive(&block).into_iter().collect();
    ring.put(b"", handles, Deadline::Now).unwrap();
    assert!(block.is_moved());
    assert_eq!((block.len_bytes(), block.bytes_mut().len()), (0, 0));
    assert!(OutgoingHandle::exclusive(&block).is_none(), "it can be given once");
    let mut message = ring.take(Consumers::Multi, Deadline::Now).unwrap();
    assert_eq!(message.handles[0].take_exclusive().unwrap().bytes(), [9; 100]);
    assert!(message.handles[0].take_exclusive().is_none(), "it can be taken once");
}

#[test]
fn a_block_comes_back_when_the_message_is_not_sent() {
    let heap = heap();
    let ring = Ring::create(&heap, 1, 0).unwrap();
    ring.put(b"", [].into_iter().collect(), Deadline::Now).unwrap();
    let mut block = heap.allocate_zeroed(100).unwrap();
    let handles = OutgoingHandle::exclusive(&block).into_iter().collect();
    assert!(ring.put(b"", handles, Deadline::Now).is_err());
    assert!(!block.is_moved());
    assert_eq!(block.bytes_mut().len(), 100);
}

#[test]
fn shared_words_are_the_same_for_every_holder() {
    let heap = heap();
    let shared = heap.allocate_zeroed(20).unwrap().share();
    assert_eq!(shared.words().len(), 3, "20 bytes are three words");
    shared.words()[2].store(5, Ordering::Relaxed);
    let other = shared.clone();
    assert_eq!(other.words()[2].load(Ordering::Relaxed), 5);
    assert!(shared.try_into_exclusive().is_err());
}

#[test]
fn a_block_that_has_its_own_pages_shares_none() {
    let heap = heap();
    let blocks = [64, 32 << 10, (32 << 10) + 1, 40_000, 64, 40_000, 32 << 10, 3 << 20];
    let blocks = blocks.map(|len_bytes| heap.allocate_zeroed(len_bytes).unwrap().share());
    let pages = |block: &SharedBlock| {
        let begin = block.words().as_ptr().addr();
        begin / 4096..(begin + block.len_bytes()).div_ceil(4096)
    };
    assert_eq!(blocks.iter().filter(|block| block.has_own_pages()).count(), 4);
    for own in blocks.iter().filter(|block| block.has_own_pages()) {
        let mine = pages(own);
        assert!(own.words().as_ptr().addr().is_multiple_of(4096), "its header is elsewhere");
        for other in blocks.iter().filter(|other| other.id() != own.id()) {
            assert!(pages(other).end <= mine.start || mine.end <= pages(other).start);
        }
    }
}

/// One thread opens a parcel while another one drops it and wants the blocks that it named for itself.
#[test]
fn a_parcel_that_is_dropped_while_it_is_opened_keeps_what_it_names() {
    let heap = heap();
    let before = heap.allocate(64).unwrap().freeze();
    let (mut opened, mut thawed) = (0, 0);
    for round in 0_u64..2_000 {
        let frozen = heap.allocate(64).unwrap().freeze();
        let handles = (0..200).map(|_| &before).chain([&frozen]).filter_map(OutgoingHandle::frozen).collect();
        let parcel = Parcel::pack(&heap, b"", handles).unwrap();
        let id = parcel.id();
        let start = Barrier::new(2);
        let (message, own) = std::thread::scope(|s| {
            let opener = s.spawn(|| {
                start.wait();
                Parcel::open(&heap, id)
            });
            start.wait();
            for _ in 0..round * 10 {
                std::hint::spin_loop();
            }
            drop(parcel);
            let own = frozen.try_into_exclusive();
            (opener.join().unwrap(), own)
        });
        assert!(message.is_err() || own.is_err(), "round {round}: one has it to read and one to write");
        opened += u32::from(message.is_ok());
        thawed += u32::from(own.is_ok());
    }
    println!("{opened} opened, {thawed} thawed");
    drop(before);
    let deadline = Instant::now() + Duration::from_secs(60);
    while heap.stats().own.live_blocks > 0 {
        assert!(Instant::now() < deadline, "{:?}", heap.stats());
        heap.collect();
        std::thread::yield_now();
    }
}
