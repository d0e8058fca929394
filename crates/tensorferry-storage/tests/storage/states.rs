//! Exclusive, frozen, shared: who may become what.

use std::sync::atomic::Ordering;

use tensorferry_storage::{Company, IncomingHandle, OutgoingHandle, Patience, Ring};

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
    ring.put(b"", handles, Patience::None).unwrap();
    let frozen = frozen.try_into_exclusive().expect_err("it is in the ring");
    drop(ring.take(Company::Many, Patience::None).unwrap());
    heap.settle();
    assert!(frozen.try_into_exclusive().is_ok());
}

#[test]
fn a_block_that_was_given_away_is_empty_here_and_whole_there() {
    let heap = heap();
    let ring = Ring::create(&heap, 2, 0).unwrap();
    let mut block = heap.allocate(100).unwrap();
    block.bytes_mut().fill(9);
    let handles = OutgoingHandle::exclusive(&block).into_iter().collect();
    ring.put(b"", handles, Patience::None).unwrap();
    assert!(block.is_moved());
    assert_eq!((block.len_bytes(), block.bytes_mut().len()), (0, 0));
    assert!(OutgoingHandle::exclusive(&block).is_none(), "it can be given once");
    let mut message = ring.take(Company::Many, Patience::None).unwrap();
    let IncomingHandle::Exclusive(there) = &mut message.handles[0] else { panic!("{message:?}") };
    assert_eq!(there.take().unwrap().bytes(), [9; 100]);
}

#[test]
fn a_block_comes_back_when_the_message_is_not_sent() {
    let heap = heap();
    let ring = Ring::create(&heap, 1, 0).unwrap();
    ring.put(b"", [].into_iter().collect(), Patience::None).unwrap();
    let mut block = heap.allocate_zeroed(100).unwrap();
    let handles = OutgoingHandle::exclusive(&block).into_iter().collect();
    assert!(ring.put(b"", handles, Patience::None).is_err());
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
