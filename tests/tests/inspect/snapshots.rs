//! What a snapshot says of processes that go on, wait, and die.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use tensorferry::Queue;
use tensorferry::domain::{Domain, DomainError};
use tensorferry::inspect::{
    InspectError, MemberSnapshot, MonitorSnapshot, QueueSnapshot, Snapshot, find, find_of,
};
use tensorferry::storage::Heap;
use tensorferry_kit::tasks::{Host, Lessee, PipeWithName, Primitives, Puppet, Sharer};
use tensorferry_kit::{
    Audit, Child, Item, Leftovers, Loner, alone, not_here, until, where_possible, with_family,
};

/// The domain of a process, which has one.
#[track_caller]
fn snapshot_of(pid: u32) -> Snapshot {
    let domains = find_of(pid).unwrap();
    assert_eq!(domains.len(), 1, "{domains:?}");
    domains[0].snapshot().unwrap()
}

fn member_of<'a>(snapshot: &'a Snapshot, child: &Child) -> &'a MemberSnapshot {
    snapshot.members.iter().find(|member| member.pid == Some(child.pid())).unwrap()
}

fn puppet(family: &tensorferry_kit::Family, queue: &Queue<Item>) -> Child {
    family.start(Puppet { queue: Some(queue.clone()), ..Puppet::default() })
}

#[test]
fn each_member_is_there_with_what_it_holds() {
    with_family(|family| {
        let queue = Queue::new_in(family.heap(), 4).unwrap();
        let [maker, other] = [(); 2].map(|()| puppet(family, &queue));
        assert_eq!(maker.ask("make 1 0 100 1000"), "made");
        let before = snapshot_of(other.pid());
        assert_eq!(before.domain_id, family.heap().domain().id());
        assert_eq!(before.members.len(), 3);
        let (its, of_other) = (member_of(&before, &maker), member_of(&before, &other));
        // The queue is held by all.
        assert_eq!(its.holds.blocks, of_other.holds.blocks + 2);
        assert_eq!(its.holds_alone.bytes, (100 + 1000) * 8);
        assert_eq!(of_other.holds_alone.blocks, 0);
        assert!(its.owns_bytes >= its.holds_alone.bytes, "{its:?}");

        assert_eq!(maker.ask("pass"), "put");
        assert_eq!(other.ask("get"), "got 1/0");
        until("the maker has let go of what it sent", || {
            let now = snapshot_of(other.pid());
            member_of(&now, &other).holds_alone.blocks == 2 && member_of(&now, &maker).holds_alone.blocks == 0
        });
        // As it lies in the file, read by somebody else.
        let audit = Audit::of(family.heap().domain());
        let now = family.heap().snapshot().unwrap();
        let held = now.held;
        let kinds = [held.data, held.queues, held.long_messages, held.arguments, held.monitors, held.bundles];
        assert_eq!(kinds.iter().map(|kind| kind.blocks).sum::<u64>(), audit.live().len() as u64);

        other.kill();
        until("the dead one is swept", || snapshot_of(maker.pid()).members.len() == 2);
        let after = snapshot_of(maker.pid());
        assert_eq!((after.sweeps, after.in_doubt.blocks), (1, 0));
        until("what it held comes back", || snapshot_of(maker.pid()).held.data.blocks == 0);
        maker.finish();
    });
}

#[test]
fn a_queue_says_who_waits_for_whom() {
    with_family(|family| {
        let queue = Queue::new_in(family.heap(), 2).unwrap();
        let [putter, getter] = [(); 2].map(|()| puppet(family, &queue));
        let look = || -> QueueSnapshot { snapshot_of(getter.pid()).queues.remove(0) };
        let slots = || {
            let snapshot = snapshot_of(getter.pid());
            (0..).take(snapshot.members.len()).collect::<Vec<u8>>()
        };
        assert_eq!((look().waiting_items, look().capacity_items, look().put_items), (0, 2, 0));
        assert_eq!((look().senders, look().receivers), (slots(), slots()));
        for sequence in 0..2 {
            assert_eq!(putter.ask(&format!("put 1 {sequence} 10")), "put");
        }
        putter.begin("put 1 2 10");
        putter.wait_until_asleep();
        assert_eq!((look().waiting_items, look().put_items), (2, 2));
        assert_eq!(getter.ask("get"), "got 1/0");
        putter.expect("put");
        assert_eq!((look().waiting_items, look().put_items, look().is_closed), (2, 3, false));
        assert_eq!(getter.ask("close"), "closed");
        assert!(look().is_closed);
        putter.kill();
        until("the death is counted", || look().sender_deaths == 1 && look().receiver_deaths == 1);
        assert_eq!(look().waiting_items, 2, "what it had put is there");
        getter.finish();
    });
}

#[test]
fn a_lease_has_its_owner_until_that_dies() {
    with_family(|family| {
        let queue = Queue::with_leases_in(family.heap(), 4, 3).unwrap();
        let worker = family.start(Lessee { queue: queue.clone() });
        let look = || -> QueueSnapshot { family.heap().snapshot().unwrap().queues.remove(0) };
        assert_eq!(worker.ask("put 1 0 10"), "put");
        assert_eq!(worker.ask("lease"), "leased 1/0 1");
        let slot = worker.member().slot;
        assert_eq!((look().max_leases, look().leased_items), (3, vec![(slot, 1)]));
        worker.kill();
        until("it comes back", || look().leased_items.is_empty() && look().waiting_items == 1);
    });
}

#[test]
fn a_lock_has_its_owner_and_a_semaphore_those_who_took_of_it() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        let child = family.start(Sharer { shared: shared.clone() });
        let slot = child.member().slot;
        let look = |purpose: u64| -> MonitorSnapshot {
            let monitors = snapshot_of(child.pid()).monitors;
            monitors.into_iter().find(|monitor| monitor.purpose == purpose).unwrap()
        };
        // docs/WIRE.md, "Purposes".
        let (lock, semaphore) = (1, 3);
        assert_eq!((look(lock).locked_by, look(semaphore).shares), (None, vec![]));
        assert_eq!(child.ask("lock"), "taken");
        assert_eq!((look(lock).locked_by, look(lock).holders), (Some(slot), vec![0, slot]));
        assert_eq!(child.ask("let_one_go"), "let one go");
        assert_eq!(child.ask("acquire"), "taken");
        assert_eq!((look(lock).locked_by, look(semaphore).shares), (None, vec![(slot, 1)]));
        child.kill();
        let look = |purpose: u64| {
            let monitors = family.heap().snapshot().unwrap().monitors;
            monitors.into_iter().find(|monitor| monitor.purpose == purpose).unwrap()
        };
        until("the death is counted", || look(semaphore).deaths == 1);
        assert_eq!(look(semaphore).shares, []);
    });
}

#[test]
fn whoever_is_no_member_finds_the_domain_and_leaves_nothing_in_it() {
    alone(|| {
        let host = Loner::start(&Host::Puppets { maxsize: 2 }, &[]);
        let guest = Loner::start_in::<Puppet>(&host);
        let found = find().unwrap().domains;
        let of_both = found.iter().find(|domain| domain.processes().contains(&host.pid())).unwrap();
        let (lower, higher) = (host.pid().min(guest.pid()), host.pid().max(guest.pid()));
        assert_eq!(of_both.processes(), [lower, higher]);
        let snapshot = of_both.snapshot().unwrap();
        assert_eq!(snapshot.members.len(), 2);
        assert!(!std::fs::read_to_string("/proc/self/maps").unwrap().contains("tensorferry"));
        host.kill();
        assert_eq!(of_both.snapshot().unwrap().domain_id, snapshot.domain_id, "the guest has it");
        guest.kill();
        let error = of_both.snapshot().unwrap_err();
        assert!(matches!(&error, InspectError::Gone { processes } if processes.len() == 2), "{error}");
    });
}

#[test]
fn a_domain_of_another_version_is_an_error_that_says_so() {
    alone(|| {
        let heap = Heap::create(Domain::builder().address_space_bytes(16 << 20)).unwrap();
        let file = File::from(heap.domain().fds().unwrap().file);
        // The second word of the header; nobody joins here any more.
        file.write_all_at(&77_u64.to_ne_bytes(), 8).unwrap();
        let found = find_of(std::process::id()).unwrap();
        let error = found[0].snapshot().unwrap_err();
        let InspectError::Domain(DomainError::WrongVersion { found: 77, .. }) = error else {
            panic!("{error}");
        };
    });
}

#[test]
fn looking_leaves_nothing_open() {
    alone(|| {
        let heap = Heap::create(Domain::builder().address_space_bytes(16 << 20)).unwrap();
        let before = Leftovers::look().n_descriptors();
        heap.snapshot().unwrap();
        find_of(std::process::id()).unwrap()[0].snapshot().unwrap();
        assert_eq!(Leftovers::look().n_descriptors(), before);
    });
}

#[test]
fn what_has_the_name_of_a_domain_and_is_none_is_not_opened() {
    where_possible(|| {
        alone(|| {
            // A pipe that was deleted at the root of a mount looks like a memory file, and opening it waits.
            let child = Loner::start(&PipeWithName { name: "memfd:tensorferry".to_owned() }, &[]);
            match child.hear() {
                line if line == "ready" => {}
                why => not_here(why),
            }
            assert_eq!(find_of(child.pid()).unwrap().len(), 0);
            child.finish();
        });
    });
}

#[test]
fn a_process_that_is_not_there_is_an_error() {
    let error = find_of(u32::MAX).unwrap_err();
    assert!(error.to_string().contains(&u32::MAX.to_string()), "{error}");
}
