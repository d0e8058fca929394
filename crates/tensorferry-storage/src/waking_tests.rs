//! A process that sleeps at a ring is woken by everything that makes its next look find something.

use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tensorferry_domain::Domain;
use tensorferry_os::fork::thread_id;
use tensorferry_os::pidfd::PidFd;

use crate::attachments::Attachment;
use crate::record::RecordTag;
use crate::reference::{Grant, Reference, Role};
use crate::ring_layout::RingWords;
use crate::slot::{SlotLengths, SlotState, Tag};
use crate::{Consumers, Deadline, Heap, OutgoingHandles, Ring, RingTakeError};

fn heap() -> Heap {
    Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap()
}

/// One more member of the same domain, in this process too.
fn another_member(heap: &Heap) -> Heap {
    let admission = heap.domain().admit(&PidFd::of_self().unwrap()).unwrap();
    Heap::attach(heap.domain().fds().unwrap(), admission).unwrap()
}

/// The end that a message with this end would have brought to `heap`.
fn end(heap: &Heap, ring: &Ring, role: Role) -> Ring {
    let word = ring.attachment().block().reference(Grant::Ring(role));
    let block = heap.hold(Reference::unpack(word).unwrap()).unwrap();
    Ring::attach(Attachment::new(block, role)).unwrap()
}

/// The ends that two members have of a queue with one lease.
fn ends_with_a_lease() -> [Arc<Ring>; 2] {
    let heap = heap();
    let ring = Ring::create_with_leases(&heap, 4, 1, 0).unwrap();
    let other = end(&another_member(&heap), &ring, Role { sends: true, receives: true });
    [ring, other].map(Arc::new)
}

/// Runs `take` on a thread, and `then` once that thread sleeps. Returns what it took, and whether it was
/// woken: without a wake-up it sleeps until a deadline that is far away.
fn asleep_until<T: Send>(take: impl FnOnce(Deadline) -> T + Send, then: impl FnOnce()) -> (T, bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let sleeper = scope.spawn(move || {
            tell.send(thread_id()).unwrap();
            let taken = take(Deadline::At(deadline));
            (taken, Instant::now() < deadline)
        });
        let stat = format!("/proc/self/task/{}/stat", told.recv().unwrap());
        let is_asleep = || std::fs::read_to_string(&stat).unwrap().contains(") S ");
        // Asleep in many successive looks: before, it may sleep for a lock for a moment.
        let mut n_looks = 0;
        while n_looks < 100 {
            n_looks = if is_asleep() { n_looks + 1 } else { 0 };
            std::thread::yield_now();
        }
        then();
        sleeper.join().unwrap()
    })
}

/// The last other sender leaves while a receiver still has its message, so its departure is not reported yet.
#[test]
fn who_could_still_send_is_told_that_the_others_are_gone_when_their_last_message_is_taken() {
    for n_holes in [0, 1] {
        let a = heap();
        let (b, c) = (another_member(&a), another_member(&a));
        let ring = Ring::create(&a, 4, 0).unwrap();
        let receiver = end(&b, &ring, Role { sends: false, receives: true });
        let sender = end(&c, &ring, Role { sends: true, receives: false });
        sender.put(b"x", OutgoingHandles::new(), Deadline::Now).unwrap();
        let words = RingWords::of(ring.attachment().block()).unwrap();
        let claimed = SlotState { lap: 0, owner: b.me().slot, tag: Tag::Claimed };
        assert!(words.slot(0).change(SlotState::ready(0), claimed));
        for hole in 0..n_holes {
            // A sender died there before it had committed a message.
            assert!(words.slot(1 + hole).change(SlotState::free(0), SlotState::free(1)));
            words.tail().fetch_add(1, Ordering::SeqCst);
        }
        drop(sender);
        let (taken, was_woken) = asleep_until(
            |deadline| ring.take(Consumers::Multi, deadline).map(drop),
            || {
                assert!(words.slot(0).change(claimed, SlotState::ready(0)));
                assert_eq!(receiver.take(Consumers::Multi, Deadline::Now).unwrap().payload[..], *b"x");
            },
        );
        assert!(was_woken && matches!(taken, Err(RingTakeError::NoSenders)), "{taken:?}");
    }
}

#[test]
fn who_waits_for_a_record_is_woken_when_a_bad_message_frees_one() {
    let [ring, other] = ends_with_a_lease();
    let words = RingWords::of(ring.attachment().block()).unwrap();
    for payload in [b"bad ", b"good"] {
        ring.put(payload, OutgoingHandles::new(), Deadline::Now).unwrap();
    }
    words.slot(0).set_lengths(SlotLengths { payload_len_bytes: 0, n_references: 1 });
    // The other end has the only record, as between two steps of a lease.
    let free = words.record(0).state();
    let filling = free.owned(other.me(), RecordTag::Filling);
    assert!(words.record(0).change(free, filling));
    let (taken, was_woken) = asleep_until(
        |deadline| ring.take_leased(deadline).map(|(message, lease)| (message.payload.to_vec(), lease.ack())),
        || {
            assert!(words.record(0).change(filling, free));
            assert!(matches!(other.take_leased(Deadline::Now), Err(RingTakeError::Storage(_))));
        },
    );
    assert!(was_woken, "{taken:?}");
    assert_eq!(taken.unwrap(), (b"good".to_vec(), Ok(())));
}

/// As above, when the bad message is one that was given back.
#[test]
fn who_waits_for_a_record_is_woken_when_a_bad_message_that_came_back_frees_one() {
    let [ring, other] = ends_with_a_lease();
    let words = RingWords::of(ring.attachment().block()).unwrap();
    ring.put(b"bad", OutgoingHandles::new(), Deadline::Now).unwrap();
    let _lost = ManuallyDrop::new(other.take_leased(Deadline::Now).unwrap());
    ring.put(b"good", OutgoingHandles::new(), Deadline::Now).unwrap();
    let leased = words.record(0).state();
    words.record(0).set_lengths(SlotLengths { payload_len_bytes: 0, n_references: 1 });
    let (taken, was_woken) = asleep_until(
        |deadline| ring.take_leased(deadline).map(|(message, lease)| (message.payload.to_vec(), lease.ack())),
        || {
            // Given back without a wake-up, so that the other end gets it first.
            assert!(words.record(0).change(leased, leased.waiting()));
            words.returns().fetch_add(1, Ordering::SeqCst);
            assert!(matches!(other.take_leased(Deadline::Now), Err(RingTakeError::Storage(_))));
        },
    );
    assert!(was_woken, "{taken:?}");
    assert_eq!(taken.unwrap(), (b"good".to_vec(), Ok(())));
}
