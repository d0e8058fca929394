//! Streams that capture graphs, and what goes on beside them.

use tensorferry_cuda_ipc::CudaStrategy;
use tensorferry_kit::{Process, until};

use super::tensors::{is_run_with, on_machine};
use super::{ask, told};

/// How many storages no tensor of the process holds that it has not let go of.
#[track_caller]
fn assert_leaving(process: &Process, n: usize) {
    let stats = ask(process, "stats");
    assert!(stats.contains(&format!("tensors_leaving: {n},")), "{stats}");
}

/// Waits until the process has let go of all storages, and checks that it could know when.
#[track_caller]
fn wait_until_all_have_left(process: &Process) {
    until("the part comes back", || ask(process, "stats").contains("tensors_leaving: 0,"));
    assert!(ask(process, "stats").contains("slabs_poisoned: 0,"));
    assert!(!process.stderr().contains("rule broken"), "{}", process.stderr());
}

#[test]
fn a_stream_that_captures_is_refused() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["cudarc c", "slice x c 10 1", "make y s 10 1", "cudarc d", "capture d relaxed"]);
        told(&a, &["event e"]);
        for line in [
            "stage z y d",
            "record e d",
            "wait e d",
            "ready y d",
            "make z d 10 1",
            "zeros z d 10",
            "copy y d x",
            "behind d s",
            "behind s d",
            "wait-stream d",
        ] {
            let answer = ask(&a, line);
            assert!(answer.contains("capturing a graph"), "{line}: {answer}");
        }
        told(&a, &["capture c relaxed"]);
        assert!(ask(&a, "put 0 x").contains("capturing a graph"), "there is no point to wait for");
        // What was not touched by it can be sent.
        told(&a, &["put 0 y", "end-capture c", "put 0 x"]);
        told(&b, &["get 0 y", "get 0 x"]);
        assert_eq!((ask(&b, "read y s"), ask(&b, "read x s")), ("1 10 55".into(), "1 10 55".into()));
        a.finish();
        b.finish();
    });
}

#[test]
fn memory_that_a_stream_used_before_it_captured_is_neither_used_again_nor_freed() {
    on_machine("", |stage| {
        let a = stage.member();
        // What was told to the stream before is not done yet, and its end cannot be marked.
        told(&a, &["cudarc c", "slice x c 10 1", "control held", "clear-slice x c", "capture c relaxed"]);
        told(&a, &["drop x", "collect", "empty"]);
        assert_leaving(&a, 1);
        told(&a, &["control running", "collect"]);
        assert_leaving(&a, 1);
        told(&a, &["end-capture c"]);
        wait_until_all_have_left(&a);
        told(&a, &["make y s 10 5"]);
        assert_eq!(ask(&a, "read y s"), "5 14 95");
        told(&a, &["drop y"]);
        stage.wait_unused(&a);
        a.finish();
    });
}

#[test]
fn no_slice_is_lent_to_a_graph_that_would_keep_it() {
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["cudarc c", "slice x c 10 1"]);
        let refused = ask(&a, "slice-in-capture x c");
        assert!(refused.contains("captur"), "{refused}");
        // Before and after it there is one.
        assert_eq!(ask(&a, "read-slice x c"), "1 10 55");
        told(&a, &["drop x"]);
        stage.wait_unused(&a);
        a.finish();
    });
}

#[test]
fn memory_of_a_slice_that_is_dropped_in_a_capture_is_kept() {
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["cudarc c", "cudarc d", "slice x c 10 1", "control held", "slice-until-capture x c d"]);
        // What the other stream does with it was not waited for.
        told(&a, &["drop x", "collect"]);
        let stats = ask(&a, "stats");
        assert!(stats.contains("tensors: 1,"), "{stats}");
        told(&a, &["control running"]);
        a.finish();
    });
}

#[test]
fn memory_that_a_receiver_used_before_it_captured_is_kept_for_it() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "put 0 x", "drop x"]);
        told(&b, &["cudarc c", "get 0 y", "control held", "clear-slice y c", "capture c relaxed", "drop y"]);
        told(&a, &["collect", "empty"]);
        assert_leaving(&a, 1);
        assert_leaving(&b, 1);
        told(&b, &["end-capture c"]);
        // It is still at it.
        told(&b, &["collect"]);
        assert_leaving(&b, 1);
        told(&b, &["control running"]);
        wait_until_all_have_left(&b);
        wait_until_all_have_left(&a);
        stage.wait_unused(&a);
        a.finish();
        b.finish();
    });
}

#[test]
fn the_null_stream_makes_its_point_when_no_stream_that_it_waits_for_captures() {
    on_machine("", |stage| {
        let a = stage.member();
        // That is what the driver says about it meanwhile.
        told(&a, &["make x s 10 1", "control fail=cuStreamIsCapturing:906", "drop x"]);
        wait_until_all_have_left(&a);
        a.finish();
    });
}

#[test]
fn memory_of_the_host_is_lent_to_a_device_until_it_is_done_whoever_captures() {
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["make x s 10 1", "cudarc c", "control held", "capture c global", "begin-reading x s"]);
        told(&a, &["control running"]);
        assert_eq!(ask(&a, "end-reading s"), "1 10 55");
        // Once more while the driver says that it may not be waited for, which in this mode only another
        // library can cause.
        told(&a, &["control fail=cuStreamSynchronize:900"]);
        assert_eq!(ask(&a, "read x s"), "1 10 55");
        told(&a, &["end-capture c"]);
        a.finish();
    });
}

#[test]
fn memory_and_mappings_that_go_beside_a_capture_spoil_it_not_and_are_not_lost() {
    if !is_run_with(CudaStrategy::Vmm) {
        return;
    }
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["cudarc c", "map m", "capture c global", "unmap m", "end-capture c"]);
        assert_eq!(ask(&a, "used"), "0");
        // Where the driver refuses all the same they are offered to it again.
        for function in ["cuMemUnmap", "cuMemAddressFree", "cuMemRelease"] {
            told(&a, &["map m", &format!("control fail={function}:900"), "unmap m"]);
            until("the memory comes back", || ask(&a, "used") == "0");
        }
        assert!(!a.stderr().contains("rule broken"), "{}", a.stderr());
        a.finish();
    });
}

#[test]
fn memory_that_is_used_for_the_first_time_beside_a_capture_spoils_it_not() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make t s 10 1"]);
        for strategy in ask(&a, "strategies").split(' ') {
            told(&a, &[&format!("make-by {strategy} x s 10 1"), "put 0 x", "drop x"]);
            told(&b, &["cudarc c", "make t s 10 1", "capture c global", "get 0 y"]);
            assert_eq!(ask(&b, "read y s"), "1 10 55");
            told(
                &b,
                &[&format!("make-by {strategy} z s 1000000 1"), "drop y", "drop z", "empty", "end-capture c"],
            );
        }
        if is_run_with(CudaStrategy::Vmm) {
            told(&b, &["capture c global", "map m", "unmap m", "end-capture c"]);
        }
        a.finish();
        b.finish();
    });
}

#[test]
fn nothing_that_is_done_beside_a_capture_spoils_it() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "make later s 10 1", "put 0 x"]);
        told(&b, &["cudarc c", "get 0 y", "make z s 10 0", "control held", "copy z s y", "drop y"]);
        told(&a, &["control held", "copy later s x", "put 0 later"]);
        told(&b, &["capture c global"]);
        // Memory is looked after; a tensor is sent that is not ready; another one comes that is not.
        // A stream is to wait for another one.
        told(&b, &["collect", "put 1 z", "get 0 later", "ready later s", "behind t s"]);
        assert_leaving(&b, 1);
        told(&a, &["control running"]);
        told(&b, &["control running"]);
        // The service thread has asked for an event.
        wait_until_all_have_left(&b);
        told(&b, &["wait-stream t", "drop z", "drop later", "end-capture c"]);
        told(&a, &["get 1 z"]);
        assert_eq!(ask(&a, "read z s"), "1 10 55");
        a.finish();
        b.finish();
    });
}
