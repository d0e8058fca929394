//! Processes that end, well or badly, while others have their device tensors.

use tensorferry::queue::Queue;
use tensorferry_cuda_ipc::CudaStrategy;
use tensorferry_kit::tasks::DeviceMember;
use tensorferry_kit::{Family, Process, until, where_possible, with_family};

use super::tensors::{Stage, is_run_with, on_machine};
use super::{ask, told};

/// Puts a tensor that the sender's device is still to write.
fn put_pending(sender: &Process) {
    told(sender, &["make x s 10 1", "make tens s 10 10", "control held", "copy x s tens", "put 0 x"]);
}

#[test]
fn a_producer_that_ends_well_finishes_what_it_has_sent() {
    if !is_run_with(CudaStrategy::Vmm) {
        return;
    }
    // Every operation of its device takes a while.
    on_machine("", |stage| {
        let (a, b) = (stage.member_with("delay_us=20000", &[]), stage.member());
        told(&a, &["make x s 10 1", "make tens s 10 10", "copy x s tens", "put 0 x"]);
        a.finish();
        stage.family.wait_members(2);
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "read y s"), "10 19 145");
        told(&b, &["drop y"]);
        stage.wait_unused(&b);
        b.finish();
    });
}

#[test]
fn memory_that_nobody_has_fetched_outlives_a_producer_that_was_killed() {
    if !is_run_with(CudaStrategy::Vmm) {
        return;
    }
    on_machine("", |stage| {
        let (a, b, c) = (stage.member(), stage.member(), stage.member());
        told(&a, &["make x s 10 1", "put 0 x"]);
        a.kill();
        stage.family.wait_members(3);
        told(&b, &["get 0 y", "put 1 y"]);
        // It was passed on by somebody who never mapped it.
        told(&c, &["get 1 z"]);
        assert_eq!(ask(&c, "read z s"), "1 10 55");
        b.kill();
        assert_eq!(ask(&c, "read z t"), "1 10 55");
        told(&c, &["drop z"]);
        stage.wait_unused(&c);
        until("the descriptor is let go of", || stage.family.heap().domain().n_fds_kept() == 0);
        c.finish();
    });
}

#[test]
fn what_a_killed_producer_had_not_finished_is_an_error_and_harms_nothing() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        put_pending(&a);
        told(&b, &["get 0 y"]);
        a.kill();
        let answer = ask(&b, "read y s");
        assert!(answer.contains("ended before its stream had written it"), "{answer}");
        // The receiver's device is as good as before.
        told(&b, &["make z s 10 5"]);
        assert_eq!(ask(&b, "read z s"), "5 14 95");
        told(&b, &["drop y", "drop z"]);
        stage.wait_unused(&b);
        b.finish();
    });
}

#[test]
fn what_a_killed_consumer_held_comes_back() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "put 0 x", "drop x"]);
        told(&b, &["get 0 y"]);
        b.kill();
        stage.wait_unused(&a);
        assert!(ask(&a, "stats").contains("slabs_poisoned: 0"), "it was not used");
        a.finish();
    });
}

#[test]
fn what_a_killed_consumer_used_is_given_up_and_not_used_again() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "make other s 10 2", "put 0 x", "drop x"]);
        told(&b, &["get 0 y", "make z s 10 9", "control held", "copy y s z"]);
        b.kill();
        until("the owner learns of it", || {
            told(&a, &["collect"]);
            ask(&a, "stats").contains("slabs_poisoned: 1")
        });
        // What else lies in the slab stays, and something new lies elsewhere.
        assert_eq!(ask(&a, "read other s"), "2 11 65");
        told(&a, &["make x s 10 1"]);
        assert!(ask(&a, "stats").contains("slabs_owned: 2"));
        told(&a, &["drop x", "drop other"]);
        stage.wait_unused(&a);
        a.finish();
    });
}

#[test]
fn memory_is_not_used_again_while_the_device_of_a_receiver_is_at_it() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "put 0 x", "drop x"]);
        told(&b, &["get 0 y", "make z s 10 0", "control held", "copy z s y", "drop y"]);
        // The receiver has no tensor any more, but its stream has not read it yet.
        for value in 100..110 {
            told(&a, &["collect", &format!("make w s 10 {value}"), "drop w"]);
        }
        told(&b, &["control running"]);
        assert_eq!(ask(&b, "read z s"), "1 10 55");
        until("the part comes back", || ask(&a, "stats").contains("tensors_leaving: 0"));
        a.finish();
        b.finish();
    });
}

#[test]
fn a_message_that_nobody_reads_gives_its_memory_back_with_its_queue() {
    if !is_run_with(CudaStrategy::Vmm) {
        return;
    }
    let on = |family: &Family| {
        let queue = Queue::new_in(family.heap(), 4).unwrap();
        let stage = Stage { machine: tensorferry_kit::Machine::new(""), family, queues: vec![queue] };
        let a = stage.member();
        told(&a, &["make x s 10 1", "put 0 x"]);
        a.kill();
        let witness = stage.machine.member(family, DeviceMember::default());
        told(&witness, &["load 0"]);
        family.wait_members(2);
        // The message has it.
        until("the descriptor store has taken it out of its door", || ask(&witness, "used") == "2");
        drop(stage);
        until("the memory of the device comes back", || ask(&witness, "used") == "0");
        witness.finish();
    };
    where_possible(|| with_family(on));
}

#[test]
fn a_slab_that_its_owner_gives_up_is_given_up_by_who_has_it_mapped() {
    on_machine("", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "put 0 x", "drop x"]);
        told(&b, &["get 0 y"]);
        assert_eq!(ask(&b, "read y s"), "1 10 55");
        told(&b, &["drop y"]);
        until("the part comes back", || ask(&a, "stats").contains("tensors_leaving: 0"));
        assert!(ask(&b, "stats").contains("slabs_mapped: 1"), "kept for the next tensor");
        told(&a, &["empty"]);
        // Nothing is asked of the receiver.
        until("the memory of the device comes back", || stage.is_unused(&a));
        a.finish();
        b.finish();
    });
}

#[test]
fn the_last_work_is_done_also_where_a_tensor_was_there_before_the_driver() {
    on_machine("delay_us=200000", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &["make x s 10 1", "put 0 x"]);
        let tensors = stage.queues[0].get().unwrap().device;
        // Its argument is a tensor, so that it knows of device memory before it has a driver.
        let task = DeviceMember { queues: stage.queues.clone(), tensors };
        let child = stage.machine.member(stage.family, task);
        told(&child, &["load 0", "argument x", "make tens s 10 10", "copy x s tens", "put 0 x"]);
        told(&b, &["get 0 z"]);
        child.finish();
        assert_eq!(ask(&b, "read z s"), "10 19 145");
        [a, b].into_iter().for_each(Process::finish);
    });
}

#[test]
fn memory_that_a_device_may_be_at_for_ever_is_never_freed() {
    // A launch that took too long, a device-side assert, an illegal address, a launch that failed.
    for code in [702, 710, 700, 719] {
        on_machine("", |stage| {
            let (a, b) = (stage.member(), stage.member());
            told(&a, &["make x s 10 1", "put 0 x", "drop x"]);
            told(&b, &["get 0 y"]);
            assert_eq!(ask(&b, "read y s"), "1 10 55");
            // The first tensor tries for legacy handles. What that leaves is freed before the streams stand
            // still, because freeing it waits for all of them.
            told(&b, &["zeros z s 10", "collect"]);
            let fails = format!("control fail=cuEventRecord:{code}");
            told(&b, &["control held", "copy y s z", &fails, "drop y", "collect"]);
            let stats = ask(&b, "stats");
            assert!(stats.contains("slabs_leaked: 1,"), "{code}: {stats}");
            [a, b].into_iter().for_each(Process::kill);
        });
    }
}
