//! Tensors that travel through memory of the host, because their sender says so.

use tensorferry_kit::{Process, is_real, until};

use super::strategies::nobody_broke_a_rule;
use super::tensors::on_machine;
use super::{ask, told};

#[test]
fn a_staged_tensor_reaches_a_device_that_cannot_reach_its_own() {
    on_machine("devices=2,disable=peer", |stage| {
        let a = stage.member();
        let b = stage.member_with("", &[("CUDA_VISIBLE_DEVICES", "1")]);
        told(&a, &["make x s 1000 1", "narrow part x 100 50", "stage y x s", "stage part part s"]);
        assert_eq!(ask(&a, "strategy-of y"), "staged");
        told(&a, &["put 0 x", "put 0 y part"]);
        told(&b, &["get 0 x", "get 0 y part"]);
        assert!(ask(&b, "read x s").contains("does not see device"), "it is on the other device");
        // The same calls as for any tensor.
        assert_eq!(ask(&b, "read y s"), "1 1000 500500");
        assert_eq!(ask(&b, "read part s"), format!("101 150 {}", (101..151).sum::<u32>()));
        told(&b, &["drop x", "drop y", "drop part"]);
        told(&a, &["drop x", "drop y", "drop part"]);
        stage.wait_unused(&a);
        stage.wait_unused(&b);
        a.finish();
        b.finish();
    });
}

#[test]
fn what_was_staged_is_a_copy_for_each_process_and_outlives_its_maker() {
    on_machine("", |stage| {
        let (a, b, c) = (stage.member(), stage.member(), stage.member_without_driver());
        // What is queued comes first: staging waits for it, and is the state of that moment.
        told(&a, &["make x s 10 1", "make tens s 10 10", "copy x s tens", "stage y x s", "zeros n s 10"]);
        told(&a, &["copy x s n", "put 0 y"]);
        assert_eq!(ask(&a, "read y s"), "10 19 145");
        a.kill();
        // Through somebody without a driver.
        told(&c, &["get 0 y", "put 1 y", "drop y"]);
        told(&b, &["get 1 z"]);
        assert_eq!(ask(&b, "read z s"), "10 19 145");
        // What the receiver writes stays with him.
        told(&b, &["zeros n s 10", "copy z s n", "put 0 z"]);
        assert_eq!(ask(&b, "read z s"), "0 0 0");
        let d = stage.member();
        told(&d, &["get 0 z"]);
        assert_eq!(ask(&d, "read z s"), "10 19 145");
        told(&b, &["drop z", "drop n"]);
        told(&d, &["drop z"]);
        for member in [&b, &d] {
            until("the copy is given up", || ask(member, "stats").contains("slabs_received: 0"));
        }
        stage.wait_unused(&b);
        [b, c, d].into_iter().for_each(Process::finish);
    });
}

/// Two threads of one process copy what was staged in so many elements, and the one that began first is done
/// first.
#[track_caller]
fn two_threads_copy(len: u32, names: [&str; 2]) {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &[&format!("make x s {len} 1"), "stage y x s", "stage z x s", "put 0 y z"]);
        told(&b, &["get 0 y z"]);
        // Each of its streams waits for a process of its own.
        let gates = ["first", "second"].map(|stream| {
            let gate = stage.member();
            told(&gate, &["make x s 10 1", "make n s 10 1", "event e", "control held"]);
            told(&gate, &["copy x s n", "record e s", "put-event 1 e"]);
            told(&b, &[&format!("get-event 1 {stream}"), &format!("wait {stream} {stream}")]);
            gate
        });
        // Both copies have begun before one of them is done: who unpins waits for everything that the device
        // was told.
        for (name, stream) in std::iter::zip(names, ["first", "second"]) {
            told(&b, &[&format!("begin-reading {name} {stream}")]);
            b.wait_until_thread_sleeps(&format!("reading-{stream}"));
        }
        told(&gates[0], &["control running"]);
        if !is_real() {
            // In a real driver, one thread's call may hold up the other's until the device has nothing to do.
            b.wait_until_thread_ends("reading-first");
        }
        told(&gates[1], &["control running"]);
        let whole = format!("1 {len} {}", (1..=u64::from(len)).sum::<u64>());
        assert_eq!(
            ["first", "second"].map(|stream| ask(&b, &format!("end-reading {stream}"))),
            [whole.clone(), whole]
        );
        nobody_broke_a_rule(&[&a, &b]);
        [a, b].into_iter().chain(gates).for_each(Process::finish);
    });
}

#[test]
fn memory_stays_pinned_until_the_last_of_several_copies_is_done() {
    two_threads_copy(10_000, ["y", "y"]);
}

#[test]
fn what_shares_a_page_with_others_is_not_pinned() {
    two_threads_copy(10, ["y", "z"]);
}

#[test]
fn memory_under_a_copy_that_cannot_be_waited_for_stays_pinned() {
    // That the context broke does not say what became of the copy.
    for code in [2, 700] {
        on_machine("", |stage| {
            let a = stage.member();
            let refuse = format!("control fail=cuStreamSynchronize:{code}");
            told(&a, &["make x s 10000 1", "control held", &refuse]);
            assert!(ask(&a, "stage y x s").contains("cuStreamSynchronize failed"));
            // The device comes to it only now.
            told(&a, &["control running", "stage y x s"]);
            assert_eq!(ask(&a, "read y s"), "1 10000 50005000");
            told(&a, &["drop x", "drop y"]);
            stage.wait_unused(&a);
            nobody_broke_a_rule(&[&a]);
            a.finish();
        });
    }
}

#[test]
fn staging_that_fails_leaves_nothing_and_pinning_may_fail() {
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["make x s 10000 1", "control fail=cuMemHostRegister_v2:2", "stage y x s"]);
        assert!(a.stderr().contains("cuMemHostRegister_v2 fails as ordered"));
        assert_eq!(ask(&a, "read y s"), "1 10000 50005000");
        for function in ["cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"] {
            told(&a, &[&format!("control fail={function}:2")]);
            assert!(ask(&a, "stage z x s").contains(function));
        }
        told(&a, &["stage z x s"]);
        // A device that is full is asked once more.
        told(&a, &["control fail=cuMemAlloc_v2:2", "control fail=cuMemAlloc_v2:2"]);
        assert!(ask(&a, "read z s").contains("no room for 40000 bytes: cuMemAlloc_v2 failed"));
        for function in ["cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"] {
            told(&a, &[&format!("control fail={function}:2")]);
            assert!(ask(&a, "read z s").contains(function));
        }
        assert_eq!(ask(&a, "read z s"), "1 10000 50005000");
        // More than the domain may have.
        told(&a, &["zeros large s 150000000"]);
        let answer = ask(&a, "stage z large s");
        assert!(answer.contains("limit"), "{answer}");
        told(&a, &["drop x", "drop y", "drop z", "drop large"]);
        stage.wait_unused(&a);
        a.finish();
    });
}
