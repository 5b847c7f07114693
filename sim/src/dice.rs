//! Randomness: ChaCha streams, one for each purpose, and ranges drawn by code of our own, so that a
//! seed keeps its meaning whatever the generator's crate does.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

/// What a stream of random numbers is for. Drawing more for one purpose shifts no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The options of a run.
    Options = 1,
    /// The source records.
    Workload = 2,
    /// Which faults are planned.
    Faults = 3,
    /// Delays, batch sizes and which of several ready things comes first.
    Schedule = 4,
    /// The fates of messages.
    Messages = 5,
    /// The fates of writes.
    Storage = 6,
    /// What becomes of the systems behind the sources.
    Upstream = 7,
    /// How fast sources read.
    Pace = 8,
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The stream of `seed` for `purpose`.
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8] = purpose as u8;
        Self(ChaCha8Rng::from_seed(key))
    }

    /// A number from 0 to `bound - 1`.
    ///
    /// # Panics
    /// If `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "nothing lies below 0");
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    ///
    /// # Panics
    /// If `low` is greater than `high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `permille` of 1000 cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// One of `choices`.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_keeps_its_meaning() {
        let mut dice = Dice::new(7, Purpose::Schedule);
        let drawn: Vec<u64> = (0..6).map(|_| dice.below(1000)).collect();
        assert_eq!(drawn, GOLDEN);
        let mut other = Dice::new(7, Purpose::Faults);
        assert_ne!((0..6).map(|_| other.below(1000)).collect::<Vec<_>>(), GOLDEN);
    }

    const GOLDEN: [u64; 6] = [807, 764, 23, 149, 389, 494];
}
