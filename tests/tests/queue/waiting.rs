//! Full, empty and closed queues, and who waits for them.

use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use tensorferry::Queue;
use tensorferry::queue::{GetError, PutErrorKind};
use tensorferry_kit::tasks::{Consume, Heard};
use tensorferry_kit::{Item, with_family};
use tensorferry_os::limits::others_run_beside;

use crate::{channel, getter, member, putter};

#[test]
fn a_full_queue_refuses_or_makes_wait_until_another_process_takes() {
    with_family(|family| {
        let queue = Queue::new_in(family.heap(), 2).unwrap();
        let child = member(family, &queue);
        assert_eq!(child.ask("try_put 1 0"), "put");
        assert_eq!(child.ask("try_put 1 1"), "put");
        assert_eq!(child.ask("try_put 1 2"), "Full");
        assert!(queue.is_full());
        assert_eq!((queue.len(), queue.capacity_items()), (2, 2));
        let start = Instant::now();
        let refused = queue.put_timeout(Item::new(family.heap(), 2, 0, &[3]), Duration::from_millis(20));
        assert!(refused.unwrap_err().is_full());
        assert!(start.elapsed() >= Duration::from_millis(20));
        child.begin("put 1 2 5");
        child.wait_until_asleep();
        assert_eq!(queue.get().unwrap().sequence, 0);
        child.expect("put");
        assert_eq!([queue.get().unwrap().sequence, queue.get().unwrap().sequence], [1, 2]);
        child.finish();
    });
}

#[test]
fn an_empty_queue_makes_wait_until_another_process_puts() {
    with_family(|family| {
        let queue = Queue::new_in(family.heap(), 2).unwrap();
        let child = member(family, &queue);
        assert_eq!(child.ask("try_get"), "Empty");
        let start = Instant::now();
        assert!(matches!(queue.get_timeout(Duration::from_millis(20)), Err(GetError::Empty)));
        assert!(start.elapsed() >= Duration::from_millis(20));
        child.begin("get");
        child.wait_until_asleep();
        queue.put(Item::new(family.heap(), 1, 0, &[8])).unwrap();
        child.expect("got 1/0");
        child.finish();
    });
}

#[test]
fn closing_wakes_everybody_who_waits_to_get() {
    with_family(|family| {
        let (to, from) = channel(family, 2);
        let children = [getter(family, &from), getter(family, &from), getter(family, &from)];
        for child in &children {
            child.begin("get");
            child.wait_until_asleep();
        }
        to.close();
        children.iter().for_each(|child| child.expect("Closed"));
        children.into_iter().for_each(tensorferry_kit::Child::finish);
        assert!(matches!(from.get(), Err(GetError::Closed)));
    });
}

#[test]
fn closing_wakes_everybody_who_waits_to_put_and_gives_the_value_back() {
    with_family(|family| {
        let (to, from) = channel(family, 1);
        to.put(Item::new(family.heap(), 1, 0, &[1])).unwrap();
        let children = [putter(family, &to), putter(family, &to)];
        for child in &children {
            child.begin("put 2 0 100");
            child.wait_until_asleep();
        }
        from.close();
        children.iter().for_each(|child| child.expect("Closed"));
        assert!(matches!(
            to.put(Item::new(family.heap(), 1, 1, &[])).unwrap_err().kind,
            PutErrorKind::Closed
        ));
        assert_eq!(from.get().unwrap().sequence, 0, "what was in the queue can still be got");
        assert!(matches!(from.get(), Err(GetError::Closed)));
        children.into_iter().for_each(tensorferry_kit::Child::finish);
    });
}

#[test]
fn an_iteration_ends_when_the_queue_is_closed_and_drained() {
    with_family(|family| {
        let (to, from) = channel(family, 3);
        let children =
            [family.start(Consume { from: from.clone() }), family.start(Consume { from: from.clone() })];
        for sequence in 0..50 {
            to.put(Item::new(family.heap(), 1, sequence, &[4])).unwrap();
        }
        to.close();
        let mut came = Vec::new();
        for child in children {
            let heard: Heard = serde_json::from_str(&child.hear()).unwrap();
            assert_eq!(heard.end, "Closed");
            came.extend(heard.items.into_iter().map(|(_, sequence)| sequence));
            child.finish();
        }
        came.sort_unstable();
        assert_eq!(came, (0..50).collect::<Vec<_>>());
    });
}

/// How often this thread has gone to sleep.
fn n_sleeps() -> i64 {
    getrusage(UsageWho::RUSAGE_THREAD).unwrap().voluntary_context_switches()
}

#[test]
fn who_polls_does_not_sleep_and_learns_all_that_others_learn() {
    with_family(|family| {
        let (to, from) = channel(family, 1);
        let (child, sentinel) = (putter(family, &to), putter(family, &to));
        drop(to);
        from.set_busy_poll(Some(Duration::MAX));
        let (start, n_before) = (Instant::now(), n_sleeps());
        assert!(matches!(from.get_timeout(Duration::from_millis(20)), Err(GetError::Empty)));
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert!(n_sleeps() == n_before || !others_run_beside());
        child.begin("put 1 0 1");
        assert_eq!(from.get().unwrap().sequence, 0);
        child.expect("put");
        child.finish();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| from.get().map(|item| item.sequence));
            sentinel.kill();
            assert!(matches!(waiting.join().unwrap(), Err(GetError::PeerDied)));
        });
    });
}

#[test]
fn who_polls_with_room_for_nothing_puts_when_there_is_room() {
    with_family(|family| {
        let (to, from) = channel(family, 1);
        let child = getter(family, &from);
        drop(from);
        to.set_busy_poll(Some(Duration::MAX));
        to.put(Item::new(family.heap(), 1, 0, &[1])).unwrap();
        let refused = to.put_timeout(Item::new(family.heap(), 1, 1, &[1]), Duration::from_millis(20));
        assert!(refused.unwrap_err().is_full());
        child.begin("get");
        to.put(Item::new(family.heap(), 1, 1, &[1])).unwrap();
        child.expect("got 1/0");
        to.set_busy_poll(Some(Duration::ZERO));
        child.begin("get");
        to.put(Item::new(family.heap(), 1, 2, &[1])).unwrap();
        child.expect("got 1/1");
        assert_eq!(child.ask("get"), "got 1/2");
        child.finish();
    });
}
