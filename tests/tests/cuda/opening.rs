//! Opening memory of another process: by many threads at once, and without descriptors.

use tensorferry_kit::tasks::DeviceMember;
use tensorferry_kit::{Limit, Process, needs_software_driver, strategies_of_run, until};

use super::tensors::on_machine;
use super::{ask, told};

#[test]
fn many_threads_that_open_one_slab_at_once_have_one_memory() {
    for strategy in strategies_of_run() {
        on_machine("", |stage| {
            let (a, b) = (stage.member(), stage.member());
            for _ in 0..4 {
                told(&a, &[&format!("make-by {strategy} x s 10 1"), "put 0 x"]);
                told(&b, &["get 0 y"]);
                assert_eq!(ask(&b, "read-by-many y"), "1 10 55");
                assert!(ask(&b, "stats").contains("slabs_mapped: 1,"));
                told(&a, &["drop x"]);
                told(&b, &["drop y"]);
                // Also closed by everybody: nothing is left of those that came second.
                stage.wait_unused(&a);
                until("the receiver has closed it", || {
                    told(&a, &["empty"]);
                    ask(&b, "stats").contains("slabs_mapped: 0,")
                });
            }
            assert!(!b.stderr().contains("rule broken"), "{}", b.stderr());
            a.finish();
            b.finish();
        });
    }
}

#[test]
fn what_is_staged_is_copied_once_for_many_threads() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "stage y x s", "put 0 y"]);
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "read-by-many y"), "1 10 55");
        told(&b, &["drop y"]);
        told(&a, &["drop x", "drop y"]);
        stage.wait_unused(&a);
        a.finish();
        b.finish();
    });
}

#[test]
fn a_process_without_descriptors_is_told_so_and_goes_on_when_it_has_some() {
    for strategy in strategies_of_run() {
        on_machine("", |stage| {
            // How many a real one takes for itself nobody knows.
            needs_software_driver();
            let limited = || {
                let task = DeviceMember { queues: stage.queues.clone(), tensors: Vec::new() };
                let limits = [(Limit::OpenFiles, 64)];
                let member = stage.machine.member_limited(stage.family, task, "", &[], &limits);
                told(&member, &["load 0"]);
                member
            };
            let (a, b) = (limited(), limited());
            told(&a, &[&format!("make-by {strategy} x s 10 1"), "fill-descriptors"]);
            // The driver has none for its handle, for events, or for what is exported. What is done later is
            // done once.
            let answer = ask(&a, "put 0 x");
            if answer != "ok" {
                assert!(answer.starts_with("error: "), "{answer}");
                told(&a, &["drain-descriptors", "put 0 x"]);
            }
            told(&b, &["get 0 y", "fill-descriptors"]);
            let answer = ask(&b, "read y s");
            assert!(answer.starts_with("error: "), "{strategy}: {answer}");
            told(&b, &["drain-descriptors"]);
            assert_eq!(ask(&b, "read y s"), "1 10 55");
            told(&a, &["drain-descriptors", "drop x"]);
            told(&b, &["drop y"]);
            stage.wait_unused(&a);
            [a, b].into_iter().for_each(Process::finish);
        });
    }
}
