//! cudarc's streams and slices.

use tensorferry_cuda_ipc::CudaStrategy;
use tensorferry_kit::strategies_of_run;

use super::tensors::on_machine;
use super::{ask, told};

#[test]
fn slices_of_cudarc_become_tensors_and_tensors_slices() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["cudarc c", "slice x c 10 1", "put 0 x"]);
        told(&b, &["cudarc c", "get 0 y", "narrow part y 2 3"]);
        assert_eq!(ask(&b, "read-slice y c"), "1 10 55");
        assert_eq!(ask(&b, "read-slice part c"), "3 5 12");
        told(&b, &["clear-slice part c", "put 1 part"]);
        told(&a, &["get 1 part"]);
        assert_eq!((ask(&a, "read part c"), ask(&a, "read-slice x c")), ("0 0 0".into(), "1 10 43".into()));
        // What is lent is not freed by cudarc.
        told(&a, &["drop x", "drop part"]);
        told(&b, &["drop y", "drop part"]);
        stage.wait_unused(&a);
        a.finish();
        b.finish();
    });
}

#[test]
fn work_that_cudarc_has_queued_is_waited_for_by_who_receives_on_whatever_stream() {
    for command in ["read-slice y c", "read-slice y c d"] {
        on_machine("", |stage| {
            let (a, b) = (stage.member(), stage.member());
            told(&a, &["cudarc c", "slice x c 10 1", "control held", "clear-slice x c", "put 0 x"]);
            told(&b, &["cudarc c", "cudarc d", "get 0 y"]);
            b.say(command);
            b.wait_until_asleep();
            told(&a, &["control running"]);
            assert_eq!(b.hear(), "0 0 0", "{command}");
            a.finish();
            b.finish();
        });
    }
}

#[test]
fn a_slice_is_taken_when_its_own_stream_is_done_with_it_even_where_nothing_is_tracked() {
    // Without pools, cudarc waits for the device when it frees what was copied.
    if !strategies_of_run().contains(&CudaStrategy::Pool) {
        return;
    }
    for command in ["share x c 10 1 on=d", "slice x c 10 1 on=d"] {
        on_machine("", |stage| {
            let (a, b) = (stage.member(), stage.member());
            // A slab is there already: to make one from a pool waits for a stream.
            told(&a, &["cudarc c", "cudarc d", "slice w c 10 1", "track-nothing c", "control held"]);
            ask(&a, command);
            told(&a, &["put 0 x"]);
            told(&b, &["get 0 y"]);
            b.say("read y s");
            b.wait_until_asleep();
            told(&a, &["control running"]);
            assert_eq!(b.hear(), "1 10 55", "{command}");
            a.finish();
            b.finish();
        });
    }
}

#[test]
fn streams_that_cannot_be_waited_for_are_refused() {
    on_machine("", |stage| {
        let a = stage.member();
        assert!(ask(&a, "per-thread").contains("per-thread default stream"));
        a.finish();
    });
}
