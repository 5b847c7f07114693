//! The stored entries of one key group, handed out piece by piece: so that a piece gets its entries
//! of all groups while it is in the caches.

use crate::element::Record;
use crate::state::error::RestoreError;
use crate::state::group_codec::{GroupEntries, check_owner};
use crate::state::hash::KeyHash;
use crate::state::key_group::{Key, KeyGroup, KeyGroupCount};

/// The entries of a group from the first on that has not been handed out.
pub(crate) struct Stream<'a, K, S> {
    entries: GroupEntries<'a, (K, S)>,
    max: KeyGroupCount,
    /// The next entry, if it has been read.
    next: Option<(K, S)>,
    /// The order of the last entry that was handed out.
    last: Option<u64>,
    is_in_order: bool,
}

impl<'a, K: Key, S: Record> Stream<'a, K, S> {
    /// The entries may stand in order, unless `is_first` says that others of the group came before.
    pub(crate) fn new(
        entries: GroupEntries<'a, (K, S)>,
        max: KeyGroupCount,
        is_first: bool,
    ) -> Self {
        Self { entries, max, next: None, last: None, is_in_order: is_first }
    }

    /// How many entries there can be at most.
    pub(crate) fn len_max(&self) -> usize {
        self.entries.len_max()
    }

    /// The group.
    pub(crate) const fn group(&self) -> KeyGroup {
        self.entries.group()
    }

    /// Puts the next entries into the pieces they belong to, as long as they stand in order: so
    /// each key is met once. The pieces are those from `first` on, out of 2 to the power of `bits`.
    pub(crate) fn fill(
        &mut self,
        bits: u32,
        first: usize,
        pieces: &mut [Vec<(K, S)>],
    ) -> Result<(), RestoreError> {
        if !self.is_in_order {
            return Ok(());
        }
        let read = self.next.take();
        let Self { entries, max, next, last, is_in_order } = self;
        let group = entries.group();
        let mut checked = Ok(());
        let mut put = |entry: (K, S)| {
            let hash = KeyHash::of(&entry.0);
            let owner = max.group_of(hash);
            let order = hash.order();
            *is_in_order &= owner == group && *last < Some(order);
            let place = order.checked_shr(u64::BITS - bits).unwrap_or(0) as usize;
            match pieces.get_mut(place.wrapping_sub(first)) {
                Some(piece) if *is_in_order => {
                    piece.push(entry);
                    *last = Some(order);
                    true
                }
                _ => {
                    *next = Some(entry);
                    checked = check_owner(group, owner);
                    false
                }
            }
        };
        if read.is_none_or(&mut put) {
            entries.each(put)?;
        }
        checked
    }

    /// The next entry, wherever it belongs.
    pub(crate) fn next(&mut self) -> Result<Option<(K, S)>, RestoreError> {
        let read = self.next.take().map(Ok).or_else(|| self.entries.next());
        let read = read.transpose()?;
        if let Some((key, _)) = &read {
            check_owner(self.group(), self.max.group_of(KeyHash::of(key)))?;
        }
        Ok(read)
    }
}
