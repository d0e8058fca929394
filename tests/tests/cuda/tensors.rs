//! Device tensors between processes.

use tensorferry::queue::Queue;
use tensorferry_cuda_ipc::CudaStrategy;
use tensorferry_kit::tasks::{Cargo, DeviceMember};
use tensorferry_kit::{
    Family, Machine, Process, is_real, strategies_of_run, until, where_possible, with_family,
};

use super::{ask, told};

/// Runs a test on a machine with one device, with a domain and two queues in it, or says why it cannot be run
/// here.
#[track_caller]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
pub(crate) fn on_machine(settings: &str, body: impl FnOnce(&Stage<'_>)) {
    where_possible(|| {
        let machine = Machine::new(settings);
        with_family(|family| {
            let queues = (0..2).map(|_| Queue::new_in(family.heap(), 4).unwrap()).collect();
            body(&Stage { machine, family, queues });
        });
    });
}

/// Whether tensors of this run have a strategy. Says so where a test is skipped because they have not.
#[expect(clippy::print_stderr, reason = "whoever reads the output learns what was skipped")]
pub(crate) fn is_run_with(strategy: CudaStrategy) -> bool {
    let is_on = strategies_of_run().contains(&strategy);
    if !is_on {
        eprintln!("skipped: TENSORFERRY_TEST_CUDA switches the strategy {strategy} off");
    }
    is_on
}

pub(crate) struct Stage<'a> {
    pub(crate) machine: Machine,
    pub(crate) family: &'a Family,
    pub(crate) queues: Vec<Queue<Cargo>>,
}

impl Stage<'_> {
    fn task(&self) -> DeviceMember {
        DeviceMember { queues: self.queues.clone(), tensors: Vec::new() }
    }

    /// A member that uses device 0.
    pub(crate) fn member(&self) -> Process {
        self.member_with("", &[])
    }

    pub(crate) fn member_with(&self, more: &str, variables: &[(&str, &str)]) -> Process {
        let member = self.machine.member_with(self.family, self.task(), more, variables);
        told(&member, &["load 0"]);
        member
    }

    /// A member that never asks the driver for anything.
    pub(crate) fn member_without_driver(&self) -> Process {
        self.machine.member_with(self.family, self.task(), "", &[("CUDA_VISIBLE_DEVICES", "")])
    }

    /// Waits until the machine's device has no memory in use. Of a real one nobody asks that: see
    /// [`is_real`].
    #[track_caller]
    pub(crate) fn wait_unused(&self, witness: &Process) {
        until("the memory of the device comes back", || {
            told(witness, &["empty"]);
            self.is_unused(witness)
        });
    }

    /// Whether the machine's device has no memory in use; of a real one that is believed.
    #[track_caller]
    pub(crate) fn is_unused(&self, witness: &Process) -> bool {
        is_real() || ask(witness, "used") == "0"
    }
}

#[test]
fn a_tensor_that_nobody_wrote_comes_behind_the_last_users_of_its_memory() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        // The device is to read a tensor of whose memory another one is made meanwhile, for another stream.
        told(&a, &["make x s 1000 1", "zeros z s 1000", "control held", "copy z s x", "drop x"]);
        told(&a, &["unwritten y t 1000", "put 0 y"]);
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "written y"), "false");
        told(&a, &["control running"]);
        until("the device has read it", || ask(&b, "written y") == "true");
        assert_eq!(ask(&a, "read z s"), "1 1000 500500");
        a.finish();
        b.finish();
    });
}

#[test]
fn a_stream_waits_for_what_was_queued_on_another_one() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 1000 1", "zeros z s 1000", "control held", "copy z s x", "put 0 z"]);
        // Only the first of these streams waits for the device of the other process.
        told(
            &b,
            &["get 0 z", "event of-t", "event of-u", "ready z s", "behind t s", "behind u v", "behind s s"],
        );
        told(&b, &["record of-t t", "record of-u u", "synchronize of-u"]);
        // Each question takes longer than what the stream would have to do if it did not wait.
        assert!((0..100).all(|_| ask(&b, "done of-t") == "false"));
        told(&a, &["control running"]);
        told(&b, &["synchronize of-t"]);
        until("the device has written it", || ask(&b, "written z") == "true");
        a.finish();
        b.finish();
    });
}

#[test]
fn a_tensor_arrives_beside_one_of_the_host_and_is_one_in_both_processes() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 1000 5", "narrow part x 100 50", "put 0 x part"]);
        told(&b, &["get 0 y part"]);
        assert_eq!(ask(&b, "read y s"), format!("5 1004 {}", (5..1005).sum::<u32>()));
        assert_eq!(ask(&b, "read part s"), format!("105 154 {}", (105..155).sum::<u32>()));
        assert_eq!(ask(&b, "same y part"), "true");
        // What one writes the other reads: it is one memory.
        assert_eq!(ask(&b, "read-into part s 50"), ask(&b, "read part s"));
        assert!(ask(&b, "read-into part s 49").contains("49"));
        told(&b, &["zeros z s 50", "copy part s z", "put 1 part"]);
        told(&a, &["get 1 back"]);
        assert_eq!(ask(&a, "read back s"), "0 0 0");
        assert_eq!(ask(&a, "same x back"), "true");
        a.finish();
        b.finish();
    });
}

#[test]
fn a_tensor_of_the_host_comes_back_from_another_process_s_device_memory() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["from-host x s 1000 5", "put 0 x"]);
        told(&b, &["get 0 y"]);
        // Two rows of what were two columns: 5, 7, .. and 6, 8, ..
        assert_eq!(ask(&b, "to-host y s"), format!("5 1004 {}", (5..1005).sum::<u32>()));
        told(&b, &["narrow second y 1 1"]);
        assert_eq!(ask(&b, "to-host second s"), format!("6 1004 {}", (6..1005).step_by(2).sum::<u32>()));
        a.finish();
        b.finish();
    });
}

#[test]
fn a_receiver_waits_for_the_sender_also_when_it_has_the_memory_mapped_already() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "make ones s 10 1", "make tens s 10 10", "put 0 x"]);
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "read y s"), "1 10 55");
        for (from, expected) in [("tens", "10 19 145"), ("ones", "1 10 55"), ("tens", "10 19 145")] {
            told(&a, &["control held", &format!("copy x s {from}"), "put 0 x"]);
            told(&b, &["get 0 y"]);
            // The reading waits in B's stream for the copy, which waits for A's device.
            b.say("read y s");
            b.wait_until_asleep();
            told(&a, &["control running"]);
            assert_eq!(b.hear(), expected);
        }
        a.finish();
        b.finish();
    });
}

#[test]
fn several_streams_of_the_sender_are_all_waited_for() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "narrow low x 0 5", "narrow high x 5 5", "make tens s 10 10"]);
        told(&a, &["narrow tens tens 0 5", "control held", "copy low t tens", "copy high u tens", "put 0 x"]);
        told(&b, &["get 0 y"]);
        b.say("read y s");
        b.wait_until_asleep();
        told(&a, &["control running"]);
        assert_eq!(b.hear(), "10 14 120");
        a.finish();
        b.finish();
    });
}

#[test]
fn who_only_passes_a_tensor_on_needs_no_driver() {
    on_machine("", |stage| {
        let (a, b, c) = (stage.member(), stage.member_without_driver(), stage.member());
        assert!(ask(&b, "load 0").contains("cuInit"), "it has none");
        told(&a, &["make x s 10 1", "make tens s 10 10", "control held", "copy x s tens", "put 0 x"]);
        told(&b, &["get 0 y", "put 1 y", "drop y"]);
        told(&c, &["get 1 z"]);
        c.say("read z s");
        c.wait_until_asleep();
        told(&a, &["control running"]);
        assert_eq!(c.hear(), "10 19 145", "the point of the first sender comes along");
        [a, b, c].into_iter().for_each(Process::finish);
    });
}

#[test]
fn put_and_get_in_one_process_is_the_same_storage() {
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["make x s 10 1", "put 0 x", "get 0 y"]);
        assert_eq!((ask(&a, "same x y"), ask(&a, "read y t")), ("true".into(), "1 10 55".into()));
        // Also when nothing but the message had held it.
        told(&a, &["put 0 x", "drop x", "drop y", "collect", "make z s 10 5", "get 0 x"]);
        assert_eq!(ask(&a, "read x s"), "1 10 55");
        a.finish();
    });
}

#[test]
fn tensors_are_spawn_arguments_and_may_have_no_elements() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "narrow nothing x 3 0", "put 0 x nothing"]);
        // The test process has no driver, as a parent may have none.
        let tensors = stage.queues[0].get().unwrap().device;
        let child = stage.machine.member(stage.family, DeviceMember { queues: Vec::new(), tensors });
        told(&child, &["load 0", "argument x", "argument nothing"]);
        assert_eq!(
            (ask(&child, "read x s"), ask(&child, "read nothing s")),
            ("1 10 55".into(), "nothing".into())
        );
        [a, b, child].into_iter().for_each(Process::finish);
    });
}

#[test]
fn many_receivers_have_one_memory_and_one_mapping_each() {
    on_machine("", |stage| {
        let (a, receivers) = (stage.member(), [stage.member(), stage.member(), stage.member()]);
        told(&a, &["make x s 1000000 1"]);
        for receiver in &receivers {
            told(&a, &["put 0 x", "put 0 x"]);
            told(receiver, &["get 0 y", "get 0 z"]);
            assert_eq!(ask(receiver, "same y z"), "true");
            assert!(ask(receiver, "read z s").starts_with("1 1000000 "));
            assert!(ask(receiver, "stats").contains("slabs_mapped: 1,"));
        }
        // One slab of 4 MiB, however many map it.
        stage.machine.assert_used(&a, 4);
        told(&a, &["drop x"]);
        for receiver in &receivers {
            assert!(ask(receiver, "read y s").starts_with("1 1000000 "));
            told(receiver, &["drop y", "drop z"]);
        }
        stage.wait_unused(&a);
        receivers.into_iter().for_each(Process::finish);
        a.finish();
    });
}
