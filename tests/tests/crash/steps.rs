//! A process that ends, or stands still for ever, between any two instructions of a call.
//!
//! Each test cuts a call off at a few places of its length, other ones in each run. `TENSORFERRY_TEST_PLACES`
//! asks for more of them.

use tensorferry::Queue;
use tensorferry_kit::{Child, Family, Item, Random, Stepper, assert_all_slots_work, with_family};

use crate::{member, queue};

/// More instructions than any of these calls takes; reached only when something is wrong.
const MANY: u64 = 5_000_000;

pub(crate) fn n_places() -> u64 {
    std::env::var("TENSORFERRY_TEST_PLACES").ok().and_then(|text| text.parse().ok()).unwrap_or(3)
}

/// Whether this process may trace its children; says so if not.
pub(crate) fn may_trace(stepper: Result<Stepper, nix::errno::Errno>) -> Option<Stepper> {
    stepper.inspect_err(|error| println!("skipped: this process may not trace its children: {error}")).ok()
}

/// Prepares, stops `command` at places all over its length, and checks what is left each time.
fn cut_off(
    command: &str,
    prepare: impl Fn(&Family, &Queue<Item>, &Child),
    check: impl Fn(&Family, &Queue<Item>, Child, Stepper),
) {
    let mut random = Random::from_environment();
    println!("seed {}", random.seed());
    with_family(|family| {
        let queue = queue(family, 4);
        let mut length = None;
        for _ in 0..n_places() {
            let child = member(family, &queue);
            prepare(family, &queue, &child);
            let Some(stepper) = may_trace(Stepper::begin(&child, command)) else { return };
            let Some(length) = length else {
                // The first time is for measuring.
                length = Some(stepper.step_until(MANY, || child.has_spoken()));
                println!("{command}: {length:?} instructions");
                stepper.let_run();
                let _ = child.hear();
                child.finish();
                while queue.get_nowait().is_ok() {}
                continue;
            };
            // Not every run takes the same way, so the end may come before the place.
            stepper.step_until(random.below(length), || child.has_spoken());
            check(family, &queue, child, stepper);
            family.wait_alone();
            while queue.get_nowait().is_ok() {}
            family.wait_blocks(1);
            assert_all_slots_work(family, &queue);
        }
    });
}

/// Kills it; what it had put, if it said so, must be there and whole.
fn kill_putter(family: &Family, queue: &Queue<Item>, child: Child, stepper: Stepper) {
    let has_put = child.has_spoken();
    stepper.kill(child);
    family.wait_alone();
    let got = queue.get_nowait();
    assert!(got.is_ok() || !has_put, "what was put is delivered");
    got.iter().for_each(Item::check);
}

fn kill(_: &Family, _: &Queue<Item>, child: Child, stepper: Stepper) {
    stepper.kill(child);
}

#[test]
fn killed_inside_of_put() {
    cut_off("pass", |_, _, child| assert_eq!(child.ask("make 1 0 200 10"), "made"), kill_putter);
}

#[test]
fn killed_inside_of_put_of_a_message_that_does_not_fit_into_a_slot() {
    let make = |_: &Family, _: &Queue<Item>, child: &Child| {
        assert_eq!(child.ask("make 1 0 20"), "made");
        assert_eq!(child.ask("note 300"), "noted");
    };
    cut_off("pass", make, kill_putter);
}

#[test]
fn killed_inside_of_get() {
    let put = |family: &Family, queue: &Queue<Item>, _: &Child| {
        queue.put(Item::new(family.heap(), 1, 0, &[200, 10])).unwrap();
    };
    cut_off("get", put, |family, queue, child, stepper| {
        stepper.kill(child);
        family.wait_alone();
        // It is still there, or it was taken and is gone with who took it.
        queue.get_nowait().iter().for_each(Item::check);
    });
}

#[test]
fn killed_while_letting_go_of_what_others_own() {
    let got = |family: &Family, queue: &Queue<Item>, child: &Child| {
        queue.put(Item::new(family.heap(), 1, 0, &[200, 100_000])).unwrap();
        assert_eq!(child.ask("get"), "got 1/0");
    };
    cut_off("let_go", got, kill);
    cut_off("leave", got, kill);
}

#[test]
fn standing_still_inside_of_put_it_is_in_nobodys_way() {
    let make = |_: &Family, _: &Queue<Item>, child: &Child| assert_eq!(child.ask("make 1 0 200"), "made");
    cut_off("pass", make, |family, queue, child, stepper| {
        let items = [(); 3].map(|()| Item::new(family.heap(), 2, 0, &[10]));
        items.into_iter().for_each(|item| queue.put_nowait(item).unwrap());
        let mut came: Vec<u32> = (0..3).map(|_| queue.get_nowait().unwrap().sender).collect();
        stepper.let_run();
        child.expect("put");
        came.push(queue.get_nowait().unwrap().sender);
        came.sort_unstable();
        assert_eq!(came, [1, 2, 2, 2]);
        child.finish();
    });
}

#[test]
fn standing_still_inside_of_get_it_is_in_nobodys_way() {
    let put = |family: &Family, queue: &Queue<Item>, _: &Child| {
        queue.put(Item::new(family.heap(), 1, 0, &[200])).unwrap();
    };
    cut_off("try_get", put, |family, queue, child, stepper| {
        let items = [(); 3].map(|()| Item::new(family.heap(), 2, 0, &[10]));
        items.into_iter().for_each(|item| queue.put_nowait(item).unwrap());
        let came = (0..4).filter(|_| queue.get_nowait().is_ok()).count();
        stepper.let_run();
        let outcome = child.hear();
        let expected = if came == 4 { "Empty" } else { "got 1/0" };
        assert_eq!(outcome, expected);
        child.finish();
    });
}
