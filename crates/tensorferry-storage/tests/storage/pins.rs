//! Pins: what a sender keeps until its messages are taken.

use smallvec::smallvec;
use tensorferry_storage::{Consumers, Deadline, FrozenBlock, Heap, OutgoingHandle, Ring};

use crate::heap;

fn to_and_fro(ring: &Ring, block: &FrozenBlock) {
    let handles = smallvec![OutgoingHandle::frozen(block).unwrap()];
    ring.put(b"", handles, Deadline::Now).unwrap();
    ring.take(Consumers::Multi, Deadline::Now).unwrap();
}

fn block(heap: &Heap, len_bytes: usize) -> FrozenBlock {
    heap.allocate(len_bytes).unwrap().freeze()
}

#[test]
fn a_stream_keeps_a_few_messages_and_of_long_blocks_one() {
    for (len_bytes, at_most) in [(64, 8), (16 << 10, 4), (64 << 10, 1), (1 << 20, 1)] {
        let heap = heap();
        let ring = Ring::create(&heap, 4, 0).unwrap();
        for _ in 0..200 {
            to_and_fro(&ring, &block(&heap, len_bytes));
            let pinned = heap.stats().messages_pinned;
            assert!(pinned <= at_most, "{pinned} messages of {len_bytes} bytes");
        }
        drop(ring);
        assert_eq!(heap.stats().messages_pinned, 0);
    }
}

#[test]
fn a_stream_keeps_the_fewer_messages_the_more_handles_each_has() {
    for (n_handles, at_most) in [(1, 8), (2, 4), (3, 3), (7, 2), (8, 1), (100, 1)] {
        let heap = heap();
        let ring = Ring::create(&heap, 4, 0).unwrap();
        // Kept here, because an allocation would retire pins too.
        let blocks: Vec<_> = (0..n_handles).map(|_| block(&heap, 64)).collect();
        let mut most = 0;
        for _ in 0..40 {
            let handles = blocks.iter().map(|block| OutgoingHandle::frozen(block).unwrap()).collect();
            ring.put(b"", handles, Deadline::Now).unwrap();
            ring.take(Consumers::Multi, Deadline::Now).unwrap();
            most = most.max(heap.stats().messages_pinned);
        }
        assert!(most <= at_most, "{most} messages of {n_handles} handles");
        drop(ring);
        assert_eq!(heap.stats().messages_pinned, 0);
    }
}

#[test]
fn a_received_block_can_be_had_several_times_and_is_gone_after_the_last() {
    let heap = heap();
    let ring = Ring::create(&heap, 4, 0).unwrap();
    for n_taken in 0..4 {
        let handles = smallvec![OutgoingHandle::frozen(&block(&heap, 64)).unwrap()];
        ring.put(b"", handles, Deadline::Now).unwrap();
        let mut message = ring.take(Consumers::Multi, Deadline::Now).unwrap();
        heap.collect();
        let taken: Vec<_> = (0..n_taken).map(|_| message.handles[0].take_frozen().unwrap()).collect();
        assert!(taken.iter().all(|block| block.ptr_eq(&taken[0])));
        drop(message);
        assert_eq!(heap.stats().own.live_blocks, 1 + u64::from(n_taken > 0), "the ring, and what was taken");
        drop(taken);
        assert_eq!(heap.stats().own.live_blocks, 1, "{n_taken} were taken");
    }
}
