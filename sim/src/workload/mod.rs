//! Generated inputs: small and nasty, the same for a seed in every process and in every version.

pub(crate) mod events;
pub mod nexmark;
pub mod plan;
pub mod readings;
pub mod text;
pub mod visits;

use std::time::Duration;

use crate::dice::Dice;

/// The mixing function of splitmix64: spreads `number` over all 64 bits.
#[inline]
pub const fn splitmix64(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// By how much records may be out of order: not at all, a little, or by more than the job looks
/// ahead.
pub(crate) fn disorder(dice: &mut Dice, looks_ahead_ms: i64) -> Duration {
    let span = looks_ahead_ms.unsigned_abs();
    Duration::from_millis(*dice.pick(&[0, 1, span / 2, span.saturating_mul(2)]))
}

/// Generated times stay far from the ends of their range.
const SPAN_MS_MAX: u64 = 1_000_000_000;

/// A number from `low` to `high`, both included.
fn signed(dice: &mut Dice, low: i64, high: i64) -> i64 {
    low + dice.below(low.abs_diff(high) + 1) as i64
}

#[cfg(test)]
mod tests;
