//! What PyTorch's own tests assert about CUDA tensors between processes, where no other file does.
//! docs/TESTING.md says where each of them is.

use tensorferry::queue::Queue;
use tensorferry_kit::tasks::Synchronizer;
use tensorferry_kit::{Machine, Process, where_possible};

use super::tensors::on_machine;
use super::{ask, told};

#[test]
fn a_tensor_and_a_view_are_filled_by_the_child_and_come_back_twice() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        for round in 0..5 {
            let first = round * 100;
            told(&a, &[&format!("make x s 8 {first}"), "narrow view x 2 4", "put 0 x view"]);
            told(&b, &["get 0 x view", "make fours s 8 4", "copy x s fours", "put 1 x", "put 1 x"]);
            told(&a, &["get 1 one", "get 1 two"]);
            // Using what was received is what orders the stream after the child's, for all tensors of the
            // storage.
            assert_eq!((ask(&a, "read one s"), ask(&a, "read two s")), ("4 11 60".into(), "4 11 60".into()));
            assert_eq!((ask(&a, "read x s"), ask(&a, "read view s")), ("4 11 60".into(), "6 9 30".into()));
            assert_eq!((ask(&a, "same one two"), ask(&a, "same one x")), ("true".into(), "true".into()));
            told(&a, &["drop x", "drop view", "drop one", "drop two"]);
            told(&b, &["drop x", "drop view", "drop fours"]);
        }
        // It keeps what it has made for its next tensors.
        b.finish();
        stage.wait_unused(&a);
        a.finish();
    });
}

#[test]
fn what_the_sender_drops_after_sending_is_read() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        let names = ["v", "w", "x", "y", "z"];
        for (i, name) in names.iter().enumerate() {
            told(&a, &[&format!("make {name} s 5 {}", i * 10)]);
        }
        told(&a, &["put 0 v w x y z", "drop v", "drop w", "drop x", "drop y", "drop z", "collect"]);
        // What is made meanwhile lies elsewhere.
        told(&a, &["make other s 5 999"]);
        told(&b, &["get 0 v w x y z"]);
        for (i, name) in names.iter().enumerate() {
            assert_eq!(
                ask(&b, &format!("read {name} s")),
                format!("{} {} {}", i * 10, i * 10 + 4, i * 50 + 10)
            );
        }
        a.finish();
        b.finish();
    });
}

#[test]
fn two_processes_that_send_each_other_states_through_queues_of_one_do_not_block_each_other() {
    on_machine("", |stage| {
        let queues = [(); 2].map(|()| Queue::new_in(stage.family.heap(), 1).unwrap());
        let crowd = super::tensors::Stage {
            machine: Machine::new(""),
            family: stage.family,
            queues: queues.to_vec(),
        };
        let (actor, learner) = (crowd.member(), crowd.member());
        let (actor_back, learner_back) = (crowd.member(), crowd.member());
        let pairs = [
            (&actor, "put-states 0"),
            (&learner, "get-states 0"),
            (&learner_back, "put-states 1"),
            (&actor_back, "get-states 1"),
        ];
        for (process, line) in pairs {
            process.say(format!("{line} s 100"));
        }
        for (process, _) in pairs {
            process.expect("ok");
        }
        [actor, learner, actor_back, learner_back].into_iter().for_each(Process::finish);
    });
}

#[test]
fn small_tensors_of_two_devices_arrive_on_the_devices_they_were_made_on() {
    on_machine("devices=2", |stage| {
        let (a, b) = (stage.member(), stage.member());
        let first = ask(&a, "uuid");
        told(&a, &["make v s 3 1", "make w s 3 2", "load 1", "make x t 3 3", "make y t 3 4"]);
        let second = ask(&a, "uuid");
        assert_ne!(first, second);
        told(&a, &["put 0 v w x y"]);
        told(&b, &["get 0 v w x y"]);
        for (name, uuid, value) in [("v", &first, 1), ("w", &first, 2), ("x", &second, 3), ("y", &second, 4)]
        {
            assert_eq!(&ask(&b, &format!("device {name}")), uuid);
            if uuid == &second {
                told(&b, &["load 1"]);
            }
            let stream = if uuid == &first { "on-first" } else { "on-second" };
            let expected = format!("{value} {} {}", value + 2, 3 * value + 3);
            assert_eq!(ask(&b, &format!("read {name} {stream}")), expected);
        }
        a.finish();
        b.finish();
    });
}

#[test]
fn an_error_in_a_child_arrives_in_words() {
    where_possible(|| {
        let parent = Machine::new("").parent();
        let answer = ask(&parent, "bad-call");
        assert!(answer.contains("process 0") && answer.contains("4") && answer.contains('3'), "{answer}");
        parent.finish();
    });
}

#[test]
fn a_process_that_has_a_driver_is_not_forked() {
    where_possible(|| {
        let parent = Machine::new("").parent();
        assert_eq!(ask(&parent, "fork"), "started", "without a driver it is");
        told(&parent, &["load"]);
        let answer = ask(&parent, "fork");
        assert!(answer.contains("initialised the CUDA driver"), "{answer}");
        // Spawning is not forking.
        assert!(ask(&parent, "bad-call").contains("process 0"));
        parent.finish();
    });
}

#[test]
fn chunks_of_a_tensor_are_rebuilt_as_views_of_one_storage() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 12 0"]);
        for (name, start) in [("p", 0), ("q", 5), ("r", 10)] {
            let len = if start == 10 { 2 } else { 5 };
            told(&a, &[&format!("narrow {name} x {start} {len}"), &format!("put 0 {name}")]);
            told(&b, &[&format!("get 0 {name}")]);
            assert_eq!(ask(&b, &format!("read {name} s")), ask(&a, &format!("read {name} s")));
        }
        assert_eq!((ask(&b, "same p q"), ask(&b, "same q r")), ("true".into(), "true".into()));
        a.finish();
        b.finish();
    });
}

#[test]
fn an_event_that_was_never_recorded_is_a_spawn_argument() {
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["event e", "put-event 0 e", "make x s 10 1", "make y s 10 2"]);
        // The test process has no driver, and passes it on.
        let event = stage.queues[0].get().unwrap().events.remove(0);
        let child = stage.machine.member(stage.family, Synchronizer { event });
        assert_eq!(ask(&child, "done"), "true");
        told(&a, &["control held", "copy x s y", "record e s"]);
        assert_eq!(ask(&child, "done"), "false");
        child.say("synchronize");
        child.wait_until_asleep();
        told(&a, &["control running"]);
        child.expect("ok");
        child.finish();
        a.finish();
    });
}

#[test]
fn an_event_is_sent_while_another_device_is_in_use_before_and_after_it_is_recorded() {
    on_machine("devices=2", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "make tens s 10 10", "event e", "load 1", "zeros y t 10"]);
        told(&a, &["put-event 0 e"]);
        told(&b, &["get-event 0 e"]);
        told(&a, &["control held", "copy x s tens", "record e s", "put-event 0 e"]);
        told(&b, &["get-event 0 f"]);
        assert_eq!((ask(&b, "done e"), ask(&b, "done f")), ("false".into(), "false".into()));
        told(&a, &["control running"]);
        told(&b, &["synchronize e", "synchronize f"]);
        a.finish();
        b.finish();
    });
}

#[test]
fn tensors_of_several_types_share_a_block_and_some_have_no_elements() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["put-mixed 0 s"]);
        let answer = ask(&b, "get-mixed 0 s");
        let all: Vec<&str> = answer.split("] ").collect();
        assert!(
            all.iter().any(|text| text.contains("5, 6") && text.matches("0.5").count() == 30),
            "{answer}"
        );
        assert!(all.iter().any(|text| text.matches("200").count() == 30), "{answer}");
        assert!(all.iter().any(|text| text.matches("-7").count() == 30), "{answer}");
        assert_eq!(answer.matches("[]").count(), 3, "{answer}");
        assert!(ask(&a, "stats").contains("slabs_owned: 1"));
        a.finish();
        b.finish();
    });
}

#[test]
fn a_tensor_that_was_received_three_times_is_given_back_once() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "put 0 x", "put 0 x", "put 0 x", "drop x"]);
        told(&b, &["get 0 x", "get 0 y", "get 0 z", "drop x", "drop y", "collect"]);
        // One is left, so nothing new lies there.
        told(&a, &["collect", "make w s 10 500"]);
        assert_eq!(ask(&b, "read z s"), "1 10 55");
        told(&b, &["drop z"]);
        told(&a, &["drop w"]);
        stage.wait_unused(&a);
        a.finish();
        b.finish();
    });
}
