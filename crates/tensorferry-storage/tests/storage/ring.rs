//! The ring among threads of one process.

use std::time::{Duration, Instant};

use tensorferry_storage::{
    Consumers, Deadline, Heap, OutgoingHandle, OutgoingHandles, Ring, RingJoinError, RingPutError,
    RingTakeError, Role,
};

use crate::heap;

fn none() -> OutgoingHandles {
    OutgoingHandles::new()
}

fn put(ring: &Ring, payload: &[u8]) -> Result<(), RingPutError> {
    ring.put(payload, none(), Deadline::Now)
}

fn take(ring: &Ring) -> Result<Vec<u8>, RingTakeError> {
    ring.take(Consumers::Multi, Deadline::Now).map(|message| message.payload.to_vec())
}

#[test]
fn the_length_is_that_of_now_also_before_anybody_looks_again() {
    for n_slots in [1, 3, 4] {
        let ring = Ring::create(&heap(), n_slots, 0).unwrap();
        for _ in 0..3 * n_slots {
            (0..n_slots).for_each(|_| put(&ring, b"").unwrap());
            assert_eq!(ring.len(), n_slots);
            take(&ring).unwrap();
            assert_eq!(ring.len(), n_slots - 1);
            put(&ring, b"").unwrap();
            assert_eq!(ring.len(), n_slots, "as full as it was, of {n_slots}");
            for left in (0..n_slots).rev() {
                take(&ring).unwrap();
                assert_eq!(ring.len(), left);
            }
        }
    }
}

#[test]
fn messages_come_in_order_and_the_ring_is_bounded() {
    for n_slots in [1, 2, 3, 8] {
        let ring = Ring::create(&heap(), n_slots, 0).unwrap();
        for lap in 0..5_u8 {
            for index in 0..n_slots {
                put(&ring, &[lap, u8::try_from(index).unwrap()]).unwrap();
            }
            assert!(matches!(put(&ring, b"more"), Err(RingPutError::Full)));
            assert_eq!(ring.len(), n_slots);
            for index in 0..n_slots {
                assert_eq!(take(&ring).unwrap(), [lap, u8::try_from(index).unwrap()]);
            }
            assert!(matches!(take(&ring), Err(RingTakeError::Empty)));
        }
    }
}

#[test]
fn payloads_of_every_length_arrive_whole() {
    let ring = Ring::create(&heap(), 2, 0).unwrap();
    for len in (0..300).chain([4096, 100_000]) {
        let payload: Vec<u8> = (0..len).map(|i| u8::try_from(i % 251).unwrap()).collect();
        put(&ring, &payload).unwrap();
        assert_eq!(take(&ring).unwrap(), payload, "length {len}");
    }
}

#[test]
fn a_thousand_handles_travel_in_one_message() {
    let heap = heap();
    let ring = Ring::create(&heap, 2, 0).unwrap();
    let blocks: Vec<_> = (0..1000_u32)
        .map(|i| {
            let mut block = heap.allocate(64).unwrap();
            block.bytes_mut()[..4].copy_from_slice(&i.to_le_bytes());
            block.freeze()
        })
        .collect();
    let handles = blocks.iter().filter_map(OutgoingHandle::frozen).collect();
    ring.put(b"", handles, Deadline::Now).unwrap();
    drop(blocks);
    let mut message = ring.take(Consumers::Multi, Deadline::Now).unwrap();
    assert_eq!(message.handles.len(), 1000);
    for (i, handle) in message.handles.iter_mut().enumerate() {
        let block = handle.take_frozen().unwrap();
        assert_eq!(block.bytes()[..4], u32::try_from(i).unwrap().to_le_bytes());
    }
    drop(message);
    heap.collect();
    assert_eq!(heap.stats().own.live_blocks, 1, "the ring alone is left");
}

#[test]
fn closing_refuses_puts_and_lets_the_rest_be_taken() {
    let ring = Ring::create(&heap(), 4, 0).unwrap();
    put(&ring, b"last").unwrap();
    ring.close();
    assert!(matches!(put(&ring, b"late"), Err(RingPutError::Closed)));
    assert_eq!(take(&ring).unwrap(), b"last");
    assert!(matches!(take(&ring), Err(RingTakeError::Closed)));
}

#[test]
fn the_last_sender_leaving_is_noticed_by_who_waits() {
    let heap = heap();
    let both = Ring::create(&heap, 4, 0).unwrap();
    let sender = both.with_role(Role { sends: true, receives: false }).unwrap();
    let receiver = both.with_role(Role { sends: false, receives: true }).unwrap();
    drop(both);
    std::thread::scope(|s| {
        let waiting = s.spawn(|| {
            let first = receiver.take(Consumers::Multi, Deadline::Never);
            (first, receiver.take(Consumers::Multi, Deadline::Never))
        });
        put(&sender, b"one").unwrap();
        drop(sender);
        let (first, second) = waiting.join().unwrap();
        assert_eq!(&first.unwrap().payload[..], b"one");
        assert!(matches!(second, Err(RingTakeError::NoSenders)));
    });
}

#[test]
fn a_put_into_a_ring_without_receivers_is_refused_also_while_it_waits() {
    let heap = heap();
    let both = Ring::create(&heap, 1, 0).unwrap();
    let sender = both.with_role(Role { sends: true, receives: false }).unwrap();
    put(&sender, b"the only slot").unwrap();
    std::thread::scope(|s| {
        let waiting = s.spawn(|| sender.put(b"", none(), Deadline::Never));
        drop(both);
        let refused = waiting.join().unwrap();
        assert!(matches!(refused, Err(RingPutError::NoReceivers)), "{refused:?}");
    });
    assert!(matches!(put(&sender, b"at once"), Err(RingPutError::NoReceivers)));
}

#[test]
fn messages_that_nobody_can_take_give_their_memory_back() {
    let heap = heap();
    let ring = Ring::create(&heap, 4, 0).unwrap();
    let sender = ring.with_role(Role { sends: true, receives: false }).unwrap();
    let block = heap.allocate(1 << 20).unwrap().freeze();
    let handles = OutgoingHandle::frozen(&block).into_iter().collect();
    sender.put(b"", handles, Deadline::Now).unwrap();
    drop((block, ring));
    heap.collect();
    assert_eq!(heap.stats().own.live_blocks, 1, "the ring alone is left");
    drop(sender);
    heap.collect();
    assert_eq!(heap.stats().own.live_blocks, 0);
}

#[test]
fn who_joins_is_told_of_what_was_discarded_also_when_there_is_a_receiver_again() {
    let heap = heap();
    let ring = Ring::create(&heap, 4, 0).unwrap();
    let sender = ring.with_role(Role { sends: true, receives: false }).unwrap();
    let block = heap.allocate(64).unwrap().freeze();
    sender.put(b"", OutgoingHandle::frozen(&block).into_iter().collect(), Deadline::Now).unwrap();
    drop(ring);
    heap.collect();
    let receiver = sender.with_role(Role { sends: false, receives: true }).unwrap();
    assert!(matches!(take(&receiver), Err(RingTakeError::Empty)));
    for deadline in [Deadline::Now, Deadline::within(Duration::from_millis(1)), Deadline::Never] {
        let joined = sender.join(deadline);
        assert!(matches!(joined, Err(RingJoinError::NoReceivers)), "{joined:?}");
    }
}

#[test]
fn a_sender_that_waits_for_several_slots_contents_itself_with_one() {
    let a_while = || Deadline::within(Duration::from_secs(60));
    for n_slots in [1, 2, 3, 16, 40] {
        let ring = Ring::create(&heap(), n_slots, 0).unwrap();
        (0..n_slots).for_each(|_| put(&ring, b"").unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| (0..200).for_each(|_| ring.put(b"", none(), a_while()).unwrap()));
            // Never a second one before the sender has filled the slot of the one before.
            for _ in 0..200 {
                ring.take(Consumers::Multi, a_while()).unwrap();
                let start = Instant::now();
                while !ring.is_full() {
                    assert!(start.elapsed() < Duration::from_secs(60), "of {n_slots} slots one is free");
                    std::thread::yield_now();
                }
            }
        });
    }
}

#[test]
fn a_time_out_waits_at_least_that_long() {
    let ring = Ring::create(&heap(), 1, 0).unwrap();
    let (start, deadline) = (Instant::now(), Duration::from_millis(20));
    let outcome = ring.take(Consumers::Multi, Deadline::At(start + deadline));
    assert!(matches!(outcome, Err(RingTakeError::Empty)));
    assert!(start.elapsed() >= deadline);
}

fn exchange(heap: &Heap, n_slots: usize, senders: u8, (receivers, take_as): (u8, Consumers)) {
    const N: u32 = 20_000;
    let ring = Ring::create(heap, n_slots, 0).unwrap();
    let mut taken = std::thread::scope(|s| {
        let takers: Vec<_> = (0..receivers)
            .map(|_| {
                s.spawn(|| {
                    let mut taken = Vec::new();
                    while let Ok(message) = ring.take(take_as, Deadline::Never) {
                        let number = u32::from_le_bytes(message.payload[1..5].try_into().unwrap());
                        taken.push((message.payload[0], number));
                    }
                    taken
                })
            })
            .collect();
        let putters: Vec<_> = (0..senders)
            .map(|sender| {
                let ring = &ring;
                s.spawn(move || {
                    for number in 0..N {
                        let mut payload = vec![sender];
                        payload.extend(number.to_le_bytes());
                        ring.put(&payload, none(), Deadline::Never).unwrap();
                    }
                })
            })
            .collect();
        putters.into_iter().for_each(|putter| putter.join().unwrap());
        ring.close();
        let taken: Vec<Vec<(u8, u32)>> = takers.into_iter().map(|taker| taker.join().unwrap()).collect();
        for one in &taken {
            for sender in 0..senders {
                let from_one: Vec<_> = one.iter().filter(|(s, _)| *s == sender).collect();
                assert!(from_one.is_sorted(), "a receiver sees each sender's messages in order");
            }
        }
        taken.concat()
    });
    taken.sort_unstable();
    let expected: Vec<_> = (0..senders).flat_map(|s| (0..N).map(move |n| (s, n))).collect();
    assert!(taken == expected, "every message exactly once: {} of {}", taken.len(), expected.len());
    assert!(ring.is_empty(), "also when they were taken in another order");
}

#[test]
fn every_message_is_taken_exactly_once() {
    let heap = heap();
    for n_slots in [1, 2, 7, 64] {
        exchange(&heap, n_slots, 2, (2, Consumers::Multi));
    }
    exchange(&heap, 8, 1, (1, Consumers::Single));
    exchange(&heap, 8, 2, (1, Consumers::Single));
    // Two receivers that both believe to be alone still get each message once.
    exchange(&heap, 8, 2, (2, Consumers::Single));
}
