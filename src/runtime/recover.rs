//! What an earlier run left in the store, read before anything is started.
//!
//! A damaged file is an error that names it, also if an older checkpoint is whole: falling back to
//! it silently would abort transactions that the damaged one may have committed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::coordinator::Recovered;
use crate::id::CheckpointId;
use crate::job::Job;
use crate::runtime::deploy;
use crate::runtime::file_store::{FileStore, split_checkpoint_path};
use crate::runtime::options::{Resume, RunError};
use crate::runtime::store::{CheckpointStore, StoreError};
use crate::state::codec::{self, Kind};
use crate::storage::{CheckpointMetadata, StateHandle, StoreKey};

/// Reads what `resume` asks for and removes what it abandons.
pub(super) fn find(
    job: &Job,
    store: &dyn CheckpointStore,
    resume: &Resume,
) -> Result<Recovered, RunError> {
    let attempt = match store.get(StoreKey::Attempt)? {
        Some(bytes) => Some(
            codec::open(Kind::Attempt, &bytes)
                .map_err(|error| damaged(store, StoreKey::Attempt, &error))?,
        ),
        None => None,
    };
    let found = |checkpoints| Recovered { checkpoints, attempt };
    match resume {
        Resume::Latest => {
            // Without checkpoints only its number keeps an attempt from taking the place of an
            // earlier one, and it is stored before anything else.
            let goes_on = !job.config().mechanism.takes_checkpoints() && !begins_anew(job, store)?;
            if goes_on && attempt.is_none() {
                return Err(damaged(store, StoreKey::Attempt, "it is missing"));
            }
            let checkpoints = stored_checkpoints(store)?
                .into_iter()
                .map(|checkpoint| read_metadata(job, store, checkpoint))
                .collect::<Result<_, _>>()?;
            Ok(found(checkpoints))
        }
        Resume::Never => {
            abandon(store, |_| true)?;
            Ok(found(Vec::new()))
        }
        Resume::From(path) => Ok(found(vec![begin_at(job, store, path)?])),
    }
}

/// Whether a run of `job` that resumes at the latest would begin at the start of the input: nothing
/// in `store` says how far an earlier one has come.
///
/// # Errors
/// If the store can not be listed.
pub fn begins_anew(job: &Job, store: &dyn CheckpointStore) -> Result<bool, StoreError> {
    if job.config().mechanism.takes_checkpoints() {
        return Ok(stored_checkpoints(store)?.is_empty());
    }
    // The first positions are stored in such an order that the first key's are there last.
    let first = deploy::reservation_keys(job.graph()).first().map(|(key, _)| *key);
    let listed = store.list()?;
    Ok(!first.is_some_and(|first| listed.contains(&first)))
}

/// Makes the checkpoint at `path` the only one in the store. One of another store is copied, so
/// that a crash before the next checkpoint leaves something to go on from.
fn begin_at(
    job: &Job,
    store: &dyn CheckpointStore,
    path: &Path,
) -> Result<CheckpointMetadata, RunError> {
    if !job.config().mechanism.takes_checkpoints() {
        let text = format!(
            "{}: the mechanism {} starts from no checkpoint",
            path.display(),
            job.config().mechanism
        );
        return Err(RunError::Restore(text));
    }
    let Some((folder, checkpoint)) = split_checkpoint_path(path).filter(|_| path.is_dir()) else {
        let text = format!("{}: no checkpoint is there (a folder chk-<number>)", path.display());
        return Err(RunError::Restore(text));
    };
    let own = PathBuf::from(store.place_of(StoreKey::Metadata(checkpoint)));
    if own.parent().is_some_and(|own| is_same(own, path)) {
        let metadata = read_metadata(job, store, checkpoint)?;
        abandon(store, |key| key != StoreKey::Metadata(checkpoint))?;
        return Ok(metadata);
    }
    let other = FileStore::open(folder)?;
    let metadata = read_metadata(job, &other, checkpoint)?;
    for handle in &metadata.tasks {
        read_part(&other, handle)?;
    }
    abandon(store, |_| true)?;
    for handle in &metadata.tasks {
        copy(store, handle.key, &read_part(&other, handle)?)?;
    }
    let key = StoreKey::Metadata(checkpoint);
    copy(store, key, &codec::seal(Kind::Metadata, &metadata))?;
    Ok(metadata)
}

fn read_part(store: &dyn CheckpointStore, handle: &StateHandle) -> Result<Vec<u8>, RunError> {
    match store.get(handle.key)? {
        Some(bytes) if handle.matches(&bytes) => Ok(bytes),
        Some(_) => Err(damaged(store, handle.key, "it is not the file that was written")),
        None => Err(damaged(store, handle.key, "it is missing")),
    }
}

fn copy(store: &dyn CheckpointStore, key: StoreKey, bytes: &[u8]) -> Result<(), StoreError> {
    store.put(key, bytes).map_err(|error| StoreError(error.to_string()))
}

fn read_metadata(
    job: &Job,
    store: &dyn CheckpointStore,
    checkpoint: CheckpointId,
) -> Result<CheckpointMetadata, RunError> {
    let key = StoreKey::Metadata(checkpoint);
    let bytes = store.get(key)?;
    let bytes = bytes.ok_or_else(|| damaged(store, key, "it is missing"))?;
    let metadata: CheckpointMetadata =
        codec::open(Kind::Metadata, &bytes).map_err(|error| damaged(store, key, &error))?;
    if metadata.job != job.name() {
        let text = format!("it belongs to the job '{}', not to '{}'", metadata.job, job.name());
        return Err(damaged(store, key, text));
    }
    let (stored, tasks) = (metadata.tasks.len(), job.graph().task_count());
    if stored != tasks {
        let text = format!(
            "it has {stored} tasks and the job has {tasks}: the parallelism and the graph have to \
             be the same as before"
        );
        return Err(damaged(store, key, text));
    }
    Ok(metadata)
}

fn stored_checkpoints(store: &dyn CheckpointStore) -> Result<Vec<CheckpointId>, StoreError> {
    let checkpoint_of = |key| match key {
        StoreKey::Metadata(checkpoint) => Some(checkpoint),
        StoreKey::State { .. }
        | StoreKey::Reservation { .. }
        | StoreKey::Progress { .. }
        | StoreKey::Attempt => None,
    };
    Ok(store.list()?.into_iter().filter_map(checkpoint_of).collect())
}

/// Removes the checkpoints and reservations that the run does not go on from: a later one must not
/// take them for its own.
fn abandon(
    store: &dyn CheckpointStore,
    is_abandoned: impl Fn(StoreKey) -> bool,
) -> Result<(), StoreError> {
    for key in store.list()?.into_iter().filter(|key| is_abandoned(*key)) {
        match key {
            StoreKey::Metadata(checkpoint) => store.discard(checkpoint)?,
            StoreKey::State { .. }
            | StoreKey::Reservation { .. }
            | StoreKey::Progress { .. }
            | StoreKey::Attempt => {
                store.remove(key)?;
            }
        }
    }
    Ok(())
}

fn is_same(left: &Path, right: &Path) -> bool {
    match (fs::canonicalize(left), fs::canonicalize(right)) {
        (Ok(left), Ok(right)) => left == right,
        (Err(_), _) | (_, Err(_)) => false,
    }
}

fn damaged(store: &dyn CheckpointStore, key: StoreKey, why: impl std::fmt::Display) -> RunError {
    RunError::Restore(format!("{}: {why}", store.place_of(key)))
}
