//! A seed for each rank.

/// The increment of SplitMix64: 2⁶⁴ divided by the golden ratio, made odd.
const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// The variable in which a process finds its seed.
pub(crate) const SEED_VARIABLE: &str = "TENSORFERRY_SEED";

/// The seed of one rank, derived from the seed of the whole run. The result depends on the two numbers only,
/// on every machine and in every version of this library.
///
/// It is output number `rank` (from 0) of SplitMix64 (Steele, Lea and Flood, 2014), started at the SplitMix64
/// finaliser of `base`. So no two ranks of a run have the same seed, and neighbouring seeds are unrelated.
/// The usual `base + rank` gives rank 1 of run 0 the seed of rank 0 of run 1. Also, weak generators produce
/// similar first numbers for similar seeds.
///
/// [`Options::seed`](crate::Options::seed) puts it into the environment of each process.
///
/// ```
/// use tensorferry_spawn::{func, rank_seed};
///
/// #[func]
/// fn work(rank: usize, base: u64) {
///     let seed = rank_seed(base, rank);
///     // Seed the generator of the process with it.
/// }
///
/// assert_eq!(rank_seed(0, 0), 0xE220_A839_7B1D_CDAF);
/// assert_ne!(rank_seed(0, 1), rank_seed(1, 0));
/// ```
#[must_use]
pub const fn rank_seed(base: u64, rank: usize) -> u64 {
    // `usize` has at most 64 bits.
    let steps = (rank as u64).wrapping_add(1);
    mix(mix(base).wrapping_add(steps.wrapping_mul(GOLDEN_GAMMA)))
}

/// The finaliser of SplitMix64: a bijection in which each bit of the result depends on each bit of `z`.
const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// The first outputs of SplitMix64 from state 0, which `mix(0)` is.
    #[test]
    fn the_seeds_are_those_that_were_promised() {
        assert_eq!(
            [0, 1, 2].map(|rank| rank_seed(0, rank)),
            [0xE220_A839_7B1D_CDAF, 0x6E78_9E6A_A1B9_65F4, 0x06C4_5D18_8009_454F]
        );
    }

    #[test]
    fn neighbours_in_rank_and_in_base_have_nothing_in_common() {
        let mut seen = HashSet::new();
        for base in 0..64 {
            for rank in 0..64 {
                assert!(seen.insert(rank_seed(base, rank)), "{base} {rank}");
                for other in [rank_seed(base, rank + 1), rank_seed(base + 1, rank)] {
                    let n_different = (rank_seed(base, rank) ^ other).count_ones();
                    assert!((8..=56).contains(&n_different), "{base} {rank}: {n_different} bits");
                }
            }
        }
    }
}
