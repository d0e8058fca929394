//! Devices that are full.

use tensorferry_kit::{Process, until};

use super::strategies::for_each_that_goes_with_its_maker;
use super::tensors::on_machine;
use super::{ask, told};

/// Longer than any test takes.
const PATIENT: &str = "full-device-timeout 3600";

#[test]
fn a_maker_whose_device_is_full_is_told_so_and_free_memory_of_another_length_is_given_up_first() {
    on_machine("memory_mib=16", |stage| {
        let a = stage.member();
        // 12 MiB, which nobody needs any more when 14 MiB are wanted.
        told(&a, &["zeros x s 3145728", "drop x", "zeros y s 3670016"]);
        let answer = ask(&a, "zeros z s 3670016");
        assert!(answer.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{answer}");
        told(&a, &["drop y", "zeros z s 3670016"]);
        a.finish();
    });
}

#[test]
fn a_full_device_waits_for_what_others_have_not_let_go_of() {
    on_machine("memory_mib=16", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &[PATIENT, "zeros x s 3145728", "put 0 x", "drop x"]);
        // The message has all but 4 MiB.
        a.say("zeros y s 3145728");
        a.wait_until_asleep();
        told(&b, &["get 0 z"]);
        assert_eq!(ask(&b, "read z s"), "0 0 0");
        assert!(!a.has_spoken(), "the receiver has it");
        told(&b, &["drop z"]);
        a.expect("ok");
        told(&a, &["drop y"]);
        [a, b].into_iter().for_each(Process::finish);
    });
}

#[test]
fn a_part_of_a_slab_that_stays_is_room_on_a_full_device() {
    on_machine("memory_mib=16", |stage| {
        let (a, b) = (stage.member(), stage.member());
        // Two parts of one slab, and all that is left.
        told(
            &a,
            &[PATIENT, "zeros x s 262144", "zeros y s 262144", "zeros rest s 3670016", "put 0 x", "drop x"],
        );
        a.say("zeros z s 262144");
        a.wait_until_asleep();
        assert!(!a.has_spoken(), "the message has it");
        told(&b, &["get 0 x", "drop x"]);
        a.expect("ok");
        [a, b].into_iter().for_each(Process::finish);
    });
}

#[test]
fn a_full_device_waits_for_what_others_have_to_close() {
    for_each_that_goes_with_its_maker("memory_mib=16", |stage, strategy| {
        let (a, b) = (stage.member(), stage.member());
        told(&a, &[PATIENT, &format!("make-by {strategy} x s 3145728 1"), "put 0 x", "drop x"]);
        told(&b, &["get 0 y", "ready y s", "drop y"]);
        until("the part comes back", || ask(&a, "stats").contains("tensors_leaving: 0"));
        b.stop();
        told(&a, &["empty"]);
        assert!(ask(&a, "stats").contains("slabs_dying: 1"));
        a.say("zeros z s 3145728");
        a.wait_until_asleep();
        assert!(!a.has_spoken());
        b.go_on();
        a.expect("ok");
        [a, b].into_iter().for_each(Process::finish);
    });
}

#[test]
fn a_full_device_waits_for_what_the_driver_would_not_take_back() {
    for_each_that_goes_with_its_maker("memory_mib=16", |stage, strategy| {
        let function = if strategy == "pool" { "cuMemFreeAsync" } else { "cuMemFree_v2" };
        let a = stage.member();
        told(&a, &[PATIENT, &format!("make-by {strategy} x s 3145728 1"), "drop x"]);
        // As while a stream captures: it is refused, and refused again.
        let refuse = format!("control fail={function}:900");
        told(&a, &[&refuse, &refuse, "zeros y s 3670016"]);
        assert_eq!(a.stderr().matches("fails as ordered").count(), 2);
        told(&a, &["drop y"]);
        a.finish();
    });
}

#[test]
fn what_was_given_up_for_a_tensor_that_found_no_room_is_freed_when_a_device_is_done_with_it() {
    on_machine("memory_mib=16", |stage| {
        let a = stage.member();
        told(&a, &["full-device-timeout 0", "control held", "zeros x s 3145728", "drop x"]);
        assert!(ask(&a, "zeros y s 3670016").contains("12582912 about to be freed"));
        told(&a, &["control running"]);
        until("it is freed", || ask(&a, "stats").contains("slabs_dying: 0"));
        stage.wait_unused(&a);
        a.finish();
    });
}

#[test]
fn memory_that_a_broken_context_may_be_at_is_told_apart_on_a_full_device_and_not_waited_for() {
    on_machine("memory_mib=16", |stage| {
        let a = stage.member();
        told(&a, &[PATIENT, "zeros x s 3145728", "control fail=cuEventRecord:700", "drop x"]);
        let answer = ask(&a, "zeros y s 3670016");
        assert!(answer.contains("0 about to be freed, 12582912 that a broken context may be at"), "{answer}");
        a.finish();
    });
}

#[test]
fn who_has_the_memory_of_a_full_device_is_told_in_bounded_time() {
    on_machine("memory_mib=16", |stage| {
        let (a, b) = (stage.member(), stage.member());
        told(&b, &["zeros w s 1048576", "put 1 w"]);
        told(&a, &["get 1 w", "ready w s", "full-device-timeout 1"]);
        // 4 MiB of a message that is never read, a tensor of 2 MiB, and 1 MiB in a slab of 2 MiB.
        told(&a, &["zeros x s 1048576", "put 0 x", "drop x", "zeros y s 524288", "zeros z s 262144"]);
        let answer = ask(&a, "zeros v s 2097152");
        let told_about = [
            "no room for 8388608 bytes",
            "CUDA_ERROR_OUT_OF_MEMORY",
            "3145728 bytes in tensors",
            "4194304 that others are not done with",
            "1048576 free between them",
            "0 about to be freed",
            "0 that a broken context may be at",
            "0 of other libraries",
            "4194304 of other processes",
            "the device's 16777216 bytes 4194304 are free",
        ];
        assert!(told_about.iter().all(|part| answer.contains(part)), "{answer}");
        [a, b].into_iter().for_each(Process::finish);
    });
}
