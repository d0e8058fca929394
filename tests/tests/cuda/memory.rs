//! Device memory that travels as a descriptor.

use std::os::fd::AsFd;

use tensorferry_kit::{Machine, needs_software_driver, where_possible};

use super::{ask, hand_over, told};

const LEN: &str = "4194304";

fn create_and_map() -> [String; 3] {
    ["load".to_owned(), format!("create {LEN}"), "map".to_owned()]
}

#[test]
fn memory_is_one_in_all_processes_that_have_it() {
    where_possible(|| {
        let machine = Machine::new("");
        let (producer, consumer, third) = (machine.process(), machine.process(), machine.process());
        told(&producer, &create_and_map().each_ref().map(String::as_str));
        told(&producer, &["write from the producer"]);
        told(&consumer, &["load"]);
        hand_over(&producer, "export", &consumer, &format!("import {LEN}"));
        told(&consumer, &["map"]);
        assert_eq!(ask(&consumer, "read 17"), "from the producer");
        told(&consumer, &["write back"]);
        assert_eq!(ask(&producer, "read 17"), "back the producer");
        told(&third, &["load"]);
        // Memory that was imported is not exported again; whoever has its descriptor passes that on.
        assert!(ask(&consumer, "export").contains("cuMemExportToShareableHandle failed: CUDA_ERROR_INVALID"));
        hand_over(&producer, "export", &third, &format!("import {LEN}"));
        told(&third, &["map"]);
        assert_eq!(ask(&third, "read 4"), "back");
        // Once, however many hold it.
        machine.assert_used(&third, 4);
        [producer, consumer, third].into_iter().for_each(tensorferry_kit::Process::finish);
    });
}

#[test]
fn what_was_written_is_there_for_others_also_where_the_driver_returns_before_it_is() {
    where_possible(|| {
        let machine = Machine::new("");
        let producer = machine.process_with("delay_us=100000,staged_copies", &[]);
        let consumer = machine.process();
        told(&producer, &create_and_map().each_ref().map(String::as_str));
        told(&consumer, &["load"]);
        hand_over(&producer, "export", &consumer, &format!("import {LEN}"));
        told(&consumer, &["map"]);
        told(&producer, &["write hello"]);
        assert_eq!(ask(&consumer, "read 5"), "hello");
        [producer, consumer].into_iter().for_each(tensorferry_kit::Process::finish);
    });
}

#[test]
fn memory_outlives_the_producer_that_was_killed() {
    where_possible(|| {
        let machine = Machine::new("");
        let (producer, consumer) = (machine.process(), machine.process());
        told(&producer, &create_and_map().each_ref().map(String::as_str));
        told(&producer, &["write kept"]);
        told(&consumer, &["load"]);
        hand_over(&producer, "export", &consumer, &format!("import {LEN}"));
        // One more descriptor, which nobody has imported when the producer dies.
        assert_eq!(ask(&producer, "export"), "ok");
        let fd = producer.take_fd();
        told(&consumer, &["map"]);
        producer.kill();
        assert_eq!(ask(&consumer, "read 4"), "kept");
        told(&consumer, &["write more", "unmap", "release"]);
        let late = machine.process();
        told(&late, &["load"]);
        late.say_with(&format!("import {LEN}"), &[fd.as_fd()]);
        late.expect("ok");
        drop(fd);
        told(&late, &["map"]);
        assert_eq!(ask(&late, "read 4"), "more");
        told(&late, &["unmap", "release"]);
        machine.assert_used(&late, 0);
        late.finish();
        consumer.finish();
    });
}

#[test]
fn a_killed_process_leaves_no_memory_behind() {
    where_possible(|| {
        let machine = Machine::new("");
        let (witness, victim) = (machine.process(), machine.process());
        told(&witness, &["load"]);
        told(&victim, &create_and_map().each_ref().map(String::as_str));
        assert_eq!(ask(&witness, "used"), "4");
        victim.kill();
        assert_eq!(ask(&witness, "used"), "0");
        witness.finish();
    });
}

#[test]
fn a_mapping_keeps_memory_whose_handle_was_released() {
    where_possible(|| {
        let machine = Machine::new("");
        let process = machine.process();
        told(&process, &create_and_map().each_ref().map(String::as_str));
        told(&process, &["write kept", "release"]);
        assert_eq!(ask(&process, "read 4"), "kept");
        machine.assert_used(&process, 4);
        told(&process, &["unmap"]);
        machine.assert_used(&process, 0);
        process.finish();
    });
}

#[test]
fn a_device_is_found_by_its_identity_and_says_what_it_can() {
    where_possible(|| {
        needs_software_driver();
        let ask_all = |settings| {
            let process = Machine::new(settings).process();
            told(&process, &["load"]);
            let answers = ["by-uuid", "peers", "shareable"].map(|line| ask(&process, line));
            process.finish();
            answers
        };
        assert_eq!(ask_all("devices=3"), ["0 1 2 true", "011 101 110", "true"]);
        assert_eq!(ask_all("devices=2,disable=peer+pool"), ["0 1 true", "00 00", "false"]);
    });
}

#[test]
fn devices_are_known_by_identity() {
    where_possible(|| {
        let machine = Machine::new("devices=3");
        let (all, swapped) =
            (machine.process(), machine.process_with("", &[("CUDA_VISIBLE_DEVICES", "2,0")]));
        told(&all, &["load"]);
        told(&swapped, &["load"]);
        let (uuids, visible) = (ask(&all, "uuids"), ask(&swapped, "uuids"));
        let uuids: Vec<&str> = uuids.split(' ').collect();
        assert_eq!(visible, format!("{} {}", uuids[2], uuids[0]));
        // What lies on the first device of one is on the second device of the other.
        told(&all, &[&format!("create {LEN}")]);
        assert_eq!(ask(&all, "export"), "ok");
        let fd = all.take_fd();
        swapped.say_with(&format!("import {LEN}"), &[fd.as_fd()]);
        let answer = swapped.hear();
        assert_eq!(
            answer,
            format!("error: the memory lies on device {}, not on device {}", uuids[0], uuids[2])
        );
        all.finish();
        swapped.finish();
    });
}
