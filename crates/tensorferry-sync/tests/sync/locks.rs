//! Locks and the like among threads, and on their way through a message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tensorferry_reduce::DecodeError;
use tensorferry_sync::{
    Barrier, BarrierError, BrokenBy, Condition, Event, LastOwner, Lock, LockError, RLock, RLockGuard,
    RawValue, RwLock, Semaphore, WaitError,
};

use crate::{heap, sent};

const SHORT: Duration = Duration::from_millis(2);
/// Longer than anything here takes on a slow machine; reaching it is a failure.
const LONG: Duration = Duration::from_secs(30);
const N_THREADS: u32 = 4;
const N_TURNS: u32 = 500;

/// Runs `work` in several threads at once.
fn together(work: impl Fn(u32) + Sync) {
    std::thread::scope(|scope| {
        for number in 0..N_THREADS {
            let work = &work;
            scope.spawn(move || work(number));
        }
    });
}

/// Adds one in two steps, between which others may come.
fn add_one(value: &RawValue<u32>) {
    let found = value.get();
    std::thread::yield_now();
    value.set(found + 1);
}

#[test]
fn one_thread_at_a_time_has_a_lock() {
    let heap = heap();
    let (lock, count) = (Lock::new_in(&heap).unwrap(), RawValue::new_in(&heap, 0).unwrap());
    together(|_| {
        for _ in 0..N_TURNS {
            let _guard = lock.lock().unwrap();
            add_one(&count);
        }
    });
    assert_eq!(count.get(), N_THREADS * N_TURNS);
    let guard = lock.try_lock().unwrap();
    assert!(matches!(lock.try_lock(), Err(LockError::Locked)));
    assert!(lock.lock_timeout(SHORT).is_err_and(|error| error.is_locked()));
    drop(guard);
    drop(lock.try_lock().unwrap());
}

#[test]
fn after_an_owner_that_panicked_all_are_told_until_one_has_made_it_good() {
    let heap = heap();
    let lock = Lock::new_in(&heap).unwrap();
    let panics = || {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            std::panic::resume_unwind(Box::new("on purpose"));
        }))
    };
    for _ in 0..2 {
        panics().unwrap_err();
        let error = lock.lock().unwrap_err();
        assert!(matches!(error, LockError::Poisoned { last_owner: LastOwner::Panicked, .. }), "{error}");
        assert!(error.to_string().contains("an owner of the lock panicked"), "{error}");
        assert!(matches!(lock.try_lock(), Err(LockError::Locked)), "the error has the guard");
        drop(error);
        // As with a `?` that nobody acts upon.
        let mut guard = lock.lock().unwrap_err().into_guard().unwrap();
        assert!(guard.is_poisoned());
        guard.clear_poison();
        assert!(!guard.is_poisoned());
        drop(guard);
        drop(lock.lock().unwrap());
    }
    assert!(matches!(LockError::<()>::Locked.into_guard(), Err(LockError::Locked)));
}

#[test]
fn an_event_lets_all_who_wait_pass_until_it_is_cleared() {
    let heap = heap();
    let (event, n_passed) = (Event::new_in(&heap).unwrap(), AtomicU32::new(0));
    assert!(event.wait_timeout(SHORT).is_err_and(|error| error.is_timed_out()));
    together(|number| {
        if number == 0 {
            event.set();
        }
        event.wait().unwrap();
        n_passed.fetch_add(1, Ordering::SeqCst);
    });
    assert_eq!(n_passed.into_inner(), N_THREADS);
    assert!(event.is_set());
    event.wait_timeout(Duration::ZERO).unwrap();
    event.clear();
    assert!(!event.is_set());
    assert!(matches!(event.wait_timeout(Duration::ZERO), Err(WaitError::TimedOut)));
}

#[test]
fn a_semaphore_has_as_many_holders_as_permits() {
    let heap = heap();
    let semaphore = Semaphore::new_in(&heap, 2).unwrap();
    let (n_now, n_most) = (AtomicU32::new(0), AtomicU32::new(0));
    together(|_| {
        for _ in 0..N_TURNS {
            let _permit = semaphore.acquire().unwrap();
            n_most.fetch_max(n_now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::yield_now();
            n_now.fetch_sub(1, Ordering::SeqCst);
        }
    });
    assert!((1..=2).contains(&n_most.into_inner()));
    assert_eq!(semaphore.available_permits(), 2);
    let permits = [semaphore.try_acquire().unwrap(), semaphore.try_acquire().unwrap()];
    assert!(matches!(semaphore.try_acquire(), Err(WaitError::NoPermit)));
    assert!(matches!(semaphore.acquire_timeout(SHORT), Err(WaitError::TimedOut)));
    let [kept, given_up] = permits;
    given_up.forget();
    assert_eq!(semaphore.available_permits(), 0);
    drop(kept);
    assert_eq!(semaphore.available_permits(), 1);
    semaphore.add_permits(3).unwrap();
    assert_eq!(semaphore.available_permits(), 4);
    assert!(matches!(
        semaphore.add_permits(u32::MAX),
        Err(WaitError::TooManyPermits { n_before: 4, n_added: u32::MAX })
    ));
    assert_eq!(semaphore.available_permits(), 4);
}

#[test]
fn permits_that_are_added_wake_those_who_wait() {
    let heap = heap();
    let semaphore = Semaphore::new_in(&heap, 0).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| (0..N_TURNS).for_each(|_| semaphore.acquire().unwrap().forget()));
        for _ in 0..N_TURNS {
            semaphore.add_permits(1).unwrap();
        }
        waits.join().unwrap();
    });
    assert_eq!(semaphore.available_permits(), 0);
}

#[test]
fn nobody_passes_a_barrier_before_all_have_come() {
    let heap = heap();
    let (barrier, n_came) = (Barrier::new_in(&heap, N_THREADS).unwrap(), AtomicU32::new(0));
    let (n_leaders, places) = (AtomicU32::new(0), AtomicU32::new(0));
    together(|_| {
        for turn in 1..=N_TURNS {
            n_came.fetch_add(1, Ordering::SeqCst);
            let place = barrier.wait().unwrap();
            assert!(n_came.load(Ordering::SeqCst) >= turn * N_THREADS);
            assert_eq!(place.is_leader, place.index == N_THREADS - 1);
            n_leaders.fetch_add(u32::from(place.is_leader), Ordering::SeqCst);
            places.fetch_add(place.index, Ordering::SeqCst);
            // So that nobody is counted in the next turn before all have looked.
            barrier.wait().unwrap();
        }
    });
    assert_eq!(n_leaders.into_inner(), N_TURNS);
    assert_eq!(places.into_inner(), N_TURNS * (0..N_THREADS).sum::<u32>());
    assert_eq!((barrier.n_parties(), barrier.n_waiting(), barrier.broken_by()), (N_THREADS, 0, None));
    for n_parties in [0, 1] {
        assert!(Barrier::new_in(&heap, n_parties).unwrap().wait().unwrap().is_leader);
    }
}

/// What somebody is told who waits at a barrier while `meanwhile` happens.
fn told_at(barrier: &Barrier, meanwhile: impl FnOnce()) -> BrokenBy {
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| barrier.wait());
        while barrier.n_waiting() == 0 {
            std::thread::yield_now();
        }
        meanwhile();
        let Err(BarrierError::Broken { by }) = waits.join().unwrap() else { unreachable!("it is broken") };
        by
    })
}

#[test]
fn a_barrier_that_is_broken_lets_nobody_wait_until_it_is_reset() {
    let heap = heap();
    let barrier = Barrier::new_in(&heap, 3).unwrap();
    let breaks: [(&dyn Fn(), _); 2] = [
        (&|| barrier.abort().unwrap(), BrokenBy::Abort),
        (&|| drop(barrier.wait_timeout(SHORT).unwrap_err()), BrokenBy::TimeOut),
    ];
    for (meanwhile, by) in breaks {
        assert_eq!(told_at(&barrier, meanwhile), by);
        assert_eq!(barrier.broken_by(), Some(by));
        let later = barrier.wait();
        assert!(matches!(later, Err(BarrierError::Broken { by: told }) if told == by), "{later:?}");
        barrier.reset().unwrap();
        assert_eq!((barrier.n_waiting(), barrier.broken_by()), (0, None));
    }
    assert_eq!(told_at(&barrier, || barrier.reset().unwrap()), BrokenBy::Reset);
    assert_eq!(told_at(&barrier, || barrier.reset_to(1).unwrap()), BrokenBy::Reset);
    assert!(barrier.wait().unwrap().is_leader);
    barrier.reset_to(3).unwrap();
    assert_eq!(barrier.n_parties(), 3);
    together(|number| {
        if number < 3 {
            barrier.wait().unwrap();
        }
    });
}

#[test]
fn a_leader_that_resets_a_barrier_takes_nothing_back() {
    let heap = heap();
    let barrier = Barrier::new_in(&heap, N_THREADS).unwrap();
    let came = Barrier::new_in(&heap, N_THREADS).unwrap();
    together(|_| {
        for _ in 0..N_TURNS {
            // All have come, whatever the leader does before the others look.
            if barrier.wait_timeout(LONG).unwrap().is_leader {
                barrier.reset().unwrap();
            }
            came.wait_timeout(LONG).unwrap();
        }
    });
}

#[test]
fn a_condition_gives_the_lock_to_others_while_it_waits() {
    let heap = heap();
    let (lock, changed) = (Lock::new_in(&heap).unwrap(), Condition::new_in(&heap).unwrap());
    let turn = RawValue::new_in(&heap, 0_u32).unwrap();
    together(|number| {
        for round in 0..N_TURNS {
            let mut guard = lock.lock().unwrap();
            changed.wait_while(&mut guard, || turn.get() != round * N_THREADS + number).unwrap();
            add_one(&turn);
            changed.notify_all();
        }
    });
    assert_eq!(turn.get(), N_THREADS * N_TURNS);
    let mut guard = lock.lock().unwrap();
    assert!(matches!(changed.wait_timeout(&mut guard, SHORT), Err(WaitError::TimedOut)));
    assert!(matches!(lock.try_lock(), Err(LockError::Locked)), "the guard has it again");
    let waited = changed.wait_timeout_while(&mut guard, SHORT, || true);
    assert!(matches!(waited, Err(WaitError::TimedOut)));
    changed.wait_timeout_while(&mut guard, SHORT, || false).unwrap();
}

#[test]
fn who_waits_at_a_condition_is_told_of_a_panic_of_another_owner() {
    let heap = heap();
    let (lock, changed) = (Lock::new_in(&heap).unwrap(), Condition::new_in(&heap).unwrap());
    std::thread::scope(|scope| {
        let mut guard = lock.lock().unwrap();
        let panics = scope.spawn(|| {
            let _guard = lock.lock().unwrap();
            changed.notify_one();
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        let waited = changed.wait(&mut guard);
        assert!(matches!(waited, Err(WaitError::Poisoned { last_owner: LastOwner::Panicked })), "{waited:?}");
        panics.join().unwrap_err();
        let again = changed.wait_timeout(&mut guard, SHORT);
        assert!(matches!(again, Err(WaitError::TimedOut)), "it was told: {again:?}");
        drop(guard);
        let mut guard = lock.lock().unwrap_err().into_guard().unwrap();
        guard.clear_poison();
        assert!(matches!(changed.wait_timeout(&mut guard, SHORT), Err(WaitError::TimedOut)));
        drop(guard);
        drop(lock.lock().unwrap());
    });
}

#[test]
fn readers_share_a_lock_and_a_writer_has_it_alone() {
    let heap = heap();
    let (lock, count) = (RwLock::new_in(&heap).unwrap(), RawValue::new_in(&heap, 0).unwrap());
    together(|number| {
        for _ in 0..N_TURNS {
            if number == 0 {
                let _guard = lock.read().unwrap();
                let before = count.get();
                std::thread::yield_now();
                assert_eq!(count.get(), before, "somebody writes");
            } else {
                let _guard = lock.write().unwrap();
                add_one(&count);
            }
        }
    });
    assert_eq!(count.get(), (N_THREADS - 1) * N_TURNS);
    let readers = [lock.read().unwrap(), lock.try_read().unwrap()];
    assert!(matches!(lock.try_write(), Err(LockError::Locked)));
    assert!(matches!(lock.write_timeout(SHORT), Err(LockError::Locked)));
    drop(lock.read_timeout(SHORT).unwrap());
    drop(readers);
    let writer = lock.write().unwrap();
    assert!(matches!(lock.try_read(), Err(LockError::Locked)));
    assert!(matches!(lock.read_timeout(SHORT), Err(LockError::Locked)));
    assert!(matches!(lock.try_write(), Err(LockError::Locked)));
    drop(writer);
    drop(lock.try_read().unwrap());
}

#[test]
fn after_a_writer_that_panicked_all_are_told_until_a_writer_has_made_it_good() {
    let heap = heap();
    let lock = RwLock::new_in(&heap).unwrap();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _guard = lock.write();
        std::panic::resume_unwind(Box::new("on purpose"));
    }))
    .unwrap_err();
    let is_poisoned = |last_owner| last_owner == LastOwner::Panicked;
    for _ in 0..2 {
        assert!(
            matches!(lock.read(), Err(LockError::Poisoned { last_owner, .. }) if is_poisoned(last_owner))
        );
    }
    let reader = lock.read().unwrap_err().into_guard().unwrap();
    assert!(reader.is_poisoned());
    assert!(matches!(lock.write_timeout(SHORT), Err(LockError::Locked)), "a writer that did not get it");
    drop(reader);
    let writer = lock.write();
    assert!(matches!(writer, Err(LockError::Poisoned { last_owner, .. }) if is_poisoned(last_owner)));
    drop(writer);
    assert!(lock.read().is_err() && lock.write().is_err(), "nothing was made good");
    let mut writer = lock.write().unwrap_err().into_guard().unwrap();
    assert!(writer.is_poisoned());
    writer.clear_poison();
    assert!(!writer.is_poisoned());
    drop(writer);
    assert!(!lock.read().unwrap().is_poisoned());
    drop((lock.read().unwrap(), lock.read().unwrap()));
    drop(lock.write().unwrap());
}

#[test]
fn what_arrives_is_the_same_and_of_the_kind_that_was_sent() {
    let heap = heap();
    let lock = Lock::new_in(&heap).unwrap();
    let event = Event::new_in(&heap).unwrap();
    let semaphore = Semaphore::new_in(&heap, 3).unwrap();
    let barrier = Barrier::new_in(&heap, 2).unwrap();
    let condition = Condition::new_in(&heap).unwrap();
    let rw_lock = RwLock::new_in(&heap).unwrap();
    let all = (lock, event, semaphore, barrier, condition, rw_lock);
    let came: (Lock, Event, Semaphore, Barrier, Condition, RwLock) = sent(&heap, &all).unwrap();
    assert!(came.0.ptr_eq(&all.0) && came.1.ptr_eq(&all.1) && came.2.ptr_eq(&all.2));
    assert!(came.3.ptr_eq(&all.3) && came.4.ptr_eq(&all.4) && came.5.ptr_eq(&all.5));
    assert!(!came.0.ptr_eq(&Lock::new_in(&heap).unwrap()));
    let guard = all.0.lock().unwrap();
    assert!(matches!(came.0.try_lock(), Err(LockError::Locked)));
    drop(guard);
    came.1.set();
    assert!(all.1.is_set());
    let _permit = came.2.acquire().unwrap();
    assert_eq!(all.2.available_permits(), 2);

    let refused = sent::<_, Event>(&heap, &all.0).map(drop).unwrap_err();
    assert!(refused.to_string().contains("holds something else to wait for"), "{refused}");
    let refused = sent::<_, Lock>(&heap, &RawPretender(RawValue::new_in(&heap, 0).unwrap())).map(drop);
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("shared memory arrived where a lock or the like is wanted"), "{refused}");
    let outside = rmp_serde::to_vec(&all.0).unwrap_err();
    assert!(outside.to_string().contains("only by sending it"), "{outside}");
    assert!(matches!(sent::<_, Lock>(&heap, &7_u32), Err(DecodeError::Deserialize(_))));
    let nowhere = tensorferry_reduce::HandleIndex::new(7);
    assert!(matches!(sent::<_, Lock>(&heap, &nowhere), Err(DecodeError::Transit(_))));
}

/// The memory of a value, in the form of a lock.
struct RawPretender(RawValue<u32>);

impl serde::Serialize for RawPretender {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Gives the block as the first handle of the message.
        rmp_serde::to_vec(&self.0).map_err(serde::ser::Error::custom)?;
        tensorferry_reduce::HandleIndex::new(0).serialize(serializer)
    }
}

#[test]
fn a_thread_takes_its_own_rlock_again_and_others_wait() {
    let heap = heap();
    let (lock, count) = (RLock::new_in(&heap).unwrap(), RawValue::new_in(&heap, 0).unwrap());
    together(|number| {
        for turn in 0..N_TURNS {
            let outer = lock.lock().unwrap();
            let inner = lock.clone().try_lock().unwrap();
            add_one(&count);
            // In either order.
            if (turn + number).is_multiple_of(2) {
                drop(outer);
                add_one(&count);
                drop(inner);
            } else {
                drop(inner);
                add_one(&count);
            }
        }
    });
    assert_eq!(count.get(), 2 * N_THREADS * N_TURNS);
    let guard = lock.lock().unwrap();
    let other = RLock::new_in(&heap).unwrap();
    let _other = other.lock().unwrap();
    std::thread::scope(|scope| {
        let refused =
            scope.spawn(|| lock.try_lock().map(drop).map_err(LockError::without_guard)).join().unwrap();
        assert!(matches!(refused, Err(LockError::Locked)));
        assert!(scope.spawn(|| lock.lock_timeout(SHORT).is_err()).join().unwrap());
    });
    assert!(!guard.is_poisoned() && lock.ptr_eq(&lock.clone()) && !lock.ptr_eq(&other));
    assert_eq!(format!("{guard:?}"), "RLockGuard { guards: 1, .. }");
}

#[test]
fn a_panic_under_an_inner_guard_is_told_to_the_next_owner() {
    let heap = heap();
    let lock = RLock::new_in(&heap).unwrap();
    let outer = lock.lock().unwrap();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _inner = lock.lock().unwrap();
        std::panic::resume_unwind(Box::new("on purpose"));
    }));
    panicked.unwrap_err();
    assert!(outer.is_poisoned());
    drop(lock.lock().unwrap());
    drop(outer);
    let Err(LockError::Poisoned { mut guard, last_owner: LastOwner::Panicked }) = lock.lock() else {
        panic!("nobody was told");
    };
    drop(lock.lock().unwrap());
    guard.clear_poison();
    drop(guard);
    drop(lock.lock().unwrap());
}

#[test]
fn a_thread_that_ends_takes_its_own_rlock_again() {
    struct TakesAgain {
        lock: RLock,
        _guard: RLockGuard,
        outcome: Arc<AtomicU32>,
    }
    impl Drop for TakesAgain {
        fn drop(&mut self) {
            let again = self.lock.lock_timeout(SHORT).is_ok();
            self.outcome.store(if again { 2 } else { 1 }, Ordering::SeqCst);
        }
    }
    thread_local! {
        // Touched first, so it is dropped last.
        static LATE: std::cell::RefCell<Option<TakesAgain>> = const { std::cell::RefCell::new(None) };
    }
    let lock = RLock::new_in(&heap()).unwrap();
    let outcome = Arc::new(AtomicU32::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            LATE.with_borrow_mut(|late| {
                let (lock, _guard) = (lock.clone(), lock.lock().unwrap());
                *late = Some(TakesAgain { lock, _guard, outcome: Arc::clone(&outcome) });
            });
        });
    });
    // The thread's last destructors may run after the scope has ended.
    drop(lock.lock().unwrap());
    assert_eq!(outcome.load(Ordering::SeqCst), 2);
}
