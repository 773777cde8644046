//! A small generator whose stream never changes (xoshiro256**), so that a seed means the same run for ever.

/// The generator.
#[derive(Clone, Debug)]
pub struct Rng([u64; 4]);

impl Rng {
    /// Spreads the seed over the state with splitmix64.
    pub fn new(seed: u64) -> Self {
        let mut x = seed;
        Self(std::array::from_fn(|_| {
            x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = x;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    /// The next 64 bits.
    pub fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`; the bias of the remainder does not matter here.
    pub fn below(&mut self, bound: usize) -> usize {
        assert!(bound > 0);
        (self.next() % bound as u64) as usize
    }

    /// True in `percent` of all calls.
    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}
