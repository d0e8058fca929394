//! Ends with one role, and ends that cannot be cloned.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tensorferry_queue::{
    GetError, PutErrorKind, Queue, Receiver, Sender, SoleSender, channel_in, mpsc_in, spmc_in, spsc_in,
};
use tensorferry_reduce::{EncodeError, Parcel, TransitError};

use crate::heap;

#[test]
fn each_side_learns_that_the_other_is_gone() {
    let heap = heap();
    let (sender, receiver) = channel_in(&heap, 2).unwrap();
    sender.put(1).unwrap();
    drop(sender);
    assert_eq!(receiver.get().unwrap(), 1);
    assert!(matches!(receiver.get(), Err(GetError::Disconnected)));
    let (sender, receiver) = channel_in(&heap, 1).unwrap();
    drop(receiver);
    let refused = sender.put(2).unwrap_err();
    assert!(matches!(refused.kind, PutErrorKind::Disconnected), "{refused}");
}

#[test]
fn every_kind_of_end_tells_how_full_it_is_and_ends_a_loop() {
    let (mut sender, mut receiver) = spsc_in(&heap(), 2).unwrap();
    assert!(sender.is_empty() && receiver.is_empty());
    sender.put(1).unwrap();
    sender.put(2).unwrap();
    assert_eq!((sender.len(), receiver.capacity_items()), (2, 2));
    assert!(sender.is_full() && receiver.is_full() && !receiver.is_closed());
    sender.close();
    let mut values = receiver.iter();
    assert_eq!(values.by_ref().sum::<i32>(), 3);
    assert!(matches!(values.end(), Some(GetError::Closed)));
    assert!(values.next().is_none(), "it stays at its end");
    assert!(receiver.is_closed());
    assert_eq!(format!("{receiver:?}"), "SoleReceiver { len: 0, capacity_items: 2, .. }");
}

#[test]
fn a_sender_on_its_way_keeps_the_channel_open() {
    let heap = heap();
    let (sender, receiver): (Sender<u8>, Receiver<u8>) = channel_in(&heap, 2).unwrap();
    let carrier = Queue::new_in(&heap, 2).unwrap();
    carrier.put(sender).unwrap();
    assert!(matches!(receiver.get_nowait(), Err(GetError::Empty)), "the sender is in the carrier");
    let sender = carrier.get().unwrap();
    sender.put(5).unwrap();
    drop(sender);
    heap.collect();
    assert_eq!(receiver.get().unwrap(), 5);
    assert!(matches!(receiver.get(), Err(GetError::Disconnected)));
}

#[test]
fn sole_ends_pass_messages_in_order() {
    let heap = heap();
    let (mut sender, mut receiver) = spsc_in(&heap, 3).unwrap();
    std::thread::scope(|s| {
        s.spawn(move || (0..10_000_u32).for_each(|i| sender.put(i).unwrap()));
        (0..10_000_u32).for_each(|i| assert_eq!(receiver.get().unwrap(), i));
    });
    assert!(matches!(receiver.get(), Err(GetError::Disconnected)));
    let (sender, mut receiver) = mpsc_in(&heap, 2).unwrap();
    sender.clone().put(1).unwrap();
    assert_eq!(receiver.get().unwrap(), 1);
    let (mut sender, receiver) = spmc_in(&heap, 2).unwrap();
    sender.put(2).unwrap();
    assert_eq!(receiver.clone().get().unwrap(), 2);
}

/// Shares one end between all its clones. Serde allows that, and a sole end must survive it.
#[derive(Clone)]
struct Alias(Arc<SoleSender<u8>>);

impl Serialize for Alias {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Alias {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        SoleSender::deserialize(deserializer).map(|end| Self(Arc::new(end)))
    }
}

#[test]
fn a_sole_end_that_was_sent_is_off_even_through_an_alias() {
    let heap = heap();
    let (sender, mut receiver) = spsc_in(&heap, 2).unwrap();
    let alias = Alias(Arc::new(sender));
    let parcel = Parcel::pack(&heap, &alias).unwrap();
    let twice = Parcel::pack(&heap, &alias).unwrap_err();
    assert!(matches!(twice, EncodeError::Transit(TransitError::MovedEnd)), "it can be sent once: {twice}");
    let Some(here) = Arc::into_inner(alias.0) else { panic!("one clone is left") };
    let mut here = here;
    assert!(matches!(here.put(1).unwrap_err().kind, PutErrorKind::Moved));
    let there: Alias = Parcel::open(&heap, parcel.id()).unwrap();
    let mut there = Arc::into_inner(there.0).unwrap();
    there.put(2).unwrap();
    assert_eq!(receiver.get().unwrap(), 2);
}

#[test]
fn a_sole_end_comes_back_when_it_was_not_sent() {
    let heap = heap();
    let (sender, _receiver) = spsc_in::<u8>(&heap, 2).unwrap();
    let full = Queue::new_in(&heap, 1).unwrap();
    let (other, _) = spsc_in::<u8>(&heap, 2).unwrap();
    full.put(other).unwrap();
    let mut sender = full.put_nowait(sender).unwrap_err().into_value();
    sender.put(1).unwrap();
}
