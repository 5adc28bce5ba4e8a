//! Repeatable random choices: the seed is printed, and can be set.

use std::time::{SystemTime, UNIX_EPOCH};

/// The variable with the seed of a run to repeat.
const SEED_VARIABLE: &str = "SETTEE_SEED";

/// A source of random numbers for tests (SplitMix64).
#[derive(Clone, Debug)]
pub struct TestRandom {
    state: u64,
}

impl TestRandom {
    /// Takes the seed from `SETTEE_SEED`, or a new one, and prints how to repeat the run of `test`.
    ///
    /// # Panics
    /// The variable is not a number.
    pub fn for_test(test: &str) -> Self {
        let seed = match std::env::var(SEED_VARIABLE) {
            Ok(text) => text
                .parse()
                .unwrap_or_else(|_| panic!("{SEED_VARIABLE} must be a number, and is '{text}'")),
            Err(_) => SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(1, |since| u64::from(since.subsec_nanos()) ^ since.as_secs()),
        };
        println!("seed {seed}; repeat with: {SEED_VARIABLE}={seed} cargo test {test}");
        Self { state: seed }
    }

    /// Starts with a seed.
    pub const fn with_seed(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns a number below `bound`.
    ///
    /// # Panics
    /// `bound` is zero.
    pub fn below(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        usize::try_from(mixed % bound as u64).unwrap_or(0)
    }

    /// Returns one of `choices`.
    ///
    /// # Panics
    /// `choices` is empty.
    pub fn one_of<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    /// Starts a separate source, for a concurrent task.
    pub fn fork(&mut self) -> Self {
        let high = self.below(1 << 31) as u64;
        Self {
            state: (high << 32) ^ self.below(1 << 31) as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_choices() {
        let choices = |seed| {
            let mut random = TestRandom::with_seed(seed);
            let mut forked = random.fork();
            let all: Vec<usize> = (0..50)
                .flat_map(|_| [random.below(10), forked.below(10)])
                .collect();
            all
        };
        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
        assert!(choices(7).iter().all(|choice| *choice < 10));
    }
}
