//! Messages that are leased from the library's own ring.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "a check fails by panicking"
)]

use std::sync::Arc;

use loom::sync::atomic::Ordering::Relaxed;
use loom::thread;

use crate::atomic::until_killed;
use crate::block::Block;
use crate::deadline::Deadline;
use crate::explore::{explore, explore_kills};
use crate::heap::{Heap, World};
use crate::lease::Lease;
use crate::message::IncomingMessage;
use crate::passing::{end, number_in, put};
use crate::ring::{Ring, RingJoinError, RingTakeError};
use crate::sweep_ring::sweep_ring;
use crate::{Outcome, Weakened};

fn end_of(world: &Arc<World>, slot: u8) -> Arc<Ring> {
    Arc::new(end(&Heap::of(world, slot)))
}

/// Member 0 has put message 1; there is one lease, and members 1 and 2 receive.
fn with_a_message() -> (Arc<World>, Arc<Ring>) {
    let world = World::create_with_leases(1, 1, 1, 6);
    let ring = end_of(&world, 0);
    put(&ring, 1, Deadline::Now).expect("there is room");
    (world, ring)
}

fn check((message, lease): (IncomingMessage, Lease)) -> Lease {
    assert_eq!(number_in(&message), 1);
    lease
}

/// Leases and acknowledges until nothing comes any more; returns how often each message had been delivered.
fn all_until_the_end(ring: &Arc<Ring>) -> Vec<u16> {
    let mut deliveries = Vec::new();
    loop {
        match ring.take_leased(Deadline::Never).map(check) {
            Ok(lease) => {
                deliveries.push(lease.deliveries());
                lease.ack().expect("nobody declared us dead");
            }
            Err(RingTakeError::Closed | RingTakeError::PeerDied) => return deliveries,
            Err(failure) => panic!("{failure}"),
        }
    }
}

/// One leases the message and gives it back, if it comes by it; the other waits for it, asleep or not, and
/// acknowledges it.
pub fn given_back(weakened: Weakened) -> Outcome {
    explore(2, weakened, || {
        let (world, ring) = with_a_message();
        let (first, second) = (Arc::clone(&world), Arc::clone(&world));
        // Drops it, which gives it back.
        let first = thread::spawn(move || end_of(&first, 1).take_leased(Deadline::Now).map(check).is_ok());
        let second = thread::spawn(move || {
            let lease = check(end_of(&second, 2).take_leased(Deadline::Never).expect("it comes back"));
            let deliveries = lease.deliveries();
            lease.ack().expect("nobody declared us dead");
            deliveries
        });
        let was_leased = first.join().expect("no failure");
        let deliveries = second.join().expect("no failure");
        assert_eq!(deliveries, 1 + u16::from(was_leased), "delivered {deliveries} times");
        assert!(ring.is_empty(), "it was acknowledged");
    })
}

/// One leases and acknowledges while the sender joins: what was done before the acknowledgement is seen.
pub fn joined(weakened: Weakened) -> Outcome {
    explore(2, weakened, || {
        let (world, ring) = with_a_message();
        let done = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let worker = {
            let (done, ring) = (Arc::clone(&done), end_of(&world, 1));
            thread::spawn(move || {
                let lease = check(ring.take_leased(Deadline::Never).expect("it was put"));
                done.store(true, Relaxed);
                lease.ack().expect("nobody declared us dead");
            })
        };
        let outcome: Result<(), RingJoinError> = ring.join(Deadline::Never);
        outcome.expect("a receiver is there");
        assert!(done.load(Relaxed), "joined before it was done");
        worker.join().expect("no failure");
    })
}

/// One of two is killed anywhere while it leases and acknowledges, and the sender joins: it waits until one
/// of them has done it, and no longer.
pub fn joined_beside_a_death(weakened: Weakened) -> Outcome {
    explore_kills(1, weakened, |position| {
        let (world, ring) = with_a_message();
        let victims = Arc::clone(&world);
        let done = Arc::new(loom::sync::atomic::AtomicBool::new(false));
        let (joins, seen) = (Arc::clone(&ring), Arc::clone(&done));
        let joins = thread::spawn(move || {
            joins.join(Deadline::Never).expect("a receiver is left");
            assert!(seen.load(Relaxed), "joined before it was done");
        });
        let by_victim = Arc::clone(&done);
        let victim = thread::spawn(move || {
            until_killed(position, || {
                let leased = end_of(&victims, 1).take_leased(Deadline::Now).map(check);
                leased.is_ok_and(|lease| {
                    by_victim.store(true, Relaxed);
                    lease.ack().is_ok()
                })
            })
        });
        let victim = victim.join().expect("no failure");
        sweep_ring(&Block::of_ring(ring.heap()), Heap::of(&world, 1).me(), false);
        if let Ok(lease) = end_of(&world, 2).take_leased(Deadline::Now).map(check) {
            assert_ne!(victim, Some(true), "it was acknowledged");
            done.store(true, Relaxed);
            lease.ack().expect("nobody declared us dead");
        }
        joins.join().expect("no failure");
        victim.is_none()
    })
}

/// One of two is killed anywhere while it leases and acknowledges. The message is acknowledged once: by it or
/// by the other.
pub fn a_lessee_dies(weakened: Weakened) -> Outcome {
    explore_kills(1, weakened, |position| {
        let (world, ring) = with_a_message();
        let (victims, others) = (Arc::clone(&world), Arc::clone(&world));
        let victim = thread::spawn(move || {
            until_killed(position, || {
                let leased = end_of(&victims, 1).take_leased(Deadline::Now).map(check);
                leased.is_ok_and(|lease| lease.ack().is_ok())
            })
        });
        let other = thread::spawn(move || all_until_the_end(&end_of(&others, 2)));
        let was_acked = victim.join().expect("no failure");
        sweep_ring(&Block::of_ring(ring.heap()), Heap::of(&world, 1).me(), false);
        ring.close();
        let deliveries = other.join().expect("no failure");
        match was_acked {
            Some(was_acked) => assert_eq!(deliveries.len(), usize::from(!was_acked), "{deliveries:?}"),
            None => assert!(deliveries.len() <= 1, "{deliveries:?}"),
        }
        assert!(ring.is_empty(), "the message is in nobody's hands");
        was_acked.is_none()
    })
}
