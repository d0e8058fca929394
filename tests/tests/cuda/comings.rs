//! Streams that come and go beside tensors that stay.

use tensorferry_cuda_ipc::CudaStrategy;
use tensorferry_kit::{Process, may_lack_events, needs_software_driver, until};

use super::tensors::{is_run_with, on_machine};
use super::{ask, told};

/// Waits until the process knows no timeline, of its own streams or of others.
#[track_caller]
fn wait_without_timelines(process: &Process) {
    until("the timelines go", || ask(process, "stats").contains("timelines: 0,"));
}

#[test]
fn a_tensor_keeps_no_stream_of_cudarc_that_the_program_has_no_more() {
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["make x s 10 1", "make y s 10 1"]);
        for _ in 0..5 {
            // Two tensors, and the stream is brought twice.
            told(&a, &["cudarc c", "ready x c", "ready y c", "ready x c", "forget c"]);
        }
        // Each of them knows the last one.
        told(&a, &["ready x s", "ready y s", "cudarc d", "ready x d", "ready y d"]);
        assert_eq!(ask(&a, "streams-of-cudarc"), "1");
        assert_eq!(ask(&a, "read x d"), "1 10 55");
        a.finish();
    });
}

#[test]
fn a_tensor_keeps_no_stream_that_the_program_has_no_more() {
    on_machine("", |stage| {
        // Where each stream has a thread.
        needs_software_driver();
        let a = stage.member();
        told(&a, &["make x s 10 1"]);
        let before: usize = ask(&a, "threads").parse().unwrap();
        for _ in 0..5 {
            told(&a, &["ready x t", "forget t"]);
        }
        until("the threads of the streams end", || {
            ask(&a, "threads").parse::<usize>().unwrap() <= before + 1
        });
        a.finish();
    });
}

#[test]
fn what_a_stream_was_told_that_is_gone_since_is_waited_for_by_a_receiver() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "make tens s 10 10"]);
        // The stream that remains has nothing to do itself.
        told(&a, &["control held", "copy x t tens", "forget t", "control held", "ready x u", "put 0 x"]);
        told(&b, &["get 0 y", "begin-reading y s"]);
        b.wait_until_thread_sleeps("reading-s");
        told(&a, &["control running"]);
        assert_eq!(ask(&b, "end-reading s"), "10 19 145");
        a.finish();
        b.finish();
    });
}

#[test]
fn the_timelines_of_streams_that_are_gone_go_while_both_processes_live() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "make tens s 10 10"]);
        for _ in 0..5 {
            told(&a, &["control held", "copy x t tens", "put 0 x", "forget t"]);
            told(&b, &["get 0 y", "ready y s"]);
            told(&a, &["control running"]);
            assert_eq!(ask(&b, "read y s"), "10 19 145");
            told(&b, &["drop y"]);
        }
        wait_without_timelines(&a);
        wait_without_timelines(&b);
        a.finish();
        b.finish();
    });
}

#[test]
fn a_message_on_its_way_keeps_the_timeline_that_it_names() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "make tens s 10 10"]);
        // One message is taken out, and its timeline let go of; the other one names the same.
        told(&a, &["control held", "copy x t tens", "put 0 x", "put 1 x", "forget t"]);
        told(&b, &["get 0 y", "ready y s"]);
        told(&a, &["control running"]);
        assert_eq!(ask(&b, "read y s"), "10 19 145");
        told(&b, &["drop y"]);
        wait_without_timelines(&b);
        assert!(ask(&a, "stats").contains("timelines: 1,"), "the message has it");
        told(&b, &["get 1 z"]);
        assert_eq!(ask(&b, "read z s"), "10 19 145");
        told(&b, &["drop z"]);
        wait_without_timelines(&b);
        wait_without_timelines(&a);
        a.finish();
        b.finish();
    });
}

#[test]
fn who_sends_what_a_stream_still_writes_holds_up_nobody_else() {
    if !is_run_with(CudaStrategy::Vmm) || !may_lack_events() {
        return;
    }
    // Without memory operations of streams, and events between processes, sending waits for the stream.
    on_machine("disable=ipc+words", |stage| {
        needs_software_driver();
        let a = stage.member();
        told(&a, &["make x s 10 1", "make y s 10 5", "control held", "copy x s y", "begin-putting 0 x"]);
        a.wait_until_thread_sleeps("putting");
        ask(&a, "stats");
        told(&a, &["control running", "end-putting"]);
        a.finish();
    });
}
