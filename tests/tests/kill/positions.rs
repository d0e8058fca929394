//! A position of every operation but the sweep, another one in each run. `TENSORFERRY_TEST_PLACES` asks for
//! more of them.

use tensorferry_kit::Random;
use tensorferry_kit::kill::{Operation, PLANTS, Plan, cover};

/// How many positions of each operation are drawn.
fn n_places() -> usize {
    std::env::var("TENSORFERRY_TEST_PLACES").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

fn sample(operations: &[Operation]) {
    let mut random = Random::from_environment();
    println!("seed {}", random.seed());
    for &operation in operations {
        for _ in 0..n_places() {
            random.draw();
            // A little beyond the end, so that the end has its turn too.
            let n_positions = operation.n_positions() * 5 / 4;
            match cover(operation, &mut Plan::One { n_positions, random: random.clone() }) {
                Ok(coverage) => println!("{coverage:?}"),
                Err(errno) => println!("skipped: this process may not trace its children: {errno}"),
            }
        }
    }
}

#[test]
fn killed_in_put() {
    sample(&[Operation::Put, Operation::PutSpilled, Operation::PutToSleeper]);
}

#[test]
fn killed_in_get() {
    sample(&[Operation::Get, Operation::GetSpilled]);
}

#[test]
fn killed_with_a_bundle() {
    sample(&[Operation::PutBundle, Operation::GetBundle, Operation::Bundle, Operation::DropBundle]);
}

#[test]
fn standing_still_in_get_while_the_others_go_on() {
    sample(&[Operation::GetStandingStill]);
}

#[test]
fn killed_in_clone_and_drop() {
    let drops = [Operation::DropOwn, Operation::DropOthers, Operation::DropOrphans, Operation::DropLarge];
    sample(&drops);
    sample(&[Operation::Clone]);
}

#[test]
fn killed_in_allocate() {
    let first = [Operation::AllocateFirst, Operation::AllocateAdopting];
    sample(&first);
    sample(&[Operation::AllocateSlab, Operation::AllocateRecycled, Operation::AllocateLarge]);
}

#[test]
fn killed_in_admit_and_join() {
    sample(&[Operation::Admit, Operation::Join]);
}

#[test]
fn killed_while_leaving() {
    sample(&[Operation::LeaveQueue, Operation::LeaveDomain]);
}

#[test]
fn killed_while_it_has_a_lock_or_the_like() {
    sample(&[Operation::Lock, Operation::Acquire, Operation::Read, Operation::Write]);
}

#[test]
fn operations_and_planted_bugs_are_found_by_their_names() {
    for operation in Operation::ALL {
        assert_eq!(Operation::with_name(operation.name()), Some(operation));
    }
    assert_eq!(Operation::with_name("putt"), None);
    let mut names: Vec<_> = PLANTS.iter().map(|plant| plant.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), PLANTS.len());
    assert!(PLANTS.iter().all(|plant| !plant.noticed_in.is_empty()));
}
