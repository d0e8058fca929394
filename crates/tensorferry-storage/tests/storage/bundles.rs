//! Bundles: what they name lives as long as they do, and no longer.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tensorferry_os::pidfd::PidFd;
use tensorferry_storage::{
    Bundle, Consumers, Deadline, Heap, IncomingHandle, OutgoingHandle, OutgoingHandles, Parcel, Ring, Role,
    StorageError,
};

use crate::heap;

fn live_blocks(heap: &Heap) -> u64 {
    heap.collect();
    heap.stats().own.live_blocks
}

fn frozen(heap: &Heap, value: u8) -> OutgoingHandle {
    let mut block = heap.allocate(100).unwrap();
    block.bytes_mut().fill(value);
    OutgoingHandle::frozen(&block.freeze()).unwrap()
}

#[test]
fn a_bundle_keeps_what_it_names_for_as_long_as_it_has_a_handle() {
    let heap = heap();
    let shared = heap.allocate_zeroed(16).unwrap().share();
    let mut handles: OutgoingHandles = (0..100).map(|value| frozen(&heap, value)).collect();
    handles.extend(OutgoingHandle::shared(&shared));
    let bundle = Bundle::pack(&heap, b"a hundred and one", handles).unwrap();
    assert_eq!((bundle.n_blocks(), &bundle.payload()[..]), (101, &b"a hundred and one"[..]));
    assert_eq!(bundle.payload_head(), [u64::from_le_bytes(*b"a hundre"), u64::from_le_bytes(*b"d and on")]);
    assert_eq!(live_blocks(&heap), 102);
    for index in 0..100 {
        assert!(bundle.bytes(index).unwrap().iter().all(|byte| usize::from(*byte) == index));
    }
    shared.words()[1].store(7, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(bundle.shared(100).unwrap().words()[1].load(std::sync::atomic::Ordering::SeqCst), 7);
    let clone = bundle.clone();
    let one = bundle.frozen(5).unwrap();
    drop((bundle, shared));
    assert_eq!(clone.bytes(99).unwrap(), [99; 100]);
    assert_eq!(live_blocks(&heap), 102);
    drop(clone);
    assert_eq!(live_blocks(&heap), 1, "what was taken out lives by itself");
    assert_eq!(one.bytes(), [5; 100]);
    assert!(one.try_into_exclusive().is_ok());
    assert_eq!(live_blocks(&heap), 0);
}

/// Another member of the same domain, in this process.
fn second(first: &Heap) -> Heap {
    let admission = first.domain().admit(&PidFd::of_self().unwrap()).unwrap();
    Heap::attach(first.domain().as_fd().try_clone_to_owned().unwrap(), admission).unwrap()
}

#[track_caller]
fn until_live_blocks(heap: &Heap, n_blocks: u64) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while live_blocks(heap) != n_blocks {
        assert!(Instant::now() < deadline, "{} blocks are left, not {n_blocks}", live_blocks(heap));
        std::thread::yield_now();
    }
}

#[test]
fn a_bundle_that_came_in_a_parcel_is_freed_while_both_processes_live() {
    let maker = heap();
    let taker = second(&maker);
    let bundle = Bundle::pack(&maker, &[], (0..40).map(|value| frozen(&maker, value)).collect()).unwrap();
    let handles = OutgoingHandles::from_iter([OutgoingHandle::bundle(&bundle)]);
    let parcel = Parcel::pack(&maker, b"", handles).unwrap();
    drop(bundle);
    let mut message = Parcel::open(&taker, parcel.id()).unwrap();
    drop(parcel);
    let Some(IncomingHandle::Bundle(bundle)) = message.handles.pop() else { panic!("{message:?}") };
    drop(message);
    assert_eq!(live_blocks(&maker), 41);
    assert_eq!(bundle.bytes(39).unwrap(), [39; 100]);
    drop(bundle);
    until_live_blocks(&maker, 0);
}

#[test]
fn what_cannot_be_in_a_bundle_or_a_parcel_comes_back() {
    let heap = heap();
    let block = heap.allocate(8).unwrap().freeze();
    let exclusive = heap.allocate(8).unwrap();
    let mut many: OutgoingHandles = (0..65_535).map(|_| OutgoingHandle::frozen(&block).unwrap()).collect();
    many.extend(OutgoingHandle::exclusive(&exclusive));
    let is_refused = |error| matches!(error, StorageError::TooManyBlocks { n_blocks: 65_536, limit: 65_535 });
    assert!(is_refused(Bundle::pack(&heap, &[], many).unwrap_err()));
    assert!(!exclusive.is_moved());
    let mut many: OutgoingHandles = (0..65_535).map(|_| OutgoingHandle::frozen(&block).unwrap()).collect();
    many.extend(OutgoingHandle::exclusive(&exclusive));
    assert!(is_refused(Parcel::pack(&heap, &[], many).unwrap_err()));
    assert!(!exclusive.is_moved());
}

#[test]
fn a_bundle_travels_as_one_handle() {
    let heap = heap();
    let ring = Ring::create(&heap, 4, 0).unwrap();
    let bundle = Bundle::pack(&heap, &[], (0..40).map(|value| frozen(&heap, value)).collect()).unwrap();
    ring.put(b"", OutgoingHandles::from_iter([OutgoingHandle::bundle(&bundle)]), Deadline::Now).unwrap();
    let id = bundle.id();
    drop(bundle);
    assert_eq!(live_blocks(&heap), 42, "it is on its way");
    let mut message = ring.take(Consumers::Multi, Deadline::Now).unwrap();
    assert_eq!(message.handles.len(), 1);
    let Some(IncomingHandle::Bundle(bundle)) = message.handles.pop() else { panic!("{message:?}") };
    assert_eq!((bundle.id(), bundle.bytes(39).unwrap()), (id, &[39; 100][..]));
    drop(bundle);
    assert_eq!(live_blocks(&heap), 1);
}

#[test]
fn what_is_in_a_bundle_is_not_exclusive() {
    let heap = heap();
    let block = heap.allocate(100).unwrap().freeze();
    let handles = OutgoingHandle::frozen(&block).into_iter().collect();
    let bundle = Bundle::pack(&heap, &[], handles).unwrap();
    let block = block.try_into_exclusive().unwrap_err();
    assert!(bundle.frozen(0).unwrap().try_into_exclusive().is_err());
    drop(bundle);
    assert!(block.try_into_exclusive().is_ok());
}

#[test]
fn what_cannot_be_bundled_or_is_not_there_is_an_error() {
    let heap = heap();
    let ring = Ring::create(&heap, 1, 0).unwrap();
    let exclusive = heap.allocate(8).unwrap();
    let empty = Bundle::pack(&heap, &[], OutgoingHandles::new()).unwrap();
    let receiver = ring.with_role(Role::RECEIVER).unwrap();
    for handle in [
        OutgoingHandle::exclusive(&exclusive).unwrap(),
        OutgoingHandle::ring(receiver.attachment()),
        OutgoingHandle::bundle(&empty),
    ] {
        let refused = Bundle::pack(&heap, &[], OutgoingHandles::from_iter([handle])).unwrap_err();
        assert!(matches!(refused, StorageError::NotForBundles), "{refused}");
    }
    assert!(!exclusive.is_moved(), "it came back");
    let other = crate::heap();
    let foreign = Bundle::pack(&heap, &[], OutgoingHandles::from_iter([frozen(&other, 1)])).unwrap_err();
    assert!(matches!(foreign, StorageError::ForeignDomain), "{foreign}");

    let shared = heap.allocate_zeroed(8).unwrap().share();
    let handles = [frozen(&heap, 0), OutgoingHandle::shared(&shared).unwrap()];
    let bundle = Bundle::pack(&heap, &[], OutgoingHandles::from_iter(handles)).unwrap();
    for error in [
        bundle.frozen(1).map(drop).unwrap_err(),
        bundle.bytes(1).map(drop).unwrap_err(),
        bundle.shared(0).map(drop).unwrap_err(),
        bundle.frozen(2).map(drop).unwrap_err(),
        bundle.bytes(usize::MAX).map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, StorageError::NotInBundle { n_blocks: 2, .. }), "{error}");
    }
    let block = heap.allocate(8).unwrap().freeze();
    let many = (0..65_536).map(|_| OutgoingHandle::frozen(&block).unwrap()).collect();
    let error = Bundle::pack(&heap, &[], many).unwrap_err();
    assert!(matches!(error, StorageError::TooManyBlocks { n_blocks: 65_536, limit: 65_535 }), "{error}");
}
