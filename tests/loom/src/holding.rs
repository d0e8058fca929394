//! Holder bits: a block goes along with a message, is read and dropped, comes back to its owner and is
//! written again.

#![expect(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    reason = "a check fails by panicking"
)]

use std::sync::Arc;

use loom::thread;

use crate::atomic::{Ordering, until_killed};
use crate::block::Block;
use crate::deadline::Deadline;
use crate::explore::{explore, explore_kills};
use crate::heap::{Heap, World};
use crate::message::{IncomingHandle, Outgoing, OutgoingHandle};
use crate::passing::end;
use crate::ring::{Consumers, Ring};
use crate::sweep_ring::sweep_ring;
use crate::{Outcome, Weakened};

const BLOCK: usize = 1;

/// Writes a fresh block and sends it.
fn send(heap: &Heap, ring: &Ring) {
    let block = heap.allocate_block(8).expect("it is free");
    heap.write_bytes(BLOCK);
    let handle = OutgoingHandle(Outgoing::Frozen(block));
    ring.put(&[1], [handle].into_iter().collect(), Deadline::Now).expect("there is room");
}

fn take_and_read(heap: &Heap, ring: &Ring, deadline: Deadline) -> bool {
    ring.take(Consumers::Multi, deadline).is_ok_and(|message| {
        let Some(IncomingHandle::Offered(block)) = message.handles.first() else {
            panic!("it names a block")
        };
        heap.read_bytes(block.place().index);
        true
    })
}

/// What the owner does from time to time; true when the block was free, and has been written again.
fn look_and_reuse(heap: &Heap) -> bool {
    heap.inner().pins.retire();
    let is_free = heap.collect(BLOCK);
    if is_free {
        heap.write_bytes(BLOCK);
    }
    is_free
}

/// The owner looks at any moment. In the end the block is its own again.
pub fn reuse(weakened: Weakened) -> Outcome {
    explore(4, weakened, || {
        let world = World::create(1, 1, 2);
        let owner = Heap::of(&world, 0);
        let ring = end(&owner);
        let theirs = Arc::clone(&world);
        let receiver = thread::spawn(move || {
            let heap = Heap::of(&theirs, 1);
            take_and_read(&heap, &end(&heap), Deadline::Never)
        });
        send(&owner, &ring);
        let early = look_and_reuse(&owner);
        assert!(receiver.join().expect("no failure"), "the message came");
        assert!(early || look_and_reuse(&owner), "the block was lost");
    })
}

/// The receiver looks once more before it reads what it took, so that the head passes the message; the owner
/// sends another one, and looks at its pins because of that.
pub fn passed(weakened: Weakened) -> Outcome {
    explore(3, weakened, || {
        let world = World::create(2, 1, 2);
        let owner = Heap::of(&world, 0);
        let ring = end(&owner);
        let theirs = Arc::clone(&world);
        let receiver = thread::spawn(move || {
            let heap = Heap::of(&theirs, 1);
            let ring = end(&heap);
            let taken = ring.take(Consumers::Multi, Deadline::Never);
            drop(ring.take(Consumers::Multi, Deadline::Now));
            heap.read_bytes(BLOCK);
            taken.is_ok()
        });
        send(&owner, &ring);
        // What it names is held by nobody, who takes it finds that.
        let second = OutgoingHandle(Outgoing::Frozen(Block::of_ring(&owner)));
        ring.put(&[2], [second].into_iter().collect(), Deadline::Now).expect("there is room");
        let is_free = owner.collect(BLOCK);
        if is_free {
            owner.write_bytes(BLOCK);
        }
        assert!(receiver.join().expect("no failure"), "the message came");
        assert!(is_free || look_and_reuse(&owner), "the block was lost");
    })
}

/// The receiver is killed anywhere and swept; the owner looks at any moment.
pub fn a_holder_dies(weakened: Weakened) -> Outcome {
    explore_kills(4, weakened, |position| {
        let world = World::create(1, 1, 3);
        let owner = Heap::of(&world, 0);
        let ring = end(&owner);
        let victims = Arc::clone(&world);
        let victim = thread::spawn(move || {
            let heap = Heap::of(&victims, 1);
            until_killed(position, || take_and_read(&heap, &end(&heap), Deadline::Never))
        });
        send(&owner, &ring);
        let early = look_and_reuse(&owner);
        let was_taken = victim.join().expect("no failure");
        let (sweeper, dead) = (Heap::of(&world, 2), Heap::of(&world, 1).me());
        sweep_ring(&Block::of_ring(&sweeper), dead, false);
        sweeper.sweep_block(BLOCK, dead);
        let again = take_and_read(&owner, &ring, Deadline::Now);
        assert!(was_taken != Some(true) || !again, "taken twice");
        assert!(!(early && again), "a block that a message named was written");
        // No message names the block any more: a scan would find that, and clear the mark.
        owner.clear_unnamed(BLOCK);
        assert!(early || look_and_reuse(&owner), "the block was lost");
        assert_eq!(world.header(BLOCK).holders().load(Ordering::SeqCst), 0);
        was_taken.is_none()
    })
}
