//! Where checkpoints lie: the small trait that the runtime writes through, and the store in memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::id::CheckpointId;
use crate::storage::StoreKey;

/// A durable store. Its calls may block; the runtime makes them on a thread that no record waits
/// for.
pub trait CheckpointStore: Send + Sync {
    /// Writes `bytes` under `key`, atomically and durably. A task's part of a checkpoint need not
    /// be durable before the checkpoint's metadata is.
    ///
    /// # Errors
    /// If that failed, or if nobody knows whether it did.
    fn put(&self, key: StoreKey, bytes: &[u8]) -> Result<(), PutError>;

    /// Puts `bytes` behind what lies under `key`, durably. A crash may leave the first part of
    /// them.
    ///
    /// # Errors
    /// As [`CheckpointStore::put`]; a first part of them may be there.
    fn append(&self, key: StoreKey, bytes: &[u8]) -> Result<(), PutError>;

    /// What lies under `key`, if anything does.
    ///
    /// # Errors
    /// If it can not be read.
    fn get(&self, key: StoreKey) -> Result<Option<Vec<u8>>, StoreError>;

    /// The keys of all complete checkpoints' metadata and of all that subtasks have written for
    /// themselves, reservations and progress, in order.
    ///
    /// # Errors
    /// If they can not be listed.
    fn list(&self) -> Result<Vec<StoreKey>, StoreError>;

    /// Removes what lies under `key`, durably; nothing there is fine.
    ///
    /// # Errors
    /// If it may still be there.
    fn remove(&self, key: StoreKey) -> Result<(), StoreError>;

    /// Removes a checkpoint: its metadata first, so that what a crash leaves is not a checkpoint.
    ///
    /// # Errors
    /// If it may still be there.
    fn discard(&self, checkpoint: CheckpointId) -> Result<(), StoreError>;

    /// Removes what a crash has left and nobody can use. Called when a run has found where it
    /// begins, and not before: if something is missing the user is to find all else as it was.
    ///
    /// # Errors
    /// If it may still be there.
    fn sweep(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Where the value of `key` lies, for people.
    fn place_of(&self, key: StoreKey) -> String;
}

/// Why a value was not written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// It is not there and never will be.
    #[error("{0}")]
    Failed(String),
    /// It may or may not survive a crash.
    #[error("{0}")]
    Unknown(String),
}

/// Why the store could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StoreError(
    /// What happened, and to which file.
    pub String,
);

/// A store that is lost with the process.
pub struct MemoryStore {
    values: Mutex<BTreeMap<StoreKey, Vec<u8>>>,
    /// How many bytes it takes in.
    bytes_max: u64,
}

impl MemoryStore {
    /// An empty store, which takes in what the memory holds.
    pub fn new() -> Self {
        Self::with_limit(u64::MAX)
    }

    /// An empty store that takes in so many bytes. While a checkpoint is taken, it holds what that
    /// one has come to and all that are kept: at least one.
    pub fn with_limit(bytes_max: u64) -> Self {
        Self { values: Mutex::default(), bytes_max }
    }

    /// Whether `bytes` have room beside all else, once they stand under `key`.
    fn check_room(
        &self,
        values: &BTreeMap<StoreKey, Vec<u8>>,
        key: StoreKey,
        bytes: usize,
    ) -> Result<(), PutError> {
        let others = values.iter().filter(|(other, _)| **other != key);
        let held: u64 = others.map(|(_, value)| value.len() as u64).sum();
        let bytes = bytes as u64;
        match held.saturating_add(bytes) <= self.bytes_max {
            true => Ok(()),
            false => Err(PutError::Failed(format!(
                "{}: it has {bytes} bytes, and there is room for {} more within the limit of {}: \
                 raise the limit or keep checkpoints in files",
                self.place_of(key),
                self.bytes_max.saturating_sub(held),
                self.bytes_max
            ))),
        }
    }

    fn values(&self) -> MutexGuard<'_, BTreeMap<StoreKey, Vec<u8>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryStore({} values)", self.values().len())
    }
}

impl CheckpointStore for MemoryStore {
    fn put(&self, key: StoreKey, bytes: &[u8]) -> Result<(), PutError> {
        let mut values = self.values();
        self.check_room(&values, key, bytes.len())?;
        values.insert(key, bytes.to_vec());
        Ok(())
    }

    fn append(&self, key: StoreKey, bytes: &[u8]) -> Result<(), PutError> {
        let mut values = self.values();
        let behind = values.get(&key).map_or(0, Vec::len);
        self.check_room(&values, key, behind + bytes.len())?;
        values.entry(key).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn get(&self, key: StoreKey) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.values().get(&key).cloned())
    }

    fn list(&self) -> Result<Vec<StoreKey>, StoreError> {
        let values = self.values();
        let is_listed = |key: &&StoreKey| match key {
            StoreKey::Metadata(_) | StoreKey::Reservation { .. } | StoreKey::Progress { .. } => {
                true
            }
            StoreKey::State { .. } | StoreKey::Attempt => false,
        };
        Ok(values.keys().filter(is_listed).copied().collect())
    }

    fn remove(&self, key: StoreKey) -> Result<(), StoreError> {
        self.values().remove(&key);
        Ok(())
    }

    fn discard(&self, checkpoint: CheckpointId) -> Result<(), StoreError> {
        self.values().retain(|key, _| match key {
            StoreKey::State { checkpoint: of, .. } | StoreKey::Metadata(of) => *of != checkpoint,
            StoreKey::Reservation { .. } | StoreKey::Progress { .. } | StoreKey::Attempt => true,
        });
        Ok(())
    }

    fn place_of(&self, key: StoreKey) -> String {
        format!("{key} in memory")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AttemptId, TaskId};

    #[test]
    fn a_store_in_memory_refuses_what_is_above_its_limit_and_has_room_again_after_a_discard() {
        let store = MemoryStore::with_limit(10);
        let part = |checkpoint| StoreKey::State {
            checkpoint: CheckpointId::new(checkpoint),
            attempt: AttemptId::new(1),
            task: TaskId::new(3),
        };
        store.put(part(1), &[0; 6]).unwrap();
        store.put(part(1), &[0; 7]).unwrap();
        let refused = store.put(part(2), &[0; 4]).unwrap_err().to_string();
        assert_eq!(
            refused,
            "chk-2/t3-a1 in memory: it has 4 bytes, and there is room for 3 more within the limit \
             of 10: raise the limit or keep checkpoints in files"
        );
        assert_eq!(store.get(part(2)), Ok(None));
        assert!(store.append(part(1), &[0; 4]).is_err());
        assert_eq!(store.get(part(1)), Ok(Some(vec![0; 7])), "nothing is cut short");
        store.discard(CheckpointId::new(1)).unwrap();
        store.put(part(2), &[0; 10]).unwrap();
    }
}
