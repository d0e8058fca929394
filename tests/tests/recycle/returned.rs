//! Three senders and a queue on which the receiver gives buffers back.

use std::collections::BTreeSet;

use tensorferry::Queue;
use tensorferry::tensor::TensorMut;
use tensorferry_kit::tasks::{Filled, Refiller, Spent};
use tensorferry_kit::{Child, with_family};

use crate::spent;

const N_SENDERS: u64 = 3;
const N_BUFFERS: usize = 6;
/// 256 KiB each: large enough to stand alone.
const N_ELEMENTS: usize = 32 << 10;
const N_ROUNDS: usize = 100;

#[test]
fn three_senders_reuse_the_buffers_that_come_back() {
    with_family(|family| {
        let filled: Queue<Filled> = Queue::new_in(family.heap(), N_BUFFERS).unwrap();
        let returned: Queue<TensorMut<u64>> = Queue::new_in(family.heap(), N_BUFFERS).unwrap();
        let senders: Vec<Child> = (0..N_SENDERS)
            .map(|sender| {
                let (filled, returned) = (filled.clone(), returned.clone());
                family.start(Refiller { sender, n_elements: N_ELEMENTS, filled, returned })
            })
            .collect();
        for sender in &senders {
            sender.say(format!("make {}", N_BUFFERS / senders.len()));
            sender.expect("done");
        }
        // Every process touches every buffer once: that is the warm-up, with one sender after the other.
        for sender in &senders {
            for _ in 0..N_BUFFERS {
                returned.put(filled.get().unwrap().into_checked()).unwrap();
            }
            sender.say(format!("round {N_BUFFERS}"));
            sender.expect("done");
        }
        // Then all at once: each sender takes part in whatever order they come.
        let mut senders_seen = BTreeSet::new();
        let mut ids = BTreeSet::new();
        let mut go_round = |n_rounds: usize| {
            for sender in &senders {
                sender.say(format!("round {n_rounds}"));
            }
            for _ in 0..n_rounds * senders.len() {
                let came = filled.get().unwrap();
                senders_seen.insert(came.sender);
                let buffer = came.into_checked();
                ids.insert(buffer.storage_id());
                returned.put(buffer).unwrap();
            }
            senders.iter().for_each(|sender| sender.expect("done"));
        };
        go_round(N_ROUNDS);
        let before: Vec<Spent> = senders.iter().map(spent).collect();
        let own = Spent::by(family.heap());
        go_round(N_ROUNDS);
        for (sender, before) in senders.iter().zip(&before) {
            spent(sender).assert_nothing_since(before);
        }
        Spent::by(family.heap()).assert_nothing_since(&own);
        assert_eq!(senders_seen.len(), senders.len());
        assert_eq!(ids.len(), N_BUFFERS, "the same buffers all the time");
        senders.into_iter().for_each(Child::finish);
    });
}
