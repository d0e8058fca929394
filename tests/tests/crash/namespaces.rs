//! Members whose process number does not tell whether they are members still: in another PID namespace,
//! another program by now, or without the descriptors that make them one.

use tensorferry::Queue;
use tensorferry_kit::tasks::{Closes, Execs, Unsharing};
use tensorferry_kit::{Item, Loner, alone, with_family};

use crate::member;

#[test]
fn members_in_a_pid_namespace_of_their_own_live_die_and_are_swept() {
    alone(|| {
        let child = Loner::start(&Unsharing, &[]);
        match child.hear().as_str() {
            "skipped" => println!("skipped: this process may not make a PID namespace"),
            said => assert_eq!(said, "done"),
        }
        child.finish();
    });
}

#[test]
fn a_member_that_becomes_another_program_is_swept_while_that_runs() {
    with_family(|family| {
        let queue = Queue::new_in(family.heap(), 4).unwrap();
        let child = family.start(Execs { queue: queue.clone() });
        child.expect("ready");
        family.wait_blocks(3);
        child.say("go");
        family.wait_members(1);
        assert!(!child.pidfd().is_dead().unwrap(), "it lives, as somebody else");
        let item = queue.get().unwrap();
        item.check();
        assert_eq!(item.sequence, 1);
        drop(item);
        family.wait_blocks(1);
        child.kill();
    });
}

/// What it then finds under the numbers of its descriptors says nothing about anybody else.
#[test]
fn a_member_whose_descriptors_are_other_files_is_swept_and_takes_nobody_for_dead() {
    with_family(|family| {
        let queue = Queue::new_in(family.heap(), 4).unwrap();
        let child = family.start(Closes);
        let other = member(family, &queue);
        child.expect("ready");
        child.say("go");
        child.finish();
        family.wait_members(2);
        assert_eq!(family.heap().domain().sweeps(), 1, "of that one");
        queue.put(Item::new(family.heap(), 1, 0, &[5])).unwrap();
        assert_eq!(other.ask("get"), "got 1/0");
        other.finish();
    });
}
