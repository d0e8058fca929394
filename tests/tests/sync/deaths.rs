//! A process that is killed keeps nothing, and whoever has to know is told.

use tensorferry::sync::{BarrierError, BrokenBy, LastOwner, LockError, WaitError};
use tensorferry_kit::tasks::Primitives;
use tensorferry_kit::{until, with_family};

use crate::{sharer, waiting};

#[test]
fn the_lock_of_a_killed_owner_goes_to_the_next_one_who_is_told() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        let owner = sharer(family, &shared);
        assert_eq!(owner.ask("half"), "half");
        let next = waiting(family, &shared, "lock");
        owner.kill();
        next.expect("told died");
        assert_eq!(next.ask("let_go"), "let go");
        let mut guard = shared.lock.lock().unwrap_err().into_guard().unwrap();
        guard.clear_poison();
        drop(guard);
        // Here nobody waits when it dies.
        assert_eq!(next.ask("lock"), "taken");
        next.kill();
        let error = shared.lock.lock().unwrap_err();
        assert!(matches!(error, LockError::Poisoned { last_owner: LastOwner::Died, .. }), "{error}");
        drop(error);
        assert!(shared.lock.lock().is_err(), "nobody has made it good");
    });
}

#[test]
fn one_who_is_killed_while_it_waits_costs_nobody_anything() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        let guard = shared.lock.lock().unwrap();
        let [victim, other] = [(); 2].map(|()| waiting(family, &shared, "lock"));
        victim.kill();
        drop(guard);
        other.expect("taken");
        assert_eq!(other.ask("let_go"), "let go");
        drop(shared.lock.lock().unwrap());
        other.finish();
    });
}

#[test]
fn one_who_was_told_and_dies_leaves_it_to_the_next_one_to_be_told() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        for _ in 0..2 {
            let owner = sharer(family, &shared);
            owner.begin("lock");
            let _ = owner.hear();
            owner.kill();
        }
        assert!(matches!(shared.lock.lock(), Err(LockError::Poisoned { last_owner: LastOwner::Died, .. })));
    });
}

#[test]
fn permits_of_a_killed_holder_come_back() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        let holder = sharer(family, &shared);
        for _ in 0..2 {
            assert_eq!(holder.ask("acquire"), "taken");
        }
        let acquires = waiting(family, &shared, "acquire");
        assert!(shared.semaphore.try_acquire().is_err());
        holder.kill();
        acquires.expect("taken");
        assert_eq!(shared.semaphore.available_permits(), 1);
        // Its slot may go to another process, whose permits are counted anew.
        let newcomer = sharer(family, &shared);
        assert_eq!(newcomer.ask("acquire"), "taken");
        assert_eq!(shared.semaphore.available_permits(), 0);
        newcomer.finish();
        acquires.finish();
        assert_eq!(shared.semaphore.available_permits(), 2);
    });
}

#[test]
fn a_killed_reader_lets_writers_in_and_a_killed_writer_is_told_of() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        let reader = sharer(family, &shared);
        assert_eq!(reader.ask("read"), "taken");
        let writer = waiting(family, &shared, "write");
        reader.kill();
        writer.expect("taken");
        let next = waiting(family, &shared, "read");
        writer.kill();
        next.expect("told died");
        assert_eq!(next.ask("let_go"), "let go");
        let told = shared.rw_lock.write().unwrap_err();
        assert!(
            matches!(told, LockError::Poisoned { last_owner: LastOwner::Died, .. }),
            "nobody wrote since"
        );
        let mut guard = told.into_guard().unwrap();
        guard.clear_poison();
        drop(guard);
        assert_eq!(next.ask("write"), "taken");
        next.finish();
    });
}

#[test]
fn a_writer_that_is_killed_before_it_has_written_is_not_told_of() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        let reader = shared.rw_lock.read().unwrap();
        let writer = waiting(family, &shared, "write");
        until("it has the lock and waits for the reader", || shared.rw_lock.try_read().is_err());
        writer.kill();
        drop(reader);
        drop(shared.rw_lock.read().unwrap());
        drop(shared.rw_lock.write().unwrap());
        // One that has written is told of also when others are killed on their way in after it.
        let writer = sharer(family, &shared);
        assert_eq!(writer.ask("write"), "taken");
        writer.kill();
        let told = shared.rw_lock.read().unwrap_err();
        assert!(matches!(told, LockError::Poisoned { last_owner: LastOwner::Died, .. }), "{told}");
        let next = waiting(family, &shared, "write");
        until("it waits too", || shared.rw_lock.try_read().is_err_and(|error| error.is_locked()));
        next.kill();
        drop(told);
        assert!(matches!(shared.rw_lock.write(), Err(LockError::Poisoned { .. })));
        shared.rw_lock.write().unwrap_err().into_guard().unwrap().clear_poison();
        drop(shared.rw_lock.write().unwrap());
    });
}

#[test]
fn a_death_breaks_a_barrier_for_those_who_wait_and_those_who_come() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        // It would have come, and did not.
        let victim = sharer(family, &shared);
        let meets = waiting(family, &shared, "meet");
        victim.kill();
        meets.expect("Death");
        assert!(matches!(shared.barrier.wait(), Err(BarrierError::Broken { by: BrokenBy::Death })));
        shared.barrier.reset().unwrap();
        meets.begin("meet");
        shared.barrier.wait().unwrap();
        meets.expect("met");
        // It had come, so it does not count any more.
        let victim = waiting(family, &shared, "meet");
        until("it is counted", || shared.barrier.n_waiting() == 1);
        victim.kill();
        until("it is not counted", || shared.barrier.n_waiting() == 0);
        until("the barrier breaks", || shared.barrier.broken_by() == Some(BrokenBy::Death));
        meets.finish();
    });
}

#[test]
fn who_waits_for_an_event_or_a_condition_is_told_once_of_each_death() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        for (command, end, done) in [("wait", "set", "is set"), ("await 1", "add 1", "came")] {
            let victim = sharer(family, &shared);
            let told = waiting(family, &shared, command);
            victim.kill();
            told.expect("PeerDied");
            told.begin(command);
            told.wait_until_asleep();
            let other = sharer(family, &shared);
            let _ = other.ask(end);
            told.expect(done);
            other.finish();
            told.finish();
        }
        // The event is set, so nobody needs to know.
        shared.event.wait().unwrap();
        shared.event.clear();
        assert!(
            matches!(shared.event.wait(), Err(WaitError::PeerDied)),
            "two deaths that it was not told of"
        );
        shared.event.set();
        shared.event.wait().unwrap();
    });
}

#[test]
fn a_lock_that_was_taken_twice_is_free_once_both_are_let_go_or_its_owner_is_killed() {
    with_family(|family| {
        let shared = Primitives::create(family.heap());
        let owner = sharer(family, &shared);
        assert_eq!(owner.ask("rlock"), "taken");
        assert_eq!(owner.ask("rlock"), "taken");
        assert_eq!(owner.ask("let_one_go"), "let one go");
        assert!(matches!(shared.rlock.try_lock(), Err(LockError::Locked)));
        let next = waiting(family, &shared, "rlock");
        assert_eq!(owner.ask("let_one_go"), "let one go");
        next.expect("taken");
        assert_eq!(next.ask("rlock"), "taken");
        let last = waiting(family, &shared, "rlock");
        next.kill();
        last.expect("told died");
        assert_eq!(last.ask("rlock"), "taken", "it was told");
        assert_eq!(last.ask("let_go"), "let go");
        let mut guard = shared.rlock.lock().unwrap_err().into_guard().unwrap();
        guard.clear_poison();
        drop((shared.rlock.lock().unwrap(), guard));
        drop(shared.rlock.lock().unwrap());
        last.finish();
        owner.finish();
    });
}
