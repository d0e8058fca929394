//! Several senders and several receivers: each sender's order, nothing lost, nothing doubled.

use std::collections::BTreeSet;

use tensorferry::queue::{mpsc_in, spsc_in};
use tensorferry_kit::tasks::{Consume, Heard, Produce};
use tensorferry_kit::{Child, with_family};

use crate::channel;

#[test]
fn each_receiver_sees_each_senders_order() {
    const N_ITEMS: u64 = 1_000;
    with_family(|family| {
        let (to, from) = channel(family, 7);
        let receivers: Vec<_> = (0..3).map(|_| family.start(Consume { from: from.clone() })).collect();
        let senders: Vec<_> = (0..3)
            .map(|sender| {
                let (to, lengths) = (to.clone(), vec![usize::try_from(sender).unwrap() * 100, 5]);
                family.start(Produce { to, sender, n_items: N_ITEMS, lengths, note_len_bytes: 10 })
            })
            .collect();
        drop((to, from));
        senders.iter().for_each(|sender| sender.expect("done"));
        let mut all = BTreeSet::new();
        for receiver in receivers {
            let heard: Heard = serde_json::from_str(&receiver.hear()).unwrap();
            assert_eq!(heard.end, "Disconnected");
            for sender in 0..3 {
                let of_one = heard.items.iter().filter(|item| item.0 == sender).map(|item| item.1);
                assert!(of_one.is_sorted_by(|a, b| a < b), "in order");
            }
            for item in heard.items {
                assert!(all.insert(item), "{item:?} came twice");
            }
            receiver.finish();
        }
        assert_eq!(all.len() as u64, 3 * N_ITEMS, "nothing is lost");
        senders.into_iter().for_each(Child::finish);
    });
}

#[test]
fn one_receiver_sees_a_single_senders_items_without_a_gap() {
    with_family(|family| {
        for capacity in [1, 2, 3, 64] {
            let (to, from) = channel(family, capacity);
            let receiver = family.start(Consume { from });
            let sender =
                family.start(Produce { to, sender: 1, n_items: 500, lengths: vec![3], note_len_bytes: 0 });
            let heard: Heard = serde_json::from_str(&receiver.hear()).unwrap();
            assert!(heard.items.iter().map(|item| item.1).eq(0..500), "with {capacity} slots");
            sender.expect("done");
            sender.finish();
            receiver.finish();
        }
    });
}

#[test]
fn ends_that_there_is_only_one_of_keep_the_order_between_processes() {
    with_family(|family| {
        let (mut to, from) = spsc_in(family.heap(), 3).unwrap();
        let child = family.start(tensorferry_kit::tasks::SoleEcho { from, n_items: 300 });
        let (back, mut answers) = mpsc_in(family.heap(), 3).unwrap();
        for sequence in 0..300 {
            let item = tensorferry_kit::Item::new(family.heap(), 8, sequence, &[20]);
            to.put((item, back.clone())).unwrap();
            let answer = answers.get().unwrap();
            answer.check();
            assert_eq!(answer.sequence, sequence);
        }
        child.expect("done");
        child.finish();
    });
}
