//! Ends and connections of any type, and a put that looks around while it waits.

use std::time::Duration;

use tensorferry_queue::{
    AnyConnection, AnyEnd, Connection, GetError, OpenError, PutErrorKind, Queue, Receiver, Sender, channel_in,
};
use tensorferry_reduce::Parcel;
use tensorferry_storage::Heap;

use crate::heap;

/// Through a message and back.
fn sent<T: serde::Serialize, U: serde::de::DeserializeOwned>(heap: &Heap, value: &T) -> U {
    Parcel::open(heap, Parcel::pack(heap, value).unwrap().id()).unwrap()
}

#[test]
fn an_end_of_any_type_has_the_role_that_was_sent() {
    let heap = heap();
    let queue = Queue::<u32>::new_in(&heap, 4).unwrap();
    let [both, puts, gets]: [AnyEnd; 3] =
        [sent(&heap, &queue), sent(&heap, &queue.sender().unwrap()), sent(&heap, &queue.receiver().unwrap())];
    let roles = [&both, &puts, &gets].map(|end| (end.sends(), end.receives()));
    assert_eq!(roles, [(true, true), (true, false), (false, true)]);
    assert!(matches!(puts.clone().into_receiver::<u32>(), Err(OpenError::WrongRole)));
    assert!(matches!(gets.clone().into_sender::<u32>(), Err(OpenError::WrongRole)));
    assert!(matches!(gets.clone().into_queue::<u32>(), Err(OpenError::WrongRole)));
    assert!(matches!(gets.sender(), Err(OpenError::WrongRole)));
    puts.into_sender::<u32>().unwrap().put(7).unwrap();
    // Nobody checks the type, and the values are.
    assert!(matches!(gets.into_receiver::<String>().unwrap().get(), Err(GetError::Decode(_))));
    let both = both.into_queue::<u32>().unwrap();
    both.put(8).unwrap();
    assert_eq!(queue.get().unwrap(), 8);
}

#[test]
fn a_queue_that_is_received_as_less_is_less() {
    let heap = heap();
    let queue = Queue::<u8>::new_in(&heap, 1).unwrap();
    let receiver: Receiver<u8> = sent(&heap, &queue);
    let sender: Sender<u8> = sent(&heap, &queue);
    drop(queue);
    sender.put(1).unwrap();
    drop(sender);
    assert_eq!(receiver.get().unwrap(), 1);
    // If either had been a whole queue, it could still put.
    assert!(matches!(receiver.get(), Err(GetError::Disconnected)));
}

#[test]
fn what_is_made_for_any_type_is_received_as_each() {
    let heap = heap();
    let end = AnyEnd::create_in(&heap, 2).unwrap();
    let numbers: Queue<u64> = sent(&heap, &end);
    let same: Sender<u64> = sent(&heap, &end);
    same.put(5).unwrap();
    assert_eq!(numbers.get().unwrap(), 5);
    // With leases, too.
    let end = AnyEnd::create_with_leases_in(&heap, 2, 1).unwrap();
    let (jobs, worker) = (end.clone().into_sender::<u64>().unwrap(), end.into_receiver::<u64>().unwrap());
    jobs.put(6).unwrap();
    drop(worker.get_leased().unwrap());
    assert_eq!(worker.get_leased().unwrap().deliveries(), 2);
    assert!(matches!(numbers.get_leased(), Err(GetError::NoLeases)));
    // A queue of numbers is none of texts.
    let parcel = Parcel::pack(&heap, &Queue::<u64>::new_in(&heap, 1).unwrap()).unwrap();
    assert!(Parcel::open::<Queue<String>>(&heap, parcel.id()).is_err());

    let (here, there) = AnyConnection::pipe_in(&heap, 2).unwrap();
    let mut typed: Connection<u8, String> = sent(&heap, &there);
    drop(there);
    let (sender, receiver) = here.into_ends::<String, u8>().unwrap();
    sender.put("hello".to_owned()).unwrap();
    assert_eq!(typed.recv().unwrap(), "hello");
    typed.send(3).unwrap();
    assert_eq!(receiver.get().unwrap(), 3);
    drop(typed);
    assert!(matches!(receiver.get(), Err(GetError::Disconnected)));
}

#[test]
fn a_put_that_looks_around_encodes_once_and_gives_the_value_back() {
    let heap = heap();
    let (sender, receiver) = channel_in(&heap, 1).unwrap();
    let block = || heap.allocate_zeroed(100).unwrap();
    sender.put(Exclusive(block())).unwrap();
    let value = Exclusive(block());
    let id = value.0.id();
    let mut n_looks = 0;
    let refused = sender.put_while(value, Duration::from_millis(1), || {
        n_looks += 1;
        n_looks < 5
    });
    let refused = refused.unwrap_err();
    assert!(refused.is_full() && n_looks == 5, "{n_looks}");
    // It is whole again.
    let value = refused.into_value();
    assert_eq!((value.0.id(), value.0.is_moved()), (id, false));
    // What makes room while it looks lets it through.
    let put = sender.put_while(value, Duration::from_millis(1), || receiver.get_nowait().is_ok());
    put.unwrap();
    assert_eq!(receiver.get().unwrap().0.len_bytes(), 100);
    receiver.close();
    let refused =
        sender.put_while(Exclusive(block()), Duration::from_millis(1), || panic!("it does not wait"));
    assert!(matches!(refused.unwrap_err().kind, PutErrorKind::Closed));
}

/// Memory that moves.
struct Exclusive(tensorferry_storage::ExclusiveBlock);

impl serde::Serialize for Exclusive {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        tensorferry_reduce::give_exclusive(&self.0).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for Exclusive {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let index = tensorferry_reduce::HandleIndex::deserialize(deserializer)?;
        tensorferry_reduce::take_exclusive(index).map(Self).map_err(serde::de::Error::custom)
    }
}
