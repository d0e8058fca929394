//! Messages find their way, whoever lives when they arrive.

use tensorferry::queue::GetError;
use tensorferry::reduce::bytes_copied;
use tensorferry_kit::tasks::{Forward, Produce};
use tensorferry_kit::{Item, alone, with_family};

use crate::{channel, getter, member, putter};

#[test]
fn from_parent_to_child_and_back() {
    with_family(|family| {
        let (down, down_there) = channel(family, 4);
        let (up_there, up) = channel(family, 4);
        let child = family.start(Forward { from: down_there.clone(), to: up_there.clone() });
        drop((down_there, up_there));
        let copied = bytes_copied();
        for sequence in 0..200 {
            let sent = Item::new(family.heap(), 7, sequence, &[100, 0, 3]);
            let ids: Vec<_> = sent.tensors.iter().map(|tensor| tensor.storage_id()).collect();
            down.put(sent).unwrap();
            let came = up.get().unwrap();
            came.check();
            assert_eq!((came.sender, came.sequence), (7, sequence));
            let came_ids: Vec<_> = came.tensors.iter().map(|tensor| tensor.storage_id()).collect();
            assert_eq!(came_ids, ids, "the same memory came back");
        }
        assert_eq!(bytes_copied(), copied);
        drop(down);
        assert_eq!(child.hear_number(), 200);
        child.finish();
        assert!(matches!(up.get(), Err(GetError::Disconnected)));
    });
}

#[test]
fn what_was_put_is_got_after_its_sender_exited() {
    with_family(|family| {
        let (to, from) = channel(family, 8);
        let child =
            family.start(Produce { to, sender: 1, n_items: 5, lengths: vec![1000, 5], note_len_bytes: 3000 });
        child.expect("done");
        child.finish();
        family.wait_alone();
        for sequence in 0..5 {
            let item = from.get().unwrap();
            item.check();
            assert_eq!((item.sequence, item.tensors.len(), item.note.len()), (sequence, 2, 3000));
        }
        assert!(matches!(from.get(), Err(GetError::Disconnected)));
    });
}

#[test]
fn what_was_received_can_be_forwarded_from_process_to_process() {
    with_family(|family| {
        let (one, one_there) = channel(family, 2);
        let (two, two_there) = channel(family, 2);
        let (three, end) = channel(family, 16);
        let first = family.start(Forward { from: one_there.clone(), to: two.clone() });
        let second = family.start(Forward { from: two_there.clone(), to: three.clone() });
        drop((one_there, two, two_there, three));
        for sequence in 0..10 {
            one.put(Item::new(family.heap(), 3, sequence, &[64, 64]).with_note(500)).unwrap();
        }
        drop(one);
        for child in [first, second] {
            assert_eq!(child.hear_number(), 10);
            child.finish();
        }
        family.wait_alone();
        let came: Vec<u64> = end.iter().inspect(Item::check).map(|item| item.sequence).collect();
        assert_eq!(came, (0..10).collect::<Vec<_>>(), "the forwarders are gone, what they forwarded is not");
    });
}

#[test]
fn a_process_gets_what_it_put() {
    with_family(|family| {
        let queue = tensorferry::Queue::new_in(family.heap(), 3).unwrap();
        let child = member(family, &queue);
        for sequence in 0..10 {
            assert_eq!(child.ask(&format!("put 4 {sequence} 50")), "put");
            assert_eq!(child.ask("get"), format!("got 4/{sequence}"));
        }
        child.finish();
    });
}

#[test]
fn a_receiver_that_holds_on_keeps_memory_of_a_sender_that_is_gone() {
    with_family(|family| {
        let (to, from) = channel(family, 4);
        let sender = putter(family, &to);
        let receiver = getter(family, &from);
        drop((to, from));
        assert_eq!(sender.ask("put 9 0 5000"), "put");
        assert_eq!(receiver.ask("get"), "got 9/0");
        sender.finish();
        assert_eq!(receiver.ask("get"), "Disconnected");
        // The ring and the tensor, both in memory that nobody owns any more.
        family.wait_blocks(2);
        assert_eq!(receiver.ask("let_go"), "let go");
        assert_eq!(receiver.ask("leave"), "left");
        family.wait_blocks(0);
        receiver.finish();
    });
}

#[test]
fn a_queue_that_is_dropped_keeps_nothing_of_its_domain_open() {
    // The descriptor, the mapping and the thread go, whether messages are still in it or not.
    for n_left in [0, 2] {
        alone(|| {
            let settings = tensorferry::domain::Domain::builder().address_space_bytes(64 << 20);
            let heap = tensorferry::Heap::create(settings).unwrap();
            let queue = tensorferry::Queue::new_in(&heap, 2).unwrap();
            for sequence in 0..n_left {
                queue.put(Item::new(&heap, 1, sequence, &[10])).unwrap();
            }
            drop((queue, heap));
        });
    }
}
