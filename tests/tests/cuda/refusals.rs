//! Drivers that refuse in the middle of something, and streams and devices that cannot do it.

use tensorferry_cuda_ipc::CudaStrategy;
use tensorferry_tests::strategies_of_run;

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
        CudaStrategy::Legacy => &[],
        CudaStrategy::Pool => &["cuMemPoolExportToShareableHandle"],
        _ => &["cuMemExportToShareableHandle"],
    };
    let of_all =
        ["cuEventCreate", "cuIpcGetEventHandle", "cuEventRecord", "cuStreamIsCapturing", "cuStreamQuery"];
    for function in of_strategy.iter().chain(&of_all) {
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
        [a, b, c].into_iter().for_each(tensorferry_tests::Process::finish);
    });
}

#[test]
fn a_stream_that_is_captured_is_refused_and_the_memory_of_a_tensor_on_it_is_not_used_again() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["cudarc c", "slice x c 10 1", "make y s 10 1", "cudarc d", "capture d"]);
        told(&a, &["event e"]);
        for line in [
            "stage z y d",
            "record e d",
            "wait e d",
            "ready y d",
            "make z d 10 1",
            "zeros z d 10",
            "copy y d x",
        ] {
            let answer = ask(&a, line);
            assert!(answer.contains("capturing a graph"), "{line}: {answer}");
        }
        told(&a, &["capture c"]);
        assert!(ask(&a, "put 0 x").contains("capturing a graph"), "there is no point to wait for");
        // What was not touched by it can be sent.
        told(&a, &["put 0 y", "drop x"]);
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "read y s"), "1 10 55");
        // A graph may use the memory at any time.
        told(&a, &["collect"]);
        assert!(ask(&a, "stats").contains("slabs_spoilt: 1"));
        a.finish();
        b.finish();
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
        assert!(answer.contains("CudaTensor::staged"), "the way out: {answer}");
        told(&b, &["load 0"]);
        assert_eq!(ask(&b, "read y t"), "1 10 55");
        a.finish();
        b.finish();
    });
}
