//! The bytes of one key group: how many entries, then the entries.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::state::codec::{self, DecodeError, Format};
use crate::state::error::RestoreError;
use crate::state::hash::KeyHash;
use crate::state::key_group::{KeyGroup, KeyGroupCount, KeyGroupRange};
use crate::state::snapshot::Bytes;

/// The bytes of one group, which grow by one entry after the other.
#[derive(Clone, Debug, Default)]
struct GroupWriter {
    format: Format,
    len: u64,
    entries: Vec<u8>,
}

/// As many bytes as the number of entries takes at most.
const LENGTH_BYTES: usize = 9;

impl GroupWriter {
    fn new(format: Format) -> Self {
        Self { format, ..Self::default() }
    }

    #[inline]
    fn push<E: Serialize>(&mut self, entry: &E) {
        self.len += 1;
        self.format.encode_into(entry, &mut self.entries);
    }

    /// The bytes, if there is an entry.
    fn finish(self) -> Option<Bytes> {
        if self.len == 0 {
            return None;
        }
        let mut bytes = Vec::with_capacity(LENGTH_BYTES + self.entries.len());
        self.format.encode_length_into(self.len, &mut bytes);
        bytes.extend_from_slice(&self.entries);
        Some(Bytes::from(bytes))
    }
}

/// The bytes of `entries`, each with the hash of its key, by group: each group's in their order.
///
/// # Panics
/// If an entry is of a group out of `range`.
pub(crate) fn encode_by_group<E: Serialize>(
    format: Format,
    range: KeyGroupRange,
    max: KeyGroupCount,
    entries: impl IntoIterator<Item = (KeyHash, E)>,
) -> Vec<(KeyGroup, Bytes)> {
    let mut writers = Vec::new();
    for (hash, entry) in entries {
        let group = max.group_of(hash);
        assert!(range.contains(group), "an entry of {group} got into {range}");
        if writers.is_empty() {
            writers = vec![GroupWriter::new(format); range.group_count()];
        }
        writers[usize::from(group.get() - range.first().get())].push(&entry);
    }
    let groups = range.groups().zip(writers);
    groups.filter_map(|(group, writer)| Some((group, writer.finish()?))).collect()
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

    /// Hands entries to `take` until it wants no more.
    pub(crate) fn each(&mut self, take: impl FnMut(E) -> bool) -> Result<(), RestoreError> {
        match &mut self.entries {
            Entries::Portable(entries) => {
                let mut take = take;
                while entries.next().is_some_and(&mut take) {}
                Ok(())
            }
            Entries::Binary { left, bytes } => {
                let count = usize::try_from(*left).unwrap_or(usize::MAX);
                let decoded = codec::decode_while(bytes, count, take);
                let decoded = decoded.and_then(|(taken, rest)| {
                    (*left, *bytes) = (*left - taken as u64, rest);
                    check_end(*left, rest)
                });
                decoded.map_err(|error| self.wrong(error))
            }
        }
    }

    fn wrong(&self, error: DecodeError) -> RestoreError {
        RestoreError::Decode { group: self.group, field: None, error }
    }

    fn next_entry(&mut self) -> Result<Option<E>, DecodeError> {
        let (left, bytes) = match &mut self.entries {
            Entries::Portable(entries) => return Ok(entries.next()),
            Entries::Binary { left, bytes } => (left, bytes),
        };
        check_end(*left, bytes)?;
        if *left == 0 {
            return Ok(None);
        }
        *left -= 1;
        let (entry, rest) = codec::decode_prefix(bytes)?;
        *bytes = rest;
        Ok(Some(entry))
    }
}

/// Refuses bytes behind the last entry.
fn check_end(left: u64, bytes: &[u8]) -> Result<(), DecodeError> {
    if left > 0 || bytes.is_empty() {
        Ok(())
    } else {
        Err(DecodeError::Trailing(bytes.len() as u64))
    }
}

impl<E: DeserializeOwned> Iterator for GroupEntries<'_, E> {
    type Item = Result<E, RestoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map_err(|error| self.wrong(error)).transpose()
    }
}

/// Refuses a key that is stored in `group` but belongs to `owner`.
pub(crate) fn check_owner(group: KeyGroup, owner: KeyGroup) -> Result<(), RestoreError> {
    if group == owner { Ok(()) } else { Err(RestoreError::ForeignKey { group, owner }) }
}
