//! The bytes of one key group: how many entries, then the entries.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::codec::{self, DecodeError};
use crate::state::error::RestoreError;
use crate::state::hash::KeyHash;
use crate::state::key_group::{Key, KeyGroup, KeyGroupCount, KeyGroupRange};

/// The bytes of the entries of one group.
pub(crate) fn encode_group<E: Serialize>(entries: &[E]) -> Vec<u8> {
    let mut bytes = codec::encode(&(entries.len() as u64));
    for entry in entries {
        codec::encode_into(entry, &mut bytes);
    }
    bytes
}

/// The bytes of `entries` by the group of their keys, each group's in the order of `entries`.
pub(crate) fn encode_by_group<E: Serialize, K: Key>(
    max: KeyGroupCount,
    entries: &[E],
    key_of: impl Fn(&E) -> &K,
) -> Vec<(KeyGroup, Vec<u8>)> {
    let mut groups: BTreeMap<KeyGroup, Vec<&E>> = BTreeMap::new();
    for entry in entries {
        groups.entry(max.group_of(KeyHash::of(key_of(entry)))).or_default().push(entry);
    }
    groups.into_iter().map(|(group, entries)| (group, encode_group(&entries))).collect()
}

/// The entries in the bytes of one group. The caller stops at the first error.
#[derive(Debug)]
pub(crate) struct GroupEntries<'a, E> {
    group: KeyGroup,
    left: u64,
    bytes: &'a [u8],
    entry: PhantomData<E>,
}

impl<'a, E: DeserializeOwned> GroupEntries<'a, E> {
    /// Reads the number of entries.
    pub(crate) fn new(
        range: KeyGroupRange,
        group: KeyGroup,
        bytes: &'a [u8],
    ) -> Result<Self, RestoreError> {
        if !range.contains(group) {
            return Err(RestoreError::ForeignGroup { group, range });
        }
        let (left, bytes) =
            codec::decode_prefix(bytes).map_err(|error| RestoreError::Decode { group, error })?;
        Ok(Self { group, left, bytes, entry: PhantomData })
    }

    /// How many entries the bytes can hold at most, if one takes a byte at least: safe to reserve
    /// for, whatever number they claim.
    pub(crate) fn len_max(&self) -> usize {
        usize::try_from(self.left).map_or(self.bytes.len(), |left| left.min(self.bytes.len()))
    }

    /// The group.
    pub(crate) const fn group(&self) -> KeyGroup {
        self.group
    }

    fn next_entry(&mut self) -> Result<Option<E>, DecodeError> {
        if self.left == 0 {
            let trailing = std::mem::take(&mut self.bytes).len() as u64;
            return if trailing == 0 { Ok(None) } else { Err(DecodeError::Trailing(trailing)) };
        }
        self.left -= 1;
        let (entry, rest) = codec::decode_prefix(self.bytes)?;
        self.bytes = rest;
        Ok(Some(entry))
    }
}

impl<E: DeserializeOwned> Iterator for GroupEntries<'_, E> {
    type Item = Result<E, RestoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry =
            self.next_entry().map_err(|error| RestoreError::Decode { group: self.group, error });
        entry.transpose()
    }
}

/// Refuses a key that is stored in `group` but belongs to `owner`.
pub(crate) fn check_owner(group: KeyGroup, owner: KeyGroup) -> Result<(), RestoreError> {
    if group == owner { Ok(()) } else { Err(RestoreError::ForeignKey { group, owner }) }
}
