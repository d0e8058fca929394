//! Random words wherever another process could write. No crash, no panic, no hang.

use tensorferry_kit::tasks::{Gauntlet, Target};
use tensorferry_kit::{Loner, Random, alone};

/// `TENSORFERRY_TEST_ROUNDS` asks for more.
fn n_rounds() -> u64 {
    std::env::var("TENSORFERRY_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(150)
}

#[track_caller]
fn survives(target: Target) {
    let mut random = Random::from_environment();
    let seed = random.draw();
    println!("{target:?}, seed {seed}");
    alone(|| {
        let n_rounds = n_rounds();
        let child = Loner::start(&Gauntlet { target, n_rounds, seed }, &[]);
        for _ in 0..n_rounds {
            println!("a round with seed {}", child.hear());
        }
        child.expect("done");
        child.finish();
    });
}

#[test]
fn in_the_head_of_a_ring() {
    survives(Target::RingHead);
}

#[test]
fn in_the_slots_of_a_ring() {
    survives(Target::Slots);
}

#[test]
fn in_a_long_message() {
    survives(Target::Message);
}

#[test]
fn in_a_bundle() {
    survives(Target::Bundle);
}

#[test]
fn in_the_headers_of_blocks() {
    survives(Target::Headers);
}

#[test]
fn in_the_heads_of_extents() {
    survives(Target::Heads);
}

#[test]
fn in_the_header_of_the_domain() {
    survives(Target::DomainHeader);
}

#[test]
fn in_the_process_table() {
    survives(Target::ProcessTable);
}

#[test]
fn in_the_extent_table() {
    survives(Target::ExtentTable);
}
