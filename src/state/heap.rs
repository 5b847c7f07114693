//! Keyed state in memory, in pieces: a table for each value of a few hash bits. It does not know
//! operators, time or storage.
//!
//! A snapshot shares the pieces and takes microseconds; the first write to a piece that is still
//! shared copies that one alone (rule 114). Pieces are not key groups: to find a record's group
//! costs as much as to find its entry, so that is left to whoever encodes the snapshot.
//!
//! Invariant: every key belongs to the range. It is checked where a snapshot is encoded and
//! restored, and at every update if debug assertions are on.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::element::Record;
use crate::state::codec::Format;
use crate::state::error::RestoreError;
use crate::state::group_codec::{GroupEntries, check_owner, encode_by_group, encode_group};
use crate::state::hash::KeyHash;
use crate::state::key_group::{Key, KeyGroup, KeyGroupCount, KeyGroupRange};
use crate::state::piece::Piece;
use crate::state::snapshot::{Bytes, Share};
use crate::state::table::Table;

/// The state of one operator in one subtask, by key.
#[derive(Clone)]
pub struct KeyedState<K, S> {
    range: KeyGroupRange,
    max: KeyGroupCount,
    /// None before the first entry, later [`KeyedState::piece_count`].
    pieces: Vec<Piece<Table<K, S>>>,
    /// The keys that were updated since [`KeyedState::changes`], if that is wanted.
    changed: Option<BTreeSet<K>>,
}

/// Where a walk over all entries stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    piece: usize,
    position: usize,
}

/// What was done to an entry on a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visited {
    /// It was changed.
    pub has_changed: bool,
    /// The next call goes on to the next entry.
    pub is_done: bool,
}

impl<K: Key, S: Record> KeyedState<K, S> {
    /// No state yet, for the keys of the groups `range` out of `max` groups.
    ///
    /// # Panics
    /// If the range has groups that do not exist.
    pub fn new(range: KeyGroupRange, max: KeyGroupCount) -> Self {
        range.assert_within(max);
        Self { range, max, pieces: Vec::new(), changed: None }
    }

    /// Lets `change` see and set the state of `key`; the entry vanishes if it is left `None`.
    ///
    /// # Panics
    /// With debug assertions, if the key belongs to another subtask: the exchange before the
    /// operator is broken.
    #[inline]
    pub fn update<R>(&mut self, key: &K, change: impl FnOnce(&K, &mut Option<S>) -> R) -> R {
        self.update_hashed(KeyHash::of(key), key, change)
    }

    /// As [`KeyedState::update`], for a key whose hash is known.
    ///
    /// # Panics
    /// As [`KeyedState::update`].
    #[inline]
    pub fn update_hashed<R>(
        &mut self,
        hash: KeyHash,
        key: &K,
        change: impl FnOnce(&K, &mut Option<S>) -> R,
    ) -> R {
        debug_assert!(
            self.range.contains(self.max.group_of(hash)),
            "{key:?} belongs to another subtask than the one of {}",
            self.range
        );
        if self.pieces.is_empty() {
            self.lay_out();
        }
        if let Some(changed) = &mut self.changed {
            changed.insert(key.clone());
        }
        let index = self.index_of(hash);
        self.pieces[index].get_mut().update(hash, key, change)
    }

    /// Lets `look` see and set the state of the entry at `place`, which moves on behind it, or at
    /// the end of a piece to the next one, or to the first one again. The entry vanishes if its
    /// state is left `None`.
    pub fn visit(&mut self, place: &mut Place, look: impl FnOnce(&mut Option<S>) -> Visited) {
        let Some(piece) = self.pieces.get_mut(place.piece) else {
            *place = Place::default();
            return;
        };
        if piece.get().len() <= place.position {
            *place = Place { piece: place.piece + 1, position: 0 };
            return;
        }
        let changed = &mut self.changed;
        let moves = piece.get_mut().update_at(place.position, |key, state| {
            let visited = look(state);
            if let Some(changed) = changed.as_mut().filter(|_| visited.has_changed) {
                changed.insert(key.clone());
            }
            visited.is_done && state.is_some()
        });
        place.position += usize::from(moves);
    }

    /// From now on it is noted which keys are updated.
    pub fn track_changes(&mut self) {
        self.changed = Some(BTreeSet::new());
    }

    /// The keys that were updated since the last call, each with its value, if it has one. Copies
    /// these and no other entry. Nothing if changes are not tracked.
    pub fn changes(&mut self) -> Arc<dyn Share> {
        let changed = self.changed.as_mut().map(std::mem::take).unwrap_or_default();
        let with_value = |key: K| {
            let value = self.get(&key).cloned();
            (key, value)
        };
        let max = self.max;
        Arc::new(ChangeShare { max, changes: changed.into_iter().map(with_value).collect() })
    }

    /// Applies what [`KeyedState::changes`] gave of the same range.
    ///
    /// # Errors
    /// If the bytes are not such changes, or they are not of this subtask's keys.
    pub fn apply(
        &mut self,
        format: Format,
        groups: &[(KeyGroup, Bytes)],
    ) -> Result<(), RestoreError> {
        for (group, bytes) in groups {
            for change in GroupEntries::<(K, Option<S>)>::new(format, self.range, *group, bytes)? {
                let (key, value) = change?;
                let hash = KeyHash::of(&key);
                check_owner(*group, self.max.group_of(hash))?;
                self.update_hashed(hash, &key, |_, slot| *slot = value);
            }
        }
        Ok(())
    }

    /// The state of `key`.
    pub fn get(&self, key: &K) -> Option<&S> {
        let hash = KeyHash::of(key);
        if self.pieces.is_empty() {
            return None;
        }
        self.pieces[self.index_of(hash)].get().get(hash, key)
    }

    /// Looks where a search for `key` would begin, before [`KeyedState::touch`] looks where it
    /// ends: the second look needs what the first one reads.
    #[inline]
    pub fn touch_index(&self, key: &K) -> usize {
        let hash = KeyHash::of(key);
        match self.pieces.is_empty() {
            true => 0,
            false => self.pieces[self.index_of(hash)].get().touch_index(hash),
        }
    }

    /// Looks where the state of `key` would lie, so that it is near when it is needed. The number
    /// means nothing, but to get it the memory must have been read.
    #[inline]
    pub fn touch(&self, key: &K) -> usize {
        let hash = KeyHash::of(key);
        match self.pieces.is_empty() {
            true => 0,
            false => self.pieces[self.index_of(hash)].get().touch(hash, key),
        }
    }

    /// How many keys have state.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.get().len()).sum()
    }

    /// Whether no key has state.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries, in an order that follows from the operations alone.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &S)> {
        self.pieces.iter().flat_map(|piece| piece.get().iter())
    }

    /// The state as it is now, whatever is written later. Copies no entry.
    pub fn snapshot(&mut self) -> Arc<dyn Share> {
        let pieces = self.pieces.iter_mut().filter(|piece| !piece.get().is_empty());
        let pieces = pieces.map(Piece::share).collect();
        Arc::new(StateShare { range: self.range, max: self.max, pieces })
    }

    /// Takes over what a snapshot of the same range encoded, in place of what is there.
    ///
    /// # Errors
    /// If the bytes are not such entries, or entries are not this subtask's; the state is unchanged
    /// then.
    pub fn restore(
        &mut self,
        format: Format,
        groups: &[(KeyGroup, Bytes)],
    ) -> Result<(), RestoreError> {
        let mut entries = Vec::with_capacity(groups.len());
        for (group, bytes) in groups {
            entries.push(GroupEntries::<(K, S)>::new(format, self.range, *group, bytes)?);
        }
        let len_max: usize = entries.iter().map(GroupEntries::len_max).sum();
        let piece_count = if groups.is_empty() { 0 } else { self.piece_count() };
        // First the entries of all pieces, then one index after the other.
        let mut pieces: Vec<Vec<(K, S)>> = Vec::with_capacity(piece_count);
        let share = len_max.checked_div(piece_count).unwrap_or_default();
        // Pieces are not equal.
        let room = share + share / 16;
        pieces.resize_with(piece_count, || Vec::with_capacity(room));
        for group in entries {
            let owner = group.group();
            for entry in group {
                let entry = entry?;
                let hash = KeyHash::of(&entry.0);
                check_owner(owner, self.max.group_of(hash))?;
                pieces[piece_of(hash, piece_count)].push(entry);
            }
        }
        let duplicate =
            |key: K| RestoreError::Duplicate { group: self.max.group_of(KeyHash::of(&key)) };
        let tables = pieces.into_iter().map(|entries| Table::of(entries).map_err(duplicate));
        self.pieces = tables.map(|table| table.map(Piece::Owned)).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// A power of two.
    fn piece_count(&self) -> usize {
        self.range.group_count().next_power_of_two().min(PIECES_MAX)
    }

    #[inline]
    fn index_of(&self, hash: KeyHash) -> usize {
        piece_of(hash, self.pieces.len())
    }

    #[cold]
    #[inline(never)]
    fn lay_out(&mut self) {
        self.pieces.resize_with(self.piece_count(), Piece::default);
    }
}

impl<K: Key, S: Record> fmt::Debug for KeyedState<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedState({}, {} entries)", self.range, self.len())
    }
}

/// Which of so many pieces a key is in: by the low bits of the hash, since a table uses the high
/// ones.
#[inline]
fn piece_of(hash: KeyHash, piece_count: usize) -> usize {
    hash.get() as usize & (piece_count - 1)
}

struct StateShare<K, S> {
    range: KeyGroupRange,
    max: KeyGroupCount,
    pieces: Vec<Arc<Table<K, S>>>,
}

impl<K: Key, S: Record> Share for StateShare<K, S> {
    /// Sorts the entries by key, so that equal state gives equal bytes whatever its history: the
    /// price is paid by the thread that writes the snapshot.
    fn encode_groups(&self, format: Format) -> Vec<(KeyGroup, Bytes)> {
        let mut groups: Vec<Vec<(&K, &S)>> = vec![Vec::new(); self.range.group_count()];
        for (key, state) in self.pieces.iter().flat_map(|piece| piece.iter()) {
            let group = self.max.group_of(KeyHash::of(key));
            assert!(self.range.contains(group), "{key:?} of {group} got into {}", self.range);
            groups[usize::from(group.get() - self.range.first().get())].push((key, state));
        }
        let groups = self.range.groups().zip(groups).filter(|(_, entries)| !entries.is_empty());
        let encode = |(group, mut entries): (KeyGroup, Vec<(&K, &S)>)| {
            entries.sort_unstable_by_key(|(key, _)| *key);
            (group, encode_group(format, &entries))
        };
        groups.map(encode).collect()
    }
}

struct ChangeShare<K, S> {
    max: KeyGroupCount,
    changes: Vec<(K, Option<S>)>,
}

impl<K: Key, S: Record> Share for ChangeShare<K, S> {
    fn encode_groups(&self, format: Format) -> Vec<(KeyGroup, Bytes)> {
        encode_by_group(format, self.max, &self.changes, |(key, _)| key)
    }
}

/// Small enough that copying one piece does not hold the records up; more would only cost memory.
const PIECES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::codec;

    const MAX: KeyGroupCount = KeyGroupCount::new(128).expect("within 1 to 32768");

    fn counts(keys: impl IntoIterator<Item = u64>) -> KeyedState<u64, u64> {
        let mut state = KeyedState::new(KeyGroupRange::all(MAX), MAX);
        keys.into_iter().for_each(|key| state.update(&key, |_, slot| *slot = Some(key * 10)));
        state
    }

    #[test]
    fn changes_on_top_of_an_earlier_snapshot_give_a_later_one() {
        let mut state = counts(0..100);
        state.track_changes();
        let base = state.snapshot().encode_groups(Format::Binary);
        state.update(&7, |_, slot| *slot = None);
        state.update(&8, |_, slot| *slot = Some(1));
        let first = state.changes().encode_groups(Format::Binary);
        state.update(&8, |_, slot| *slot = Some(2));
        state.update(&200, |_, slot| *slot = Some(3));
        let second = state.changes().encode_groups(Format::Binary);
        assert_eq!(
            state.changes().encode_groups(Format::Binary),
            [],
            "each change is told of once"
        );

        let mut restored = counts([]);
        restored.restore(Format::Binary, &base).unwrap();
        restored.apply(Format::Binary, &first).unwrap();
        assert_eq!((restored.get(&7), restored.get(&8)), (None, Some(&1)));
        restored.apply(Format::Binary, &second).unwrap();
        assert_eq!(
            restored.snapshot().encode_groups(Format::Binary),
            state.snapshot().encode_groups(Format::Binary)
        );
        let bytes: usize = second.iter().map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes < 20, "two of a hundred entries are {bytes} bytes");
    }

    #[test]
    fn an_entry_left_none_vanishes() {
        let mut state = counts(0..100);
        state.update(&7, |_, slot| *slot = None);
        state.update(&1000, |_, slot| assert_eq!(*slot, None));
        assert_eq!((state.len(), state.get(&7), state.get(&8)), (99, None, Some(&80)));
        assert_eq!(state.iter().count(), 99);
    }

    #[test]
    fn rule_114_snapshot_is_exact_under_later_writes() {
        let mut state = counts(0..500);
        let before = state.snapshot().encode_groups(Format::Binary);
        let share = state.snapshot();
        for key in 0..1000 {
            state.update(&key, |_, slot| *slot = (key % 3 > 0).then_some(1));
        }
        assert_eq!(share.encode_groups(Format::Binary), before);
        assert_ne!(state.snapshot().encode_groups(Format::Binary), before);
    }

    #[test]
    fn rule_087_unchanged_parallelism_gives_each_subtask_its_own_state_again() {
        let mut state = counts(0..500);
        let groups = state.snapshot().encode_groups(Format::Binary);
        let mut restored = counts([]);
        restored.restore(Format::Binary, &groups).unwrap();
        assert_eq!(restored.len(), 500);
        assert_eq!(restored.snapshot().encode_groups(Format::Binary), groups);
    }

    #[test]
    fn equal_state_gives_equal_bytes_whatever_its_history() {
        let mut other = counts((0..900).rev());
        (300..900).for_each(|key| other.update(&key, |_, slot| *slot = None));
        assert_eq!(
            other.snapshot().encode_groups(Format::Binary),
            counts(0..300).snapshot().encode_groups(Format::Binary)
        );
    }

    #[test]
    fn what_is_not_this_subtasks_is_refused_and_changes_nothing() {
        let mut groups = counts(0..500).snapshot().encode_groups(Format::Binary);
        let half = KeyGroupRange::new(KeyGroup::new(0), KeyGroup::new(63));
        let mut state: KeyedState<u64, u64> = KeyedState::new(half, MAX);
        let foreign = KeyGroup::new(64);
        let error = RestoreError::ForeignGroup { group: foreign, range: half };
        assert_eq!(state.restore(Format::Binary, &groups), Err(error));

        let mut state = counts([1]);
        groups.push(groups[0].clone());
        let group = groups[0].0;
        assert_eq!(state.restore(Format::Binary, &groups), Err(RestoreError::Duplicate { group }));
        let (group, owner) = (groups[0].0, groups[1].0);
        groups[0].1 = groups[1].1.clone();
        assert_eq!(
            state.restore(Format::Binary, &groups),
            Err(RestoreError::ForeignKey { group, owner })
        );
        groups[0].1.clear();
        assert!(matches!(state.restore(Format::Binary, &groups), Err(RestoreError::Decode { .. })));
        assert_eq!((state.len(), state.get(&1)), (1, Some(&10)));
    }

    #[test]
    fn the_number_of_entries_that_bytes_claim_is_not_believed() {
        let bytes = Bytes::from(codec::encode(&u64::MAX));
        let error = counts([]).restore(Format::Binary, &[(KeyGroup::new(0), bytes)]);
        assert!(matches!(error, Err(RestoreError::Decode { .. })));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "belongs to another subtask")]
    fn a_key_of_another_subtask_is_a_broken_invariant() {
        let group = MAX.group_of(KeyHash::of(&1_u64));
        let other = KeyGroup::new((group.get() + 1) % 128);
        let mut state = KeyedState::new(KeyGroupRange::new(other, other), MAX);
        state.update(&1_u64, |_, slot| *slot = Some(1_u64));
    }
}
