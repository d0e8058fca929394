//! Leased values: acknowledged, given back, delivered again.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tensorferry_queue::{GetError, PutErrorKind, Queue};
use tensorferry_storage::{ExclusiveBlock, FrozenBlock};

use crate::heap;

#[test]
fn what_is_acknowledged_is_gone_and_what_is_given_back_comes_first() {
    let queue = Queue::with_leases_in(&heap(), 8, 8).unwrap();
    for value in 0..5 {
        queue.put(value).unwrap();
    }
    let [zero, one, two] = [(); 3].map(|()| queue.get_leased().unwrap());
    assert_eq!((*zero, *one, *two), (0, 1, 2));
    assert_eq!((zero.deliveries(), queue.len()), (1, 2));
    assert_eq!(one.ack().unwrap(), 1);
    // In another order than that of the puts.
    drop(two);
    zero.give_back();
    assert_eq!(queue.len(), 4);
    let again = queue.get_leased().unwrap();
    assert_eq!((*again, again.deliveries()), (0, 2));
    assert_eq!(queue.get().unwrap(), 2, "a plain get takes what came back, for good");
    assert_eq!(again.ack().unwrap(), 0);
    assert_eq!([queue.get().unwrap(), *queue.get_leased().unwrap()], [3, 4]);
    // The last lease was dropped.
    assert_eq!((queue.len(), *queue.get_leased().unwrap()), (1, 4));
    assert_eq!(queue.get_leased().unwrap().deliveries(), 3);
}

#[test]
fn a_lease_holds_no_slot() {
    let queue = Queue::with_leases_in(&heap(), 2, 3).unwrap();
    queue.put(0).unwrap();
    let kept = queue.get_leased().unwrap();
    for lap in 1..20 {
        queue.put_nowait(lap).unwrap();
        queue.put_nowait(-lap).unwrap();
        assert!(queue.put_nowait(0).unwrap_err().is_full());
        assert_eq!(queue.get_leased().unwrap().ack().unwrap(), lap);
        assert_eq!(queue.get().unwrap(), -lap);
    }
    kept.give_back();
    assert!(queue.len() == 1 && !queue.is_full());
    queue.put_nowait(1).unwrap();
    assert!(!queue.is_full(), "what came back takes no room");
    queue.put_nowait(2).unwrap();
    assert!(queue.is_full() && queue.len() == 3 && queue.put_nowait(3).unwrap_err().is_full());
    assert_eq!([(); 3].map(|()| queue.get().unwrap()), [0, 1, 2]);
}

#[test]
fn no_more_leases_than_there_is_room_for() {
    let queue = Queue::with_leases_in(&heap(), 8, 2).unwrap();
    for value in 0..4 {
        queue.put(value).unwrap();
    }
    let first = queue.get_leased().unwrap();
    let second = queue.get_leased().unwrap();
    let error = queue.get_leased().unwrap_err();
    assert!(matches!(error, GetError::AllLeased(2)) && error.to_string().contains("acknowledge"), "{error}");
    assert_eq!(queue.get().unwrap(), 2, "a plain get needs no lease");
    first.ack().unwrap();
    assert_eq!(*queue.get_leased().unwrap(), 3);
    assert_eq!(second.ack().unwrap(), 1);

    let plain: Queue<u8> = Queue::new_in(&heap(), 2).unwrap();
    plain.put(1).unwrap();
    let error = plain.get_leased().unwrap_err();
    assert!(matches!(error, GetError::NoLeases) && error.to_string().contains("with_leases"), "{error}");
    let error = Queue::<u8>::with_leases_in(&heap(), 2, 65_537).unwrap_err().to_string();
    assert!(error.contains("65537") && error.contains("65536"), "{error}");
}

#[test]
fn a_closed_queue_ends_when_nothing_is_left_to_come_back() {
    let queue = Queue::with_leases_in(&heap(), 8, 2).unwrap();
    queue.put(1).unwrap();
    queue.close();
    let lease = queue.get_leased().unwrap();
    assert!(matches!(queue.get_leased_nowait().unwrap_err(), GetError::Closed));
    drop(lease);
    assert_eq!(queue.get_leased_timeout(Duration::from_secs(5)).unwrap().ack().unwrap(), 1);
    assert!(matches!(queue.get().unwrap_err(), GetError::Closed));
    assert!(matches!(queue.get_leased().unwrap_err(), GetError::Closed));
}

/// Bytes by handle, frozen or exclusive.
#[derive(Debug)]
enum Bytes {
    Frozen(FrozenBlock),
    Exclusive(ExclusiveBlock),
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let index = match self {
            Self::Frozen(block) => tensorferry_reduce::give_frozen(block),
            Self::Exclusive(block) => tensorferry_reduce::give_exclusive(block),
        };
        index.map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let index = tensorferry_reduce::HandleIndex::deserialize(deserializer)?;
        tensorferry_reduce::take_frozen(index).map(Self::Frozen).map_err(serde::de::Error::custom)
    }
}

#[test]
fn memory_is_held_until_the_end_and_nothing_exclusive_is_leased() {
    let heap = heap();
    let queue = Queue::with_leases_in(&heap, 4, 4).unwrap();
    let refused = queue.put(Bytes::Exclusive(heap.allocate_zeroed(100).unwrap())).unwrap_err();
    assert!(matches!(refused.kind, PutErrorKind::NotRepeatable), "{refused}");
    assert!(refused.to_string().contains("freeze()"), "{refused}");
    let Bytes::Exclusive(mut block) = refused.into_value() else { panic!() };
    block.bytes_mut().fill(7);
    queue.put(Bytes::Frozen(block.freeze())).unwrap();
    let is_whole = |bytes: &Bytes| matches!(bytes, Bytes::Frozen(block) if block.len_bytes() == 100 && block.bytes() == [7; 100]);
    for deliveries in 1..4 {
        // Between two deliveries only the record's last owner holds the block.
        heap.collect();
        let lease = queue.get_leased().unwrap();
        assert!(is_whole(&lease) && lease.deliveries() == deliveries);
    }
    heap.collect();
    assert!(is_whole(&queue.get().unwrap()));
    heap.collect();
    assert_eq!(heap.stats().own.live_blocks, 1, "the queue alone");
    assert_eq!(heap.stats().messages_pinned, 0);
}

#[test]
fn what_was_given_back_is_held_also_when_its_sender_looks_at_what_was_taken() {
    // Long enough that each put makes the sender check what was taken.
    const LEN_BYTES: usize = 64 << 10;
    let heap = heap();
    let queue = Queue::with_leases_in(&heap, 4, 4).unwrap();
    let put = |byte: u8| {
        let mut block = heap.allocate(LEN_BYTES).unwrap();
        block.bytes_mut().fill(byte);
        queue.put(Bytes::Frozen(block.freeze())).unwrap();
    };
    let is_whole =
        |bytes: &Bytes, byte: u8| matches!(bytes, Bytes::Frozen(block) if block.bytes() == [byte; LEN_BYTES]);
    put(1);
    let lease = queue.get_leased().unwrap();
    // More messages were taken from the ring than there are records before this one's.
    for byte in 2..5 {
        put(byte);
        assert!(is_whole(&queue.get().unwrap(), byte));
    }
    drop(lease);
    put(5);
    put(6);
    let again = queue.get_leased().unwrap();
    assert!(is_whole(&again, 1) && again.deliveries() == 2);
}

#[test]
fn many_threads_share_leases_and_lose_and_double_nothing() {
    const N_VALUES: u32 = 2_000;
    let queue: Queue<u32> = Queue::with_leases_in(&heap(), 4, 6).unwrap();
    let acknowledged = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..3)
            .map(|worker: u32| {
                let queue = queue.clone();
                scope.spawn(move || {
                    let mut mine = Vec::new();
                    loop {
                        match queue.get_leased() {
                            // Every worker gives some back.
                            Ok(lease)
                                if (*lease + u32::from(lease.deliveries()) + worker).is_multiple_of(5) => {}
                            Ok(lease) => mine.push(lease.ack().unwrap()),
                            Err(GetError::Closed) => return mine,
                            Err(GetError::AllLeased(_)) => std::thread::yield_now(),
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        for value in 0..N_VALUES {
            queue.put(value).unwrap();
        }
        queue.close();
        let mut all: Vec<u32> = workers.into_iter().flat_map(|worker| worker.join().unwrap()).collect();
        // The last worker may have given some back after the others had returned.
        all.extend(std::iter::from_fn(|| queue.get_nowait().ok()));
        all
    });
    let mut acknowledged = acknowledged;
    acknowledged.sort_unstable();
    assert!(acknowledged.into_iter().eq(0..N_VALUES));
}

/// A number that panics when it is read.
#[derive(Debug, Serialize)]
struct Poison(u32);

impl<'de> Deserialize<'de> for Poison {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u32::deserialize(deserializer)?;
        assert!(number != 7, "poison");
        Ok(Self(number))
    }
}

#[test]
fn a_value_that_panics_when_it_is_read_does_not_hold_up_the_others_for_ever() {
    let queue = Queue::with_leases_in(&heap(), 4, 2).unwrap();
    queue.put(Poison(7)).unwrap();
    queue.put(Poison(8)).unwrap();
    for _ in 0..3 {
        let get = std::panic::AssertUnwindSafe(|| queue.get_leased());
        let panic = std::panic::catch_unwind(get).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"poison"));
    }
    let lease = queue.get_leased_nowait().unwrap();
    assert_eq!((lease.0, lease.deliveries()), (8, 1));
}
