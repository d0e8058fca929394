//! Tasks that wait for other processes.

use std::os::fd::AsFd as _;
use std::time::Duration;

use tensorferry::queue::{GetError, PutErrorKind};
use tensorferry_kit::{DEADLINE, Item, with_family};
use tensorferry_os::event::poll_readable;
use tokio::time::timeout;

use crate::{channel, getter, putter};

fn run<R>(work: impl Future<Output = R>) -> R {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { timeout(DEADLINE, work).await.unwrap() })
}

#[test]
fn a_task_gets_what_other_processes_put_and_is_told_of_their_death() {
    with_family(|family| {
        let (to, from) = channel(family, 2);
        let children = [putter(family, &to), putter(family, &to)];
        drop(to);
        run(async {
            for turn in 0..100 {
                let child = &children[turn % 2];
                child.begin(&format!("put 1 {turn}"));
                assert_eq!(from.get_async().await.unwrap().sequence, turn as u64);
                child.expect("put");
            }
            // Another task goes on meanwhile.
            let waits = async { from.get_async().await };
            let (end, ()) = tokio::join!(waits, async {
                tokio::task::yield_now().await;
                let [first, last] = children;
                first.finish();
                last.kill();
            });
            assert!(matches!(end, Err(GetError::PeerDied)));
        });
    });
}

#[test]
fn a_task_waits_until_another_process_makes_room_or_dies() {
    with_family(|family| {
        let (to, from) = channel(family, 1);
        let child = getter(family, &from);
        drop(from);
        let item = |sequence| Item::new(family.heap(), 1, sequence, &[5]);
        run(async {
            to.put_async(item(0)).await.unwrap();
            let waits = async { to.put_async(item(1)).await.unwrap() };
            let ((), ()) = tokio::join!(waits, async {
                tokio::task::yield_now().await;
                assert_eq!(child.ask("get"), "got 1/0");
            });
            let waits = async { to.put_async(item(2)).await };
            let (refused, ()) = tokio::join!(waits, async {
                tokio::task::yield_now().await;
                child.kill();
            });
            let refused = refused.unwrap_err();
            assert!(matches!(refused.kind, PutErrorKind::PeerDied));
            refused.value.check();
            assert_eq!(refused.value.sequence, 2);
        });
    });
}

#[test]
fn a_descriptor_tells_what_another_process_does() {
    with_family(|family| {
        let (to, from) = channel(family, 2);
        let child = putter(family, &to);
        drop(to);
        let ready = from.ready_fd().unwrap();
        let is_readable = |wait| poll_readable(&[ready.as_fd()], Some(wait)).unwrap()[0];
        for turn in 0..100 {
            assert!(!is_readable(Duration::ZERO));
            child.begin(&format!("put 1 {turn}"));
            assert!(is_readable(DEADLINE));
            assert_eq!(from.get_nowait().unwrap().sequence, turn);
            child.expect("put");
            ready.rearm().unwrap();
        }
        child.kill();
        assert!(is_readable(DEADLINE));
        assert!(matches!(from.get_nowait(), Err(GetError::PeerDied)));
    });
}
