//! The durable store, as a model: bytes by key that outlive every crash, and checks on reading them
//! back.

use std::collections::BTreeMap;
use std::sync::Arc;

use cofferdam::coordinator::Recovered;
use cofferdam::id::{AttemptId, CheckpointId};
use cofferdam::state::codec::{self, Kind};
use cofferdam::state::snapshot::{SourceState, TaskState};
use cofferdam::storage::{CheckpointMetadata, ProgressLog, StateHandle, StoreKey};

use crate::interpose::Variant;

/// The bytes that are durable.
#[derive(Clone, Debug, Default)]
pub struct Store {
    values: BTreeMap<StoreKey, Arc<[u8]>>,
    owners: BTreeMap<StoreKey, AttemptId>,
    /// A variant that may mix up the parts of several attempts.
    variant: Option<Variant>,
}

impl Store {
    /// An empty store.
    pub fn new(variant: Option<Variant>) -> Self {
        Self { variant, ..Self::default() }
    }

    /// Writes all of `bytes`, behind what is there or in place of it.
    pub fn put(&mut self, key: StoreKey, bytes: Arc<[u8]>, is_appended: bool) -> StateHandle {
        let handle = StateHandle::of(key, &bytes);
        self.clean_up(key);
        let key = self.name_of(key);
        if self.variant == Some(Variant::FirstPartStays)
            && matches!(key, StoreKey::State { .. })
            && self.values.contains_key(&key)
        {
            return handle;
        }
        match is_appended {
            true => self.append(key, &bytes),
            false => drop(self.values.insert(key, bytes)),
        }
        handle
    }

    /// Puts `bytes` behind what is there.
    pub fn append(&mut self, key: StoreKey, bytes: &[u8]) {
        let there = self.values.get(&key).cloned().unwrap_or_default();
        self.values.insert(key, [&there, bytes].concat().into());
    }

    /// Whether a newer attempt has taken over what is written under `key`.
    pub fn is_fenced(&self, key: StoreKey, attempt: AttemptId) -> bool {
        self.owners.get(&key).is_some_and(|newest| *newest > attempt)
    }

    /// Removes a checkpoint with all its parts.
    pub fn discard(&mut self, checkpoint: CheckpointId) {
        self.values.retain(|key, _| match key {
            StoreKey::State { checkpoint: of, .. } | StoreKey::Metadata(of) => *of != checkpoint,
            StoreKey::Reservation { .. } | StoreKey::Progress { .. } | StoreKey::Attempt => true,
        });
    }

    /// What a new coordinator finds. Metadata that was cut in the middle of writing was never
    /// confirmed to anybody and does not count.
    pub fn recovered(&self) -> Recovered {
        let checkpoints = self.values.iter().filter_map(|(key, bytes)| match key {
            StoreKey::Metadata(_) => codec::open::<CheckpointMetadata>(Kind::Metadata, bytes).ok(),
            StoreKey::State { .. }
            | StoreKey::Reservation { .. }
            | StoreKey::Progress { .. }
            | StoreKey::Attempt => None,
        });
        let attempt = self.values.get(&StoreKey::Attempt);
        Recovered {
            checkpoints: checkpoints.collect(),
            attempt: attempt.and_then(|b| codec::open::<AttemptId>(Kind::Attempt, b).ok()),
        }
    }

    /// A task's part of a checkpoint.
    ///
    /// # Errors
    /// If it is not there or not whole; the text says which.
    pub fn state(&self, handle: &StateHandle) -> Result<TaskState, String> {
        let bytes = self
            .values
            .get(&self.name_of(handle.key))
            .ok_or(format!("{} is missing", handle.key))?;
        if !handle.matches(bytes) {
            return Err(format!("{} is corrupt", handle.key));
        }
        codec::open(Kind::State, bytes).map_err(|error| format!("{}: {error}", handle.key))
    }

    /// A source's reserved positions, for the attempt that goes on from there. From now on older
    /// attempts reserve nothing more: what they handed out was reserved before, and no position is
    /// handed out twice.
    pub fn begin_reserving(&mut self, key: StoreKey, attempt: AttemptId) -> Option<SourceState> {
        codec::open(Kind::Reservation, self.take_over(key, attempt)?).ok()
    }

    /// The last write of a task's progress, for the attempt that goes on from there. From now on
    /// older attempts write nothing more: what they have sent was written before.
    pub fn begin_progress(&mut self, key: StoreKey, attempt: AttemptId) -> Option<ProgressLog> {
        self.take_over(key, attempt);
        self.progress(key)
    }

    /// The writes of a task's progress.
    pub fn progress(&self, key: StoreKey) -> Option<ProgressLog> {
        ProgressLog::read(self.values.get(&key)?).ok()
    }

    /// Something of an attempt is put: removes what an older one has left, if a variant does.
    fn clean_up(&mut self, put: StoreKey) {
        if self.variant != Some(Variant::PartOfOlderAttempt) {
            return;
        }
        match put {
            StoreKey::State { attempt, .. } => {
                self.owners.entry(self.name_of(put)).or_insert(attempt);
            }
            StoreKey::Metadata(complete) => {
                let newest = self.owners.values().copied().max();
                let owners = &self.owners;
                let is_older = |key: &StoreKey| {
                    matches!(key, StoreKey::State { checkpoint, .. } if *checkpoint == complete)
                        && owners.get(key).copied() < newest
                };
                self.values.retain(|key, _| !is_older(key));
            }
            StoreKey::Reservation { .. } | StoreKey::Progress { .. } | StoreKey::Attempt => {}
        }
    }

    /// The name that something is stored under.
    fn name_of(&self, key: StoreKey) -> StoreKey {
        let mixes = [Variant::FirstPartStays, Variant::PartOfOlderAttempt];
        match (key, self.variant) {
            (StoreKey::State { checkpoint, task, .. }, Some(variant))
                if mixes.contains(&variant) =>
            {
                StoreKey::State { checkpoint, attempt: AttemptId::default(), task }
            }
            (key, _) => key,
        }
    }

    fn take_over(&mut self, key: StoreKey, attempt: AttemptId) -> Option<&Arc<[u8]>> {
        self.owners.insert(key, attempt);
        self.values.get(&key)
    }
}
