//! Processes that are killed or stopped: nobody hangs, what was put is delivered, nothing is left.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

mod deaths;
mod ends;
mod leases;
mod many;
mod memory;
mod namespaces;
mod random;
mod root;
mod steps;
mod stopped;
mod sweeps;

use tensorferry::Queue;
use tensorferry::queue::PutErrorKind;
use tensorferry_tests::tasks::Puppet;
use tensorferry_tests::{Child, Family, Item};

/// A child that puts to and gets from `queue`.
#[track_caller]
fn member(family: &Family, queue: &Queue<Item>) -> Child {
    family.start(Puppet { queue: Some(queue.clone()), ..Puppet::default() })
}

fn queue(family: &Family, maxsize: usize) -> Queue<Item> {
    Queue::new_in(family.heap(), maxsize).unwrap()
}

/// Checks that every slot of an empty queue can be used.
#[track_caller]
fn assert_all_slots_work(family: &Family, queue: &Queue<Item>) {
    for lap in 0..2 {
        for sequence in 0..queue.maxsize() as u64 {
            queue.put_nowait(Item::new(family.heap(), lap, sequence, &[2])).unwrap();
        }
        let one_more = || queue.put_nowait(Item::new(family.heap(), lap, 99, &[])).unwrap_err().kind;
        // That the others are gone is told once.
        let told = one_more();
        assert!(
            matches!(told, PutErrorKind::Full | PutErrorKind::PeerDied | PutErrorKind::Disconnected),
            "{told}"
        );
        assert!(matches!(one_more(), PutErrorKind::Full));
        for sequence in 0..queue.maxsize() as u64 {
            let item = queue.get_nowait().unwrap();
            item.check();
            assert_eq!((item.sender, item.sequence), (lap, sequence));
        }
        assert!(queue.empty());
    }
}
