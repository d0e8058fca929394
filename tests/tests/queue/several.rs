//! Waiting for several queues at once.

use std::time::{Duration, Instant};

use tensorferry::queue::{GetError, Queue, Source, WaitAnyError, spsc_in, wait, wait_timeout};
use tensorferry::reduce::Parcel;
use tensorferry_kit::tasks::{Lessee, Produce};
use tensorferry_kit::{DEADLINE, Family, Item};

use crate::{channel, member, putter};

/// As [`tensorferry_kit::with_family`], where the kernel can wait for several words: since Linux 5.16.
fn with_family(body: impl FnOnce(&Family)) {
    if tensorferry_os::futex::can_wait_any() {
        tensorferry_kit::with_family(body);
    }
}

const SHORT: Duration = Duration::from_millis(2);

#[test]
fn a_message_in_any_of_them_wakes() {
    with_family(|family| {
        let queues = [(); 3].map(|()| Queue::<Item>::new_in(family.heap(), 2).unwrap());
        let putters = queues.each_ref().map(|queue| member(family, queue));
        let sources: [&dyn Source; 3] = [&queues[0], &queues[1], &queues[2]];
        assert!(matches!(wait_timeout(&sources, SHORT), Err(WaitAnyError::TimedOut)));
        for queue in &queues {
            queue.set_busy_poll(Some(Duration::ZERO));
        }
        for turn in 0..60 {
            let at = turn % 3;
            putters[at].begin(&format!("put 1 {turn}"));
            assert_eq!(wait_timeout(&sources, DEADLINE).unwrap(), [at]);
            assert_eq!(queues[at].get_nowait().unwrap().sequence, turn as u64);
            putters[at].expect("put");
        }
        for (at, putter) in putters.iter().enumerate() {
            assert_eq!(putter.ask("put 1 7"), "put");
            assert_eq!(wait(&sources).unwrap(), (0..=at).collect::<Vec<_>>(), "all that have something");
        }
        assert!(wait(&[]).unwrap().is_empty());
        putters.into_iter().for_each(tensorferry_kit::Child::finish);
        for queue in &queues {
            assert_eq!(queue.get_nowait().unwrap().sequence, 7, "nothing was taken");
        }
    });
}

#[test]
fn the_end_of_any_of_them_wakes_and_is_told_by_get_alone() {
    with_family(|family| {
        let quiet = Queue::<u64>::new_in(family.heap(), 1).unwrap();
        let (to, from) = channel(family, 2);
        let victim = putter(family, &to);
        drop(to);
        let sources: [&dyn Source; 2] = [&quiet, &from];
        assert!(matches!(wait_timeout(&sources, SHORT), Err(WaitAnyError::TimedOut)));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wait(&sources).unwrap());
            victim.kill();
            assert_eq!(waits.join().unwrap(), [1]);
        });
        assert!(matches!(from.get_nowait(), Err(GetError::PeerDied)));

        // A process that has both ends is told once, by get and not by waiting.
        let both = Queue::<Item>::new_in(family.heap(), 2).unwrap();
        member(family, &both).kill();
        family.wait_alone();
        let sources: [&dyn Source; 2] = [&quiet, &both];
        for _ in 0..2 {
            assert_eq!(wait(&sources).unwrap(), [1]);
        }
        assert!(matches!(both.get_nowait(), Err(GetError::PeerDied)));
        assert!(matches!(wait_timeout(&sources, SHORT), Err(WaitAnyError::TimedOut)));

        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wait(&sources).unwrap());
            quiet.close();
            assert_eq!(waits.join().unwrap(), [0]);
        });
        assert!(matches!(quiet.get_nowait(), Err(GetError::Closed)));
    });
}

#[test]
fn a_lease_that_comes_back_and_an_end_that_was_moved_are_something_to_get() {
    with_family(|family| {
        let jobs = Queue::<u64>::with_leases_in(family.heap(), 2, 1).unwrap();
        jobs.put(3).unwrap();
        let lease = jobs.get_leased().unwrap();
        let sources: [&dyn Source; 1] = [&jobs];
        assert!(matches!(wait_timeout(&sources, SHORT), Err(WaitAnyError::TimedOut)));
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wait(&sources).unwrap());
            lease.give_back();
            assert_eq!(waits.join().unwrap(), [0]);
        });

        let (_sender, receiver) = spsc_in::<u64>(family.heap(), 1).unwrap();
        assert!(matches!(wait_timeout(&[&receiver], SHORT), Err(WaitAnyError::TimedOut)));
        let _parcel = Parcel::pack(family.heap(), &receiver).unwrap();
        assert_eq!(wait(&[&receiver]).unwrap(), [0]);
    });
}

#[test]
fn no_wake_up_is_lost_among_several_senders_and_receivers() {
    const N: u64 = 500;
    with_family(|family| {
        let channels = [(); 2].map(|()| channel(family, 2));
        let senders = channels.each_ref().map(|(to, _)| {
            family.start(Produce {
                to: to.clone(),
                sender: 1,
                n_items: N,
                lengths: vec![3],
                note_len_bytes: 0,
            })
        });
        let [(to_first, first), (to_second, second)] = channels;
        drop((to_first, to_second));
        let mut n_got = [0, 0];
        let start = Instant::now();
        let mut ended = [false, false];
        while !ended.iter().all(|ended| *ended) {
            assert!(start.elapsed() < DEADLINE, "{n_got:?}");
            let waited: Vec<(usize, _)> =
                [(0, &first), (1, &second)].into_iter().filter(|(at, _)| !ended[*at]).collect();
            let sources: Vec<&dyn Source> = waited.iter().map(|(_, from)| *from as &dyn Source).collect();
            for index in wait_timeout(&sources, DEADLINE).unwrap() {
                let (at, from) = waited[index];
                match from.get_nowait() {
                    Ok(item) => {
                        item.check();
                        n_got[at] += 1;
                    }
                    Err(GetError::Disconnected) => ended[at] = true,
                    Err(error) => assert!(error.is_empty(), "{error}"),
                }
            }
        }
        assert_eq!(n_got, [N, N]);
        senders.into_iter().for_each(tensorferry_kit::Child::finish);
    });
}

#[test]
fn where_values_are_leased_it_waits_for_a_lease_too() {
    with_family(|family| {
        let jobs = Queue::<Item>::with_leases_in(family.heap(), 4, 1).unwrap();
        let sources: [&dyn Source; 1] = [&jobs.leases()];
        assert!(matches!(wait_timeout(&sources, SHORT), Err(WaitAnyError::TimedOut)));
        let other = family.start(Lessee { queue: jobs.clone() });
        for sequence in 0..2 {
            jobs.put(Item::new(family.heap(), 1, sequence, &[])).unwrap();
        }
        assert_eq!(other.ask("lease"), "leased 1/0 1");
        assert_eq!(wait(&[&jobs]).unwrap(), [0], "it can be got");
        assert!(matches!(wait_timeout(&sources, SHORT), Err(WaitAnyError::TimedOut)), "but not leased");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| wait_timeout(&sources, DEADLINE).unwrap());
            assert_eq!(other.ask("ack"), "acked 1/0");
            assert_eq!(waits.join().unwrap(), [0]);
        });
        let lease = jobs.get_leased_nowait().unwrap();
        assert_eq!(wait(&sources).unwrap(), [0], "this process has all leases, which is an error");
        assert!(matches!(jobs.get_leased_nowait(), Err(GetError::AllLeased(1))));
        lease.give_back();
        assert_eq!(wait(&sources).unwrap(), [0], "it came back");
        assert_eq!(jobs.get_leased_nowait().unwrap().ack().unwrap().sequence, 1);
        let without = Queue::<Item>::new_in(family.heap(), 1).unwrap();
        assert_eq!(wait(&[&without.leases()]).unwrap(), [0], "it will never have one");
        other.kill();
        assert_eq!(wait_timeout(&sources, DEADLINE).unwrap(), [0]);
        assert!(matches!(jobs.get_leased_nowait(), Err(GetError::PeerDied)));
    });
}
