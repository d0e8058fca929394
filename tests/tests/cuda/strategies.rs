//! The ways in which device memory is shared, each by itself, and memory that another library has allocated.

use tensorferry_cuda_ipc::CudaStrategy;
use tensorferry_kit::{Process, is_real, strategies_of_run, until};

use super::tensors::{Stage, is_run_with, on_machine};
use super::{ask, told};

/// Runs a test once for each strategy that works in this run.
#[track_caller]
fn for_each(settings: &str, body: impl Fn(&Stage<'_>, &str)) {
    for strategy in strategies_of_run() {
        on_machine(settings, |stage| body(stage, &strategy.to_string()));
    }
}

/// As [`for_each`], for those whose memory goes with its maker.
#[track_caller]
pub(crate) fn for_each_that_goes_with_its_maker(settings: &str, body: impl Fn(&Stage<'_>, &str)) {
    for strategy in strategies_of_run().into_iter().filter(|strategy| !strategy.outlives_maker()) {
        on_machine(settings, |stage| body(stage, &strategy.to_string()));
    }
}

/// The drivers of these processes have not found a broken rule.
#[track_caller]
pub(crate) fn nobody_broke_a_rule(processes: &[&Process]) {
    for process in processes {
        assert!(!process.stderr().contains("rule broken"), "{}", process.stderr());
    }
}

#[test]
fn a_process_says_what_works_and_may_choose() {
    on_machine("", |stage| {
        let a = stage.member();
        let works: Vec<String> = strategies_of_run().iter().map(ToString::to_string).collect();
        assert_eq!(ask(&a, "strategies"), works.join(" "));
        told(&a, &["make x s 10 1"]);
        assert_eq!(ask(&a, "strategy-of x"), works[0], "the first one that works");
        for strategy in &works {
            told(&a, &[&format!("strategy {strategy}"), "make x s 10 1"]);
            assert_eq!(&ask(&a, "strategy-of x"), strategy);
        }
        for strategy in ["vmm", "legacy", "pool"].map(str::to_owned) {
            if !works.contains(&strategy) {
                let answer = ask(&a, &format!("make-by {strategy} y s 10 1"));
                assert!(answer.contains("CUDA_ERROR_NOT_SUPPORTED"), "{strategy}: {answer}");
            }
        }
        a.finish();
    });
}

#[test]
fn a_strategy_that_cannot_be_tried_just_now_is_tried_again_and_one_that_works_is_not() {
    if strategies_of_run() != [CudaStrategy::Vmm, CudaStrategy::Legacy, CudaStrategy::Pool] {
        return;
    }
    on_machine("", |stage| {
        let a = stage.member();
        // The device is full.
        told(&a, &["control fail=cuMemAlloc_v2:2"]);
        assert_eq!(ask(&a, "strategies"), "vmm pool");
        assert_eq!(ask(&a, "strategies"), "vmm legacy pool");
        told(&a, &["control fail=cuMemAlloc_v2:2"]);
        assert_eq!(ask(&a, "strategies"), "vmm legacy pool", "that is known by now");
        a.finish();
    });
}

#[test]
fn tensors_of_each_strategy_travel_both_ways_in_order_and_come_back() {
    for_each("", |stage, strategy| {
        let (a, b, c) = (stage.member(), stage.member(), stage.member());
        told(&a, &[&format!("make-by {strategy} x s 10 1"), &format!("make-by {strategy} tens s 10 10")]);
        // Two tensors in one slab, and one of them on its way twice.
        told(&a, &["control held", "copy x s tens", "put 0 x", "put 0 tens x"]);
        told(&b, &["get 0 y", "get 0 tens y-again"]);
        assert_eq!(ask(&b, "same y y-again"), "true");
        b.say("read y s");
        b.wait_until_asleep();
        told(&a, &["control running"]);
        assert_eq!(b.hear(), "10 19 145");
        assert_eq!(ask(&b, "strategy-of y"), strategy);
        // Written by who received it, passed on by him, and seen by who made it.
        told(&b, &["zeros nothing s 10", "copy y s nothing", "put 1 y"]);
        told(&c, &["get 1 z"]);
        assert_eq!((ask(&c, "read z s"), ask(&a, "read x s")), ("0 0 0".into(), "0 0 0".into()));
        told(&c, &["put 1 z"]);
        told(&a, &["get 1 back"]);
        assert_eq!(ask(&a, "same x back"), "true", "not opened where it was made");
        told(&a, &["drop x", "drop tens", "drop back"]);
        told(&b, &["drop y", "drop tens", "drop y-again", "drop nothing"]);
        assert_eq!(ask(&c, "read z s"), "0 0 0", "the last one has it still");
        told(&c, &["drop z"]);
        until("the part comes back", || ask(&a, "stats").contains("tensors_leaving: 0"));
        told(&b, &["empty"]);
        stage.wait_unused(&a);
        nobody_broke_a_rule(&[&a, &b, &c]);
        [a, b, c].into_iter().for_each(Process::finish);
    });
}

#[test]
fn memory_is_freed_after_everybody_has_closed_it() {
    for_each_that_goes_with_its_maker("", |stage, strategy| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &[&format!("make-by {strategy} x s 10 1"), "put 0 x", "drop x"]);
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "read y s"), "1 10 55");
        told(&b, &["drop y"]);
        until("the part comes back", || ask(&a, "stats").contains("tensors_leaving: 0"));
        // The receiver keeps it open for the next tensor, and is stopped.
        assert!(ask(&b, "stats").contains("slabs_mapped: 1"));
        b.stop();
        told(&a, &["empty"]);
        assert!(ask(&a, "stats").contains("slabs_dying: 1"));
        // Given up and not freed.
        stage.machine.assert_used(&a, 2);
        b.go_on();
        until("the memory of the device comes back", || stage.is_unused(&a));
        nobody_broke_a_rule(&[&a, &b]);
        a.finish();
        b.finish();
    });
}

#[test]
fn a_receiver_is_told_when_the_memory_has_gone_with_its_maker() {
    for_each_that_goes_with_its_maker("", |stage, strategy| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &[&format!("make-by {strategy} x s 10 1"), "put 0 x", "put 0 x", "put 0 x"]);
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "read y s"), "1 10 55");
        a.kill();
        // Opened before, opened never, received after the death.
        told(&b, &["get 0 z", "get 0 late"]);
        for name in ["y", "z", "late"] {
            let answer = ask(&b, &format!("read {name} s"));
            assert!(answer.contains("has ended, and its memory with it"), "{answer}");
        }
        // It can be passed on and dropped, and everything else works.
        told(&b, &["put 1 y", "get 1 y", "drop y", "drop z", "drop late", "make w s 10 5"]);
        assert_eq!(ask(&b, "read w s"), "5 14 95");
        told(&b, &["drop w"]);
        stage.wait_unused(&b);
        nobody_broke_a_rule(&[&b]);
        b.finish();
    });
}

#[test]
fn what_dead_consumers_had_open_is_freed() {
    for_each_that_goes_with_its_maker("", |stage, strategy| {
        let (a, b, c) = (stage.member(), stage.member(), stage.member());
        told(&a, &[&format!("make-by {strategy} x s 10 1"), "put 0 x", "put 1 x", "drop x"]);
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "read y s"), "1 10 55");
        told(&b, &["control held", "zeros z s 10", "copy y s z"]);
        b.kill();
        // The other message is never read: its queue has it, until somebody drops what he got.
        told(&c, &["get 1 y"]);
        c.kill();
        stage.wait_unused(&a);
        until("what was used by the one that died is given up", || {
            told(&a, &["collect"]);
            ask(&a, "stats").contains("slabs_poisoned: 1")
        });
        nobody_broke_a_rule(&[&a]);
        a.finish();
    });
}

#[test]
fn memory_that_could_not_be_closed_is_kept_until_its_user_ends() {
    if !is_run_with(CudaStrategy::Legacy) {
        return;
    }
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make-by legacy x s 10 1", "put 0 x", "drop x"]);
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "read y s"), "1 10 55");
        told(&b, &["control fail=cuIpcCloseMemHandle:2", "drop y"]);
        until("the part comes back", || ask(&a, "stats").contains("tensors_leaving: 0"));
        told(&b, &["empty"]);
        assert!(b.stderr().contains("cuIpcCloseMemHandle fails as ordered"));
        told(&a, &["empty", "collect", "empty"]);
        assert!(ask(&a, "stats").contains("slabs_dying: 1"), "the receiver may have it open");
        b.finish();
        stage.wait_unused(&a);
        nobody_broke_a_rule(&[&a]);
        a.finish();
    });
}

#[test]
fn memory_that_could_not_be_closed_after_it_could_not_be_reached_is_kept() {
    for_each_that_goes_with_its_maker("devices=2", |stage, strategy| {
        let (reach, close) = match strategy {
            "pool" => ("cuMemPoolSetAccess", "cuMemFreeAsync"),
            _ => ("cuCtxEnablePeerAccess", "cuIpcCloseMemHandle"),
        };
        let (a, b) = (stage.member(), stage.member());
        told(&a, &[&format!("make-by {strategy} x s 10 1"), "put 0 x", "drop x"]);
        told(&b, &["load 1", "get 0 y"]);
        told(&b, &[&format!("control fail={reach}:2"), &format!("control fail={close}:2")]);
        assert!(ask(&b, "read y there").contains(reach), "opened, and closed again");
        told(&b, &["drop y", "empty"]);
        assert!(ask(&b, "stats").contains("slabs_unclosed: 1"));
        until("the part comes back", || ask(&a, "stats").contains("tensors_leaving: 0"));
        told(&a, &["empty", "collect"]);
        assert!(ask(&a, "stats").contains("slabs_dying: 1"), "the receiver may have it open");
        stage.machine.assert_used(&a, 2);
        nobody_broke_a_rule(&[&a, &b]);
        // Nobody will free it when its owner is gone.
        a.kill();
        stage.family.wait_members(2);
        until("it is forgotten", || ask(&b, "stats").contains("slabs_unclosed: 0"));
        b.finish();
    });
}

#[test]
fn memory_is_closed_after_a_capture_if_not_beside_it() {
    for_each_that_goes_with_its_maker("", |stage, strategy| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &[&format!("make-by {strategy} x s 10 1"), "put 0 x", "drop x"]);
        told(&b, &["cudarc c", "limits 0 0", "get 0 y"]);
        assert_eq!(ask(&b, "read y s"), "1 10 55");
        told(&b, &["capture c global", "drop y", "collect", "end-capture c"]);
        stage.wait_unused(&a);
        assert!(ask(&b, "stats").contains("slabs_unclosed: 0"));
        nobody_broke_a_rule(&[&a, &b]);
        a.finish();
        b.finish();
    });
}

#[test]
fn a_message_that_nobody_reads_holds_memory_that_goes_with_its_maker_until_the_queue_goes() {
    for_each_that_goes_with_its_maker("", |stage, strategy| {
        let a = stage.member();
        told(&a, &[&format!("make-by {strategy} x s 10 1"), "put 0 x", "drop x", "empty"]);
        stage.machine.assert_used(&a, 2);
        drop(stage.queues[0].get().unwrap());
        stage.wait_unused(&a);
        a.finish();
    });
}

/// What cudarc has allocated is shared without a copy, by this strategy, on a machine with these settings.
#[track_caller]
fn slices_are_shared_as_they_are(settings: &str, strategy: CudaStrategy) {
    if !is_run_with(strategy) {
        return;
    }
    on_machine(settings, |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["cudarc c"]);
        if strategy == CudaStrategy::Pool {
            told(&a, &["exportable-pool"]);
        }
        // 2 MiB, so that nothing else lies in the same piece of the driver's.
        assert_eq!(ask(&a, "share x c 524288 1 strict"), "as it is");
        assert_eq!(ask(&a, &format!("share z c 524288 5 strict {strategy}")), "as it is");
        assert_eq!(ask(&a, "strategy-of x"), strategy.to_string());
        told(&a, &["narrow part x 2 3", "put 0 x part z"]);
        told(&b, &["get 0 y part z"]);
        let counted =
            |first: u64| format!("{first} {} {}", first + 524_287, (first..first + 524_288).sum::<u64>());
        assert_eq!((ask(&b, "read y s"), ask(&b, "read part s")), (counted(1), "3 5 12".into()));
        assert_eq!(ask(&b, "read z s"), counted(5));
        // One memory: what the receiver writes, cudarc sees in its slice.
        told(&b, &["zeros n s 524288", "copy y s n", "put 1 y"]);
        told(&a, &["get 1 back"]);
        // By the handle that came with the message, which waits for the receiver.
        assert_eq!((ask(&a, "read-slice back c"), ask(&a, "same x back")), ("0 0 0".into(), "true".into()));
        assert!(ask(&a, "stats").contains("slabs_lent: 2"));
        // Its owner drops it; the slice is freed when the last one has.
        told(&a, &["drop x", "drop part", "drop z", "drop back"]);
        assert_eq!(ask(&b, "read y s"), "0 0 0");
        assert!(is_real() || !stage.is_unused(&a));
        told(&b, &["drop y", "drop part", "drop z", "drop n", "empty"]);
        stage.wait_unused(&a);
        nobody_broke_a_rule(&[&a, &b]);
        a.finish();
        b.finish();
    });
}

#[test]
fn memory_of_cudarc_from_an_exportable_pool_is_shared_as_it_is() {
    slices_are_shared_as_they_are("", CudaStrategy::Pool);
}

#[test]
fn memory_of_cudarc_without_pools_is_shared_as_it_is() {
    // It allocates by cuMemAlloc then.
    slices_are_shared_as_they_are("disable=pool", CudaStrategy::Legacy);
}

#[test]
fn memory_of_cudarc_that_may_have_neighbours_in_its_piece_is_copied_or_refused() {
    if !is_run_with(CudaStrategy::Legacy) {
        return;
    }
    on_machine("disable=pool", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["cudarc c"]);
        for len in [10, 524_289] {
            let answer = ask(&a, &format!("share x c {len} 1 strict legacy"));
            assert!(answer.contains("allocate a multiple of 2 MiB"), "{answer}");
        }
        // A copy lies in a slab, which is such a multiple.
        assert_eq!(ask(&a, "share x c 10 1 legacy"), "copied");
        assert_eq!(ask(&a, "strategy-of x"), "legacy");
        told(&a, &["put 0 x"]);
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "read y s"), "1 10 55");
        a.finish();
        b.finish();
    });
}

#[test]
fn no_stream_waits_for_another_to_get_memory_of_an_exportable_pool() {
    if !is_run_with(CudaStrategy::Pool) {
        return;
    }
    on_machine("", |stage| {
        let a = stage.member();
        assert_eq!(ask(&a, "internal-dependencies"), "1", "of the device's own pool");
        told(&a, &["exportable-pool"]);
        assert_eq!(ask(&a, "internal-dependencies"), "0");
        a.finish();
    });
}

/// What was shared by this strategy on such a machine is freed although the stream of its slice captures by
/// then.
#[track_caller]
fn slices_are_freed_beside_a_capture(settings: &str, strategy: CudaStrategy) {
    if !is_run_with(strategy) {
        return;
    }
    on_machine(settings, |stage| {
        let a = stage.member();
        told(&a, &["cudarc c"]);
        if strategy == CudaStrategy::Pool {
            told(&a, &["exportable-pool"]);
        }
        assert_eq!(ask(&a, &format!("share x c 524288 1 strict {strategy}")), "as it is");
        told(&a, &["control held", "clear-slice x c", "drop x", "capture c global"]);
        assert!(ask(&a, "stats").contains("slabs_dying: 1"));
        told(&a, &["control running"]);
        until("its last use is over", || ask(&a, "stats").contains("slabs_dying: 0"));
        told(&a, &["collect", "end-capture c"]);
        until("the memory of the device comes back", || stage.is_unused(&a));
        nobody_broke_a_rule(&[&a]);
        a.finish();
    });
}

#[test]
fn memory_of_cudarc_from_a_pool_is_freed_beside_a_capture() {
    slices_are_freed_beside_a_capture("", CudaStrategy::Pool);
}

#[test]
fn memory_of_cudarc_without_pools_is_freed_after_a_capture() {
    slices_are_freed_beside_a_capture("disable=pool", CudaStrategy::Legacy);
}

#[test]
fn a_slice_whose_own_stream_captures_is_not_shared() {
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["cudarc c", "cudarc d", "cudarc e"]);
        assert!(["as it is", "copied"].contains(&&*ask(&a, "share x e 10 1 on=d")));
        let answer = ask(&a, "share y c 10 1 on=d capturing");
        assert!(answer.contains("capturing a graph"), "{answer}");
        assert_eq!(ask(&a, "read x d"), "1 10 55");
        a.finish();
    });
}

#[test]
fn work_of_cudarc_before_sharing_is_waited_for() {
    // Without pools, cudarc waits for the device when it frees what was copied.
    if strategies_of_run() == [CudaStrategy::Vmm] && !is_run_with(CudaStrategy::Pool) {
        return;
    }
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["cudarc c"]);
        if strategies_of_run().contains(&CudaStrategy::Pool) {
            told(&a, &["exportable-pool"]);
        }
        told(&a, &["control held"]);
        // Its bytes are still on their way when it is shared and sent.
        let shared = ask(&a, "share x c 524288 1");
        assert!(["as it is", "copied"].contains(&&*shared), "{shared}");
        told(&a, &["put 0 x"]);
        told(&b, &["get 0 y"]);
        b.say("read y s");
        b.wait_until_asleep();
        told(&a, &["control running"]);
        assert_eq!(b.hear(), format!("1 524288 {}", (1..=524_288_u64).sum::<u64>()));
        a.finish();
        b.finish();
    });
}

#[test]
fn memory_that_cannot_be_shared_as_it_is_is_copied_or_refused() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["cudarc c"]);
        let of_no_pool = !strategies_of_run().contains(&CudaStrategy::Pool);
        if !of_no_pool {
            // From the default pool of the device, which no other process can open.
            assert_eq!(ask(&a, "share x c 10 1"), "copied");
            let answer = ask(&a, "share z c 10 1 strict");
            assert!(answer.contains("cannot be shared as it is") && answer.contains("use_exportable_pool"));
            told(&a, &["put 0 x"]);
            told(&b, &["get 0 y"]);
            assert_eq!(ask(&b, "read y s"), "1 10 55");
        }
        for strategy in strategies_of_run() {
            if strategy.outlives_maker() {
                // What outlives this process is never another library's.
                assert_eq!(ask(&a, &format!("share x c 10 1 {strategy}")), "copied");
                assert_eq!(ask(&a, "strategy-of x"), strategy.to_string());
                let answer = ask(&a, &format!("share x c 10 1 strict {strategy}"));
                assert!(answer.contains("cannot be shared as it is"), "{answer}");
            }
        }
        a.finish();
        b.finish();
    });
}

#[test]
fn memory_that_cudarc_cannot_free_is_given_back() {
    if !is_run_with(CudaStrategy::Vmm) {
        return;
    }
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["cudarc c"]);
        let answer = ask(&a, "share-mapped c");
        assert!(answer.contains("memory of cuMemCreate, which cudarc cannot free"), "{answer}");
        // cudarc works on: it has not tried to.
        assert!(["as it is", "copied"].contains(&&*ask(&a, "share x c 10 1")));
        assert_eq!(ask(&a, "read x c"), "1 10 55");
        if !is_real() {
            // An answer that says neither is not taken for one.
            told(&a, &["control fail=cuMemRetainAllocationHandle:2"]);
            let answer = ask(&a, "share z c 10 1");
            assert!(answer.contains("cuMemRetainAllocationHandle failed"), "{answer}");
        }
        nobody_broke_a_rule(&[&a]);
        a.finish();
    });
}

#[test]
fn another_device_reaches_memory_that_goes_with_its_maker() {
    for_each_that_goes_with_its_maker("devices=2", |stage, strategy| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &[&format!("make-by {strategy} x s 10 1"), "put 0 x"]);
        // Its maker, on its other device; and another process there.
        told(&a, &["load 1"]);
        assert_eq!(ask(&a, "read x there"), "1 10 55");
        told(&b, &["load 1", "get 0 y"]);
        assert_eq!(ask(&b, "read y there"), "1 10 55");
        told(&b, &["load 0"]);
        assert_eq!(ask(&b, "read y here"), "1 10 55");
        a.finish();
        b.finish();
    });
}

#[test]
fn another_device_without_peer_access_is_told_so() {
    for_each_that_goes_with_its_maker("devices=2,disable=peer", |stage, strategy| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &[&format!("make-by {strategy} x s 10 1"), "put 0 x"]);
        told(&b, &["load 1", "get 0 y"]);
        assert!(ask(&b, "read y there").contains("cannot reach the memory of device"));
        told(&b, &["load 0"]);
        assert_eq!(ask(&b, "read y here"), "1 10 55");
        a.finish();
        b.finish();
    });
}
