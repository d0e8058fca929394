//! What one process does is seen by the others, and wakes those who wait for it.

use std::time::Duration;

use tensorferry::sync::{LockError, WaitError};
use tensorferry_kit::tasks::Primitives;
use tensorferry_kit::with_family;

use crate::{sharer, waiting};

#[test]
fn additions_in_two_steps_under_a_lock_are_not_lost() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        let children = [(); 3].map(|()| sharer(family, &shared));
        for child in &children {
            child.begin("add 400");
        }
        let mut guard = shared.lock.lock().unwrap();
        shared.changed.wait_while(&mut guard, || shared.count.get() < 1_200).unwrap();
        drop(guard);
        for child in children {
            child.expect("added");
            child.finish();
        }
        assert_eq!(shared.count.get(), 1_200);
    });
}

#[test]
fn those_who_wait_are_woken() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        let guard = shared.lock.lock().unwrap();
        let locks = waiting(family, &shared, "lock");
        drop(guard);
        locks.expect("taken");
        assert!(matches!(shared.lock.try_lock(), Err(LockError::Locked)));
        assert_eq!(locks.ask("let_go"), "let go");
        drop(shared.lock.try_lock().unwrap());

        let permits = [shared.semaphore.acquire().unwrap(), shared.semaphore.acquire().unwrap()];
        let acquires = waiting(family, &shared, "acquire");
        drop(permits);
        acquires.expect("taken");
        assert_eq!(shared.semaphore.available_permits(), 1);

        let reader = shared.rw_lock.read().unwrap();
        let writes = waiting(family, &shared, "write");
        assert!(matches!(shared.rw_lock.try_read(), Err(LockError::Locked)), "the writer comes first");
        drop(reader);
        writes.expect("taken");
        let reads = waiting(family, &shared, "read");
        assert_eq!(writes.ask("let_go"), "let go");
        reads.expect("taken");
        assert!(matches!(shared.rw_lock.try_write(), Err(LockError::Locked)));

        let waits = waiting(family, &shared, "wait");
        assert_eq!(reads.ask("set"), "set");
        waits.expect("is set");
        assert!(shared.event.is_set());

        let meets = waiting(family, &shared, "meet");
        assert!(shared.barrier.wait().unwrap().is_leader);
        meets.expect("met");

        let awaits = waiting(family, &shared, "await 1");
        assert_eq!(meets.ask("add 1"), "added");
        awaits.expect("came");
        for child in [locks, acquires, writes, reads, waits, meets, awaits] {
            child.finish();
        }
    });
}

#[test]
fn what_a_process_that_ends_in_order_had_is_free_and_nobody_is_told_of_a_death() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        let leaver = sharer(family, &shared);
        for command in ["lock", "read", "acquire"] {
            assert_eq!(leaver.ask(command), "taken");
        }
        leaver.finish();
        drop(shared.lock.lock().unwrap());
        drop(shared.rw_lock.write().unwrap());
        assert_eq!(shared.semaphore.available_permits(), 2);
        let waited = shared.event.wait_timeout(Duration::from_millis(1));
        assert!(matches!(waited, Err(WaitError::TimedOut)), "{waited:?}");
    });
}
