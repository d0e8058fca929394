//! Many separately allocated tensors with few descriptors.

use std::time::Instant;

use tensorferry::queue::channel_in;
use tensorferry_tests::tasks::{KeepMany, SendMany};
use tensorferry_tests::{Limit, with_family_of};

/// A million with `TENSORFERRY_TEST_MILLION=1`: that takes a while without optimisation.
fn n_tensors() -> u64 {
    if std::env::var_os("TENSORFERRY_TEST_MILLION").is_some() { 1_000_000 } else { 100_000 }
}

#[test]
fn as_many_live_tensors_as_memory_allows_need_one_descriptor() {
    let settings = tensorferry::domain::Domain::builder().address_space_bytes(1 << 32).limit_bytes(1 << 30);
    with_family_of(settings, |family| {
        let n_tensors = n_tensors();
        let few = [(Limit::OpenFiles, 64)];
        let (to, from) = channel_in(family.heap(), 4).unwrap();
        let keeper = family.start_limited(KeepMany { from }, &few);
        let sender = family.start_limited(SendMany { n_tensors, to }, &few);
        sender.expect("sent");
        assert_eq!(keeper.hear_number(), n_tensors, "tensors received");
        assert_eq!(keeper.hear_number(), n_tensors, "storages of their own");
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
