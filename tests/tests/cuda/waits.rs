//! Streams that wait for the device of another process, which is killed meanwhile.
//!
//! Without memory operations, streams wait for events of the driver, and then for ever: `answers` shows that.

use tensorferry_kit::{Process, has_semaphores, needs_memory_of_the_killed, not_here, until};

use super::tensors::{Stage, on_machine};
use super::{ask, told};

const GONE: &str = "ended before its stream had written it";
const CUT_SHORT: &str = "a process for whose device the stream waited ended";

/// Runs a test with a sender whose device is held before it has written the tensor that is in queue 0.
#[track_caller]
fn with_pending(body: impl FnOnce(&Stage<'_>, Process)) {
    on_machine("", |stage| {
        if !has_semaphores() {
            not_here("memory operations of streams");
        }
        let sender = stage.member();
        told(&sender, &["make x s 10 1", "make tens s 10 10", "control held", "copy x s tens"]);
        body(stage, sender);
    });
}

#[test]
fn a_stream_that_waits_for_a_sender_who_is_killed_goes_on_and_the_reader_is_told() {
    with_pending(|stage, a| {
        let b = stage.member();
        told(&a, &["put 0 x"]);
        told(&b, &["get 0 y", "ready y s", "make z t 10 5"]);
        assert_eq!(ask(&b, "written y"), "false");
        a.kill();
        // First: whoever reads the tensor itself is told that, and this no more.
        assert!(ask(&b, "wait-stream s").contains(CUT_SHORT));
        assert!(ask(&b, "read y s").contains(GONE));
        assert!(ask(&b, "written y").contains(GONE));
        is_as_before(&b);
        assert_eq!(ask(&b, "read z t"), "5 14 95");
        told(&b, &["drop z", "drop w"]);
        stage.wait_unused(&b);
        b.finish();
    });
}

/// A stream that has waited in vain is as good as before, and so is the device: freeing waits for them all.
#[track_caller]
fn is_as_before(process: &Process) {
    told(process, &["drop y", "make w s 10 5", "empty"]);
    assert_eq!(ask(process, "read w s"), "5 14 95");
}

#[test]
fn who_reads_already_what_a_killed_sender_has_not_written_is_told() {
    with_pending(|stage, a| {
        needs_memory_of_the_killed();
        let b = stage.member();
        told(&a, &["put 0 x"]);
        told(&b, &["get 0 y", "begin-reading y s"]);
        b.wait_until_thread_sleeps("reading-s");
        a.kill();
        assert!(ask(&b, "end-reading s").contains(GONE));
        is_as_before(&b);
        b.finish();
    });
}

#[test]
fn who_computed_from_such_a_tensor_is_told_once() {
    with_pending(|stage, a| {
        needs_memory_of_the_killed();
        let b = stage.member();
        told(&a, &["put 0 x"]);
        told(&b, &["get 0 y", "make z s 10 0", "copy z s y", "drop y"]);
        a.kill();
        assert!(ask(&b, "wait-stream s").contains(CUT_SHORT));
        told(&b, &["wait-stream s", "copy z s z"]);
        ask(&b, "read z s");
        b.finish();
    });
}

#[test]
fn a_sender_that_lives_on_is_waited_for() {
    with_pending(|stage, a| {
        let b = stage.member();
        told(&a, &["put 0 x"]);
        told(&b, &["get 0 y", "begin-reading y s"]);
        b.wait_until_thread_sleeps("reading-s");
        // Somebody else ends.
        stage.member().kill();
        stage.family.wait_members(3);
        assert_eq!(ask(&b, "written y"), "false");
        told(&a, &["control running"]);
        assert_eq!(ask(&b, "end-reading s"), "10 19 145");
        assert_eq!(ask(&b, "written y"), "true");
        [a, b].into_iter().for_each(Process::finish);
    });
}

#[test]
fn a_process_ends_well_although_its_stream_waits_for_one_that_was_killed() {
    with_pending(|stage, a| {
        let b = stage.member();
        told(&a, &["put 0 x"]);
        told(&b, &["get 0 y", "ready y s"]);
        a.kill();
        b.finish();
        stage.family.wait_members(1);
    });
}

#[test]
fn a_stream_goes_on_that_waits_for_an_event_whose_recorder_is_killed() {
    with_pending(|stage, a| {
        let b = stage.member();
        told(&a, &["event e", "put-event 0 e", "record e s"]);
        told(&b, &["get-event 0 e", "make z s 10 5", "wait e s"]);
        assert_eq!(ask(&b, "done e"), "false");
        a.kill();
        assert!(ask(&b, "wait-stream s").contains(CUT_SHORT));
        assert_eq!(ask(&b, "read z s"), "5 14 95");
        assert!(ask(&b, "done e").contains(GONE));
        // Whoever records it anew makes it a good one.
        told(&b, &["record e s", "wait e t", "wait-stream t"]);
        assert_eq!(ask(&b, "done e"), "true");
        b.finish();
    });
}

#[test]
fn an_event_is_that_of_the_last_record_however_the_streams_come_to_it() {
    with_pending(|stage, a| {
        let (b, c) = (stage.member(), stage.member());
        // The stream `s` of the second waits for the first; `t` has nothing to do.
        told(&a, &["event gate", "record gate s", "put-event 0 gate"]);
        told(&b, &["get-event 0 gate", "event e", "put-event 1 e", "make z s 10 5", "make w t 10 5"]);
        told(&c, &["get-event 1 e"]);
        told(&b, &["wait gate s", "record e s"]);
        assert_eq!(ask(&c, "done e"), "false");
        told(&b, &["record e t", "wait-stream t"]);
        assert_eq!(ask(&c, "done e"), "true", "the first record does not count any more");
        // More than there are semaphores: the last one waits for the first.
        told(&b, &["record e s", "record e t", "record e t", "record e t", "record e t"]);
        told(&c, &["make z s 10 5", "wait e s", "begin-reading z s"]);
        told(&a, &["control running"]);
        assert_eq!(ask(&c, "end-reading s"), "5 14 95");
        until("the last record is reached", || ask(&c, "done e") == "true");
        [a, b, c].into_iter().for_each(Process::finish);
    });
}

#[test]
fn a_member_in_the_place_of_a_killed_one_records_for_itself() {
    with_pending(|stage, a| {
        let (b, slot) = (stage.member(), a.member().slot);
        told(&b, &["event e", "put-event 0 e", "put-event 1 e"]);
        told(&a, &["get-event 0 e", "record e s"]);
        told(&b, &["make z s 10 5", "wait e s"]);
        a.kill();
        stage.family.wait_members(2);
        let c = stage.member();
        assert_eq!(c.member().slot, slot, "the first that is free");
        told(&c, &["get-event 1 e", "make z s 10 5"]);
        assert!(ask(&b, "done e").contains(GONE));
        told(&c, &["control held", "copy z s z", "record e s"]);
        assert!(ask(&b, "wait-stream s").contains(CUT_SHORT));
        assert_eq!(ask(&b, "done e"), "false", "it is the new one's");
        told(&c, &["control running"]);
        told(&b, &["synchronize e"]);
        [b, c].into_iter().for_each(Process::finish);
    });
}
