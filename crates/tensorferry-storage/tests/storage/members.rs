//! Two members of one domain, each with a mapping of its own, in one process.

use std::collections::HashSet;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tensorferry_domain::Domain;
use tensorferry_os::pidfd::PidFd;
use tensorferry_storage::{
    BlockId, Consumers, Deadline, ExclusiveBlock, FrozenBlock, Heap, IncomingHandle, OutgoingHandle, Parcel,
    Ring, RingPutError, RingTakeError, Role, StorageError,
};

use crate::heap;

/// A second member beside the one that `first` is.
fn second(first: &Heap) -> Heap {
    let admission = first.domain().admit(&PidFd::of_self().unwrap()).unwrap();
    Heap::attach(first.domain().as_fd().try_clone_to_owned().unwrap(), admission).unwrap()
}

/// Waits until the other members have left. Their service threads may hold the domain a little longer than
/// anything else.
fn wait_until_alone(heap: &Heap) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while heap.domain().members().len() > 1 {
        assert!(Instant::now() < deadline, "{:?}", heap.domain().members());
        std::thread::yield_now();
    }
}

#[test]
fn what_a_leaver_had_free_is_the_systems_and_what_was_held_comes_back_by_trimming() {
    let first = heap();
    let second = second(&first);
    let (free, held) = (second.allocate(20 << 20).unwrap(), second.allocate(20 << 20).unwrap().freeze());
    drop(free);
    let parcel = Parcel::pack(&second, b"", OutgoingHandle::frozen(&held).into_iter().collect()).unwrap();
    let mut message = Parcel::open(&first, parcel.id()).unwrap();
    let held_here = message.handles[0].take_frozen().unwrap();
    drop((held, message, parcel));
    second.collect();
    drop(second);
    wait_until_alone(&first);
    let populated = first.domain().populated_bytes();
    assert!((20 << 20..24 << 20).contains(&populated), "{populated}");
    // The drop of the last block gives the memory back, or else trimming does.
    drop(held_here);
    let _ = first.trim();
    let populated = first.domain().populated_bytes();
    assert!(populated < 4 << 20, "{populated}");
}

/// The ring of `ring` as `to` sees it.
fn seen_by(to: &Heap, ring: &Ring) -> Ring {
    let parcel =
        Parcel::pack(ring.heap(), b"", [OutgoingHandle::ring(ring.attachment())].into_iter().collect());
    let parcel = parcel.unwrap();
    let message = Parcel::open(to, parcel.id()).unwrap();
    let Some(IncomingHandle::Ring(attachment)) = message.handles.into_iter().next() else {
        panic!("no ring")
    };
    Ring::attach(*attachment).unwrap()
}

fn send(ring: &Ring, block: &FrozenBlock) {
    let handles = OutgoingHandle::frozen(block).into_iter().collect();
    ring.put(b"", handles, Deadline::Now).unwrap();
}

fn receive(ring: &Ring) -> FrozenBlock {
    let mut message = ring.take(Consumers::Multi, Deadline::Now).unwrap();
    message.handles[0].take_frozen().unwrap()
}

/// The blocks that go from `a` to `b` one after the other, each freed by both before the next.
fn stream(a: &Heap, b: &Heap, len_bytes: usize, n_blocks: usize) -> Vec<BlockId> {
    let here = Ring::create(a, 4, 0).unwrap();
    let there = seen_by(b, &here);
    let mut ids = Vec::new();
    for _ in 0..n_blocks {
        let block = a.allocate(len_bytes).unwrap().freeze();
        ids.push(block.id());
        send(&here, &block);
        drop((receive(&there), block));
        a.collect();
    }
    ids
}

#[test]
fn what_another_had_rests_before_it_is_used_again() {
    for (len_bytes, n_blocks) in [(100, 1_000), (64 << 10, 3_000), (1 << 20, 200)] {
        let a = heap();
        let b = second(&a);
        let first = stream(&a, &b, len_bytes, n_blocks);
        let populate_calls = a.stats().own.populate_calls;
        let then = stream(&a, &b, len_bytes, n_blocks);
        assert_eq!(
            a.stats().own.populate_calls,
            populate_calls,
            "as much rests as fills the caches, no more"
        );
        assert!(then.windows(2).all(|pair| pair[0] != pair[1]), "blocks of {len_bytes} bytes");
        let all: HashSet<_> = first.iter().chain(&then).collect();
        assert!(all.len() < n_blocks / 2, "{} blocks of {len_bytes} bytes", all.len());
        drop(b);
    }
}

#[test]
fn of_long_blocks_the_last_that_came_back_is_used_first() {
    // One such block is as much as has to rest.
    const LEN_BYTES: usize = 8 << 20;
    let a = heap();
    let b = second(&a);
    let here = Ring::create(&a, 4, 0).unwrap();
    let there = seen_by(&b, &here);
    for _ in 0..4 {
        let blocks = [(); 2].map(|()| a.allocate(LEN_BYTES).unwrap().freeze());
        blocks.iter().for_each(|block| send(&here, block));
        let [first, second] = [(); 2].map(|()| receive(&there));
        drop(blocks);
        a.collect();
        drop(first);
        a.collect();
        let id = second.id();
        // It is not collected before the next allocation.
        drop(second);
        assert_eq!(a.allocate(LEN_BYTES).unwrap().id(), id);
    }
}

#[test]
fn what_is_received_at_the_place_of_a_shorter_block_is_whole() {
    // Both are of one class, and the second ends in memory that the first had no need of.
    const SHORT_BYTES: usize = (20 << 20) + 1;
    const LONG_BYTES: usize = 24 << 20;
    let a = heap();
    let b = second(&a);
    let here = Ring::create(&a, 4, 0).unwrap();
    let there = seen_by(&b, &here);
    let ids = [SHORT_BYTES, LONG_BYTES, SHORT_BYTES].map(|len_bytes| {
        let mut block = a.allocate(len_bytes).unwrap();
        *block.bytes_mut().last_mut().unwrap() = 7;
        let block = block.freeze();
        send(&here, &block);
        let received = receive(&there);
        assert_eq!((received.len_bytes(), received.bytes().last()), (len_bytes, Some(&7)));
        drop(block);
        a.collect();
        let id = received.id();
        drop(received);
        a.collect();
        id
    });
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
}

#[test]
fn what_rests_is_used_before_a_larger_block_is() {
    let settings = Domain::builder().address_space_bytes(64 << 20).limit_bytes(1 << 30);
    let a = Heap::create(settings).unwrap();
    let b = second(&a);
    let large = a.allocate(8 << 20).unwrap();
    let large_id = large.id();
    let resting: HashSet<_> = stream(&a, &b, 64 << 10, 200).into_iter().collect();
    drop(large);
    let mut held = Vec::new();
    loop {
        let block = a.allocate(64 << 10).unwrap();
        let id = block.id();
        held.push(block);
        assert_ne!(id, large_id, "after {} blocks", held.len());
        if resting.contains(&id) && held.len() > resting.len() {
            break;
        }
    }
}

#[test]
fn nothing_rests_where_memory_is_short() {
    let a = heap();
    let b = second(&a);
    let _more_than_half = a.allocate(140 << 20).unwrap();
    let ids = stream(&a, &b, 64 << 10, 600);
    assert!(ids[1..].windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
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
        a.collect();
        assert_eq!(a.stats().own.live_blocks, 2, "the ring and the block that b holds");
        drop(received);
        a.collect();
        assert_eq!(a.stats().own.live_blocks, 1);
    }
}

#[test]
fn what_came_back_while_its_owner_and_another_had_it_comes_back_in_the_end() {
    let a = heap();
    let (b, c) = (second(&a), second(&a));
    let here = Ring::create(&a, 4, 0).unwrap();
    let there = [seen_by(&b, &here), seen_by(&c, &here)];
    let before = a.stats().own.live_blocks;
    // Which member lets go first, second and last: 0 is the owner.
    for order in [[1, 0, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0], [0, 1, 2], [0, 2, 1]] {
        let block = a.allocate(64).unwrap().freeze();
        let mut had: Vec<_> = there
            .iter()
            .map(|there| {
                send(&here, &block);
                receive(there)
            })
            .map(Some)
            .collect();
        had.insert(0, Some(block));
        for who in order {
            assert_eq!(a.stats().own.live_blocks, before + 1, "{order:?}: {who} has it still");
            had[who] = None;
            // Everything that is known is collected before the next one lets go.
            a.collect();
        }
        assert_eq!(a.stats().own.live_blocks, before, "{order:?}");
    }
}

#[test]
fn what_a_member_leaves_behind_stays_whole_and_is_used_again() {
    let a = heap();
    let b = second(&a);
    let here = Ring::create(&b, 4, 0).unwrap();
    let there = seen_by(&a, &here);
    // A slab of b's, of which a keeps the first block. The others lie far enough away that a has not opened
    // them.
    let mut blocks: Vec<_> = (0..63).map(|_| b.allocate(20_000).unwrap()).collect();
    blocks[0].bytes_mut().fill(7);
    let kept = blocks.swap_remove(0).freeze();
    send(&here, &kept);
    let received = receive(&there);
    drop((kept, blocks, here));
    b.collect();
    assert_eq!(a.domain().members().len(), 2);
    drop(b);
    wait_until_alone(&a);
    assert_eq!(received.bytes(), [7; 20_000]);
    // All blocks that a allocates now, some of them in b's extents, are apart from what it kept.
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
    a.collect();
    assert_eq!(a.stats().own.live_blocks, 0);
}

#[test]
fn a_slot_is_used_again_with_a_new_epoch() {
    let a = heap();
    let first = second(&a).domain().me();
    wait_until_alone(&a);
    let again = second(&a).domain().me();
    assert_eq!(first.slot, again.slot);
    assert_eq!(first.epoch + 1, again.epoch);
}

#[test]
fn an_admission_is_used_once() {
    let a = heap();
    let admission = a.domain().admit(&PidFd::of_self().unwrap()).unwrap();
    let fd = || a.domain().as_fd().try_clone_to_owned().unwrap();
    let b = Heap::attach(fd(), admission).unwrap();
    let mut block = b.allocate(100).unwrap();
    block.bytes_mut().fill(5);
    let error = Heap::attach(fd(), admission).unwrap_err();
    assert!(error.to_string().contains("used or given back"), "{error}");
    assert_eq!(a.domain().members().len(), 2, "the one who has it keeps it");
    let others: Vec<_> = (0..100).map(|_| b.allocate(100).unwrap()).collect();
    assert!(others.iter().all(|other| other.id() != block.id()));
    assert_eq!(block.bytes(), [5; 100]);
}

#[test]
fn whoever_is_refused_changes_nothing() {
    let a = heap();
    // The parent of this process is alive, and is not this process.
    let parent = PidFd::open(std::os::unix::process::parent_id()).unwrap();
    let admission = a.domain().admit(&parent).unwrap();
    let before = a.domain().members();
    let error = Heap::attach(a.domain().as_fd().try_clone_to_owned().unwrap(), admission).unwrap_err();
    assert!(error.to_string().contains("another process"), "{error}");
    assert_eq!(a.domain().members(), before);
}

#[test]
fn handles_of_another_domain_are_refused_and_come_back() {
    let (a, b) = (heap(), heap());
    let ring = Ring::create(&a, 2, 0).unwrap();
    let mut foreign = b.allocate_zeroed(100).unwrap();
    let give = || OutgoingHandle::exclusive(&foreign).into_iter().collect();
    assert!(matches!(
        ring.put(b"", give(), Deadline::Now),
        Err(RingPutError::Storage(error)) if matches!(*error, StorageError::ForeignDomain)
    ));
    assert!(matches!(Parcel::pack(&a, b"", give()), Err(StorageError::ForeignDomain)));
    assert_eq!(foreign.bytes_mut().len(), 100, "it was not sent");
}

#[test]
fn a_parcel_is_opened_once_or_taken_back() {
    let a = heap();
    let mut block = a.allocate_zeroed(100).unwrap();
    let pack = |block: &ExclusiveBlock| {
        Parcel::pack(&a, b"", OutgoingHandle::exclusive(block).into_iter().collect()).unwrap()
    };
    let parcel = pack(&block);
    let id = parcel.id();
    parcel.take_back();
    assert_eq!(block.bytes_mut().len(), 100, "it was taken back");
    assert!(Parcel::open(&a, id).is_err());
    let parcel = pack(&block);
    let opened = Parcel::open(&a, parcel.id()).unwrap();
    assert!(Parcel::open(&a, parcel.id()).is_err(), "there is one exclusive block");
    parcel.take_back();
    assert!(block.is_moved(), "what was opened is not taken back");
    drop(opened);
}

#[test]
fn an_extent_that_was_left_goes_to_whoever_finds_room_in_it() {
    let a = heap();
    {
        let gone = second(&a);
        let _three = [(); 3].map(|()| gone.allocate(1 << 20).unwrap());
    }
    wait_until_alone(&a);
    let used = || a.domain().extents_high_water();
    assert_eq!(used(), 1);
    // What was left has no room for this.
    let _large = a.allocate(2 << 20).unwrap();
    assert_eq!(used(), 2);
    let c = second(&a);
    let _fits = c.allocate(1 << 20).unwrap();
    assert_eq!(used(), 2, "the one without use for the extent has not kept it");
}

/// A sender of a channel lies in a message of `jobs`, which this process has put, or has leased and given
/// back.
#[test]
fn a_sender_in_a_message_that_was_given_back_is_in_transit() {
    const SENDS: Role = Role { sends: true, receives: false };
    const RECEIVES: Role = Role { sends: false, receives: true };
    for is_leased in [false, true] {
        let first = heap();
        let second = second(&first);
        let jobs = Arc::new(Ring::create_with_leases(&first, 4, 2, 0).unwrap());
        let channel = Ring::create(&first, 4, 0).unwrap();
        let (receiver, sender) = (channel.with_role(RECEIVES).unwrap(), channel.with_role(SENDS).unwrap());
        let (theirs, their_jobs) = (seen_by(&second, &sender), seen_by(&second, &jobs));
        drop(channel);
        let give = |jobs: &Ring, sender: Ring| {
            let handles = [OutgoingHandle::ring(sender.attachment())].into_iter().collect();
            jobs.put(b"", handles, Deadline::Now).unwrap();
        };
        if is_leased {
            drop(sender);
            give(&their_jobs, theirs);
            let (message, lease) = jobs.take_leased(Deadline::Now).unwrap();
            second.collect();
            drop(message);
            drop(lease);
        } else {
            drop(theirs);
            give(&jobs, sender);
        }
        let taken = receiver.take(Consumers::Multi, Deadline::Now);
        assert!(matches!(taken, Err(RingTakeError::Empty)), "leased: {is_leased}, {:?}", taken.err());
    }
}
