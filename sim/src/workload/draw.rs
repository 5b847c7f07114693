//! Drawing from a seed. Ranges are cut by code of our own, so that a seed keeps its meaning when a
//! library changes its mind.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A stream of draws for one purpose: another purpose, or one draw more there, shifts nothing here
/// (ORACLES C15 D5).
#[derive(Clone, Debug)]
pub struct Draw(ChaCha8Rng);

impl Draw {
    /// The draws of `seed` for `purpose`.
    pub fn new(seed: u64, purpose: &str) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..16].copy_from_slice(&fnv(purpose.as_bytes()).to_le_bytes());
        Self(ChaCha8Rng::from_seed(key))
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    ///
    /// # Panics
    /// If there is none.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        assert!(low <= high, "there is no number from {low} to {high}");
        low.wrapping_add(self.below(low.abs_diff(high) + 1) as i64)
    }

    /// Whether something happens that does in `percent` of all cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// The mixing function of splitmix64: spreads `number` over all 64 bits.
#[inline]
pub const fn splitmix64(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// FNV-1a.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_keeps_its_meaning() {
        let mut draw = Draw::new(7, "text");
        let numbers: Vec<u64> = (0..5).map(|_| draw.below(1000)).collect();
        assert_eq!(numbers, [757, 848, 686, 361, 905]);
        assert_eq!(splitmix64(0), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn draws_stay_in_their_range_and_reach_its_ends() {
        let mut draw = Draw::new(1, "range");
        let drawn: std::collections::BTreeSet<i64> =
            (0..200).map(|_| draw.between(-2, 2)).collect();
        assert_eq!(drawn.into_iter().collect::<Vec<_>>(), [-2, -1, 0, 1, 2]);
        draw.between(i64::MIN + 1, i64::MAX);
    }

    #[test]
    fn purposes_do_not_share_draws() {
        let first = |purpose| Draw::new(3, purpose).below(u64::MAX);
        assert_ne!(first("text"), first("numbers"));
    }
}
