//! Reproducible random numbers.
//!
//! SOURCE    SplitMix64.

/// A generator: equal seeds give equal numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Random(pub u64);

impl Random {
    /// Returns a uniform number below `bound`; 0 if the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        let wide = u128::from(mix(self.0)) * u128::from(bound);
        (wide >> 64) as u64
    }
}

const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Returns a pseudorandom number determined by `value`.
pub(super) const fn mix(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
