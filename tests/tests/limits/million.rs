//! A million separately allocated tensors with few descriptors.

use std::time::Instant;

use tensorferry::queue::channel_in;
use tensorferry_kit::tasks::{KeepMany, SendMany};
use tensorferry_kit::{Limit, with_family_of};

const N_TENSORS: u64 = 1_000_000;

#[test]
fn a_million_live_tensors_need_one_descriptor() {
    let settings = tensorferry::domain::Domain::builder().address_space_bytes(1 << 32).limit_bytes(1 << 30);
    with_family_of(settings, |family| {
        let few = [(Limit::OpenFiles, 64)];
        let (to, from) = channel_in(family.heap(), 4).unwrap();
        let keeper = family.start_limited(KeepMany { from }, &few);
        let sender = family.start_limited(SendMany { n_tensors: N_TENSORS, to }, &few);
        sender.expect("sent");
        assert_eq!(keeper.hear_number(), N_TENSORS, "tensors received");
        assert_eq!(keeper.hear_number(), N_TENSORS, "storages of their own");
        for child in [&keeper, &sender] {
            let n_descriptors = child.hear_number();
            assert!(n_descriptors < 20, "{n_descriptors} descriptors");
        }
        // All of them live, in two processes; then one of the two is killed, and the other lets go.
        let start = Instant::now();
        keeper.kill();
        sender.finish();
        family.wait_alone();
        println!("swept after {:?}", start.elapsed());
    });
}
