//! The bytes of one key group: how many entries, then the entries.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::codec::{self, DecodeError, Format};
use crate::state::error::RestoreError;
use crate::state::hash::KeyHash;
use crate::state::key_group::{Key, KeyGroup, KeyGroupCount, KeyGroupRange};
use crate::state::snapshot::Bytes;

/// The bytes of the entries of one group.
pub(crate) fn encode_group<E: Serialize>(format: Format, entries: &[E]) -> Bytes {
    match format {
        Format::Portable => Bytes::from(format.encode(entries)),
        Format::Binary => {
            let mut bytes = codec::encode(&(entries.len() as u64));
            entries.iter().for_each(|entry| codec::encode_into(entry, &mut bytes));
            Bytes::from(bytes)
        }
    }
}

/// The bytes of `entries` by the group of their keys, each group's in the order of `entries`.
pub(crate) fn encode_by_group<E: Serialize, K: Key>(
    format: Format,
    max: KeyGroupCount,
    entries: &[E],
    key_of: impl Fn(&E) -> &K,
) -> Vec<(KeyGroup, Bytes)> {
    let mut groups: BTreeMap<KeyGroup, Vec<&E>> = BTreeMap::new();
    for entry in entries {
        groups.entry(max.group_of(KeyHash::of(key_of(entry)))).or_default().push(entry);
    }
    groups.into_iter().map(|(group, entries)| (group, encode_group(format, &entries))).collect()
}

/// The entries in the bytes of one group. The caller stops at the first error.
#[derive(Debug)]
pub(crate) struct GroupEntries<'a, E> {
    group: KeyGroup,
    entries: Entries<'a, E>,
}

#[derive(Debug)]
enum Entries<'a, E> {
    /// Each is decoded when it is wanted.
    Binary { left: u64, bytes: &'a [u8] },
    /// A savepoint is restored once.
    Portable(std::vec::IntoIter<E>),
}

impl<'a, E: DeserializeOwned> GroupEntries<'a, E> {
    /// Reads the number of entries.
    pub(crate) fn new(
        format: Format,
        range: KeyGroupRange,
        group: KeyGroup,
        bytes: &'a [u8],
    ) -> Result<Self, RestoreError> {
        if !range.contains(group) {
            return Err(RestoreError::ForeignGroup { group, range });
        }
        let wrong = |error| {
            let field = format.field_at_fault::<E>(bytes);
            RestoreError::Decode { group, field, error }
        };
        let entries = match format {
            Format::Binary => {
                let (left, bytes) = codec::decode_prefix(bytes).map_err(wrong)?;
                Entries::Binary { left, bytes }
            }
            Format::Portable => {
                let entries: Vec<E> = format.decode(bytes).map_err(wrong)?;
                Entries::Portable(entries.into_iter())
            }
        };
        Ok(Self { group, entries })
    }

    /// How many entries the bytes can hold at most, if one takes a byte at least: safe to reserve
    /// for, whatever number they claim.
    pub(crate) fn len_max(&self) -> usize {
        match &self.entries {
            Entries::Binary { left, bytes } => {
                usize::try_from(*left).map_or(bytes.len(), |left| left.min(bytes.len()))
            }
            Entries::Portable(entries) => entries.len(),
        }
    }

    /// The group.
    pub(crate) const fn group(&self) -> KeyGroup {
        self.group
    }

    fn next_entry(&mut self) -> Result<Option<E>, DecodeError> {
        let (left, bytes) = match &mut self.entries {
            Entries::Portable(entries) => return Ok(entries.next()),
            Entries::Binary { left, bytes } => (left, bytes),
        };
        if *left == 0 {
            let trailing = std::mem::take(bytes).len() as u64;
            return if trailing == 0 { Ok(None) } else { Err(DecodeError::Trailing(trailing)) };
        }
        *left -= 1;
        let (entry, rest) = codec::decode_prefix(bytes)?;
        *bytes = rest;
        Ok(Some(entry))
    }
}

impl<E: DeserializeOwned> Iterator for GroupEntries<'_, E> {
    type Item = Result<E, RestoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        let group = self.group;
        let wrong = |error| RestoreError::Decode { group, field: None, error };
        self.next_entry().map_err(wrong).transpose()
    }
}

/// Refuses a key that is stored in `group` but belongs to `owner`.
pub(crate) fn check_owner(group: KeyGroup, owner: KeyGroup) -> Result<(), RestoreError> {
    if group == owner { Ok(()) } else { Err(RestoreError::ForeignKey { group, owner }) }
}
