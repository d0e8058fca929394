//! A process that ends, or stands still for ever, between any two instructions of a call.

use tensorferry::Queue;
use tensorferry_tests::{Child, Family, Item, Random, Stepper, with_family};

use crate::{assert_all_slots_work, member, queue};

/// At how many places each call is cut off.
const N_PLACES: u64 = 40;

/// More instructions than any of these calls takes; reached only when something is wrong.
const MANY: u64 = 5_000_000;

/// Prepares, cuts `command` off at places all over its length, and checks what is left each time.
fn cut_off(
    command: &str,
    prepare: impl Fn(&Family, &Queue<Item>, &Child),
    check: impl Fn(&Family, &Queue<Item>, Child, Stepper, bool),
) {
    let mut random = Random::from_environment();
    println!("seed {}", random.seed());
    with_family(|family| {
        let queue = queue(family, 4);
        let mut length = None;
        for _ in 0..N_PLACES {
            let child = member(family, &queue);
            prepare(family, &queue, &child);
            let stepper = match Stepper::begin(&child, command) {
                Ok(stepper) => stepper,
                Err(error) => {
                    println!("skipped: this process may not trace its children: {error}");
                    return;
                }
            };
            let most = *length.get_or_insert_with(|| {
                let measured = member(family, &queue);
                prepare(family, &queue, &measured);
                let stepper = Stepper::begin(&measured, command).unwrap();
                let (n_steps, _) = stepper.step_until(MANY, || measured.has_spoken());
                stepper.let_run();
                let _ = measured.hear();
                measured.finish();
                while queue.get_nowait().is_ok() {}
                println!("{command}: {n_steps} instructions");
                n_steps
            });
            let place = random.below(most);
            stepper.step(place);
            let spoke = child.has_spoken();
            check(family, &queue, child, stepper, spoke);
            family.wait_alone();
            while queue.get_nowait().is_ok() {}
            family.wait_blocks(1);
            assert_all_slots_work(family, &queue);
        }
    });
}

#[test]
fn killed_inside_of_put() {
    cut_off(
        "pass",
        |_, _, child| assert_eq!(child.ask("make 1 0 200 10"), "made"),
        |family, queue, child, stepper, spoke| {
            stepper.kill(child);
            family.wait_alone();
            let got = queue.get_nowait();
            assert!(got.is_ok() || !spoke, "what was put is delivered");
            got.iter().for_each(Item::check);
        },
    );
}
