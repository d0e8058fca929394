//! Three ways to have nobody on the other side: closed, gone, dead. Each is told apart, in each direction.

use std::sync::mpsc;

use nix::unistd::{Pid, gettid};
use tensorferry::Queue;
use tensorferry::queue::{GetError, PutErrorKind};
use tensorferry_kit::{DEADLINE, Item, until, with_family};

use crate::{channel, getter, member, putter};

#[test]
fn a_sender_that_leaves_disconnects_one_that_dies_is_reported() {
    with_family(|family| {
        let (to, from) = channel(family, 4);
        let leaver = putter(family, &to);
        drop(to);
        assert_eq!(leaver.ask("put 1 0 10"), "put");
        assert_eq!(leaver.ask("leave"), "left");
        assert_eq!(from.get().unwrap().sequence, 0);
        assert!(matches!(from.get(), Err(GetError::Disconnected)));
        leaver.finish();

        let (to, from) = channel(family, 4);
        let victim = putter(family, &to);
        drop(to);
        assert_eq!(victim.ask("put 2 0 10"), "put");
        victim.kill();
        let last = from.get().unwrap();
        last.check();
        assert!(matches!(from.get(), Err(end @ GetError::PeerDied) if end.is_final()));
        assert!(matches!(from.get_nowait(), Err(GetError::PeerDied)), "and nobody will ever put again");
    });
}

#[test]
fn a_receiver_that_waits_learns_that_the_last_sender_died() {
    with_family(|family| {
        let (to, from) = channel(family, 4);
        let victims = [putter(family, &to), putter(family, &to)];
        let waiting = getter(family, &from);
        drop((to, from));
        waiting.begin("get");
        waiting.wait_until_asleep();
        let [first, second] = victims;
        first.kill();
        assert_eq!(second.ask("put 1 0"), "put", "one sender is left");
        waiting.expect("got 1/0");
        waiting.begin("get");
        waiting.wait_until_asleep();
        second.kill();
        waiting.expect("PeerDied");
        waiting.finish();
    });
}

#[test]
fn a_receiver_that_waits_learns_that_the_last_sender_left() {
    with_family(|family| {
        let (to, from) = channel(family, 4);
        let leaver = putter(family, &to);
        let waiting = getter(family, &from);
        drop((to, from));
        waiting.begin("get");
        waiting.wait_until_asleep();
        assert_eq!(leaver.ask("leave"), "left");
        waiting.expect("Disconnected");
        leaver.finish();
        waiting.finish();
    });
}

#[test]
fn a_sender_that_waits_learns_that_the_last_receiver_is_gone_or_dead() {
    with_family(|family| {
        for (dies, expected) in [(false, "Disconnected"), (true, "PeerDied")] {
            let (to, from) = channel(family, 1);
            let receiver = getter(family, &from);
            let waiting = putter(family, &to);
            drop((to, from));
            assert_eq!(waiting.ask("put 1 0 10"), "put");
            waiting.begin("put 1 1 10");
            waiting.wait_until_asleep();
            if dies {
                receiver.kill();
            } else {
                assert_eq!(receiver.ask("leave"), "left");
                receiver.finish();
            }
            waiting.expect(expected);
            waiting.finish();
        }
    });
}

/// Waits until a thread of this process sleeps in the kernel.
fn wait_until_thread_sleeps(thread: Pid) {
    let path = format!("/proc/self/task/{thread}/stat");
    until("the thread sleeps", || std::fs::read_to_string(&path).unwrap().contains(") S "));
}

#[test]
fn of_a_queue_that_can_do_both_every_thread_that_waits_is_told() {
    with_family(|family| {
        for fills in [false, true] {
            let heap = family.heap();
            let queue = Queue::new_in(heap, 1).unwrap();
            let other = member(family, &queue);
            if fills {
                queue.put(Item::new(family.heap(), 1, 0, &[])).unwrap();
            }
            std::thread::scope(|s| {
                let (begun, threads) = mpsc::channel();
                let waiting: Vec<_> = (0..3)
                    .map(|_| {
                        let (begun, queue) = (begun.clone(), queue.clone());
                        s.spawn(move || {
                            begun.send(gettid()).unwrap();
                            if fills {
                                queue
                                    .put_timeout(Item::new(heap, 1, 1, &[]), DEADLINE)
                                    .unwrap_err()
                                    .to_string()
                            } else {
                                queue.get_timeout(DEADLINE).unwrap_err().to_string()
                            }
                        })
                    })
                    .collect();
                threads.iter().take(3).for_each(wait_until_thread_sleeps);
                other.kill();
                for thread in waiting {
                    let told = thread.join().unwrap();
                    assert!(told.contains("died"), "{told}");
                }
            });
        }
    });
}

#[test]
fn with_a_queue_that_can_do_both_a_death_is_reported_once_and_only_to_those_left_alone() {
    with_family(|family| {
        let queue = Queue::new_in(family.heap(), 1).unwrap();
        let [first, second] = [member(family, &queue), member(family, &queue)];
        assert_eq!(first.ask("put 1 0"), "put");
        first.kill();
        family.wait_blocks(1);
        assert_eq!(queue.get().unwrap().sequence, 0);
        assert!(matches!(queue.get_nowait(), Err(GetError::Empty)), "another member is left");
        second.kill();
        assert!(matches!(queue.get(), Err(GetError::PeerDied)));
        assert!(
            matches!(queue.get_nowait(), Err(GetError::Empty)),
            "it was told; this process may put itself"
        );
        queue.put(Item::new(family.heap(), 2, 0, &[])).unwrap();
        let third = member(family, &queue);
        third.kill();
        let refused = queue.put(Item::new(family.heap(), 2, 1, &[7])).unwrap_err();
        assert!(refused.is_final() && !refused.is_out_of_memory());
        assert!(matches!(refused.kind, PutErrorKind::PeerDied), "the queue is full and nobody else takes");
        refused.into_value().check();
        assert_eq!(queue.get().unwrap().sequence, 0);
    });
}

#[test]
fn closed_wins_over_dead_and_gone() {
    with_family(|family| {
        let (to, from) = channel(family, 2);
        let victim = putter(family, &to);
        drop(to);
        assert_eq!(victim.ask("put 1 0"), "put");
        assert_eq!(victim.ask("close"), "closed");
        assert_eq!(victim.ask("try_put 1 1"), "Closed");
        victim.kill();
        family.wait_alone();
        assert_eq!(from.get().unwrap().sequence, 0);
        assert!(matches!(from.get(), Err(GetError::Closed)));
    });
}
