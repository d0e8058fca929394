//! One process dies, in each of the roles that it can have.

use tensorferry::Queue;
use tensorferry::queue::channel_in;
use tensorferry_kit::tasks::Puppet;
use tensorferry_kit::{Child, Item, assert_all_slots_work, until, with_family};

use crate::{member, queue};

#[test]
fn a_producer_that_is_killed_while_it_waits_leaves_a_whole_queue() {
    with_family(|family| {
        let queue = queue(family, 2);
        let [victim, other, getter] = [(); 3].map(|()| member(family, &queue));
        assert_eq!(victim.ask("put 1 0 300"), "put");
        assert_eq!(victim.ask("put 1 1 300"), "put");
        victim.begin("put 1 2 300");
        other.begin("put 2 0 300");
        victim.wait_until_asleep();
        other.wait_until_asleep();
        victim.kill();
        assert_eq!(getter.ask("get"), "got 1/0");
        other.expect("put");
        assert_eq!(getter.ask("get"), "got 1/1");
        assert_eq!(getter.ask("get"), "got 2/0");
        [other, getter].into_iter().for_each(Child::finish);
        family.wait_blocks(1);
        assert_all_slots_work(family, &queue);
    });
}

#[test]
fn a_consumer_that_is_killed_while_it_waits_takes_nothing_along() {
    with_family(|family| {
        let queue = queue(family, 2);
        let [victim, other] = [(); 2].map(|()| member(family, &queue));
        for child in [&victim, &other] {
            child.begin("get");
            child.wait_until_asleep();
        }
        victim.kill();
        queue.put(Item::new(family.heap(), 1, 0, &[5])).unwrap();
        other.expect("got 1/0");
        other.finish();
        family.wait_blocks(1);
        assert_all_slots_work(family, &queue);
    });
}

#[test]
fn what_a_dead_process_held_comes_back() {
    with_family(|family| {
        let queue = queue(family, 64);
        let victim = member(family, &queue);
        for sequence in 0..50 {
            queue.put(Item::new(family.heap(), 1, sequence, &[10, 100_000])).unwrap();
            assert_eq!(victim.ask("get"), format!("got 1/{sequence}"));
        }
        family.wait_blocks(101);
        victim.kill();
        family.wait_blocks(1);
        family.wait_own_blocks(1);
    });
}

#[test]
fn the_owner_of_a_block_dies_and_its_reader_goes_on_reading() {
    with_family(|family| {
        let queue = queue(family, 8);
        let [owner, reader] = [(); 2].map(|()| member(family, &queue));
        for sequence in 0..4 {
            assert_eq!(owner.ask(&format!("put 1 {sequence} 200000 3")), "put");
        }
        assert_eq!(reader.ask("get"), "got 1/0");
        assert_eq!(reader.ask("get"), "got 1/1");
        let sum = reader.ask("sum");
        let before = family.heap().domain().sweeps();
        owner.kill();
        until("the owner is swept", || family.heap().domain().sweeps() > before);
        let expected: u64 = (0..2)
            .map(|sequence| Item::new(family.heap(), 1, sequence, &[200_000, 3]).sum())
            .fold(0, u64::wrapping_add);
        assert_eq!(sum, expected.to_string());
        assert_eq!(reader.ask("sum"), sum, "nobody took the memory");
        assert_eq!(reader.ask("get"), "got 1/2", "nor what was on its way");
        queue.get().unwrap().check();
        assert_eq!(reader.ask("let_go"), "let go");
        family.wait_blocks(1);
        reader.finish();
        // 4.8 MB were in extents of the dead; what is left is headers. The reader's service thread may have
        // looked at a block when the reader let go of it: then that thread begins to give it back, and who
        // sweeps the reader ends it.
        until("what the dead had goes back to the system", || {
            let stats = family.heap().stats();
            stats.populated_bytes - stats.own.populated_bytes < 1 << 20
        });
    });
}

#[test]
fn the_owner_of_a_queue_dies_and_the_queue_goes_on() {
    with_family(|family| {
        let (back, made) = channel_in(family.heap(), 1).unwrap();
        let owner = family.start(tensorferry_kit::tasks::MakeQueue { back, maxsize: 3 });
        let queue: Queue<Item> = made.get().unwrap();
        let [putter, getter] = [(); 2].map(|()| member(family, &queue));
        getter.begin("get");
        getter.wait_until_asleep();
        owner.kill();
        assert_eq!(putter.ask("put 1 0 40"), "put");
        getter.expect("got 1/0");
        [putter, getter].into_iter().for_each(Child::finish);
        family.wait_alone();
        assert_all_slots_work(family, &queue);
    });
}

#[test]
fn a_forwarder_is_killed_with_its_message_in_flight() {
    with_family(|family| {
        let (to, from) = channel_in(family.heap(), 4).unwrap();
        let (onward, end) = channel_in(family.heap(), 4).unwrap();
        let producer = family.start(Puppet { to: Some(to.clone()), ..Puppet::default() });
        let puppet = || Puppet { from: Some(from.clone()), to: Some(onward.clone()), ..Puppet::default() };
        let forwarder = family.start(puppet());
        // The second and third do not fit into a slot.
        for lengths in
            ["0 700", "1 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5", "2 9"]
        {
            assert_eq!(producer.ask(&format!("put 1 {lengths}")), "put");
            assert!(forwarder.ask("get").starts_with("got 1/"));
            assert_eq!(forwarder.ask("pass"), "put");
        }
        // The maker first, so that nobody alive holds what is in flight but the forwarder.
        producer.kill();
        until("the maker is swept", || forwarder.ask("members") == "2");
        forwarder.kill();
        family.wait_alone();
        for sequence in 0..3 {
            let item: Item = end.get().unwrap();
            item.check();
            assert_eq!(item.sequence, sequence);
        }
        family.wait_blocks(2);
    });
}

#[test]
fn a_slot_of_the_process_table_comes_back_with_a_new_epoch() {
    with_family(|family| {
        let queue = queue(family, 2);
        let mut before = None;
        for _ in 0..5 {
            let child = member(family, &queue);
            let member = child.member();
            if let Some(before) = before {
                assert_eq!(member.slot, 1);
                assert!(member.epoch > before);
            }
            before = Some(member.epoch);
            child.kill();
            family.wait_alone();
        }
    });
}

#[test]
fn a_zombie_is_dead() {
    with_family(|family| {
        let queue = queue(family, 2);
        let victim = member(family, &queue);
        queue.put(Item::new(family.heap(), 1, 0, &[1000])).unwrap();
        assert_eq!(victim.ask("get"), "got 1/0");
        victim.kill_unreaped();
        // Its parent, this process, has not waited for it: the number is taken, the process is gone.
        family.wait_alone();
        family.wait_blocks(1);
    });
}
