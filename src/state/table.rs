//! A hash table whose slots hold `Option<S>`, the form in which user code sees state. Open
//! addressing with linear probing; a removal shifts the entries behind it back, so there are no
//! tombstones.
//!
//! Safe code, and no dependency whose layout could change: the same operations give the same
//! iteration order on every machine.
//!
//! Invariants: the capacity is zero or a power of two and at least one slot is vacant; between an
//! entry's home and its slot no slot is vacant; outside of [`Table::update`] every entry has a
//! state.

use std::hash::Hash;

use crate::state::hash::KeyHash;

/// A hash table from keys to states. Empty, it allocates nothing.
#[derive(Clone, Debug)]
pub struct Table<K, S> {
    slots: Box<[Slot<K, S>]>,
    len: usize,
    /// 64 less the binary logarithm of the capacity: the home of a hash is its high bits.
    shift: u32,
}

/// The vacant slot, and the vanished state, are niches: for two words the slot takes three.
type Slot<K, S> = Option<(K, Option<S>)>;

impl<K, S> Default for Table<K, S> {
    fn default() -> Self {
        Self { slots: Box::default(), len: 0, shift: 0 }
    }
}

impl<K: Hash + Eq + Clone, S> Table<K, S> {
    /// A table with room for `entries`.
    pub fn with_capacity(entries: usize) -> Self {
        if entries == 0 {
            return Self::default();
        }
        let capacity = (entries * LOAD_DENOMINATOR / LOAD_NUMERATOR + 1).next_power_of_two();
        Self::with_slots(capacity.max(CAPACITY_MIN))
    }

    /// How many entries it holds.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no entry.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The state of `key`, whose hash is `hash`.
    #[inline]
    pub fn get(&self, hash: KeyHash, key: &K) -> Option<&S> {
        if self.is_empty() {
            return None;
        }
        let (_, state) = self.slots[self.probe(hash, key)].as_ref()?;
        state.as_ref()
    }

    /// Reads the slot where a search for `hash` begins.
    #[inline]
    pub fn touch(&self, hash: KeyHash) -> usize {
        if self.slots.is_empty() {
            return 0;
        }
        usize::from(self.slots[self.home(hash)].is_some())
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
        if self.slots.is_empty() {
            self.grow();
        }
        let mut at = self.probe(hash, key);
        if self.slots[at].is_none() {
            at = self.insert(at, hash, key);
        }
        let (_, state) = self.slots[at].as_mut().expect("found or inserted just now");
        let result = change(key, state);
        if state.is_none() {
            self.remove(at);
        }
        result
    }

    /// The entries, in an order that follows from the operations alone.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &S)> {
        let entries = self.slots.iter().flatten();
        entries.filter_map(|(key, state)| Some((key, state.as_ref()?)))
    }

    fn with_slots(capacity: usize) -> Self {
        let slots = std::iter::repeat_with(|| None).take(capacity).collect();
        Self { slots, len: 0, shift: u64::BITS - capacity.trailing_zeros() }
    }

    #[inline]
    fn home(&self, hash: KeyHash) -> usize {
        (hash.get() >> self.shift) as usize
    }

    /// The slot of `key`, or the vacant slot where it would go.
    #[inline]
    fn probe(&self, hash: KeyHash, key: &K) -> usize {
        let mut at = self.home(hash);
        while let Some((found, _)) = &self.slots[at]
            && found != key
        {
            at = (at + 1) & (self.slots.len() - 1);
        }
        at
    }

    /// Puts `key` without a state into the vacant slot `at`, or elsewhere if the table has to grow.
    #[cold]
    #[inline(never)]
    fn insert(&mut self, mut at: usize, hash: KeyHash, key: &K) -> usize {
        if (self.len + 1) * LOAD_DENOMINATOR > self.slots.len() * LOAD_NUMERATOR {
            self.grow();
            at = self.probe(hash, key);
        }
        self.slots[at] = Some((key.clone(), None));
        self.len += 1;
        at
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let capacity = (self.slots.len() * 2).max(CAPACITY_MIN);
        let old = std::mem::replace(self, Self::with_slots(capacity));
        self.len = old.len;
        for (key, state) in old.slots.into_iter().flatten() {
            let at = self.probe(KeyHash::of(&key), &key);
            self.slots[at] = Some((key, state));
        }
    }

    /// Vacates slot `at` and moves later entries of the run back, so that none is cut off from its
    /// home.
    #[cold]
    #[inline(never)]
    fn remove(&mut self, mut at: usize) {
        let mask = self.slots.len() - 1;
        self.slots[at] = None;
        self.len -= 1;
        let mut next = (at + 1) & mask;
        while let Some((key, _)) = &self.slots[next] {
            let home = self.home(KeyHash::of(key));
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(at) & mask {
                self.slots.swap(at, next);
                at = next;
            }
            next = (next + 1) & mask;
        }
    }
}

/// At most two slots in three are taken: fuller, and the length of a search can no longer be
/// predicted; emptier, and the table falls out of the caches.
const LOAD_NUMERATOR: usize = 2;
const LOAD_DENOMINATOR: usize = 3;
const CAPACITY_MIN: usize = 8;

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
    fn an_empty_table_allocates_nothing_and_room_is_made_ahead() {
        assert!(Table::<u64, u64>::with_capacity(0).slots.is_empty());
        let mut table = Table::with_capacity(1000);
        let capacity = table.slots.len();
        (0..1000).for_each(|key| set(&mut table, key, Some(key)));
        assert_eq!(table.slots.len(), capacity);
    }

    #[test]
    fn the_order_of_iteration_is_pinned() {
        let mut table = Table::default();
        (0..6).for_each(|key| set(&mut table, key, Some(0)));
        let keys: Vec<u64> = table.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [1, 4, 2, 5, 3, 0]);
    }
}
