//! Pins: what a sender keeps until its messages are taken.

use std::sync::Arc;

use smallvec::smallvec;
use tensorferry_storage::{Consumers, Deadline, FrozenBlock, Heap, OutgoingHandle, OutgoingHandles, Ring};

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

/// A message with so many blocks, which nobody else has, and which says how many.
fn send(heap: &Heap, ring: &Ring, n_handles: u8) {
    let blocks: Vec<_> = (0..n_handles).map(|_| block(heap, 64)).collect();
    let handles = blocks.iter().filter_map(OutgoingHandle::frozen).collect();
    ring.put(&[n_handles], handles, Deadline::Now).unwrap();
}

#[test]
fn each_message_keeps_its_own_blocks_in_whatever_order_they_go() {
    let heap = heap();
    let ring = Arc::new(Ring::create_with_leases(&heap, 8, 8, 0).unwrap());
    let live = || {
        heap.collect();
        heap.stats().own.live_blocks
    };
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        [1, 3, 2, 70].into_iter().for_each(|n_handles| send(&heap, &ring, n_handles));
        let mut leases: Vec<_> = (0..4).map(|_| Some(ring.take_leased(Deadline::Now).unwrap().1)).collect();
        // Given back in this order, and pinned again; taken in another.
        order.into_iter().for_each(|at| drop(leases[at].take()));
        let mut left = live();
        for _ in 0..4 {
            let (message, lease) = ring.take_leased(Deadline::Now).unwrap();
            let n_handles = u64::from(message.payload[0]);
            assert_eq!(n_handles, message.handles.len() as u64);
            drop(message);
            lease.ack().unwrap();
            left -= n_handles + u64::from(n_handles > 29);
            assert_eq!(live(), left, "after the message of {n_handles}, given back {order:?}");
        }
        assert_eq!(left, 1, "the ring");
    }
}

#[test]
fn a_list_of_handles_that_was_cut_short_is_pinned_as_any_other() {
    let heap = heap();
    let ring = Ring::create(&heap, 8, 0).unwrap();
    let blocks: Vec<_> = (0..9).map(|_| block(&heap, 64)).collect();
    for n_handles in [0, 1, 2, 8] {
        let mut handles: OutgoingHandles = blocks.iter().filter_map(OutgoingHandle::frozen).collect();
        handles.truncate(n_handles);
        ring.put(b"", handles, Deadline::Now).unwrap();
        send(&heap, &ring, 1);
    }
    drop(blocks);
    // The ring, what the longest list names, and one for each short message that is left.
    for n_live in [1 + 8 + 3, 1 + 8 + 2, 1 + 8 + 1, 1] {
        drop([(); 2].map(|()| ring.take(Consumers::Multi, Deadline::Now).unwrap()));
        heap.collect();
        assert_eq!(heap.stats().own.live_blocks, n_live);
    }
}
