//! A hash table in two parts: the entries in a row, without a gap, and an index of small numbers
//! that says where each entry stands. Half empty as it has to be, the index still fits the caches,
//! and no memory of entries is vacant.
//!
//! The index uses open addressing with linear probing, from the first slot of a bucket on; a
//! removal shifts the numbers behind it back, so there are no tombstones. The last entry moves into
//! the gap.
//!
//! No dependency whose layout could change: the same operations give the same iteration order on
//! every machine.
//!
//! Invariants: the size of the index is zero or a power of two and at least one slot is vacant;
//! between an entry's home and its slot no slot is vacant. The index has all entries or, as long as
//! nobody has asked for one since they were restored, none.

use std::hash::Hash;

use crate::processor::prefetch;
use crate::state::hash::KeyHash;
use crate::state::slot::Slot;

/// A hash table from keys to states. Empty, it allocates nothing.
#[derive(Clone, Debug)]
pub struct Table<K, S> {
    entries: Vec<(K, S)>,
    /// Stands in for a state that user code has taken, see [`Slot`]: an `Option` for every entry
    /// would cost a word each. Its value means nothing; there is one as soon as there is an entry.
    stand_in: Option<S>,
    /// Either vacant or an entry's position in the low bits, as many as the size of the index
    /// needs, and a part of its hash in the others.
    index: Box<[[u32; BUCKET_SLOTS]]>,
    /// 64 less the binary logarithm of the number of buckets: the home of a hash is its high bits.
    shift: u32,
}

impl<K, S> Default for Table<K, S> {
    fn default() -> Self {
        Self { entries: Vec::new(), stand_in: None, index: Box::default(), shift: 0 }
    }
}

impl<K: Hash + Eq + Clone, S: Clone> Table<K, S> {
    /// The table of these entries, of which no two have the same key. Its index is made when it is
    /// needed.
    pub(crate) fn of(entries: Vec<(K, S)>) -> Self {
        let stand_in = entries.first().map(|(_, state)| state.clone());
        Self { entries, stand_in, ..Self::default() }
    }

    /// Whether [`Table::find`] finds what is there.
    pub(crate) fn is_indexed(&self) -> bool {
        !self.index.is_empty() || self.is_empty()
    }

    /// An empty table with room for so many entries.
    pub(crate) fn with_room(entries: usize) -> Self {
        let mut table = Self { entries: Vec::with_capacity(entries), ..Self::default() };
        table.index_for(entries);
        table
    }

    /// How many entries it holds.
    #[inline]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds no entry.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The state of `key`, whose hash is `hash`.
    #[inline]
    pub fn get(&self, hash: KeyHash, key: &K) -> Option<&S> {
        if !self.is_indexed() {
            return self.iter().find(|(found, _)| *found == key).map(|(_, state)| state);
        }
        Some(&self.entries[self.find(hash, key)?].1)
    }

    /// Asks for the memory where a search for `hash` begins.
    #[inline]
    pub(crate) fn prefetch_index(&self, hash: KeyHash) {
        prefetch(&self.index, self.home(hash));
    }

    /// Asks for the memory of the entry at `position`.
    #[inline]
    pub(crate) fn prefetch_entry(&self, position: usize) {
        prefetch(&self.entries, position);
    }

    /// The key of the entry at `position`, if there are so many.
    #[inline]
    pub(crate) fn key_at(&self, position: usize) -> Option<&K> {
        Some(&self.entries.get(position)?.0)
    }

    /// Where a search for `hash` most likely ends, by the bucket of its home and without a look at
    /// the entries; perhaps no position at all.
    #[inline]
    pub(crate) fn guess(&self, hash: KeyHash) -> usize {
        let fragment = self.fragment(hash);
        let Some(bucket) = self.index.get(self.home(hash)) else { return usize::MAX };
        // No branch, since it can not be predicted which slot it is: another fragment, or a vacant
        // slot, gives a number that is larger than any position.
        bucket.iter().fold(u32::MAX, |least, slot| least.min(slot ^ fragment)) as usize
    }

    /// Lets `change` see and set the state of the entry at `position`. The entry vanishes if no
    /// state is left; the last one takes its place then.
    ///
    /// # Panics
    /// If there are not so many entries.
    #[inline]
    pub fn update_at<R>(
        &mut self,
        position: usize,
        change: impl FnOnce(&K, Slot<'_, S>) -> R,
    ) -> R {
        let (key, state) = &mut self.entries[position];
        let mut is_taken = false;
        let result = change(key, Slot::occupied(state, &mut self.stand_in, &mut is_taken));
        if is_taken {
            self.stand_in = Some(self.remove(position));
        }
        result
    }

    /// Two tables: of the entries that stay, and of those whose hash `goes`.
    pub(crate) fn split(self, goes: impl Fn(KeyHash) -> bool) -> (Self, Self) {
        // The halves are not equal.
        let room = self.len() / 2 + self.len() / 16;
        let (mut stays, mut gone) = (Self::with_room(room), Self::with_room(room));
        for (key, state) in self.entries {
            let hash = KeyHash::of(&key);
            let part = if goes(hash) { &mut gone } else { &mut stays };
            part.insert(hash, key, state);
        }
        (stays, gone)
    }

    /// The entry at `position`.
    ///
    /// # Panics
    /// If there are not so many entries.
    #[inline]
    pub(crate) fn at_mut(&mut self, position: usize) -> (&K, &mut S) {
        let (key, state) = &mut self.entries[position];
        (key, state)
    }

    /// The entries, in an order that follows from the operations alone.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &S)> {
        self.entries.iter().map(|(key, state)| (key, state))
    }

    /// The bucket at whose first slot a search begins. Meaningless without an index.
    #[inline]
    fn home(&self, hash: KeyHash) -> usize {
        hash.get().wrapping_shr(self.shift) as usize
    }

    #[inline]
    fn slots(&self) -> &[u32] {
        self.index.as_flattened()
    }

    /// The part of `hash` that a slot keeps.
    #[inline]
    fn fragment(&self, hash: KeyHash) -> u32 {
        hash.low() as u32 & !(self.slots().len() as u32).wrapping_sub(1)
    }

    /// The position of `key`, whose hash is `hash`, if there is an index.
    #[inline]
    pub fn find(&self, hash: KeyHash, key: &K) -> Option<usize> {
        let slots = self.slots();
        let mask = slots.len().checked_sub(1)?;
        let fragment = self.fragment(hash);
        let mut at = self.home(hash) * BUCKET_SLOTS;
        loop {
            let slot = slots[at];
            // Another fragment, or a vacant slot, gives a number that is too large for a position.
            let position = (slot ^ fragment) as usize;
            if let Some((found, _)) = self.entries.get(position)
                && found == key
            {
                return Some(position);
            }
            if slot == VACANT {
                return None;
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds an entry for `key`, whose hash is `hash` and which has none.
    pub fn insert(&mut self, hash: KeyHash, key: K, state: S) {
        if (self.len() + 1) * LOAD_DENOMINATOR > self.slots().len() * LOAD_NUMERATOR {
            self.index_anew();
        }
        self.stand_in.get_or_insert_with(|| state.clone());
        self.entries.push((key, state));
        self.enter(hash, self.len() - 1);
    }

    /// Makes an index with room for another entry.
    #[cold]
    #[inline(never)]
    pub(crate) fn index_anew(&mut self) {
        self.index_for(self.len() + 1);
        for position in 0..self.len() {
            self.enter(KeyHash::of(&self.entries[position].0), position);
        }
    }

    /// Makes an index for so many entries, without numbers.
    fn index_for(&mut self, entries: usize) {
        let slots = (entries * LOAD_DENOMINATOR).div_ceil(LOAD_NUMERATOR);
        let slots = slots.next_power_of_two().max(SLOTS_MIN);
        assert!(slots <= SLOTS_MAX, "a table holds at most {SLOTS_MAX} entries");
        let buckets = slots / BUCKET_SLOTS;
        self.index = vec![[VACANT; BUCKET_SLOTS]; buckets].into();
        self.shift = u64::BITS - buckets.trailing_zeros();
    }

    /// Puts the number of an entry into the first vacant slot from its home on.
    fn enter(&mut self, hash: KeyHash, position: usize) {
        let number = self.fragment(hash) | position as u32;
        let mut at = self.home(hash) * BUCKET_SLOTS;
        let slots = self.index.as_flattened_mut();
        while slots[at] != VACANT {
            at = (at + 1) & (slots.len() - 1);
        }
        slots[at] = number;
    }

    /// The slot with the number of the entry at `position`, whose hash is `hash`.
    fn slot_of(&self, hash: KeyHash, position: usize) -> usize {
        let number = self.fragment(hash) | position as u32;
        let slots = self.slots();
        let mut at = self.home(hash) * BUCKET_SLOTS;
        while slots[at] != number {
            at = (at + 1) & (slots.len() - 1);
        }
        at
    }

    /// Removes the entry at `position` and returns its state; the last entry takes its place.
    #[cold]
    #[inline(never)]
    pub(crate) fn remove(&mut self, position: usize) -> S {
        if !self.is_indexed() {
            self.index_anew();
        }
        let hash = KeyHash::of(&self.entries[position].0);
        self.vacate(self.slot_of(hash, position));
        let last = self.len() - 1;
        if position < last {
            let moved = KeyHash::of(&self.entries[last].0);
            let slot = self.slot_of(moved, last);
            self.index.as_flattened_mut()[slot] = self.fragment(moved) | position as u32;
        }
        self.entries.swap_remove(position).1
    }

    /// Vacates slot `at` and moves later numbers of the run back, so that none is cut off from its
    /// home.
    fn vacate(&mut self, mut at: usize) {
        let mask = self.slots().len() - 1;
        self.index.as_flattened_mut()[at] = VACANT;
        let mut next = (at + 1) & mask;
        while self.slots()[next] != VACANT {
            let position = self.slots()[next] as usize & mask;
            let home = self.home(KeyHash::of(&self.entries[position].0)) * BUCKET_SLOTS;
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(at) & mask {
                self.index.as_flattened_mut().swap(at, next);
                at = next;
            }
            next = (next + 1) & mask;
        }
    }
}

/// No entry has it: the last position of a full index would, and no index is ever full.
const VACANT: u32 = u32::MAX;
/// At most two slots in three are taken: fuller, and the length of a search can no longer be
/// predicted; emptier, and the index falls out of the caches.
const LOAD_NUMERATOR: usize = 2;
const LOAD_DENOMINATOR: usize = 3;
const SLOTS_MIN: usize = 8;
/// Where the home of a hash can be: a bucket lies in one cache line, and few searches leave it.
const BUCKET_SLOTS: usize = 4;
const SLOTS_MAX: usize = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    fn set(table: &mut Table<u64, u64>, key: u64, state: Option<u64>) {
        let hash = KeyHash::of(&key);
        match (table.find(hash, &key), state) {
            (Some(position), _) => table.update_at(position, |_, mut slot| slot.put(state)),
            (None, Some(state)) => table.insert(hash, key, state),
            (None, None) => {}
        }
    }

    #[test]
    fn a_removal_leaves_every_other_entry_reachable() {
        // Powers: a plain sequence of keys would hardly collide.
        let keys = || (0..40_u64).map(|number| (number + 1).pow(9));
        for removed in keys() {
            let mut table = Table::default();
            keys().for_each(|key| set(&mut table, key, Some(key + 1)));
            set(&mut table, removed, None);
            assert_eq!(table.len(), 39);
            for key in keys() {
                let state = table.get(KeyHash::of(&key), &key).copied();
                assert_eq!(state, (key != removed).then_some(key + 1), "{key} without {removed}");
            }
        }
    }

    #[test]
    fn a_split_keeps_every_entry_in_one_part() {
        let keys = || (0..1000_u64).map(|number| (number + 1).pow(5));
        let mut table = Table::default();
        keys().for_each(|key| set(&mut table, key, Some(key + 1)));
        let goes = |hash: KeyHash| hash.get() % 4 == 1;
        let (mut stays, mut gone) = table.split(goes);
        assert_eq!(stays.len() + gone.len(), 1000);
        for key in keys() {
            let hash = KeyHash::of(&key);
            let part = if goes(hash) { &mut gone } else { &mut stays };
            assert_eq!(part.get(hash, &key), Some(&(key + 1)));
            set(part, key, None);
        }
        assert!(stays.is_empty() && gone.is_empty());
    }

    #[test]
    fn nearly_every_guess_is_right_and_none_needs_an_index() {
        let keys = || (0..1000_u64).map(|number| (number + 1).pow(5));
        let mut table = Table::default();
        keys().for_each(|key| set(&mut table, key, Some(key)));
        let is_right = |table: &Table<u64, u64>, key: u64| {
            table.key_at(table.guess(KeyHash::of(&key))) == Some(&key)
        };
        let right = keys().filter(|key| is_right(&table, *key)).count();
        assert!(right > 950, "{right} of 1000");
        assert!(!(2000..3000).any(|key| is_right(&table, key)));
        let unindexed = Table::of(keys().map(|key| (key, key)).collect());
        assert!(!keys().any(|key| is_right(&unindexed, key)));
        assert!(!is_right(&Table::default(), 1));
    }

    #[test]
    fn the_order_of_iteration_is_pinned() {
        let mut table = Table::default();
        (0..6).for_each(|key| set(&mut table, key, Some(0)));
        set(&mut table, 1, None);
        let keys: Vec<u64> = table.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [0, 5, 2, 3, 4]);
    }
}
