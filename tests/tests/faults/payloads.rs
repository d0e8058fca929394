//! Payloads that are not what the receiver expects, beside genuine handles.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tensorferry::domain::Domain;
use tensorferry::queue::{GetError, Queue, Receiver, Sender, SoleReceiver};
use tensorferry::tensor::{AnyTensor, SharedTensor, Tensor, TensorMut};
use tensorferry_kit::{Audit, Item, Scribbler, until};
use tensorferry_reduce::decode;
use tensorferry_storage::{
    Consumers, Deadline, Heap, IncomingMessage, OutgoingHandle, OutgoingHandles, Ring,
};

#[derive(Debug, Serialize, Deserialize)]
enum Mixture {
    Nothing,
    Frozen(Tensor<f32>, Option<Tensor<u8>>),
    Any(Vec<AnyTensor>),
    Shared { by_name: BTreeMap<String, SharedTensor<i64>> },
    Exclusive(Box<TensorMut<u16>>),
    Ends(Sender<u8>, Receiver<String>, SoleReceiver<u8>),
    Item(Item),
}

/// A message with these bytes and one handle of each kind; the frozen one has `len_bytes`.
fn message(heap: &Heap, ring: &Ring, payload: &[u8], len_bytes: usize) -> Option<IncomingMessage> {
    let frozen = heap.allocate_zeroed(len_bytes).unwrap().freeze();
    let shared = heap.allocate_zeroed(64).unwrap().share();
    let exclusive = heap.allocate_zeroed(128).unwrap();
    let handles: OutgoingHandles = [
        OutgoingHandle::frozen(&frozen),
        OutgoingHandle::shared(&shared),
        OutgoingHandle::exclusive(&exclusive),
        Some(OutgoingHandle::ring(ring.attachment())),
    ]
    .into_iter()
    .flatten()
    .collect();
    ring.put(payload, handles, Deadline::Now).unwrap();
    ring.take(Consumers::Multi, Deadline::Now).ok()
}

fn heap() -> Heap {
    Heap::create(Domain::builder().address_space_bytes(64 << 20).limit_bytes(32 << 20)).unwrap()
}

/// Decodes as `T`; what comes out is shown, so that all of it is looked at.
fn try_as<T: DeserializeOwned + std::fmt::Debug>(heap: &Heap, ring: &Ring, payload: &[u8]) {
    let Some(mut message) = message(heap, ring, payload, 200) else { return };
    match decode::<T>(&mut message) {
        Ok(value) => drop(format!("{value:?}")),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

proptest! {
    // Nothing is written beside the sources: a failure prints its input.
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Small numbers are the likeliest to get past the first checks: indexes, lengths, tags.
    #[test]
    fn random_bytes_decode_to_a_value_or_an_error(
        payload in prop::collection::vec(prop_oneof![0_u8..8, any::<u8>(), Just(0xff)], 0..60)
    ) {
        let heap = heap();
        let ring = Ring::create(&heap, 2, 0).unwrap();
        try_as::<Mixture>(&heap, &ring, &payload);
        try_as::<Vec<Mixture>>(&heap, &ring, &payload);
        try_as::<Tensor<u64>>(&heap, &ring, &payload);
        try_as::<AnyTensor>(&heap, &ring, &payload);
        try_as::<SharedTensor<i32>>(&heap, &ring, &payload);
        try_as::<TensorMut<u8>>(&heap, &ring, &payload);
        try_as::<Queue<u8>>(&heap, &ring, &payload);
        try_as::<Item>(&heap, &ring, &payload);
        try_as::<(String, BTreeMap<u8, Vec<i64>>, Option<char>)>(&heap, &ring, &payload);
        // Whatever came of it. The service thread may be letting go of a message at this moment.
        until("the ring alone is left", || {
            heap.collect();
            heap.stats().own.live_blocks == 1
        });
    }

    /// A genuine message with one byte changed.
    #[test]
    fn a_message_with_a_changed_byte_is_a_value_or_an_error(at in 0_usize..60, change in 1_u8..) {
        let heap = heap();
        let queue: Queue<Item> = Queue::new_in(&heap, 2).unwrap();
        queue.put(Item::new(&heap, 3, 4, &[5, 6]).with_note(20)).unwrap();
        let audit = Audit::of(heap.domain());
        let ring = audit.live().iter().find(|block| block.kind == 1).unwrap();
        let file = Scribbler::of(heap.domain());
        // Slot 0 begins at word 40; its payload behind state, lengths and two references.
        let offset = ring.data_file_offset_bytes + (40 + 4) * 8 + at as u64;
        let old = file.bytes(offset, 1)[0];
        file.set_bytes(offset, &[old ^ change]);
        match queue.get_nowait() {
            Ok(item) => drop(format!("{item:?} {}", item.sum())),
            Err(GetError::Decode(error)) => prop_assert!(!error.to_string().is_empty()),
            Err(other) => panic!("{other}"),
        }
        queue.put(Item::new(&heap, 1, 1, &[9])).unwrap();
        queue.get_nowait().unwrap().check();
    }
}

#[test]
fn a_queue_goes_on_after_a_message_of_another_type() {
    let heap = heap();
    let ring = Ring::create(&heap, 4, 0).unwrap();
    let mut message = message(&heap, &ring, &[200, 1, 2, 3], 64).unwrap();
    let error = decode::<Mixture>(&mut message).unwrap_err();
    assert!(error.to_string().contains("not of the expected type"), "{error}");
    let mut longer = self::message(&heap, &ring, &[7, 0, 0], 64).unwrap();
    let error = decode::<u8>(&mut longer).unwrap_err();
    assert!(error.to_string().contains("longer than the expected type"), "{error}");
}
