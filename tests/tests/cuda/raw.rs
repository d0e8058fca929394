//! What the driver does between processes, called as C calls it. The rules that only the software driver
//! enforces are asked of it alone: `answers` asks a real one what it does.

use tensorferry_kit::{Machine, Process, is_real, needs_software_driver, where_possible};

use super::{ask, told};

/// What the software driver has in memory that nobody wrote.
const FRESH: &str = "2779096485";

/// A producer that has allocated, and its handle.
fn producer(machine: &Machine) -> (Process, String) {
    let producer = machine.raw_process("");
    let handle = ask(&producer, "alloc");
    assert_eq!(handle.len(), 128, "a handle: {handle}");
    (producer, handle)
}

#[test]
fn legacy_memory_is_shared_and_counted() {
    where_possible(|| {
        let machine = Machine::new("");
        let (producer, handle) = producer(&machine);
        let consumer = machine.raw_process("");
        assert_eq!(ask(&producer, &format!("open {handle}")), "code 201", "not where it was made");
        told(&producer, &["fill 7", "synchronize"]);
        told(&consumer, &[&format!("open {handle}")]);
        assert_eq!(ask(&consumer, "read"), "7");
        told(&consumer, &["fill 8", "synchronize"]);
        assert_eq!(ask(&producer, "alloc").len(), 128);
        machine.assert_used(&consumer, 8);
        told(&consumer, &["close"]);
        consumer.finish();
        producer.finish();
    });
}

#[test]
fn legacy_memory_that_is_used_after_its_exporter_was_killed_is_a_broken_rule() {
    where_possible(|| {
        needs_software_driver();
        let machine = Machine::new("");
        let (producer, handle) = producer(&machine);
        let (consumer, late) = (machine.raw_process(""), machine.raw_process(""));
        told(&consumer, &[&format!("open {handle}")]);
        assert_eq!(ask(&consumer, "read"), FRESH);
        producer.kill();
        // It is there as long as somebody has it open. That nobody may count on.
        assert_eq!(ask(&consumer, "read"), FRESH);
        assert!(consumer.stderr().contains("after its exporter died"), "{}", consumer.stderr());
        assert_eq!(ask(&late, &format!("open {handle}")), "code 400");
        late.finish();
        consumer.finish();
    });
}

#[test]
fn strict_processes_die_of_a_broken_rule() {
    where_possible(|| {
        let machine = Machine::new("");
        let (producer, handle) = producer(&machine);
        let consumer = machine.raw_process("strict");
        told(&consumer, &[&format!("open {handle}")]);
        producer.kill();
        consumer.say("read");
        assert!(consumer.pidfd().wait_dead(Some(tensorferry_kit::DEADLINE)).unwrap());
        assert!(consumer.stderr().contains("rule broken"), "{}", consumer.stderr());
    });
}

#[test]
fn memory_comes_back_after_a_consumer_was_killed() {
    where_possible(|| {
        let machine = Machine::new("");
        let (producer, handle) = producer(&machine);
        let consumer = machine.raw_process("");
        told(&consumer, &[&format!("open {handle}")]);
        consumer.kill();
        told(&producer, &["free"]);
        machine.assert_used(&producer, 0);
        assert!(
            !producer.stderr().contains("rule broken"),
            "a dead importer does not count: {}",
            producer.stderr()
        );
        producer.finish();
    });
}

#[test]
fn a_wait_for_an_event_orders_two_processes() {
    where_possible(|| {
        for waits in [true, false] {
            // What memory holds that nobody wrote is no rule of a real driver.
            if is_real() && !waits {
                continue;
            }
            let machine = Machine::new("");
            let (producer, handle) = producer(&machine);
            let consumer = machine.raw_process("");
            told(&producer, &["control held", "fill 7"]);
            let event = ask(&producer, "record");
            told(&consumer, &[&format!("open {handle}"), &format!("open-event {event}")]);
            assert_eq!(ask(&consumer, "query"), "code 600");
            told(&consumer, if waits { &["wait", "copy"] } else { &["copy", "synchronize"] });
            told(&producer, &["control running"]);
            told(&consumer, &["synchronize"]);
            // Who does not wait is caught, whatever the timing: the producer's stream was held.
            assert_eq!(ask(&consumer, "read"), if waits { "7" } else { FRESH });
            consumer.finish();
            producer.finish();
        }
    });
}

#[test]
fn pool_memory_is_shared_by_descriptor_and_pointer() {
    where_possible(|| {
        let machine = Machine::new("");
        let (producer, consumer) = (machine.raw_process(""), machine.raw_process(""));
        let data = ask(&producer, "pool");
        let fd = producer.take_fd();
        told(&producer, &["fill 9", "synchronize"]);
        consumer.say_with(&format!("open-pool {data}"), &[std::os::fd::AsFd::as_fd(&fd)]);
        consumer.expect("ok");
        assert_eq!(ask(&consumer, "read"), "9");
        told(&consumer, &["free-async", "synchronize"]);
        told(&producer, &["free-async", "synchronize"]);
        machine.assert_used(&producer, 0);
        producer.finish();
        consumer.finish();
    });
}

#[test]
fn twice_as_many_processes_as_columns_add_to_them() {
    where_possible(|| {
        let machine = Machine::new("delay_us=100");
        let (owner, handle) = producer(&machine);
        told(&owner, &["fill 0", "synchronize"]);
        let adders: Vec<Process> = (0..8).map(|_| machine.raw_process("")).collect();
        for (rank, adder) in adders.iter().enumerate() {
            told(adder, &[&format!("open {handle}")]);
            adder.say(format!("add-ten {}", rank % 4));
        }
        for adder in adders {
            adder.expect("ok");
            told(&adder, &["synchronize", "close"]);
            adder.finish();
        }
        for index in 0..32 * 4 {
            assert_eq!(
                ask(&owner, &format!("read {index}")),
                20.0_f32.to_bits().to_string(),
                "element {index}"
            );
        }
        assert_eq!(ask(&owner, "read 128"), "0", "nothing beyond the last row");
        owner.finish();
    });
}

#[test]
fn a_fork_has_no_driver() {
    where_possible(|| {
        let machine = Machine::new("");
        let raw = machine.raw_process("");
        assert_eq!(ask(&raw, "forked"), "3");
        raw.finish();
        let process = machine.process();
        told(&process, &["load"]);
        assert_eq!(ask(&process, "forked"), "1");
        told(&process, &["create 2097152"]);
        process.finish();
    });
}

#[test]
fn a_driver_has_the_version_that_it_was_given() {
    where_possible(|| {
        needs_software_driver();
        // The last attribute is that of interprocess events, which came with 12.0.
        for (settings, version, events) in [("", "13000", "1"), ("version=11.8", "11080", "code 1")] {
            let process = Machine::new(settings).raw_process("");
            assert_eq!((&*ask(&process, "version"), &*ask(&process, "attribute 125")), (version, events));
            process.finish();
        }
    });
}

#[test]
fn a_context_takes_memory_until_its_process_is_killed() {
    where_possible(|| {
        let machine = Machine::new("context_mib=300");
        let (a, b) = (machine.raw_process(""), machine.raw_process(""));
        // The context of each is there when it has answered.
        ask(&a, "version");
        machine.assert_used(&b, 600);
        b.kill();
        machine.assert_used(&a, 300);
        a.finish();
    });
}

#[test]
fn a_call_that_is_lost_says_that_all_is_well() {
    where_possible(|| {
        let machine = Machine::new("");
        let (producer, _) = producer(&machine);
        told(&producer, &["control lose=cuMemFree_v2", "free"]);
        machine.assert_used(&producer, 4);
        told(&producer, &["free"]);
        machine.assert_used(&producer, 0);
        producer.finish();
    });
}

#[test]
fn codes_of_broken_contexts_can_be_ordered() {
    where_possible(|| {
        let process = Machine::new("").raw_process("");
        for code in [4, 214, 220, 221, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721] {
            told(&process, &[&format!("control fail=cuStreamSynchronize:{code}")]);
            assert_eq!(ask(&process, "synchronize"), format!("code {code}"));
        }
        process.finish();
    });
}
