//! Kills at random moments, for many rounds.

use tensorferry_kit::{Chaos, Random, with_family};

#[test]
fn killed_at_random_moments_nothing_is_lost_or_doubled_and_nobody_hangs() {
    let mut random = Random::from_environment();
    let seed = random.draw();
    // Shown when the test fails.
    println!("seed {seed}");
    with_family(|family| Chaos { n_rounds: 100, seed }.rage(family));
}
