//! One block in several messages, in several processes, in several states.

use tensorferry::queue::channel_in;
use tensorferry::tensor::{SharedTensor, Tensor, TensorMut};
use tensorferry_kit::tasks::{Adder, Count};
use tensorferry_kit::{Item, until, with_family};

use crate::{channel, getter};

#[test]
fn one_block_in_many_messages_at_once() {
    with_family(|family| {
        let (to, from) = channel(family, 64);
        let item = Item::new(family.heap(), 1, 1, &[100]);
        for _ in 0..64 {
            to.put(item.clone()).unwrap();
        }
        family.wait_blocks(2);
        drop(item);
        let receivers = [getter(family, &from), getter(family, &from)];
        for _ in 0..32 {
            receivers.iter().for_each(|receiver| assert_eq!(receiver.ask("get"), "got 1/1"));
        }
        drop(from);
        drop(to);
        // One holds it still, 32 times; the ring is held by both.
        assert_eq!(receivers[0].ask("let_go"), "let go");
        family.wait_blocks(2);
        assert_eq!(receivers[1].ask("let_go"), "let go");
        family.wait_blocks(1);
        receivers.into_iter().for_each(tensorferry_kit::Child::finish);
    });
}

#[test]
fn two_receivers_of_one_block_do_not_need_its_sender() {
    with_family(|family| {
        let (to, from) = channel(family, 2);
        let receivers = [getter(family, &from), getter(family, &from)];
        let item = Item::new(family.heap(), 1, 1, &[1 << 16]);
        to.put(item.clone()).unwrap();
        to.put(item).unwrap();
        receivers.iter().for_each(|receiver| assert_eq!(receiver.ask("get"), "got 1/1"));
        let [first, second] = receivers;
        first.kill();
        family.wait_blocks(2);
        assert_eq!(second.ask("let_go"), "let go");
        family.wait_blocks(1);
        second.finish();
        drop((to, from));
    });
}

#[test]
fn views_of_one_storage_arrive_as_views_of_one_storage() {
    with_family(|family| {
        let (to, from) = channel(family, 2);
        let item = Item::new(family.heap(), 1, 1, &[1 << 12]);
        let whole = item.tensors[0].clone();
        let halves = [whole.narrow(0, 0, 2048).unwrap(), whole.narrow(0, 2048, 2048).unwrap()];
        // The second one has other contents than its place in the message says; this test reads it itself.
        let [left, right] = halves;
        let (up_there, up) = channel_in(family.heap(), 2).unwrap();
        let child = family.start(tensorferry_kit::tasks::Forward { from, to: up_there });
        to.put(Item { tensors: vec![left, right, whole], ..item }).unwrap();
        let came = up.get().unwrap();
        assert!(came.tensors.iter().all(|view| view.shares_storage_with(&came.tensors[0])));
        assert_eq!(came.tensors[1].get([0]).unwrap(), came.tensors[2].get([2048]).unwrap());
        assert_eq!(came.tensors[0].shape(), &[2048]);
        family.wait_blocks(3);
        drop(to);
        assert_eq!(child.hear_number(), 1);
        child.finish();
    });
}

#[test]
fn shared_memory_is_one_and_exclusive_memory_moves() {
    with_family(|family| {
        let (to, from) = channel_in(family.heap(), 2).unwrap();
        let (up_there, up) = channel_in(family.heap(), 2).unwrap();
        let child = family.start(Adder { from, to: up_there });
        let shared = SharedTensor::zeros_in(family.heap(), [100]).unwrap();
        for round in 1..=3 {
            to.put(Count::Shared(shared.clone())).unwrap();
            let Count::Shared(back) = up.get().unwrap() else { panic!("another kind came back") };
            assert!(back.shares_storage_with(&shared));
            assert_eq!(shared.to_vec(), vec![round; 100]);
        }
        let mut exclusive = TensorMut::zeros_in(family.heap(), [100]).unwrap();
        let id = exclusive.storage_id();
        for round in 1..=3 {
            to.put(Count::Exclusive(exclusive)).unwrap();
            let Count::Exclusive(back) = up.get().unwrap() else { panic!("another kind came back") };
            exclusive = back;
            assert_eq!(exclusive.storage_id(), id, "moved, not copied");
            assert_eq!(exclusive.as_slice(), [round; 100]);
            exclusive.as_mut_slice().fill(round);
        }
        drop(to);
        child.finish();
    });
}

#[test]
fn a_tensor_that_went_round_in_one_process_can_be_written_again() {
    with_family(|family| {
        let (to, from) = channel_in(family.heap(), 2).unwrap();
        let mut tensor = TensorMut::<u8>::zeros_in(family.heap(), [10]).unwrap();
        for round in 0..5 {
            to.put(tensor.freeze()).unwrap();
            let mut back: Option<Tensor<u8>> = Some(from.get().unwrap());
            let mut writable = None;
            // At once, but for the moment in which the service thread itself is letting go of what was sent.
            until("the sender's own hold is gone", || {
                match back.take().map(Tensor::try_into_mut) {
                    Some(Ok(mine)) => writable = Some(mine),
                    Some(Err(refused)) => back = Some(refused.into_tensor()),
                    None => {}
                }
                writable.is_some()
            });
            tensor = writable.unwrap();
            tensor.as_mut_slice().fill(round);
        }
        drop((to, from));
    });
}

#[test]
fn blocks_at_one_place_of_two_domains_are_two() {
    with_family(|family| {
        let settings = tensorferry::Domain::builder().address_space_bytes(1 << 30);
        let other = tensorferry::Heap::create(settings).unwrap();
        let tensors =
            [family.heap(), &other].map(|heap| TensorMut::<u8>::zeros_in(heap, [10]).unwrap().freeze());
        assert_eq!(tensors[0].storage_id(), tensors[1].storage_id(), "the first of their class");
        assert!(!tensors[0].shares_storage_with(&tensors[1]));
        assert!(tensors[0].shares_storage_with(&tensors[0].clone()));
    });
}
