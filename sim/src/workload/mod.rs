//! Generated inputs: small and nasty, the same for a seed in every process and in every version.

pub(crate) mod events;
pub mod plan;
pub mod readings;
pub mod text;

use crate::dice::Dice;

/// The mixing function of splitmix64: spreads `number` over all 64 bits.
#[inline]
pub const fn splitmix64(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// A number from `low` to `high`, both included.
fn signed(dice: &mut Dice, low: i64, high: i64) -> i64 {
    low + dice.below(low.abs_diff(high) + 1) as i64
}

#[cfg(test)]
mod tests;
