//! A hash table in two parts: the entries in a row, without a gap, and an index of small numbers
//! that says where each entry stands. Half empty as it has to be, the index still fits the caches,
//! and no memory of entries is vacant.
//!
//! The index uses open addressing with linear probing; a removal shifts the numbers behind it back,
//! so there are no tombstones. The last entry moves into the gap.
//!
//! Safe code, and no dependency whose layout could change: the same operations give the same
//! iteration order on every machine.
//!
//! Invariants: the size of the index is zero or a power of two and at least one slot is vacant;
//! between an entry's home and its slot no slot is vacant.

use std::hash::Hash;

use crate::state::hash::KeyHash;

/// A hash table from keys to states. Empty, it allocates nothing.
#[derive(Clone, Debug)]
pub struct Table<K, S> {
    entries: Vec<(K, S)>,
    /// Stands in for a state while user code has it as an `Option`, which to keep for every entry
    /// would cost a word each. Its value means nothing; there is one as soon as there is an entry.
    stand_in: Option<S>,
    /// Either vacant or an entry's position in the low bits, as many as the size of the index
    /// needs, and a part of its hash in the others.
    index: Box<[u32]>,
    /// 64 less the binary logarithm of the size of the index: the home of a hash is its high bits.
    shift: u32,
}

impl<K, S> Default for Table<K, S> {
    fn default() -> Self {
        Self { entries: Vec::new(), stand_in: None, index: Box::default(), shift: 0 }
    }
}

impl<K: Hash + Eq + Clone, S: Clone> Table<K, S> {
    /// The table of these entries, as if they had come one after the other. The index of a table is
    /// in the caches while it is made, if no other table is made meanwhile.
    ///
    /// # Errors
    /// The key that is there twice.
    pub fn of(entries: Vec<(K, S)>) -> Result<Self, K> {
        let mut table = Self { entries, ..Self::default() };
        if table.is_empty() {
            return Ok(table);
        }
        let slots = (table.len() * LOAD_DENOMINATOR).div_ceil(LOAD_NUMERATOR);
        table.index_of_size(slots.next_power_of_two().max(SLOTS_MIN));
        for position in 0..table.len() {
            let key = &table.entries[position].0;
            let hash = KeyHash::of(key);
            if table.find(hash, key).is_some() {
                return Err(key.clone());
            }
            table.enter(hash, position);
        }
        table.stand_in = table.entries.first().map(|(_, state)| state.clone());
        Ok(table)
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
        Some(&self.entries[self.find(hash, key)?].1)
    }

    /// Reads the slot where a search for `hash` begins.
    #[inline]
    pub fn touch_index(&self, hash: KeyHash) -> usize {
        self.index.get(self.home(hash)).map_or(0, |slot| *slot as usize)
    }

    /// Reads the entry where a search for `hash` most likely ends.
    #[inline]
    pub fn touch(&self, hash: KeyHash, key: &K) -> usize {
        let Some(slot) = self.index.get(self.home(hash)) else { return 0 };
        let position = *slot as usize & (self.index.len() - 1);
        self.entries.get(position).map_or(0, |(found, _)| usize::from(found == key))
    }

    /// Lets `change` see and set the state of `key`, whose hash is `hash`; the entry vanishes if
    /// the state is left `None`.
    #[inline]
    pub fn update<R>(
        &mut self,
        hash: KeyHash,
        key: &K,
        change: impl FnOnce(&K, &mut Option<S>) -> R,
    ) -> R {
        match self.find(hash, key) {
            Some(position) => self.update_at(position, change),
            None => self.update_vacant(hash, key, change),
        }
    }

    /// As [`Table::update`], of the entry at a position; if it vanishes, the last one takes its
    /// place.
    ///
    /// # Panics
    /// If there are not so many entries.
    #[inline]
    pub fn update_at<R>(
        &mut self,
        position: usize,
        change: impl FnOnce(&K, &mut Option<S>) -> R,
    ) -> R {
        let (key, state) = &mut self.entries[position];
        let stand_in = self.stand_in.take().expect("there is an entry");
        let mut slot = Some(std::mem::replace(state, stand_in));
        let result = change(key, &mut slot);
        self.stand_in = Some(match slot {
            Some(changed) => std::mem::replace(state, changed),
            None => self.remove(position),
        });
        result
    }

    /// Lets `change` set the state of `key`, which has none.
    #[cold]
    #[inline(never)]
    fn update_vacant<R>(
        &mut self,
        hash: KeyHash,
        key: &K,
        change: impl FnOnce(&K, &mut Option<S>) -> R,
    ) -> R {
        let mut slot = None;
        let result = change(key, &mut slot);
        if let Some(state) = slot {
            self.insert(hash, key.clone(), state);
        }
        result
    }

    /// The entries, in an order that follows from the operations alone.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &S)> {
        self.entries.iter().map(|(key, state)| (key, state))
    }

    /// Meaningless without an index.
    #[inline]
    fn home(&self, hash: KeyHash) -> usize {
        hash.get().wrapping_shr(self.shift) as usize
    }

    /// The part of `hash` that a slot keeps.
    #[inline]
    fn fragment(&self, hash: KeyHash) -> u32 {
        hash.low() as u32 & !(self.index.len() as u32).wrapping_sub(1)
    }

    /// The position of `key`.
    #[inline]
    fn find(&self, hash: KeyHash, key: &K) -> Option<usize> {
        let mask = self.index.len().checked_sub(1)?;
        let fragment = self.fragment(hash);
        let mut at = self.home(hash);
        loop {
            let slot = self.index[at];
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

    /// Adds an entry for a key that has none.
    fn insert(&mut self, hash: KeyHash, key: K, state: S) {
        if (self.len() + 1) * LOAD_DENOMINATOR > self.index.len() * LOAD_NUMERATOR {
            self.index_anew((self.index.len() * 2).max(SLOTS_MIN));
        }
        self.stand_in.get_or_insert_with(|| state.clone());
        self.entries.push((key, state));
        self.enter(hash, self.len() - 1);
    }

    /// Makes an index of this size.
    #[cold]
    #[inline(never)]
    fn index_anew(&mut self, slots: usize) {
        self.index_of_size(slots);
        for position in 0..self.len() {
            self.enter(KeyHash::of(&self.entries[position].0), position);
        }
    }

    /// Makes an index without numbers.
    fn index_of_size(&mut self, slots: usize) {
        assert!(slots <= SLOTS_MAX, "a table holds at most {SLOTS_MAX} entries");
        self.index = vec![VACANT; slots].into();
        self.shift = u64::BITS - slots.trailing_zeros();
    }

    /// Puts the number of an entry into the first vacant slot from its home on.
    fn enter(&mut self, hash: KeyHash, position: usize) {
        let mut at = self.home(hash);
        while self.index[at] != VACANT {
            at = (at + 1) & (self.index.len() - 1);
        }
        self.index[at] = self.fragment(hash) | position as u32;
    }

    /// The slot with the number of the entry at `position`, whose hash is `hash`.
    fn slot_of(&self, hash: KeyHash, position: usize) -> usize {
        let number = self.fragment(hash) | position as u32;
        let mut at = self.home(hash);
        while self.index[at] != number {
            at = (at + 1) & (self.index.len() - 1);
        }
        at
    }

    /// Removes the entry at `position` and returns its state; the last entry takes its place.
    #[cold]
    #[inline(never)]
    fn remove(&mut self, position: usize) -> S {
        let hash = KeyHash::of(&self.entries[position].0);
        self.vacate(self.slot_of(hash, position));
        let last = self.len() - 1;
        if position < last {
            let moved = KeyHash::of(&self.entries[last].0);
            let slot = self.slot_of(moved, last);
            self.index[slot] = self.fragment(moved) | position as u32;
        }
        self.entries.swap_remove(position).1
    }

    /// Vacates slot `at` and moves later numbers of the run back, so that none is cut off from its
    /// home.
    fn vacate(&mut self, mut at: usize) {
        let mask = self.index.len() - 1;
        self.index[at] = VACANT;
        let mut next = (at + 1) & mask;
        while self.index[next] != VACANT {
            let position = self.index[next] as usize & mask;
            let home = self.home(KeyHash::of(&self.entries[position].0));
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(at) & mask {
                self.index.swap(at, next);
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
const SLOTS_MAX: usize = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    fn set(table: &mut Table<u64, u64>, key: u64, state: Option<u64>) {
        table.update(KeyHash::of(&key), &key, |_, slot| *slot = state);
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
    fn a_table_of_entries_is_the_one_that_they_would_have_come_to_one_by_one() {
        assert!(Table::<u64, u64>::of(Vec::new()).unwrap().index.is_empty());
        let entries = || (0..1000_u64).map(|number| ((number + 1).pow(5), number));
        let mut table = Table::of(entries().collect()).unwrap();
        let mut grown = Table::default();
        entries().for_each(|(key, state)| set(&mut grown, key, Some(state)));
        assert!(table.iter().eq(grown.iter()));
        for (key, state) in entries() {
            assert_eq!(table.get(KeyHash::of(&key), &key), Some(&state));
            set(&mut table, key, Some(state + 1));
        }
        assert_eq!(table.len(), 1000);
        let twice = entries().chain([(32, 7)]).collect();
        assert_eq!(Table::of(twice).unwrap_err(), 32);
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
