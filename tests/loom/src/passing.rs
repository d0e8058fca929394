//! Messages through the library's own ring.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "a check fails by panicking"
)]

use std::sync::Arc;

use loom::thread;

use crate::atomic::{Ordering, until_killed};
use crate::attachments::Attachment;
use crate::block::Block;
use crate::deadline::Deadline;
use crate::explore::{explore, explore_kills};
use crate::header::SUSPECT;
use crate::heap::{Heap, World};
use crate::message::{IncomingMessage, OutgoingHandles};
use crate::reference::Role;
use crate::ring::{Consumers, Ring, RingPutError, RingTakeError};
use crate::ring_layout::RingWords;
use crate::sweep_ring::{sweep_ring, wake_all};
use crate::{Outcome, Weakened};

/// A process's end of the ring.
pub(crate) fn end(heap: &Heap) -> Ring {
    let role = Role { sends: true, receives: true };
    Ring::attach(Attachment::new(Block::of_ring(heap), role)).expect("the ring is there")
}

fn end_of(world: &Arc<World>, slot: u8) -> Ring {
    end(&Heap::of(world, slot))
}

pub(crate) fn put(ring: &Ring, number: u8, deadline: Deadline) -> Result<(), RingPutError> {
    ring.put(&[number; 8], OutgoingHandles::new(), deadline)
}

fn take(ring: &Ring, consumers: Consumers, deadline: Deadline) -> Result<u8, RingTakeError> {
    ring.take(consumers, deadline).map(|message| number_in(&message))
}

/// The number of a message that came whole.
pub(crate) fn number_in(message: &IncomingMessage) -> u8 {
    assert_eq!(message.payload.len(), 8, "a torn message");
    let number = message.payload[0];
    assert!(message.payload.iter().all(|&byte| byte == number), "a torn message: {:?}", message.payload);
    number
}

/// Two messages through a ring of one slot.
pub fn one_after_the_other(weakened: Weakened, consumers: Consumers) -> Outcome {
    explore(4, weakened, move || {
        let world = World::create(1, 1, 2);
        let theirs = Arc::clone(&world);
        let sender = thread::spawn(move || {
            let ring = end_of(&theirs, 0);
            for number in [1, 2] {
                put(&ring, number, Deadline::Never).expect("there is a receiver");
            }
        });
        let ring = end_of(&world, 1);
        for number in [1, 2] {
            assert_eq!(take(&ring, consumers, Deadline::Never).expect("there is a sender"), number);
        }
        sender.join().expect("the sender did not fail");
    })
}

/// Two messages for two receivers, who take each of them once.
pub fn two_receivers(weakened: Weakened) -> Outcome {
    explore(4, weakened, || {
        let world = World::create(2, 1, 6);
        let ring = end_of(&world, 0);
        for number in [1, 2] {
            put(&ring, number, Deadline::Now).expect("there is room");
        }
        let theirs = Arc::clone(&world);
        let other = thread::spawn(move || take(&end_of(&theirs, 1), Consumers::Multi, Deadline::Never));
        let mine = take(&end_of(&world, 2), Consumers::Multi, Deadline::Never).expect("one for each");
        let others = other.join().expect("no failure").expect("one for each");
        assert_eq!(mine + others, 3, "{mine} and {others}");
    })
}

/// Two senders and one slot.
pub fn two_senders(weakened: Weakened) -> Outcome {
    explore(2, weakened, || {
        let world = World::create(1, 3, 4);
        let senders = [0, 1].map(|slot| {
            let world = Arc::clone(&world);
            thread::spawn(move || put(&end_of(&world, slot), slot + 1, Deadline::Never))
        });
        let ring = end_of(&world, 2);
        let taken = [(); 2].map(|()| take(&ring, Consumers::Multi, Deadline::Never).expect("two were put"));
        assert_eq!(taken.iter().sum::<u8>(), 3, "{taken:?}");
        for sender in senders {
            sender.join().expect("no failure").expect("both were put");
        }
    })
}

/// Closing beside a put: it was put exactly if it was taken.
pub fn closing(weakened: Weakened) -> Outcome {
    explore(2, weakened, || {
        let world = World::create(1, 1, 2);
        let (senders, receivers) = (Arc::clone(&world), Arc::clone(&world));
        let sender = thread::spawn(move || put(&end_of(&senders, 0), 1, Deadline::Now).is_ok());
        let receiver = thread::spawn(move || all_until_the_end(&end_of(&receivers, 1)));
        end_of(&world, 2).close();
        let was_put = sender.join().expect("no failure");
        let taken = receiver.join().expect("no failure");
        assert_eq!(taken.len(), usize::from(was_put), "put: {was_put}, taken: {taken:?}");
    })
}

/// The scan after a sweep has found that no message carries a role of the dead one.
fn end_roles(heap: &Heap) {
    let block = Block::of_ring(heap);
    let ring = RingWords::of(&block).expect("the ring is there");
    ring.senders().fetch_and(!SUSPECT, Ordering::SeqCst);
    wake_all(&ring);
}

fn all_until_the_end(ring: &Ring) -> Vec<u8> {
    let mut taken = Vec::new();
    loop {
        match take(ring, Consumers::Multi, Deadline::Never) {
            Ok(number) => taken.push(number),
            Err(RingTakeError::Closed | RingTakeError::PeerDied) => return taken,
            Err(failure) => panic!("{failure}"),
        }
    }
}

/// The only sender is killed anywhere and swept. What it had put comes, once; the receiver learns of its end;
/// the slot is of use again.
pub fn a_sender_dies(weakened: Weakened) -> Outcome {
    explore_kills(1, weakened, |position| {
        let world = World::create(1, 1, 2);
        let (victims, receivers) = (Arc::clone(&world), Arc::clone(&world));
        let victim = thread::spawn(move || {
            until_killed(position, || put(&end_of(&victims, 0), 1, Deadline::Now).is_ok())
        });
        let receiver = thread::spawn(move || all_until_the_end(&end_of(&receivers, 1)));
        let was_put = victim.join().expect("no failure");
        let heap = Heap::of(&world, 2);
        sweep_ring(&Block::of_ring(&heap), Heap::of(&world, 0).me(), false);
        end_roles(&heap);
        let taken = receiver.join().expect("no failure");
        match was_put {
            Some(was_put) => assert_eq!(taken.len(), usize::from(was_put), "put: {was_put}"),
            None => assert!(taken.len() <= 1, "{taken:?}"),
        }
        let ring = end(&heap);
        put(&ring, 2, Deadline::Now).expect("the slot is free");
        assert_eq!(take(&end_of(&world, 1), Consumers::Multi, Deadline::Now).expect("it was put"), 2);
        was_put.is_none()
    })
}

/// One of two receivers is killed anywhere and swept. The message goes to one of them, and dies with its
/// taker at most.
pub fn a_receiver_dies(weakened: Weakened) -> Outcome {
    explore_kills(1, weakened, |position| {
        let world = World::create(1, 1, 6);
        let ring = end_of(&world, 0);
        put(&ring, 1, Deadline::Now).expect("there is room");
        let (victims, others) = (Arc::clone(&world), Arc::clone(&world));
        let victim = thread::spawn(move || {
            until_killed(position, || take(&end_of(&victims, 1), Consumers::Multi, Deadline::Now).is_ok())
        });
        let other = thread::spawn(move || all_until_the_end(&end_of(&others, 2)));
        let was_taken = victim.join().expect("no failure");
        sweep_ring(&Block::of_ring(ring.heap()), Heap::of(&world, 1).me(), false);
        ring.close();
        let taken = other.join().expect("no failure");
        match was_taken {
            Some(was_taken) => assert_eq!(taken.len(), usize::from(!was_taken), "{taken:?}"),
            None => assert!(taken.len() <= 1, "{taken:?}"),
        }
        assert!(ring.is_empty(), "the message is in nobody's hands");
        was_taken.is_none()
    })
}
