//! What can be in a message.

use tensorferry::Queue;
use tensorferry_tests::tasks::{Forward, Worker};
use tensorferry_tests::{Item, with_family};

use crate::channel;

#[test]
fn values_larger_than_a_slot_and_many_tensors() {
    with_family(|family| {
        let (down, down_there) = channel(family, 2);
        let (up_there, up) = channel(family, 2);
        let child = family.start(Forward { from: down_there.clone(), to: up_there.clone() });
        drop((down_there, up_there));
        // A slot has room for 240 bytes: below, around, and far above; then more handles than fit.
        for (sequence, note_len) in
            [0, 1, 200, 230, 231, 232, 240, 241, 4096, 1 << 20].into_iter().enumerate()
        {
            down.put(Item::new(family.heap(), 1, sequence as u64, &[8]).with_note(note_len)).unwrap();
            let came = up.get().unwrap();
            came.check();
            assert_eq!(came.note.len(), note_len);
        }
        for (sequence, n_tensors) in [1, 2, 10, 29, 30, 31, 64, 65, 1000].into_iter().enumerate() {
            let lengths = vec![9; n_tensors];
            down.put(Item::new(family.heap(), 2, sequence as u64, &lengths)).unwrap();
            let came = up.get().unwrap();
            came.check();
            assert_eq!(came.tensors.len(), n_tensors);
        }
        drop(down);
        assert_eq!(child.hear_number(), 19);
        child.finish();
    });
}

#[test]
fn one_sentinel_for_each_worker_ends_them_all() {
    with_family(|family| {
        let jobs = Queue::new_in(family.heap(), 4).unwrap();
        let workers: Vec<_> = (0..4).map(|_| family.start(Worker { jobs: jobs.clone() })).collect();
        // Each job says where its answer goes: a queue in a queue's message.
        let answers = Queue::new_in(family.heap(), 64).unwrap();
        let mut expected = 0_u64;
        for sequence in 0..40 {
            let item = Item::new(family.heap(), 5, sequence, &[10]);
            expected = expected.wrapping_add(item.sum());
            jobs.put(Some((item, answers.clone()))).unwrap();
        }
        for _ in &workers {
            jobs.put(None).unwrap();
        }
        let done: u64 = workers.iter().map(tensorferry_tests::Child::hear_number).sum();
        assert_eq!(done, 40);
        let sum = (0..40).map(|_| answers.get_nowait().unwrap()).fold(0, u64::wrapping_add);
        assert_eq!(sum, expected);
        workers.into_iter().for_each(tensorferry_tests::Child::finish);
        assert!(jobs.empty());
    });
}
