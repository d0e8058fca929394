//! Many tensors, one after the other: nothing is used up.

use tensorferry_kit::{Process, until};

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

/// So many that whatever was kept of each would be seen; more where somebody has the time.
fn n_sends() -> u64 {
    std::env::var("TENSORFERRY_TEST_SENDS").ok().and_then(|text| text.parse().ok()).unwrap_or(3000)
}

/// More than there are timelines of three processes and events of them that another one opens.
const MOST_ROUNDS: usize = 32;

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
        let mut seen = vec![[&a, &b, &c].map(kept)];
        // A stream's timeline is made when a message first has to wait for it, and each of its events is
        // opened when somebody first waits for it. When that is depends on how fast the device is; that it
        // happens once does not.
        while seen.len() < 2 || seen[seen.len() - 1] != seen[seen.len() - 2] {
            assert!(seen.len() < MOST_ROUNDS, "descriptors, slabs, timelines: {seen:#?}");
            pass(n_sends());
            seen.push([&a, &b, &c].map(kept));
        }
        // One slab of each process that makes tensors.
        stage.machine.assert_used(&a, 4);
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
