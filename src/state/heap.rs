//! Keyed state in memory: one table for each key group of the subtask. It does not know operators,
//! time or storage.
//!
//! A snapshot shares the tables and takes microseconds; the first write to a table that is still
//! shared copies that one alone (rule 114).

use std::fmt;
use std::sync::Arc;

use crate::element::Record;
use crate::state::error::RestoreError;
use crate::state::group_codec::{GroupEntries, check_owner, encode_group};
use crate::state::hash::KeyHash;
use crate::state::key_group::{Key, KeyGroup, KeyGroupCount, KeyGroupRange};
use crate::state::piece::Piece;
use crate::state::snapshot::Share;
use crate::state::table::Table;

/// The state of one operator in one subtask, by key.
#[derive(Clone)]
pub struct KeyedState<K, S> {
    range: KeyGroupRange,
    max: KeyGroupCount,
    /// None before the first entry, later one for each group of the range.
    pieces: Vec<Piece<Table<K, S>>>,
}

impl<K: Key, S: Record> KeyedState<K, S> {
    /// No state yet, for the keys of the groups `range` out of `max` groups.
    ///
    /// # Panics
    /// If the range has groups that do not exist.
    pub fn new(range: KeyGroupRange, max: KeyGroupCount) -> Self {
        range.assert_within(max);
        Self { range, max, pieces: Vec::new() }
    }

    /// Lets `change` see and set the state of `key`; the entry vanishes if it is left `None`.
    ///
    /// # Panics
    /// If the key belongs to another subtask: the exchange before the operator is broken.
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
        let index = self.index_of(self.max.group_of(hash));
        if index >= self.pieces.len() {
            self.lay_out(index);
        }
        self.pieces[index].get_mut().update(hash, key, change)
    }

    /// The state of `key`.
    pub fn get(&self, key: &K) -> Option<&S> {
        let hash = KeyHash::of(key);
        let piece = self.pieces.get(self.index_of(self.max.group_of(hash)))?;
        piece.get().get(hash, key)
    }

    /// How many keys have state.
    pub fn len(&self) -> usize {
        self.pieces.iter().map(|piece| piece.get().len()).sum()
    }

    /// Whether no key has state.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The entries by key group, in an order that follows from the operations alone.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &S)> {
        self.pieces.iter().flat_map(|piece| piece.get().iter())
    }

    /// The state as it is now, whatever is written later. Copies no entry.
    pub fn snapshot(&mut self) -> Arc<dyn Share> {
        let groups = self.range.groups().zip(&mut self.pieces);
        let groups = groups.filter(|(_, piece)| !piece.get().is_empty());
        Arc::new(TableShare(groups.map(|(group, piece)| (group, piece.share())).collect()))
    }

    /// Takes over what a snapshot of the same range encoded, in place of what is there.
    ///
    /// # Errors
    /// If the bytes are not such entries, or entries are not this subtask's; the state is unchanged
    /// then.
    pub fn restore(&mut self, groups: &[(KeyGroup, Vec<u8>)]) -> Result<(), RestoreError> {
        let mut restored = Self::new(self.range, self.max);
        for (group, bytes) in groups {
            restored.restore_group(*group, bytes)?;
        }
        *self = restored;
        Ok(())
    }

    fn restore_group(&mut self, group: KeyGroup, bytes: &[u8]) -> Result<(), RestoreError> {
        let entries = GroupEntries::<(K, S)>::new(self.range, group, bytes)?;
        let index = self.index_of(group);
        self.lay_out(index);
        let table = self.pieces[index].get_mut();
        *table = Table::with_capacity(entries.len_max());
        for entry in entries {
            let (key, state) = entry?;
            let hash = KeyHash::of(&key);
            check_owner(group, self.max.group_of(hash))?;
            if table.update(hash, &key, |_, slot| slot.replace(state)).is_some() {
                return Err(RestoreError::Duplicate { group });
            }
        }
        Ok(())
    }

    #[inline]
    fn index_of(&self, group: KeyGroup) -> usize {
        usize::from(group.get()).wrapping_sub(usize::from(self.range.first().get()))
    }

    /// Makes a piece for each group.
    #[cold]
    #[inline(never)]
    fn lay_out(&mut self, index: usize) {
        assert!(index < self.range.group_count(), "a key of another subtask than {}", self.range);
        self.pieces.resize_with(self.range.group_count(), Piece::default);
    }
}

impl<K: Key, S: Record> fmt::Debug for KeyedState<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedState({}, {} entries)", self.range, self.len())
    }
}

/// The tables of the groups that are not empty, by increasing group.
struct TableShare<K, S>(Vec<(KeyGroup, Arc<Table<K, S>>)>);

impl<K: Key, S: Record> Share for TableShare<K, S> {
    /// Sorts the entries by key, so that equal state gives equal bytes whatever its history: the
    /// price is paid by the thread that writes the snapshot.
    fn encode_groups(&self) -> Vec<(KeyGroup, Vec<u8>)> {
        let encode = |(group, table): &(KeyGroup, Arc<Table<K, S>>)| {
            let mut entries: Vec<(&K, &S)> = table.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            (*group, encode_group(&entries))
        };
        self.0.iter().map(encode).collect()
    }
}
