//! Which key belongs to which key group, and which subtask owns which groups (rules 83 to 85).
//! It does not know what is stored under a key.
//!
//! Invariant: for every parallelism, each group has exactly one owner, and [`subtask_of`] and
//! [`range_of`] agree about it.

use std::fmt;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

use crate::element::Record;
use crate::id::SubtaskIndex;
use crate::processor::with_wide_vectors;
use crate::state::hash::KeyHash;

/// What state can be kept by. Every type with these traits is a key; nothing is to be implemented.
/// Equal keys must have equal hashes and equal encodings.
pub trait Key: Record + Hash + Eq + Ord {}

impl<T: Record + Hash + Eq + Ord> Key for T {}

/// A group of keys that moves as a whole when a job is rescaled.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct KeyGroup(u16);

impl KeyGroup {
    /// The group with this number.
    pub const fn new(number: u16) -> Self {
        Self(number)
    }

    /// The number of the group.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for KeyGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kg{}", self.0)
    }
}

/// How many key groups a job's keys fall into: its maximum parallelism, 1 to 32768.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct KeyGroupCount(u32);

impl KeyGroupCount {
    /// The most groups there can be.
    pub const MAX: Self = Self(32_768);

    /// This many groups; `None` if it is not within 1 to 32768.
    pub const fn new(groups: u32) -> Option<Self> {
        if groups == 0 || groups > Self::MAX.0 { None } else { Some(Self(groups)) }
    }

    /// How many groups.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The group of a key with this hash.
    #[inline]
    pub const fn group_of(self, hash: KeyHash) -> KeyGroup {
        key_group_of(hash.low(), self)
    }
}

/// A number of key groups that can not be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} key groups: there can be 1 to 32768")]
pub struct KeyGroupCountError(u32);

impl TryFrom<u32> for KeyGroupCount {
    type Error = KeyGroupCountError;

    fn try_from(groups: u32) -> Result<Self, KeyGroupCountError> {
        Self::new(groups).ok_or(KeyGroupCountError(groups))
    }
}

impl From<KeyGroupCount> for u32 {
    fn from(count: KeyGroupCount) -> Self {
        count.0
    }
}

/// The groups that one subtask owns: never none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeyGroupRange {
    first: KeyGroup,
    last: KeyGroup,
}

impl KeyGroupRange {
    /// The groups from `first` to `last`, both included.
    ///
    /// # Panics
    /// If `last` lies before `first`.
    pub const fn new(first: KeyGroup, last: KeyGroup) -> Self {
        assert!(first.0 <= last.0, "a subtask owns at least one key group");
        Self { first, last }
    }

    /// All the groups there are.
    pub const fn all(max: KeyGroupCount) -> Self {
        Self { first: KeyGroup(0), last: KeyGroup((max.0 - 1) as u16) }
    }

    /// The first group.
    pub const fn first(self) -> KeyGroup {
        self.first
    }

    /// The last group.
    pub const fn last(self) -> KeyGroup {
        self.last
    }

    /// How many groups.
    pub const fn group_count(self) -> usize {
        self.last.0 as usize - self.first.0 as usize + 1
    }

    /// Whether `group` is one of them.
    pub const fn contains(self, group: KeyGroup) -> bool {
        self.first.0 <= group.0 && group.0 <= self.last.0
    }

    pub(crate) fn assert_within(self, max: KeyGroupCount) {
        assert!(u32::from(self.last.0) < max.0, "{self} goes beyond {} key groups", max.0);
    }

    /// The groups in increasing order.
    pub fn groups(self) -> impl Iterator<Item = KeyGroup> {
        (self.first.0..=self.last.0).map(KeyGroup)
    }
}

impl fmt::Display for KeyGroupRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {}]", self.first, self.last)
    }
}

/// The way from a key to its subtask, for one parallelism.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyGroupAssigner {
    max: KeyGroupCount,
    parallelism: u32,
}

impl KeyGroupAssigner {
    /// The assignment of `max` groups to `parallelism` subtasks.
    ///
    /// # Panics
    /// If there are no subtasks, or more than groups.
    pub const fn new(max: KeyGroupCount, parallelism: u32) -> Self {
        assert_parallelism(parallelism, max);
        Self { max, parallelism }
    }

    /// How many groups there are.
    pub const fn max(&self) -> KeyGroupCount {
        self.max
    }

    /// How many subtasks there are.
    pub const fn parallelism(&self) -> u32 {
        self.parallelism
    }

    /// The owner of `group`.
    ///
    /// # Panics
    /// If there is no such group.
    pub const fn subtask(&self, group: KeyGroup) -> SubtaskIndex {
        subtask_of(group, self.parallelism, self.max)
    }

    /// Finds the owners of keys by the [low parts](KeyHash::low) of their hashes: many together
    /// cost a fraction of what each costs alone. Whichever of the two is shorter says how many.
    #[inline]
    pub fn find_subtasks(&self, hashes: &[i32], subtasks: &mut [SubtaskIndex]) {
        let (max, parallelism) = (self.max, self.parallelism);
        if !max.0.is_power_of_two() {
            for (subtask, hash) in subtasks.iter_mut().zip(hashes) {
                *subtask = self.subtask(key_group_of(*hash, max));
            }
            return;
        }
        let (mask, bits) = (max.0 - 1, max.0.trailing_zeros());
        with_wide_vectors(|| {
            for (subtask, hash) in subtasks.iter_mut().zip(hashes) {
                let group = murmur(*hash) & mask;
                *subtask = SubtaskIndex::new((group * parallelism) >> bits);
            }
        });
    }

    /// The groups that `subtask` owns.
    ///
    /// # Panics
    /// If there is no such subtask.
    pub fn range(&self, subtask: SubtaskIndex) -> KeyGroupRange {
        range_of(subtask, self.parallelism, self.max)
    }
}

/// The group of a key whose hash is `hash32` (rule 83).
#[inline]
pub const fn key_group_of(hash32: i32, max: KeyGroupCount) -> KeyGroup {
    let hash = murmur(hash32);
    // The usual count is a power of two, and masking is far cheaper than dividing.
    let group = if max.0.is_power_of_two() { hash & (max.0 - 1) } else { hash % max.0 };
    KeyGroup(group as u16)
}

/// The owner of `group` among `parallelism` subtasks (rule 84).
///
/// # Panics
/// If there are no subtasks, or more than groups, or no such group.
pub const fn subtask_of(group: KeyGroup, parallelism: u32, max: KeyGroupCount) -> SubtaskIndex {
    assert_parallelism(parallelism, max);
    assert!((group.0 as u32) < max.0, "there is no such key group");
    SubtaskIndex::new(group.0 as u32 * parallelism / max.0)
}

/// The groups that `subtask` owns among `parallelism` subtasks (rule 84).
///
/// # Panics
/// If there are no subtasks, or more than groups, or no such subtask.
pub const fn range_of(
    subtask: SubtaskIndex,
    parallelism: u32,
    max: KeyGroupCount,
) -> KeyGroupRange {
    assert_parallelism(parallelism, max);
    let index = subtask.get();
    assert!(index < parallelism, "there is no such subtask");
    let first = (index * max.0).div_ceil(parallelism);
    let last = ((index + 1) * max.0 - 1) / parallelism;
    KeyGroupRange::new(KeyGroup(first as u16), KeyGroup(last as u16))
}

/// The number of groups for a vertex of this parallelism whose job sets none: room to grow by half,
/// as a power of two, at least 128 (rule 85).
pub const fn default_max_parallelism(parallelism: u32) -> KeyGroupCount {
    let roomy = parallelism as u64 + parallelism as u64 / 2;
    match roomy.next_power_of_two() {
        0..128 => KeyGroupCount(128),
        groups @ 128..32_768 => KeyGroupCount(groups as u32),
        32_768.. => KeyGroupCount::MAX,
    }
}

const fn assert_parallelism(parallelism: u32, max: KeyGroupCount) {
    assert!(
        parallelism > 0 && parallelism <= max.0,
        "the parallelism lies between 1 and the number of key groups"
    );
}

/// Flink's murmur hash of one word; never negative as an `i32`.
#[inline]
const fn murmur(word: i32) -> u32 {
    let mut hash = (word as u32).wrapping_mul(0xcc9e_2d51).rotate_left(15);
    hash = hash.wrapping_mul(0x1b87_3593).rotate_left(13);
    hash = hash.wrapping_mul(5).wrapping_add(0xe654_6b64) ^ 4;
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^= hash >> 16;
    // The magnitude, and 0 for the least number, without a branch: its sign can not be predicted.
    (hash as i32).wrapping_abs() as u32 & i32::MAX as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(groups: u32) -> KeyGroupCount {
        KeyGroupCount::new(groups).unwrap()
    }

    #[test]
    fn rule_083_key_group_vectors() {
        let vectors = [(0, 94), (1, 86), (2, 127), (3, 113), (42, 29), (97, 81), (-1, 80)];
        for (hash, group) in vectors {
            assert_eq!(key_group_of(hash, count(128)), KeyGroup(group), "{hash}");
        }
    }

    #[test]
    fn rule_083_masking_is_the_modulo() {
        for hash in (0..100_000).map(|step: i32| step.wrapping_mul(42_949_673)) {
            let whole = murmur(hash);
            assert!(whole <= i32::MAX as u32);
            for groups in [1, 2, 3, 100, 128, 32_767, 32_768] {
                let group = u32::from(key_group_of(hash, count(groups)).get());
                assert_eq!(group, whole % groups);
            }
        }
    }

    #[test]
    fn rule_084_ranges_cover_every_group_once_and_agree_with_the_owner() {
        for max in [1, 2, 3, 7, 100, 128, 129, 32_768] {
            let parallelisms: Vec<u32> =
                if max <= 129 { (1..=max).collect() } else { vec![1, 3, max] };
            for parallelism in parallelisms {
                let assigner = KeyGroupAssigner::new(count(max), parallelism);
                let subtasks = (0..parallelism).map(SubtaskIndex::new);
                let owned = subtasks.flat_map(|subtask| {
                    assigner.range(subtask).groups().map(move |group| (group, subtask))
                });
                let owned: Vec<_> = owned.collect();
                let all = KeyGroupRange::all(count(max)).groups();
                assert_eq!(owned, all.map(|g| (g, assigner.subtask(g))).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn rule_084_the_ranges_of_three_subtasks() {
        let ranges = (0..3).map(|index| range_of(SubtaskIndex::new(index), 3, count(128)));
        let ends: Vec<_> = ranges.map(|range| (range.first().get(), range.last().get())).collect();
        assert_eq!(ends, [(0, 42), (43, 85), (86, 127)]);
    }

    #[test]
    fn rule_085_default_max_parallelism() {
        let cases =
            [(0, 128), (1, 128), (85, 128), (86, 256), (21_845, 32_768), (u32::MAX, 32_768)];
        for (parallelism, groups) in cases {
            assert_eq!(default_max_parallelism(parallelism), count(groups), "{parallelism}");
        }
    }

    #[test]
    fn there_are_1_to_32768_key_groups() {
        assert_eq!((KeyGroupCount::new(0), KeyGroupCount::new(32_769)), (None, None));
        assert_eq!(KeyGroupCount::new(32_768), Some(KeyGroupCount::MAX));
    }
}
