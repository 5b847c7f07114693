//! Keyed state in memory, in pieces: a table for each value of some low bits of the hash. It does
//! not know operators, time or storage.
//!
//! A snapshot shares the pieces and copies no entry; the first write to a piece that is still
//! shared copies that one alone (rule 114). As the state grows, one piece after the other is split
//! by one more bit (linear hashing), so that no copy keeps a record for long, and a piece fits the
//! caches while it is copied, encoded or restored.
//!
//! Pieces are not key groups: to find a record's group costs as much as to find its entry, so that
//! is left to whoever encodes the snapshot. A group's entries are written in the order of their
//! hashes, the lowest bit first: however far the state is split, that is one piece after the other,
//! and equal state gives equal bytes.
//!
//! Invariants: every key belongs to the range, which is checked where a snapshot is encoded and
//! restored, and at every update if debug assertions are on. The number of pieces decides in which
//! one a key is.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::element::Record;
use crate::state::codec::Format;
use crate::state::error::RestoreError;
use crate::state::group_codec::{GroupEntries, check_owner, encode_by_group};
use crate::state::hash::KeyHash;
use crate::state::key_group::{Key, KeyGroup, KeyGroupCount, KeyGroupRange};
use crate::state::piece::Piece;
use crate::state::slot::Slot;
use crate::state::snapshot::{Bytes, Share};
use crate::state::stream::Stream;
use crate::state::table::Table;

/// The state of one operator in one subtask, by key.
#[derive(Clone)]
pub struct KeyedState<K, S> {
    range: KeyGroupRange,
    max: KeyGroupCount,
    /// At least one. Who has no piece yet is in the one without the highest bit of the mask.
    pieces: Vec<Piece<Table<K, S>>>,
    /// One less than the number of pieces, rounded up to a power of two.
    mask: usize,
    /// The keys that were updated since [`KeyedState::changes`], if that is wanted.
    changed: Option<BTreeSet<K>>,
}

/// Where a walk over all entries stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    piece: usize,
    position: usize,
}

/// Where the state of a key may lie.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guess {
    piece: u32,
    position: u32,
}

/// What was done to an entry on a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visited {
    /// It was changed.
    pub has_changed: bool,
    /// The next call goes on to the next entry.
    pub is_done: bool,
    /// It is to vanish.
    pub vanishes: bool,
}

impl<K: Key, S: Record> KeyedState<K, S> {
    /// No state yet, for the keys of the groups `range` out of `max` groups.
    ///
    /// # Panics
    /// If the range has groups that do not exist.
    pub fn new(range: KeyGroupRange, max: KeyGroupCount) -> Self {
        range.assert_within(max);
        Self { range, max, pieces: vec![Piece::default()], mask: 0, changed: None }
    }

    /// Lets `change` see and set the state of `key`; the entry vanishes if none is left.
    ///
    /// # Panics
    /// With debug assertions, if the key belongs to another subtask: the exchange before the
    /// operator is broken.
    #[inline]
    pub fn update<R>(&mut self, key: &K, change: impl FnOnce(&K, Slot<'_, S>) -> R) -> R {
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
        change: impl FnOnce(&K, Slot<'_, S>) -> R,
    ) -> R {
        debug_assert!(
            self.range.contains(self.max.group_of(hash)),
            "{key:?} belongs to another subtask than the one of {}",
            self.range
        );
        if let Some(changed) = &mut self.changed {
            changed.insert(key.clone());
        }
        let index = self.index_of(hash);
        let table = self.pieces[index].get_mut();
        match table.find(hash, key) {
            Some(position) => table.update_at(position, change),
            None => self.update_vacant(hash, key, change),
        }
    }

    /// Lets `change` set the state of `key`, which has none.
    #[cold]
    #[inline(never)]
    fn update_vacant<R>(
        &mut self,
        hash: KeyHash,
        key: &K,
        change: impl FnOnce(&K, Slot<'_, S>) -> R,
    ) -> R {
        let index = self.index_of(hash);
        let table = self.pieces[index].get_mut();
        if !table.is_indexed() {
            table.index_anew();
            if let Some(position) = table.find(hash, key) {
                return table.update_at(position, change);
            }
        }
        let mut set = None;
        let result = change(key, Slot::vacant(&mut set));
        if let Some(state) = set {
            table.insert(hash, key.clone(), state);
            if table.len() > Self::PIECE_LEN_MAX && self.pieces.len() < PIECES_MAX {
                self.split_next();
            }
        }
        result
    }

    /// Splits the next piece, which need not be the one that has grown too large: its turn comes.
    fn split_next(&mut self) {
        let new = self.pieces.len();
        self.mask = (new + 1).next_power_of_two() - 1;
        let mask = self.mask;
        let piece = &mut self.pieces[new & (mask >> 1)];
        let (stays, gone) = piece.take().split(|hash| place_of(hash, mask) == new);
        *piece = Piece::Owned(stays);
        self.pieces.push(Piece::Owned(gone));
    }

    /// Lets `look` see and change the state of the entry at `place`, which moves on behind it, or
    /// at the end of a piece to the next one, or to the first one again.
    pub fn visit(&mut self, place: &mut Place, look: impl FnOnce(&mut S) -> Visited) {
        let Some(piece) = self.pieces.get_mut(place.piece) else {
            *place = Place::default();
            return;
        };
        if piece.get().len() <= place.position {
            *place = Place { piece: place.piece + 1, position: 0 };
            return;
        }
        let table = piece.get_mut();
        // Where it stands: to move each state out and back would cost more than to look at it.
        let (key, state) = table.at_mut(place.position);
        let visited = look(state);
        if let Some(changed) = &mut self.changed
            && (visited.has_changed || visited.vanishes)
        {
            changed.insert(key.clone());
        }
        if visited.vanishes {
            table.remove(place.position);
        } else {
            place.position += usize::from(visited.is_done);
        }
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
        let changes = changed.into_iter().map(with_value).collect();
        Arc::new(ChangeShare { range: self.range, max: self.max, changes })
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
                self.update_hashed(hash, &key, |_, mut slot| slot.put(value));
            }
        }
        Ok(())
    }

    /// The state of `key`.
    pub fn get(&self, key: &K) -> Option<&S> {
        let hash = KeyHash::of(key);
        self.pieces[self.index_of(hash)].get().get(hash, key)
    }

    /// Whether [`KeyedState::table_at`] may be used in place of [`KeyedState::update`].
    pub fn allows_guesses(&self) -> bool {
        self.changed.is_none()
    }

    /// Asks for the memory that [`KeyedState::guess`] needs for a key with this hash. To ask for
    /// that of many keys before the first guess means to wait for all of it at once.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) -> Guess {
        let piece = self.index_of(hash);
        self.pieces[piece].get().prefetch_index(hash);
        Guess { piece: piece as u32, position: u32::MAX }
    }

    /// Completes the guess where the state of a key with this hash lies, and asks for the memory
    /// there.
    #[inline]
    pub fn guess(&self, hash: KeyHash, guess: &mut Guess) {
        let table = self.pieces[guess.piece as usize].get();
        let position = table.guess(hash);
        table.prefetch_entry(position);
        guess.position = position as u32;
    }

    /// The table that holds a key, and the position there, if it was guessed right, however long
    /// ago, and no snapshot shares the table: the search is spared then.
    #[inline]
    pub fn table_at(
        &mut self,
        guess: Guess,
        is_key: impl FnOnce(&K) -> bool,
    ) -> Option<(&mut Table<K, S>, usize)> {
        let table = self.pieces.get_mut(guess.piece as usize)?.owned()?;
        let position = guess.position as usize;
        let is_there = table.key_at(position).is_some_and(is_key);
        is_there.then_some((table, position))
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
        let pieces = self.pieces.iter_mut().enumerate();
        let pieces = pieces.filter(|(_, piece)| !piece.get().is_empty());
        let pieces = pieces.map(|(index, piece)| (index, piece.share())).collect();
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
        let mut seen = BTreeSet::new();
        let streams = groups.iter().map(|(group, bytes)| {
            let entries = GroupEntries::new(format, self.range, *group, bytes)?;
            Ok(Stream::new(entries, self.max, seen.insert(*group)))
        });
        let mut streams = streams.collect::<Result<Vec<_>, RestoreError>>()?;
        let mut restored = Self::new(self.range, self.max);
        restored.fill(&mut streams)?;
        // What stands in another order than that in which it is written.
        for stream in &mut streams {
            let group = stream.group();
            while let Some((key, state)) = stream.next()? {
                let before = restored.update(&key, |_, mut slot| slot.replace(state));
                if before.is_some() {
                    return Err(RestoreError::Duplicate { group });
                }
            }
        }
        self.pieces = restored.pieces;
        self.mask = restored.mask;
        Ok(())
    }

    /// Takes from the streams what they hold in order, a few pieces at once.
    fn fill(&mut self, streams: &mut [Stream<'_, K, S>]) -> Result<(), RestoreError> {
        let len_max: usize = streams.iter().map(|stream| stream.len_max()).sum();
        // As many pieces as have room for some more entries.
        let count = len_max.div_ceil(Self::PIECE_LEN_MAX / 4 * 3);
        let count = count.next_power_of_two().min(PIECES_MAX);
        self.mask = count - 1;
        self.pieces.resize_with(count, Piece::default);
        let bits = self.mask.trailing_ones();
        // Pieces are not equal.
        let room = len_max / count + len_max / count / 16;
        for first in (0..count).step_by(PIECES_AT_ONCE) {
            let mut pieces = vec![Vec::new(); PIECES_AT_ONCE.min(count - first)];
            pieces.iter_mut().for_each(|piece| piece.reserve_exact(room));
            for stream in &mut *streams {
                stream.fill(bits, first, &mut pieces)?;
            }
            for (place, entries) in (first..).zip(pieces) {
                let index = place.reverse_bits().checked_shr(usize::BITS - bits).unwrap_or(0);
                self.pieces[index] = Piece::Owned(Table::of(entries));
            }
        }
        Ok(())
    }

    #[inline]
    fn index_of(&self, hash: KeyHash) -> usize {
        let place = place_of(hash, self.mask);
        if place < self.pieces.len() { place } else { place & (self.mask >> 1) }
    }

    /// The most entries of a piece that is not to be split.
    const PIECE_LEN_MAX: usize = match size_of::<(K, S)>() {
        0..16 => PIECE_BYTES / 16,
        size => PIECE_BYTES / size + 8,
    };
}

impl<K: Key, S: Record> fmt::Debug for KeyedState<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeyedState({}, {} entries)", self.range, self.len())
    }
}

/// The low bits of a hash, since a table uses the high ones.
#[inline]
fn place_of(hash: KeyHash, mask: usize) -> usize {
    hash.get() as usize & mask
}

struct StateShare<K, S> {
    range: KeyGroupRange,
    max: KeyGroupCount,
    /// Those with entries, with their index.
    pieces: Vec<(usize, Arc<Table<K, S>>)>,
}

impl<K: Key, S: Record> Share for StateShare<K, S> {
    /// Sorts the entries, so that equal state gives equal bytes whatever its history: the price is
    /// paid by the thread that writes the snapshot.
    fn encode_groups(&self, format: Format) -> Vec<(KeyGroup, Bytes)> {
        let mut pieces: Vec<_> = self.pieces.iter().collect();
        pieces.sort_unstable_by_key(|(index, _)| index.reverse_bits());
        let entries = pieces.into_iter().flat_map(|(_, piece)| {
            let entries = piece.iter().map(|entry| (KeyHash::of(entry.0), entry));
            let entries = entries.map(|(hash, entry)| (hash.order(), hash, entry));
            let mut entries: Vec<_> = entries.collect();
            entries.sort_unstable_by_key(|(order, _, (key, _))| (*order, *key));
            entries.into_iter().map(|(_, hash, entry)| (hash, entry))
        });
        encode_by_group(format, self.range, self.max, entries)
    }
}

struct ChangeShare<K, S> {
    range: KeyGroupRange,
    max: KeyGroupCount,
    changes: Vec<(K, Option<S>)>,
}

impl<K: Key, S: Record> Share for ChangeShare<K, S> {
    fn encode_groups(&self, format: Format) -> Vec<(KeyGroup, Bytes)> {
        let changes = self.changes.iter().map(|change| (KeyHash::of(&change.0), change));
        encode_by_group(format, self.range, self.max, changes)
    }
}

/// What a write after a snapshot copies at the most, but for its index and for what entries hold
/// elsewhere. More would keep the record for longer, less would make more pieces to share.
const PIECE_BYTES: usize = 1 << 17;
/// More are not shared in a millisecond. If there are more entries, the pieces grow.
const PIECES_MAX: usize = 1 << 13;
/// So many fit the caches.
const PIECES_AT_ONCE: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::codec;

    const MAX: KeyGroupCount = KeyGroupCount::new(128).expect("within 1 to 32768");

    fn counts(keys: impl IntoIterator<Item = u64>) -> KeyedState<u64, u64> {
        let mut state = KeyedState::new(KeyGroupRange::all(MAX), MAX);
        keys.into_iter().for_each(|key| state.update(&key, |_, mut slot| slot.set(key * 10)));
        state
    }

    #[test]
    fn changes_on_top_of_an_earlier_snapshot_give_a_later_one() {
        let mut state = counts(0..100);
        state.track_changes();
        let base = state.snapshot().encode_groups(Format::Binary);
        state.update(&7, |_, mut slot| slot.put(None));
        state.update(&8, |_, mut slot| slot.set(1));
        let first = state.changes().encode_groups(Format::Binary);
        state.update(&8, |_, mut slot| slot.set(2));
        state.update(&200, |_, mut slot| slot.set(3));
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
        state.update(&7, |_, mut slot| slot.put(None));
        state.update(&1000, |_, slot| assert!(slot.is_none()));
        assert_eq!((state.len(), state.get(&7), state.get(&8)), (99, None, Some(&80)));
        assert_eq!(state.iter().count(), 99);
    }

    #[test]
    fn rule_114_snapshot_is_exact_under_later_writes() {
        let mut state = counts(0..500);
        let before = state.snapshot().encode_groups(Format::Binary);
        let share = state.snapshot();
        for key in 0..1000 {
            state.update(&key, |_, mut slot| slot.put((key % 3 > 0).then_some(1)));
        }
        assert_eq!(share.encode_groups(Format::Binary), before);
        assert_ne!(state.snapshot().encode_groups(Format::Binary), before);
    }

    /// An entry so large that few make a piece.
    type Wide = [[u64; 32]; 16];

    fn wide(numbers: impl IntoIterator<Item = u64>) -> KeyedState<u64, Wide> {
        let mut state = KeyedState::new(KeyGroupRange::all(MAX), MAX);
        let entry = |number| [[number; 32]; 16];
        numbers.into_iter().for_each(|n| state.update(&n, |_, mut slot| slot.set(entry(n))));
        state
    }

    #[test]
    fn pieces_that_split_keep_every_entry_and_stay_small() {
        let mut state = wide(0..400);
        let share = state.snapshot();
        let bytes = share.encode_groups(Format::Binary);
        for number in 400..1000 {
            state.update(&number, |_, mut slot| slot.set([[number; 32]; 16]));
        }
        assert!(state.pieces.len() > 16, "{} pieces", state.pieces.len());
        let longest = state.pieces.iter().map(|piece| piece.get().len()).max();
        assert!(longest <= Some(2 * KeyedState::<u64, Wide>::PIECE_LEN_MAX), "{longest:?}");
        assert!((0..1000).all(|number| state.get(&number) == Some(&[[number; 32]; 16])));
        assert_eq!((state.len(), state.iter().count()), (1000, 1000));
        assert_eq!(share.encode_groups(Format::Binary), bytes);
        assert_eq!(wide((0..400).rev()).snapshot().encode_groups(Format::Binary), bytes);
    }

    #[test]
    fn entries_in_any_order_are_restored() {
        let groups = wide(0..500).snapshot().encode_groups(Format::Portable);
        let turned = groups.iter().map(|(group, bytes)| {
            let mut entries: Vec<(u64, Wide)> = Format::Portable.decode(bytes).unwrap();
            entries.reverse();
            (*group, Bytes::from(Format::Portable.encode(&entries)))
        });
        let turned: Vec<_> = turned.collect();
        assert_ne!(turned, groups);
        let mut restored = wide([]);
        restored.restore(Format::Portable, &turned).unwrap();
        assert_eq!(restored.snapshot().encode_groups(Format::Portable), groups);
        for number in 0..500 {
            restored
                .update(&number, |_, mut slot| assert_eq!(slot.take(), Some([[number; 32]; 16])));
        }
        assert!(restored.is_empty());
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
        (300..900).for_each(|key| other.update(&key, |_, mut slot| slot.put(None)));
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
        state.update(&1_u64, |_, mut slot| slot.set(1_u64));
    }
}
