//! Joining a queue: everything that was put is done.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tensorferry_queue::{JoinError, PutErrorKind, Queue, Sender, channel_in, channel_with_leases_in};
use tensorferry_storage::FrozenBlock;

use crate::heap;

fn n_left(joined: Result<(), JoinError>) -> usize {
    match joined {
        Err(JoinError::TimedOut { n_left }) => n_left,
        joined => panic!("{joined:?}"),
    }
}

#[test]
fn what_was_put_is_done_once_it_was_got_or_acknowledged() {
    let queue = Queue::with_leases_in(&heap(), 4, 2).unwrap();
    queue.join().unwrap();
    // Several laps, so that positions and slots differ.
    for lap in 0..5 {
        queue.put(lap).unwrap();
        queue.put(lap + 1).unwrap();
        assert_eq!(n_left(queue.join_timeout(Duration::ZERO)), 2);
        let lease = queue.get_leased().unwrap();
        assert_eq!(n_left(queue.join_timeout(Duration::ZERO)), 2, "a lease is not done");
        assert_eq!(queue.get().unwrap(), lap + 1);
        assert_eq!(n_left(queue.join_timeout(Duration::from_millis(2))), 1);
        lease.give_back();
        assert_eq!(n_left(queue.join_timeout(Duration::ZERO)), 1, "what came back is not done");
        queue.get_leased().unwrap().ack().unwrap();
        queue.join().unwrap();
    }
    queue.put(0).unwrap();
    queue.close();
    assert_eq!(n_left(queue.join_timeout(Duration::ZERO)), 1, "closing does nobody's work");
    assert_eq!(queue.get().unwrap(), 0);
    queue.join().unwrap();
}

#[test]
fn a_join_waits_for_all_workers_and_does_not_wait_for_what_is_put_later() {
    const N: u32 = 3_000;
    let (jobs, worker) = channel_with_leases_in::<bool>(&heap(), 16, 4).unwrap();
    // Those of who joins, and those of one that goes on meanwhile.
    let n_done = [AtomicU32::new(0), AtomicU32::new(0)];
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let (worker, n_done) = (worker.clone(), &n_done);
            scope.spawn(move || {
                while let Ok(is_joined) = worker.get_leased() {
                    std::thread::yield_now();
                    n_done[usize::from(*is_joined)].fetch_add(1, Ordering::SeqCst);
                    is_joined.ack().unwrap();
                }
            });
        }
        let more = jobs.clone();
        let more = scope.spawn(move || (0..N).all(|_| more.put(false).is_ok()));
        let mut n_put = 0;
        let mut is_right = true;
        while n_put < N && is_right {
            let batch = (n_put % 40 + 1).min(N - n_put);
            is_right &= (0..batch).all(|_| jobs.put(true).is_ok());
            n_put += batch;
            is_right &= jobs.join().is_ok() && n_done[1].load(Ordering::SeqCst) == n_put;
        }
        let all_put = more.join().unwrap();
        // Before anything fails, or the workers would wait for ever.
        jobs.close();
        assert!(is_right && all_put, "after {n_put}: {n_done:?}");
    });
    assert_eq!(n_done.map(AtomicU32::into_inner), [N, N]);
}

#[test]
fn a_join_that_looks_around_waits_for_what_was_put_before_it() {
    let (jobs, worker) = channel_with_leases_in(&heap(), 4, 1).unwrap();
    let pause = Duration::from_millis(1);
    jobs.put(1).unwrap();
    let mut n_looks = 0;
    let joined = jobs.join_while(pause, || {
        n_looks += 1;
        n_looks < 5
    });
    assert_eq!((n_left(joined), n_looks), (1, 5));
    // What is put while it looks, one after the other, is not waited for.
    let mut lease = None;
    let mut n_looks = 0;
    jobs.join_while(pause, || {
        n_looks += 1;
        match n_looks {
            1 => jobs.put(2).unwrap(),
            2 => lease = Some(worker.get_leased().unwrap()),
            3 => assert_eq!(lease.take().unwrap().ack().unwrap(), 1),
            _ => panic!("it waits for what was put later"),
        }
        true
    })
    .unwrap();
    assert_eq!(n_left(jobs.join_timeout(Duration::ZERO)), 1);
    drop(worker);
    let joined = jobs.join_while(pause, || panic!("nobody is left to wait for"));
    assert!(matches!(joined, Err(JoinError::Disconnected)));
}

#[test]
fn the_last_worker_may_leave_as_soon_as_all_is_done() {
    for turn in 0..500 {
        // To look through many leases takes a moment, in which the worker can leave.
        let (jobs, worker) = channel_with_leases_in(&heap(), 1, 4096).unwrap();
        jobs.put(turn).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                assert_eq!(worker.get().unwrap(), turn);
                drop(worker);
            });
            jobs.join().unwrap();
        });
        jobs.join().unwrap();
    }
}

#[test]
fn what_nobody_can_receive_any_more_was_not_done() {
    let heap = heap();
    let (sender, receiver) = channel_in(&heap, 4).unwrap();
    sender.put(1).unwrap();
    receiver.get().unwrap();
    drop(receiver);
    sender.join().unwrap();
    assert!(matches!(sender.put(2).unwrap_err().kind, PutErrorKind::Disconnected));
    sender.join().unwrap();

    // The message is discarded when its sender looks, which must not pass for done.
    let (sender, receiver) = channel_in(&heap, 4).unwrap();
    sender.put(FrozenBlockItem(heap.allocate(8).unwrap().freeze())).unwrap();
    drop(receiver);
    for _ in 0..2 {
        assert!(matches!(sender.join(), Err(JoinError::Disconnected)));
        heap.collect();
    }
    drop(sender);

    let (sender, receiver) = channel_with_leases_in(&heap, 4, 1).unwrap();
    let sender: Sender<u8> = sender;
    sender.put(1).unwrap();
    let lease = receiver.get_leased().unwrap();
    drop(receiver);
    assert_eq!(n_left(sender.join_timeout(Duration::ZERO)), 1, "the lease is an end too");
    drop(lease);
    let error = sender.join().unwrap_err();
    assert!(matches!(error, JoinError::Disconnected) && error.to_string().contains("left"), "{error}");
}

/// Something with a handle, which its sender pins.
struct FrozenBlockItem(FrozenBlock);

impl serde::Serialize for FrozenBlockItem {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        tensorferry_reduce::give_frozen(&self.0).map_err(serde::ser::Error::custom)?.serialize(serializer)
    }
}

impl<'de> serde::Deserialize<'de> for FrozenBlockItem {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let index = tensorferry_reduce::HandleIndex::deserialize(deserializer)?;
        Ok(Self(tensorferry_reduce::take_frozen(index).map_err(serde::de::Error::custom)?))
    }
}
