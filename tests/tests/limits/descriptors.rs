//! A process without descriptors.

use tensorferry_kit::tasks::RunOutOfDescriptors;
use tensorferry_kit::{Limit, Loner, alone};

#[test]
fn with_no_descriptor_left_making_a_domain_fails_and_leaves_nothing() {
    alone(|| {
        let child = Loner::start(&RunOutOfDescriptors, &[(Limit::OpenFiles, 64)]);
        let n_failed = child.hear_number();
        assert!(n_failed > 0, "a domain needs descriptors");
        child.finish();
    });
}
