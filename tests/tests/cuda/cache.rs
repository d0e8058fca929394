//! What is kept for later, and its limits.

use tensorferry_kit::{is_real, until};

use super::tensors::on_machine;
use super::{ask, told};

#[test]
fn free_memory_is_kept_up_to_a_limit() {
    on_machine("", |stage| {
        let a = stage.member();
        // Three slabs of 4 MiB.
        told(&a, &["zeros x s 1000000", "zeros y s 1000000", "zeros z s 1000000"]);
        told(&a, &["drop x", "drop y", "drop z"]);
        stage.machine.assert_used(&a, 12);
        // Kept for the next tensors.
        assert!(ask(&a, "stats").contains("slabs_owned: 3, owned_bytes: 12582912, free_bytes: 12582912"));
        told(&a, &["limits 4 64"]);
        until("what is too much is given up", || {
            told(&a, &["collect"]);
            let one = "slabs_owned: 1, owned_bytes: 4194304, free_bytes: 4194304";
            ask(&a, "stats").contains(one) && (is_real() || ask(&a, "used") == "4")
        });
        told(&a, &["zeros x s 1000000"]);
        // The one that was kept.
        assert!(ask(&a, "stats").contains("slabs_owned: 1, owned_bytes: 4194304,"));
        stage.machine.assert_used(&a, 4);
        told(&a, &["drop x", "empty"]);
        assert!(ask(&a, "stats").contains("slabs_owned: 0, owned_bytes: 0"), "all of it");
        stage.machine.assert_used(&a, 0);
        a.finish();
    });
}

#[test]
fn slabs_of_others_stay_mapped_up_to_a_limit() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        for name in ["x", "y", "z"] {
            told(&a, &[&format!("zeros {name} s 1000000"), &format!("put 0 {name}")]);
            told(&b, &[&format!("get 0 {name}")]);
            assert_eq!(ask(&b, &format!("read {name} s")), "0 0 0");
        }
        told(&b, &["drop x", "drop y", "drop z"]);
        until("the receiver has let go", || {
            told(&b, &["collect"]);
            ask(&b, "stats").contains("tensors_leaving: 0")
        });
        assert!(ask(&b, "stats").contains("slabs_received: 3, slabs_mapped: 3"), "kept for the next tensors");
        told(&b, &["limits 1024 1"]);
        // The thread that looks after devices may be letting go of a tensor in one of them at this moment.
        until("what is too much is given up", || {
            told(&b, &["collect"]);
            ask(&b, "stats").contains("slabs_received: 1, slabs_mapped: 1")
        });
        // What one is in is not given up, however many there are.
        told(&a, &["put 0 x"]);
        told(&b, &["get 0 x", "ready x s", "limits 1024 0", "collect"]);
        assert!(ask(&b, "stats").contains("slabs_received: 1, slabs_mapped: 1"));
        assert_eq!(ask(&b, "read x s"), "0 0 0");
        a.finish();
        b.finish();
    });
}

#[test]
fn collecting_gives_back_what_others_have_let_go_of() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "put 0 x", "drop x"]);
        assert!(ask(&a, "stats").contains("tensors: 0, tensors_leaving: 1"), "the message has it");
        told(&a, &["collect"]);
        assert!(ask(&a, "stats").contains("tensors_leaving: 1"), "still");
        // A message that was never used by a device is let go of at once.
        told(&b, &["get 0 y", "drop y"]);
        until("the sender sees it", || {
            told(&a, &["collect"]);
            ask(&a, "stats").contains("tensors_leaving: 0")
        });
        a.finish();
        b.finish();
    });
}
