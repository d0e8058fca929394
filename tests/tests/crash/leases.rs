//! Workers that die over what they have leased.

use std::time::Duration;

use tensorferry::Queue;
use tensorferry::queue::{JoinError, channel_with_leases_in};
use tensorferry_kit::tasks::{Lessee, Puppet};
use tensorferry_kit::{Child, Family, Item, Random, Stepper, with_family};

use crate::steps::{may_trace, n_places};

fn lessee(family: &Family, queue: &Queue<Item>) -> Child {
    family.start(Lessee { queue: queue.clone() })
}

fn queue(family: &Family, maxsize: usize, max_leases: usize) -> Queue<Item> {
    Queue::with_leases_in(family.heap(), maxsize, max_leases).unwrap()
}

/// It sleeps in what it was told to do.
fn waits(child: &Child) {
    child.wait_until_asleep();
    assert!(!child.has_spoken());
}

/// Items with one tensor, the odd ones too long for a slot.
fn put(family: &Family, queue: &Queue<Item>, sequence: u64) {
    let item = Item::new(family.heap(), 1, sequence, &[100]);
    let item = if sequence.is_multiple_of(2) { item } else { item.with_note(500) };
    queue.put_nowait(item).unwrap();
}

#[test]
fn what_a_killed_worker_had_leased_is_delivered_again_first_in_line() {
    with_family(|family| {
        let queue = queue(family, 8, 4);
        (0..6).for_each(|sequence| put(family, &queue, sequence));
        let [victim, other] = [(); 2].map(|()| lessee(family, &queue));
        for sequence in 0..3 {
            assert_eq!(victim.ask("lease"), format!("leased 1/{sequence} 1"));
        }
        assert_eq!(victim.ask("ack"), "acked 1/0");
        victim.kill();
        family.wait_members(2);
        assert_eq!(other.ask("lease"), "leased 1/1 2");
        assert_eq!(other.ask("lease"), "leased 1/2 2");
        assert_eq!(other.ask("lease"), "leased 1/3 1");
        for sequence in 1..4 {
            assert_eq!(other.ask("ack"), format!("acked 1/{sequence}"));
        }
        assert_eq!(other.ask("get"), "got 1/4");
        assert_eq!(other.ask("get"), "got 1/5");
        family.wait_blocks(1);
        other.finish();
    });
}

#[test]
fn a_waiting_worker_gets_what_a_killed_one_had() {
    with_family(|family| {
        let queue = queue(family, 2, 2);
        let producer_is_gone = lessee(family, &queue);
        assert_eq!(producer_is_gone.ask("put 1 0 1000"), "put");
        let [victim, other] = [(); 2].map(|()| lessee(family, &queue));
        assert_eq!(victim.ask("lease"), "leased 1/0 1");
        producer_is_gone.kill();
        queue.close();
        // Closed, but not over: the lease may come back.
        other.begin("lease");
        other.wait_until_asleep();
        victim.kill();
        other.expect("leased 1/0 2");
        assert_eq!(other.ask("try_lease"), "Closed");
        assert_eq!(other.ask("ack"), "acked 1/0");
        other.finish();
    });
}

#[test]
fn a_worker_that_waits_for_a_free_lease_is_woken_by_an_acknowledgement_and_by_a_death() {
    with_family(|family| {
        let queue = queue(family, 8, 2);
        (0..4).for_each(|sequence| put(family, &queue, sequence));
        let [first, second, waiter] = [(); 3].map(|()| lessee(family, &queue));
        assert_eq!(first.ask("lease"), "leased 1/0 1");
        assert_eq!(second.ask("lease"), "leased 1/1 1");
        assert_eq!(waiter.ask("try_lease"), "Empty");
        waiter.begin("lease");
        waiter.wait_until_asleep();
        assert_eq!(first.ask("ack"), "acked 1/0");
        waiter.expect("leased 1/2 1");
        assert_eq!(waiter.ask("ack"), "acked 1/2");
        assert_eq!(first.ask("lease"), "leased 1/3 1");
        waiter.begin("lease");
        waiter.wait_until_asleep();
        second.kill();
        waiter.expect("leased 1/1 2");
        assert_eq!(waiter.ask("ack"), "acked 1/1");
        assert_eq!(first.ask("ack"), "acked 1/3");
        family.wait_blocks(1);
        [first, waiter].into_iter().for_each(Child::finish);
    });
}

#[test]
fn a_join_waits_for_what_a_killed_worker_had_until_another_one_has_done_it() {
    with_family(|family| {
        let queue = queue(family, 8, 2);
        (0..3).for_each(|sequence| put(family, &queue, sequence));
        let [victim, other, joins] = [(); 3].map(|()| lessee(family, &queue));
        assert_eq!(victim.ask("lease"), "leased 1/0 1");
        joins.begin("join");
        waits(&joins);
        assert_eq!(other.ask("lease"), "leased 1/1 1");
        assert_eq!(other.ask("ack"), "acked 1/1");
        assert_eq!(other.ask("get"), "got 1/2");
        waits(&joins);
        victim.kill();
        assert_eq!(other.ask("lease"), "leased 1/0 2");
        waits(&joins);
        assert_eq!(other.ask("ack"), "acked 1/0");
        joins.expect("joined");
        // Who joins and is killed costs nobody anything.
        put(family, &queue, 3);
        joins.begin("join");
        waits(&joins);
        joins.kill();
        assert_eq!(other.ask("get"), "got 1/3");
        queue.join().unwrap();
        other.finish();
    });
}

#[test]
fn a_join_ends_when_nobody_is_left_to_do_the_work() {
    with_family(|family| {
        let (jobs, worker) = channel_with_leases_in(family.heap(), 8, 2).unwrap();
        let child = family.start(Puppet { from: Some(worker), ..Puppet::default() });
        (0..2).for_each(|sequence| jobs.put(Item::new(family.heap(), 1, sequence, &[10])).unwrap());
        assert_eq!(child.ask("get"), "got 1/0");
        let joins = family.start(Puppet { to: Some(jobs.clone()), ..Puppet::default() });
        joins.begin("join");
        waits(&joins);
        child.kill();
        joins.expect("PeerDied");
        joins.finish();
        family.wait_blocks(1);
        assert!(jobs.is_empty());
        assert!(matches!(jobs.join(), Err(JoinError::PeerDied)), "also once the message was discarded");
    });
}

#[test]
fn what_was_given_back_outlives_who_gave_it_back() {
    with_family(|family| {
        let queue = queue(family, 2, 2);
        let [maker, victim] = [(); 2].map(|()| lessee(family, &queue));
        // Made by one that dies too: afterwards nobody alive has ever held it.
        assert_eq!(maker.ask("put 3 7 50000"), "put");
        assert_eq!(victim.ask("lease"), "leased 3/7 1");
        assert_eq!(victim.ask("give_back"), "gave back");
        [maker, victim].into_iter().for_each(Child::kill);
        family.wait_alone();
        family.heap().collect();
        queue.get_leased().unwrap().check();
        let lease = queue.get_leased().unwrap();
        assert_eq!((lease.sequence, lease.deliveries()), (7, 3));
        lease.ack().unwrap();
        family.wait_blocks(1);
    });
}

/// A lease, an acknowledgement or a return that is cut off anywhere: the item is there once, or was
/// acknowledged.
#[test]
fn killed_inside_of_a_lease_an_acknowledgement_and_a_return() {
    let mut random = Random::from_environment();
    println!("seed {}", random.seed());
    with_family(|family| {
        for command in ["lease", "ack", "give_back", "get"] {
            let queue = queue(family, 2, 2);
            let mut length = None;
            let mut n_left = 0;
            for place in 0..=n_places() {
                let victim = lessee(family, &queue);
                put(family, &queue, place);
                if command != "lease" && command != "get" {
                    assert_eq!(victim.ask("lease"), format!("leased 1/{place} 1"));
                }
                let Some(stepper) = may_trace(Stepper::begin(&victim, command)) else { return };
                match length {
                    None => {
                        length = Some(stepper.step_until(1 << 22, || victim.has_spoken()));
                        println!("{command}: {length:?} instructions");
                    }
                    Some(length) => {
                        stepper.step_until(random.below(length), || victim.has_spoken());
                    }
                }
                stepper.kill(victim);
                family.wait_alone();
                match queue.get_leased_nowait() {
                    Ok(lease) => {
                        lease.check();
                        assert_eq!(lease.sequence, place);
                        assert!((1..=2).contains(&lease.deliveries()), "{lease:?}");
                        lease.ack().unwrap();
                        n_left += 1;
                    }
                    // An acknowledgement and a plain get take it along.
                    Err(error) => assert!(matches!(command, "ack" | "get"), "{command} at {place}: {error}"),
                }
                assert!(queue.get_leased_nowait().is_err(), "it is there once");
                let joined = queue.join_timeout(Duration::ZERO);
                assert!(joined.is_ok(), "{command} at {place}: {joined:?}");
                family.wait_blocks(1);
            }
            println!("{command}: {n_left} came back");
        }
    });
}
