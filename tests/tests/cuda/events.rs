//! Events that travel by themselves.

use tensorferry_kit::has_semaphores;

use super::tensors::on_machine;
use super::{ask, told};

#[test]
fn an_event_is_recorded_in_one_process_and_waited_for_in_another_both_ways() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        // It travels before it was ever recorded.
        told(&a, &["event e", "put-event 0 e", "make x s 10 1", "make tens s 10 10", "put 1 x"]);
        told(&b, &["get-event 0 e", "get 1 y", "make z s 10 0", "make ones s 10 5"]);
        assert_eq!(ask(&b, "done e"), "true");
        told(&a, &["control held", "copy x s tens", "record e s"]);
        assert_eq!(ask(&b, "done e"), "false");
        // Nothing of the tensor is sent again: the event alone orders the two.
        told(&b, &["wait e s", "copy z s y"]);
        told(&a, &["control running"]);
        assert_eq!(ask(&b, "read z s"), "10 19 145");
        told(&b, &["synchronize e", "control held", "copy y s ones", "record e s"]);
        a.say("synchronize e");
        told(&b, &["control running"]);
        a.expect("ok");
        assert_eq!(ask(&a, "read x s"), "5 14 95");
        a.finish();
        b.finish();
    });
}

#[test]
fn an_event_lives_as_long_as_anybody_has_it() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["event e", "put-event 0 e", "drop-event e", "collect"]);
        told(&b, &["get-event 0 e", "make x s 10 1", "record e s", "synchronize e"]);
        assert_eq!(ask(&b, "done e"), "true");
        // And in one process it is one event.
        told(&b, &["put-event 0 e", "get-event 0 f", "wait f s"]);
        a.finish();
        b.finish();
    });
}

#[test]
fn waiting_for_an_event_whose_recorder_was_killed_ends() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["event e", "put-event 0 e", "make x s 10 1", "make y s 10 1"]);
        told(&b, &["get-event 0 e"]);
        told(&a, &["control held", "copy x s y", "record e s"]);
        assert_eq!(ask(&b, "done e"), "false");
        b.say("synchronize e");
        a.kill();
        assert!(b.hear().contains("ended before its stream"), "nobody will finish it");
        assert!(ask(&b, "wait e s").contains("ended before its stream"));
        told(&b, &["make z s 10 5"]);
        b.finish();
    });
}

#[test]
fn a_record_that_fails_changes_nothing_for_those_who_wait() {
    on_machine("", |stage| {
        let (a, b, c) = (stage.member(), stage.member(), stage.member());
        told(&a, &["event e", "put-event 0 e", "put-event 1 e", "make x s 10 1", "make y s 10 1"]);
        told(&b, &["get-event 0 e"]);
        told(&c, &["get-event 1 e"]);
        assert_eq!(ask(&b, "done e"), "true");
        told(&a, &["control held", "copy x s y", "record e s"]);
        let function = if has_semaphores() { "cuStreamWriteValue64_v2" } else { "cuEventRecord" };
        told(&b, &[&format!("control fail={function}:2")]);
        assert!(ask(&b, "record e s").contains(&format!("{function} failed")));
        b.kill();
        assert_eq!(ask(&c, "done e"), "false", "the one that has recorded it lives");
        c.say("synchronize e");
        a.kill();
        assert!(c.hear().contains("ended before its stream"), "and does not any more");
        c.finish();
    });
}
