//! A sender that allocates for each message, and a receiver that drops what it got.

use tensorferry::Queue;
use tensorferry::tensor::Tensor;
use tensorferry_kit::tasks::Streamer;
use tensorferry_kit::with_family;

use crate::spent;

#[track_caller]
fn stream(n_elements: usize) {
    const N_ROUNDS: u64 = 300;
    with_family(|family| {
        let to: Queue<Tensor<u64>> = Queue::new_in(family.heap(), 4).unwrap();
        let child = family.start(Streamer { n_elements, to: to.clone() });
        let go_round = || {
            child.say(format!("round {N_ROUNDS}"));
            for round in 0..N_ROUNDS {
                let tensor = to.get().unwrap();
                assert!(tensor.as_slice().unwrap().iter().all(|&element| element == round));
            }
            child.expect("done");
        };
        // More at once than can be under way later.
        child.say("round 16");
        let many: Vec<_> = (0..16).map(|_| to.get().unwrap()).collect();
        child.expect("done");
        drop(many);
        go_round();
        let before = spent(&child);
        go_round();
        spent(&child).assert_nothing_since(&before);
        child.finish();
    });
}

#[test]
fn a_stream_of_small_tensors_reuses_its_slab() {
    stream(16);
}

#[test]
fn a_stream_of_large_tensors_reuses_its_blocks() {
    stream(64 << 10);
}
