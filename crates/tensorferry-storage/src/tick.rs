//! What the service thread of a process does for its heap, from time to time.

use std::sync::PoisonError;
use std::time::Duration;

use crate::heap::Inner;
use crate::scan::{resolve_known_suspects, resolve_requested};

/// The interval at which a process handles its pins and suspects, while it has any and while it sends.
const TICK: Duration = Duration::from_millis(100);

/// Handles pins, parcels, suspects and returned blocks. Returns how long until it has to be called again, if
/// at all.
pub(crate) fn tick(inner: &Inner) -> Option<Duration> {
    let _one_at_a_time = inner.collecting.lock().unwrap_or_else(PoisonError::into_inner);
    look_after(inner)
}

/// The work of a tick. Returns how long until the next one is needed, if at all.
fn look_after(inner: &Inner) -> Option<Duration> {
    // A process that sends often must not wake the service thread for each message. So the thread goes idle
    // only after a tick in which nothing was sent.
    let is_used = inner.pins.take_use();
    if inner.pins.any() || inner.bundles.any() {
        inner.retire_kept();
    }
    let waits_for_opening = inner.posted.retire(&inner.memory);
    if !inner.has_suspects() || inner.scan_requests.until_unasked(&inner.memory).is_zero() {
        resolve_known_suspects(inner);
    } else {
        resolve_requested(inner);
    }
    let mut arena = inner.arena();
    if inner.memory.take_returns() {
        arena.collect(inner.places());
        inner.publish(&arena);
    }
    drop(arena);
    if is_used || waits_for_opening || inner.pins.any() || inner.scan_requests.is_due() {
        return Some(TICK);
    }
    inner.has_suspects().then(|| inner.scan_requests.until_unasked(&inner.memory).max(TICK))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use tensorferry_domain::Domain;

    use super::*;
    use crate::header::SUSPECT;
    use crate::ring_layout::RingWords;
    use crate::{Bundle, Consumers, Deadline, Heap, OutgoingHandle, OutgoingHandles, Parcel, Ring};

    #[test]
    fn the_service_thread_rests_after_a_beat_in_which_nothing_was_sent() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let ring = Ring::create(&heap, 1, 0).unwrap();
        let block = heap.allocate(64).unwrap().freeze();
        // The service thread waits meanwhile.
        let _one_at_a_time = heap.inner().collecting.lock().unwrap();
        for _ in 0..3 {
            let handles = OutgoingHandles::from_iter(OutgoingHandle::frozen(&block));
            ring.put(b"", handles, Deadline::Now).unwrap();
            ring.take(Consumers::Multi, Deadline::Now).unwrap();
            assert_eq!(look_after(heap.inner()), Some(TICK), "more may be sent soon");
            assert!(!heap.inner().pins.any(), "although nothing is pinned");
        }
        assert_eq!(look_after(heap.inner()), None);
    }

    #[test]
    fn a_forked_process_does_not_keep_rings_that_its_parent_was_done_with() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let inner = heap.inner();
        // The service thread waits meanwhile.
        let _one_at_a_time = inner.collecting.lock().unwrap();
        let ring = Ring::create(&heap, 4, 0).unwrap();
        let at = ring.attachment().block().header_offset_bytes();
        let block = heap.allocate(64).unwrap().freeze();
        ring.put(b"", OutgoingHandles::from_iter(OutgoingHandle::frozen(&block)), Deadline::Now).unwrap();
        // Another member could take the message, so it stays pinned when this end goes.
        let words = RingWords::of(ring.attachment().block()).unwrap();
        words.receivers().fetch_or(1 << 40, Ordering::SeqCst);
        drop(ring);
        let is_held = || heap.header(at).unwrap().holders().load(Ordering::SeqCst) & heap.me().bit() != 0;
        assert!(inner.pins.any() && is_held());
        // As `Heap::rejoin` does.
        drop(inner.pins.take_all());
        assert!(!is_held(), "nothing here has a handle on the ring");
    }

    #[test]
    fn a_bundle_that_a_message_of_a_dead_process_names_is_looked_at_ever_more_seldom() {
        let heap = Heap::create(Domain::builder().address_space_bytes(64 << 20)).unwrap();
        let bundle = Bundle::pack(&heap, b"", OutgoingHandles::new()).unwrap();
        let at = bundle.block().unwrap().header_offset_bytes();
        // It is named, and nobody has a handle on it but its keeper.
        let named = OutgoingHandles::from_iter([OutgoingHandle::bundle(&bundle)]);
        let mut parcel = Parcel::pack(&heap, b"", named).unwrap();
        drop(parcel.take_handles());
        let holders = || heap.header(at).unwrap().holders();
        heap.inner().memory.count_suspicion();
        holders().fetch_or(SUSPECT, Ordering::SeqCst);
        drop(bundle);
        // The service thread waits meanwhile.
        let _one_at_a_time = heap.inner().collecting.lock().unwrap();
        for _ in 0..3 {
            while !heap.inner().scan_requests.until_unasked(&heap.inner().memory).is_zero() {
                std::thread::yield_now();
            }
            assert!(look_after(heap.inner()) >= Some(TICK));
            assert!(!heap.inner().scan_requests.is_due(), "nobody has let go of anything");
            assert_ne!(holders().load(Ordering::SeqCst) & SUSPECT, 0, "it is named");
        }
        drop(parcel);
        assert!(heap.inner().scan_requests.is_due(), "somebody has let go of it");
        // The first one scans, the second one finds what the scan has freed.
        let _ = (look_after(heap.inner()), look_after(heap.inner()));
        assert_eq!(heap.stats().own.live_blocks, 0);
    }
}
