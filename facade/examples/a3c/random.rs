//! A small generator of random numbers, so that a seed means the same everywhere and for ever.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to but not including 1.
    pub(crate) fn next_unit(&mut self) -> f32 {
        // 24 bits are what an f32 holds exactly.
        (self.next_u64() >> 40) as f32 / (1_u32 << 24) as f32
    }

    /// From -1 up to but not including 1.
    pub(crate) fn next_signed(&mut self) -> f32 {
        2.0 * self.next_unit() - 1.0
    }
}
