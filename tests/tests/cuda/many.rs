//! Many tensors, one after the other: nothing is used up.

use tensorferry_tests::{Process, until};

use super::tensors::on_machine;
use super::{ask, told};

/// What of a process's numbers would grow if something were kept.
fn kept(process: &Process) -> (String, String) {
    // What the last messages still hold comes back first.
    until("what was sent comes back", || {
        told(process, &["collect"]);
        ask(process, "stats").contains("tensors: 0, tensors_leaving: 0")
    });
    (ask(process, "descriptors"), ask(process, "stats"))
}

#[test]
fn thousands_of_small_tensors_pass_through_three_processes_and_use_nothing_up() {
    on_machine("", |stage| {
        let [a, b, c] = [stage.member(), stage.member(), stage.member()];
        let pass = |n: u64| {
            a.say(format!("produce 0 s {n}"));
            b.say(format!("relay 0 1 s {n}"));
            c.say(format!("consume 1 s {n}"));
            a.expect("ok");
            b.expect("ok");
            assert_eq!(c.hear(), (n * (n - 1) / 2).to_string());
        };
        pass(100);
        let before = [&a, &b, &c].map(kept);
        pass(3000);
        assert_eq!([&a, &b, &c].map(kept), before, "descriptors, slabs, timelines");
        assert_eq!(ask(&a, "used"), "4", "one slab of each process that makes tensors");
        [a, b, c].into_iter().for_each(Process::finish);
    });
}

#[test]
fn large_tensors_take_turns_in_one_slab() {
    on_machine("memory_mib=64", |stage| {
        let (a, b) = (stage.member(), stage.member());
        for i in 0..30 {
            // 16 MiB each, of which the device holds four at most.
            told(&a, &[&format!("make x s 4194304 {i}"), "put 0 x", "drop x"]);
            told(&b, &["get 0 y"]);
            assert!(ask(&b, "read y s").starts_with(&format!("{i} ")));
            told(&b, &["drop y"]);
            until("the receiver has let go", || {
                told(&b, &["collect"]);
                ask(&b, "stats").contains("tensors_leaving: 0")
            });
        }
        a.finish();
        b.finish();
    });
}
