//! Drivers that refuse in the middle of something, and streams and devices that cannot do it.

use tensorferry_cuda_ipc::CudaStrategy;
use tensorferry_kit::{Process, has_semaphores, strategies_of_run, until};

use super::tensors::on_machine;
use super::{ask, told};

const OUT_OF_MEMORY: &str = "CUDA_ERROR_OUT_OF_MEMORY";

#[test]
fn a_receiver_whose_driver_refuses_may_try_again() {
    let functions: &[&str] = match strategies_of_run()[0] {
        CudaStrategy::Legacy => &["cuIpcOpenMemHandle_v2"],
        CudaStrategy::Pool => &["cuMemPoolImportFromShareableHandle", "cuMemPoolImportPointer"],
        _ => &["cuMemImportFromShareableHandle", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"],
    };
    for function in functions {
        on_machine("", |stage| {
            let (a, b) = (stage.member(), stage.member_with(&format!("fail={function}:2"), &[]));
            told(&a, &["make x s 10 1", "put 0 x"]);
            told(&b, &["get 0 y"]);
            let answer = ask(&b, "read y s");
            assert!(answer.contains(function) && answer.contains(OUT_OF_MEMORY), "{answer}");
            assert_eq!(ask(&b, "read y s"), "1 10 55", "after {function}");
            told(&a, &["drop x"]);
            told(&b, &["drop y"]);
            stage.wait_unused(&a);
            a.finish();
            b.finish();
        });
    }
}

#[test]
fn a_sender_whose_driver_refuses_keeps_the_tensor() {
    let of_strategy: &[&str] = match strategies_of_run()[0] {
        // The handle is in the slab from the beginning.
        CudaStrategy::Legacy | CudaStrategy::Pool => &[],
        _ => &["cuMemExportToShareableHandle"],
    };
    let of_points: &[&str] = match has_semaphores() {
        true => &["cuStreamWriteValue64_v2"],
        false => &["cuEventCreate", "cuIpcGetEventHandle", "cuEventRecord"],
    };
    let of_all = ["cuStreamIsCapturing", "cuStreamQuery"];
    for function in of_strategy.iter().chain(of_points).chain(&of_all) {
        on_machine("", |stage| {
            let (a, b) = (stage.member(), stage.member());
            told(&a, &["make x s 10 1", "make tens s 10 10", "control held", "copy x s tens"]);
            told(&a, &[&format!("control fail={function}:2")]);
            let answer = ask(&a, "put 0 x");
            assert!(answer.contains(function) && answer.contains(OUT_OF_MEMORY), "{function}: {answer}");
            told(&a, &["put 0 x", "control running"]);
            told(&b, &["get 0 y"]);
            assert_eq!(ask(&b, "read y s"), "10 19 145", "after {function}");
            a.finish();
            b.finish();
        });
    }
}

/// A stream that is held has been told to write all of a slab; nothing of it is free, and nothing is kept
/// when it is.
fn writing_a_slab(strategy: CudaStrategy) -> [String; 4] {
    let strategy = format!("strategy {strategy}");
    [strategy, "limits 0 0".into(), "control held".into(), "zeros x s 1048576".into()]
}

/// The device of this process has touched nothing that it must not.
#[track_caller]
fn assert_unharmed(process: &Process) {
    told(process, &["control running", "make y s 10 5"]);
    assert_eq!(ask(process, "read y s"), "5 14 95");
    assert!(!process.stderr().contains("rule broken"), "{}", process.stderr());
    told(process, &["drop y"]);
}

#[test]
fn memory_whose_last_use_cannot_be_marked_at_once_is_kept_until_it_can() {
    for strategy in strategies_of_run() {
        on_machine("", |stage| {
            let a = stage.member();
            told(&a, &writing_a_slab(strategy).each_ref().map(String::as_str));
            told(&a, &["control fail=cuEventRecord:2", "drop x", "collect"]);
            assert_unharmed(&a);
            stage.wait_unused(&a);
            assert!(ask(&a, "stats").contains("slabs_poisoned: 0,"));
            a.finish();
        });
    }
}

#[test]
fn memory_that_was_not_handed_out_after_all_is_as_busy_as_before() {
    for strategy in strategies_of_run() {
        on_machine("", |stage| {
            let a = stage.member();
            told(&a, &writing_a_slab(strategy).each_ref().map(String::as_str));
            told(&a, &["limits 100 0", "drop x", "control fail=cuStreamWaitEvent:2"]);
            assert!(ask(&a, "zeros z t 1048576").contains(OUT_OF_MEMORY), "it is to wait for the last user");
            told(&a, &["limits 0 0", "collect"]);
            assert_unharmed(&a);
            stage.wait_unused(&a);
            a.finish();
        });
    }
}

#[test]
fn memory_is_not_freed_because_the_driver_does_not_say_whether_it_is_in_use() {
    for strategy in strategies_of_run() {
        for code in [2, 700] {
            on_machine("", |stage| {
                let a = stage.member();
                told(&a, &writing_a_slab(strategy).each_ref().map(String::as_str));
                told(&a, &["drop x", &format!("control fail=cuEventQuery:{code}"), "collect"]);
                assert_unharmed(&a);
                stage.wait_unused(&a);
                a.finish();
            });
        }
    }
}

#[test]
fn what_a_broken_context_may_be_at_is_neither_freed_nor_closed() {
    for strategy in strategies_of_run() {
        on_machine("", |stage| {
            let (a, b) = (stage.member(), stage.member());
            told(&a, &writing_a_slab(strategy).each_ref().map(String::as_str));
            // Its driver says that the context is broken when the last use is to be marked.
            told(&a, &["control fail=cuEventRecord:700", "drop x", "collect"]);
            assert!(ask(&a, "stats").contains("slabs_leaked: 1"));
            assert_unharmed(&a);
            // So it is with a receiver, and the owner does not free what that has open.
            told(&a, &["make x s 10 1", "put 0 x", "drop x"]);
            told(&b, &["limits 0 0", "get 0 y", "make z s 10 7", "control held", "copy y s z"]);
            told(&b, &["control fail=cuEventRecord:700", "drop y", "collect"]);
            assert!(ask(&b, "stats").contains("slabs_leaked: 1"));
            until("the owner learns of it", || {
                told(&a, &["collect"]);
                ask(&a, "stats").contains("slabs_poisoned: 2")
            });
            assert_unharmed(&b);
            told(&b, &["drop z"]);
            b.finish();
            a.finish();
            // Their ends have freed it.
            let witness = stage.member();
            stage.wait_unused(&witness);
            witness.finish();
        });
    }
}

#[test]
fn a_driver_that_does_not_know_the_attribute_of_events_has_them_all_the_same() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "make tens s 10 10", "control held", "copy x s tens"]);
        // So does a driver before CUDA 12.0 answer.
        told(&a, &["control fail=cuDeviceGetAttribute:1", "put 0 x", "control running"]);
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "read y s"), "10 19 145");
        // Nothing else is a yes.
        told(&a, &["control held", "copy x t tens", "control fail=cuDeviceGetAttribute:2"]);
        assert!(ask(&a, "put 0 x").contains(OUT_OF_MEMORY));
        told(&a, &["control running"]);
        a.finish();
        b.finish();
    });
}

#[test]
fn devices_are_matched_by_identity_whatever_number_they_have() {
    on_machine("devices=3", |stage| {
        let a = stage.member();
        let b = stage.member_with("", &[("CUDA_VISIBLE_DEVICES", "2,0")]);
        let c = stage.member_with("", &[("CUDA_VISIBLE_DEVICES", "1")]);
        told(&a, &["make x s 10 1"]);
        told(&a, &["put 0 x", "put 0 x"]);
        // On its device 0, which is another one, through peer access.
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "read y s"), "1 10 55");
        told(&b, &["load 1"]);
        assert_eq!(ask(&b, "read y on-the-same-device"), "1 10 55");
        told(&c, &["get 0 y"]);
        let answer = ask(&c, "read y s");
        assert!(answer.contains("this process does not see device GPU-"), "{answer}");
        [a, b, c].into_iter().for_each(tensorferry_kit::Process::finish);
    });
}

#[test]
fn a_device_without_peer_access_is_told_so() {
    on_machine("devices=2,disable=peer", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "put 0 x"]);
        told(&b, &["get 0 y", "load 1"]);
        let answer = ask(&b, "read y s");
        assert!(answer.contains("cannot reach the memory of device"), "{answer}");
        assert!(answer.contains("CudaTensor::to_staged"), "the way out: {answer}");
        told(&b, &["load 0"]);
        assert_eq!(ask(&b, "read y t"), "1 10 55");
        a.finish();
        b.finish();
    });
}
