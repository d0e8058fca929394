//! Members of one domain in several PID namespaces.

use tensorferry_tests::tasks::Unsharing;
use tensorferry_tests::{Loner, alone};

#[test]
fn members_in_a_pid_namespace_of_their_own_live_die_and_are_swept() {
    alone(|| {
        let child = Loner::start(&Unsharing, &[]);
        match child.hear().as_str() {
            "skipped" => println!("skipped: this process may not make a PID namespace"),
            said => assert_eq!(said, "done"),
        }
        child.finish();
    });
}
