//! Two members of one domain, each with a mapping of its own, in one process.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tensorferry_os::pidfd::PidFd;
use tensorferry_storage::{Company, FrozenBlock, Heap, IncomingHandle, OutgoingHandle, Patience, Ring};

use crate::heap;

/// A second member beside the one that `first` is.
fn second(first: &Heap) -> Heap {
    let admission = first.domain().admit(&PidFd::of_self().unwrap()).unwrap();
    Heap::attach(first.domain().as_fd().try_clone_to_owned().unwrap(), admission).unwrap()
}

/// The ring of `ring` as `to` sees it.
fn seen_by(to: &Heap, ring: &Ring) -> Ring {
    let parcel = tensorferry_storage::Parcel::pack(
        ring.heap(),
        b"",
        [OutgoingHandle::ring(ring.attachment())].into_iter().collect(),
    );
    let parcel = parcel.unwrap();
    let message = tensorferry_storage::Parcel::open(to, parcel.id()).unwrap();
    let Some(IncomingHandle::Ring(attachment)) = message.handles.into_iter().next() else {
        panic!("no ring")
    };
    Ring::attach(attachment).unwrap()
}

fn send(ring: &Ring, block: &FrozenBlock) {
    let handles = OutgoingHandle::frozen(block).into_iter().collect();
    ring.put(b"", handles, Company::Many, Patience::None).unwrap();
}

fn receive(ring: &Ring) -> FrozenBlock {
    let message = ring.take(Company::Many, Patience::None).unwrap();
    let Some(IncomingHandle::Frozen(block)) = message.handles.into_iter().next() else { panic!("no block") };
    block
}

#[test]
fn a_block_is_the_same_for_both_and_comes_back_to_its_owner() {
    let a = heap();
    let b = second(&a);
    let here = Ring::create(&a, 4, 0).unwrap();
    let there = seen_by(&b, &here);
    for len in [64, 5000, 1 << 20] {
        let mut block = a.allocate(len).unwrap();
        block.bytes_mut().fill(3);
        let block = block.freeze();
        send(&here, &block);
        let received = receive(&there);
        assert_eq!(received.id(), block.id());
        assert_ne!(received.bytes().as_ptr(), block.bytes().as_ptr(), "two mappings");
        assert_eq!(received.bytes(), block.bytes());
        drop(block);
        a.settle();
        assert_eq!(a.stats().own.blocks_live, 2, "the ring and the block that b holds");
        drop(received);
        a.settle();
        assert_eq!(a.stats().own.blocks_live, 1);
    }
}

#[test]
fn what_a_member_leaves_behind_stays_whole_and_is_used_again() {
    let a = heap();
    let b = second(&a);
    let here = Ring::create(&b, 4, 0).unwrap();
    let there = seen_by(&a, &here);
    // A slab of b's, of which a keeps the first block; the others lie far enough apart for a not to have opened them.
    let mut blocks: Vec<_> = (0..63).map(|_| b.allocate(20_000).unwrap()).collect();
    blocks[0].bytes_mut().fill(7);
    let kept = blocks.swap_remove(0).freeze();
    send(&here, &kept);
    let received = receive(&there);
    drop((kept, blocks, here));
    b.settle();
    assert_eq!(a.domain().members().len(), 2);
    drop(b);
    // The service thread may be holding the domain for a moment.
    let deadline = Instant::now() + Duration::from_secs(30);
    while a.domain().members().len() > 1 {
        assert!(Instant::now() < deadline, "b's slot is not free");
        std::thread::yield_now();
    }
    assert_eq!(received.bytes(), [7; 20_000]);
    // Whatever a allocates now, some of it in b's extents, is apart from what it kept.
    let mut fresh = Vec::new();
    for _ in 0..100 {
        let mut block = a.allocate(20_000).unwrap();
        assert_eq!(block.bytes_mut().len(), 20_000, "it can be reached at once");
        block.bytes_mut().fill(1);
        assert_ne!(block.id(), received.id());
        fresh.push(block);
    }
    assert_eq!(received.bytes(), [7; 20_000]);
    drop((received, there, fresh));
    a.settle();
    assert_eq!(a.stats().own.blocks_live, 0);
}

#[test]
fn a_slot_is_used_again_with_a_new_epoch() {
    let a = heap();
    let first = second(&a).domain().me();
    let again = second(&a).domain().me();
    assert_eq!(first.slot, again.slot);
    assert_eq!(first.epoch + 1, again.epoch);
}
