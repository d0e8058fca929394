//! What the dead held is memory again: blocks, populated pages, extents.

use std::time::Instant;

use tensorferry::queue::{Queue, channel_in};
use tensorferry::tensor::Tensor;
use tensorferry_kit::tasks::{Nest, Puppet, SendTensor};
use tensorferry_kit::{Item, until, with_family};

/// 4 MiB.
const N_ELEMENTS: usize = 512 << 10;
const N_CHILDREN: u64 = 3;
const N_EACH: usize = 10;

/// Children that leave half of their memory in a queue and take the other half to the grave.
#[test]
fn what_killed_processes_sent_and_held_comes_back_to_the_system() {
    with_family(|family| {
        let queue: Queue<Item> = Queue::new_in(family.heap(), 64).unwrap();
        for round in 0..3 {
            let children: Vec<_> = (0..N_CHILDREN)
                .map(|_| family.start(Puppet { queue: Some(queue.clone()), ..Puppet::default() }))
                .collect();
            for sequence in 0..N_EACH {
                for (sender, child) in children.iter().enumerate() {
                    assert_eq!(child.ask(&format!("put {sender} {sequence} {N_ELEMENTS} 3")), "put");
                    assert_eq!(child.ask(&format!("make {sender} {sequence} {N_ELEMENTS} 3")), "made");
                }
            }
            let n_bytes = family.heap().stats().populated_bytes;
            assert!(n_bytes >= N_CHILDREN * N_EACH as u64 * 2 * (4 << 20), "{n_bytes}");
            // Every second time the messages are taken before anybody is swept, then after.
            let drain = || {
                let items: Vec<Item> = std::iter::from_fn(|| queue.get_nowait().ok()).collect();
                items.iter().for_each(Item::check);
                assert_eq!(items.len(), children.len() * N_EACH);
            };
            children.iter().for_each(|child| child.kill_unreaped());
            if round % 2 == 0 {
                family.wait_alone();
            }
            drain();
            family.wait_alone();
            let start = Instant::now();
            until("all memory but the queue's is the system's again", || {
                let _ = family.heap().trim();
                family.heap().stats().populated_bytes < 2 << 20
            });
            println!("round {round}: {:?}", start.elapsed());
            family.wait_blocks(1);
        }
    });
}

/// Each queue is larger than an extent, so that they do not come back together.
#[test]
fn a_queue_in_a_queue_in_a_queue_of_a_dead_process_comes_back() {
    with_family(|family| {
        let child = family.start(Nest { depth: 5, maxsize: 20_000 });
        child.expect("nested");
        family.wait_blocks(6);
        child.kill();
        family.wait_alone();
        family.wait_blocks(0);
    });
}

/// What comes from the dead is marked until it is known that no other message of theirs names it.
#[test]
fn a_tensor_of_a_dead_process_becomes_the_receivers_own() {
    with_family(|family| {
        let (to, from) = channel_in(family.heap(), 1).unwrap();
        let child = family.start(SendTensor { to });
        child.expect("sent");
        child.kill();
        family.wait_alone();
        let mut tensor: Option<Tensor<u64>> = Some(from.get().unwrap());
        until("nobody else is suspected to have it", || match tensor.take().unwrap().try_into_mut() {
            Ok(mut own) => own.as_mut_slice() == [7; 300],
            Err(error) => {
                tensor = Some(error.into_tensor());
                false
            }
        });
    });
}
