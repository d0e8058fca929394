//! Each call of the driver, in each operation: it fails, or the process is killed there.
//!
//! A few calls are tried in each run, other ones each time. `TENSORFERRY_TEST_PLACES` asks for more of them;
//! 0 for all.
#![expect(clippy::print_stdout, reason = "whoever repeats a failure needs the seed and the place")]

use tensorferry_kit::{Process, Random, needs_software_driver, strategies_of_run, until, where_possible};

use super::tensors::{Stage, on_machine};
use super::{ask, told};

/// More calls than the operations below make.
const MANY: u64 = 150;

/// What the sender and the receiver do, one after the other.
const SENDER: [&str; 4] =
    ["make-by STRATEGY x s 10 1", "make-by STRATEGY tens s 10 10", "copy x s tens", "put 0 x"];
const RECEIVER: [&str; 2] = ["poll 0 y", "read y s"];

/// Functions that take something away. What such a one has refused to take away is there until its process
/// ends.
const REMOVERS: [&str; 12] = [
    "cuCtxPushCurrent_v2",
    "cuCtxPopCurrent_v2",
    "cuEventDestroy_v2",
    "cuIpcCloseMemHandle",
    "cuMemAddressFree",
    "cuMemFreeAsync",
    "cuMemFree_v2",
    "cuMemHostUnregister",
    "cuMemPoolDestroy",
    "cuMemRelease",
    "cuMemUnmap",
    "cuStreamSynchronize",
];

/// Which calls are tried.
fn places() -> Vec<u64> {
    let asked = std::env::var("TENSORFERRY_TEST_PLACES").ok().and_then(|text| text.parse().ok());
    let mut random = Random::from_environment();
    println!("seed {}", random.seed());
    match asked.unwrap_or(4) {
        0 => (0..MANY).collect(),
        n => (0..n).map(|_| random.below(MANY / 2)).collect(),
    }
}

/// Runs a test for each place, each strategy, and with the sender and the receiver as the victim.
#[track_caller]
fn for_each_place(body: impl Fn(&Stage<'_>, &str, bool, u64)) {
    where_possible(|| {
        needs_software_driver();
        for strategy in strategies_of_run() {
            for is_sender in [true, false] {
                for place in places() {
                    println!(
                        "{strategy}, call {place} of the {}",
                        if is_sender { "sender" } else { "receiver" }
                    );
                    on_machine("", |stage| body(stage, &strategy.to_string(), is_sender, place));
                }
            }
        }
    });
}

/// Has it done, by the second time at the latest. What is asked for again and again is a state, not a deed.
#[track_caller]
fn persist(process: &Process, line: &str) -> String {
    let answer = ask(process, line);
    if !answer.starts_with("error: ") {
        return answer;
    }
    assert!(answer.contains("cu"), "the driver's, and it says which function: {answer}");
    let again = ask(process, line);
    assert!(!again.starts_with("error: "), "{line}: {answer}, then {again}");
    again
}

#[test]
fn any_call_of_the_driver_may_fail_once() {
    for_each_place(|stage, strategy, is_sender, place| {
        let (a, b) = (stage.member(), stage.member());
        let victim = if is_sender { &a } else { &b };
        told(victim, &[&format!("control fail=*:2:{place}")]);
        for line in SENDER {
            persist(&a, &line.replace("STRATEGY", strategy));
        }
        assert_eq!(ask(&b, RECEIVER[0]), "ok", "receiving asks the driver nothing");
        assert_eq!(persist(&b, RECEIVER[1]), "10 19 145");
        told(&b, &["drop y", "empty", "control no-faults"]);
        told(&a, &["drop x", "drop tens", "empty", "control no-faults"]);
        // It is as good as before.
        told(victim, &[&format!("make-by {strategy} z s 10 5")]);
        assert_eq!(ask(victim, "read z s"), "5 14 95");
        told(victim, &["drop z"]);
        let other = if is_sender { &b } else { &a };
        let text = victim.stderr();
        println!("{}", text.lines().last().unwrap_or_default());
        if REMOVERS.iter().any(|function| text.contains(&format!("{function} fails as ordered"))) {
            let (victim, other) = if is_sender { (a, b) } else { (b, a) };
            victim.finish();
            stage.wait_unused(&other);
            assert!(!other.stderr().contains("rule broken"), "{}", other.stderr());
            other.finish();
            return;
        }
        until("the memory of the device comes back", || {
            told(other, &["empty"]);
            told(victim, &["empty"]);
            ask(other, "used") == "0"
        });
        assert!(!a.stderr().contains("rule broken") && !b.stderr().contains("rule broken"));
        a.finish();
        b.finish();
    });
}

/// Has a process do things, until it ends.
fn tell_until_it_ends(process: &Process, lines: &[String]) -> bool {
    lines.iter().all(|line| {
        process.say(line);
        process.hear_unless_ended().is_some()
    })
}

#[test]
fn a_process_may_be_killed_at_any_call_of_the_driver() {
    for_each_place(|stage, strategy, is_sender, place| {
        let (a, b) = (stage.member(), stage.member());
        let lines = |lines: &[&str]| -> Vec<String> {
            lines.iter().map(|line| line.replace("STRATEGY", strategy)).collect()
        };
        told(if is_sender { &a } else { &b }, &[&format!("control kill=*:{place}")]);
        let mut sender = lines(&SENDER);
        sender.extend(lines(&["drop x", "drop tens", "empty"]));
        let survivor = if is_sender {
            if tell_until_it_ends(&a, &sender) {
                a.kill_unreaped();
            }
            stage.family.wait_members(2);
            // The message is there or not; what is in it is known or not.
            if ask(&b, RECEIVER[0]) == "ok" {
                let answer = ask(&b, RECEIVER[1]);
                let is_told = ["ended before its stream had written it", "has ended, and its memory with it"];
                let is_fine = answer == "10 19 145" || is_told.iter().any(|text| answer.contains(text));
                assert!(is_fine, "{answer}");
                told(&b, &["drop y"]);
            }
            b
        } else {
            assert!(tell_until_it_ends(&a, &sender[..SENDER.len()]), "it is not the victim");
            if tell_until_it_ends(&b, &lines(&["poll 0 y", "read y s", "drop y", "empty", "collect"])) {
                b.kill_unreaped();
            }
            stage.family.wait_members(2);
            told(&a, &["drop x", "drop tens"]);
            a
        };
        stage.wait_unused(&survivor);
        told(&survivor, &[&format!("make-by {strategy} z s 10 5")]);
        assert_eq!(ask(&survivor, "read z s"), "5 14 95");
        told(&survivor, &["drop z"]);
        assert!(!survivor.stderr().contains("rule broken"), "{}", survivor.stderr());
        survivor.finish();
    });
}
