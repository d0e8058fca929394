//! Bits that somebody flips while others work. No crash, no panic, and nobody waits who was not asked to.

use tensorferry_kit::tasks::{Region, Vandal, Victim};
use tensorferry_kit::{Loner, Random, alone};

/// `TENSORFERRY_TEST_ROUNDS` asks for more.
fn n_domains() -> u64 {
    std::env::var("TENSORFERRY_TEST_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

#[test]
fn flipped_bits_crash_nobody_who_works_meanwhile() {
    let mut random = Random::from_environment();
    for domain in 0..n_domains() {
        let seed = random.seed();
        println!("domain {domain}, TENSORFERRY_TEST_SEED={seed}");
        alone(|| {
            let victim = Loner::start(&Victim { n_processes: 8, n_turns: 60 }, &[]);
            let regions: Vec<Region> = serde_json::from_str(&victim.hear()).unwrap();
            let fd = victim.take_fd();
            // From a bit now and then to as many as the processor can flip; everywhere, or in one place
            // alone.
            let (burst, lasting_one_in) = (1 << (random.below(4) * 2), 1 << (random.below(4) * 4));
            let one = usize::try_from(random.below(regions.len() as u64)).unwrap();
            let regions = if domain % 2 == 0 { regions } else { vec![regions[one]] };
            let vandal = Vandal { regions, seed: random.draw(), burst, lasting_one_in };
            let vandal = Loner::start_with_fd(&vandal, fd);
            victim.say("go");
            let mut n_ended = 0;
            loop {
                let said = victim.hear();
                assert!(!said.contains("BROKEN"), "{said}");
                match said.as_str() {
                    "done" => break,
                    "ended" => n_ended += 1,
                    error => println!("{error}"),
                }
            }
            vandal.say("stop");
            let n_flips = vandal.hear_number();
            println!("{n_ended} of 8 processes got through {n_flips} flipped bits");
            assert!(n_flips > 0);
            vandal.finish();
            victim.finish();
        });
    }
}
