//! Copies to a device for which nobody waits.

use tensorferry_kit::Process;

use super::strategies::nobody_broke_a_rule;
use super::tensors::on_machine;
use super::{ask, told};

/// More than one part of what is copied at once, in elements of 4 bytes.
const LONG: u32 = (20 << 20) / 4 + 1;

fn whole(first: u64, len: u64) -> String {
    format!("{first} {} {}", first + len - 1, (first..first + len).sum::<u64>())
}

#[test]
fn an_upload_waits_for_no_device_and_comes_behind_what_was_queued_before() {
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["make x s 1000 1", "control held"]);
        // While the device stands still: of less than a word, of a part, of several parts, and not
        // contiguous.
        told(
            &a,
            &[
                "upload one s 1 7",
                "upload y s 1001 5",
                "narrow y1000 y 1 1000",
                &format!("upload z s {LONG} 2"),
            ],
        );
        told(&a, &["upload-column c s 500", "upload none s 0 0", "copy x s y1000", "control running"]);
        assert_eq!(ask(&a, "read one s"), whole(7, 1));
        assert_eq!(ask(&a, "read y s"), whole(5, 1001));
        assert_eq!(ask(&a, "read z s"), whole(2, LONG.into()));
        assert_eq!(ask(&a, "read c s"), format!("1 999 {}", (0..500).map(|n| 2 * n + 1).sum::<u64>()));
        assert_eq!(ask(&a, "read x s"), whole(6, 1000), "a copy behind it");
        // Another process waits for it, as for all that was queued.
        let b = stage.member();
        told(&a, &["control held", "upload w s 5000 3", "put 0 w"]);
        told(&b, &["get 0 w"]);
        told(&a, &["control running"]);
        assert_eq!(ask(&b, "read w s"), whole(3, 5000));
        nobody_broke_a_rule(&[&a, &b]);
        [a, b].into_iter().for_each(Process::finish);
    });
}

#[test]
fn page_locked_memory_is_used_again_and_unlocked_on_request() {
    on_machine("", |stage| {
        let a = stage.member();
        let both = |round| {
            told(&a, &[&format!("upload x s 100000 {round}"), &format!("upload y s 100 {round}")]);
            assert_eq!(
                ["x", "y"].map(|name| ask(&a, &format!("read {name} s"))),
                [100_000, 100].map(|len| whole(round, len))
            );
        };
        both(0);
        told(&a, &["control fail=cuMemHostRegister_v2:2"]);
        (1..20).for_each(both);
        let fails = "cuMemHostRegister_v2 fails as ordered";
        assert!(!a.stderr().contains(fails), "each length is locked once");
        told(&a, &["empty", "upload x s 100 1"]);
        assert!(a.stderr().contains(fails), "it was unlocked");
        nobody_broke_a_rule(&[&a]);
        a.finish();
    });
}

#[test]
fn no_more_than_the_limit_is_under_way() {
    on_machine("", |stage| {
        let (a, gate) = (stage.member(), stage.member());
        told(&gate, &["make x s 10 1", "make n s 10 1", "event e", "control held", "copy x s n"]);
        told(&gate, &["record e s", "put-event 1 e"]);
        // The stream waits for the other process.
        told(&a, &[&format!("zeros x s {}", (16 << 20) / 4), "zeros y s 100", "get-event 1 e", "wait e s"]);
        for nth in 0..(256 << 20) / (16 << 20) {
            told(&a, &[&format!("upload-into x s {nth}")]);
        }
        // There is no room for one more until some are there.
        a.say("upload-into y s 1");
        a.wait_until_asleep();
        assert!(!a.has_spoken(), "it has not waited");
        told(&gate, &["control running"]);
        a.expect("ok");
        assert_eq!(ask(&a, "read y s"), whole(1, 100));
        assert_eq!(ask(&a, "read x s"), whole(15, (16 << 20) / 4));
        nobody_broke_a_rule(&[&a, &gate]);
        [a, gate].into_iter().for_each(Process::finish);
    });
}

#[test]
fn where_no_memory_can_be_locked_it_is_an_ordinary_copy() {
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["zeros x s 10", "control fail=cuMemHostRegister_v2:2", "upload y s 5000 4"]);
        assert!(a.stderr().contains("cuMemHostRegister_v2 fails as ordered"));
        assert_eq!(ask(&a, "read y s"), whole(4, 5000));
        told(&a, &["upload z s 5000 6"]);
        assert_eq!(ask(&a, "read z s"), whole(6, 5000));
        nobody_broke_a_rule(&[&a]);
        a.finish();
    });
}

#[test]
fn memory_under_a_copy_of_which_nothing_is_known_stays_locked() {
    on_machine("", |stage| {
        let a = stage.member();
        told(&a, &["zeros x s 10", "control held", "control fail=cuEventRecord:2"]);
        assert!(ask(&a, "upload y s 5000 4").contains("cuEventRecord failed"));
        told(&a, &["empty", "control running", "upload z s 5000 6", "empty"]);
        assert_eq!(ask(&a, "read z s"), whole(6, 5000));
        nobody_broke_a_rule(&[&a]);
        a.finish();
    });
}
