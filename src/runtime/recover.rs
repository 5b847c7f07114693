//! What an earlier run left in the store, read before anything is started.
//!
//! A damaged file is an error that names it, also if an older checkpoint is whole: falling back to
//! it silently would abort transactions that the damaged one may have committed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::coordinator::Recovered;
use crate::id::{AttemptId, CheckpointId};
use crate::job::{DealError, Dealt, Job, Left, TaskStart};
use crate::message::TaskError;
use crate::runtime::deploy;
use crate::runtime::file_store::{FileStore, split_checkpoint_path};
use crate::runtime::guard;
use crate::runtime::options::{Claim, Resume, RunError};
use crate::runtime::savepoint::Savepoint;
use crate::runtime::store::{CheckpointStore, StoreError};
use crate::state::codec::{self, Kind};
use crate::state::snapshot::TaskState;
use crate::storage::{CheckpointMetadata, StateHandle, StoreKey};

/// Where a run begins.
#[derive(Clone, Copy)]
pub(super) struct Begin<'a> {
    pub(super) store: &'a dyn CheckpointStore,
    pub(super) resume: &'a Resume,
    pub(super) left: Left,
    pub(super) claim: Option<Claim>,
}

impl Begin<'_> {
    /// As [`Self::find`]; then removes what a crash has left, and the checkpoints that were to go
    /// when a run ended before it came to that.
    pub(super) fn prepare(self, job: &Job) -> Result<(Job, Recovered), RunError> {
        let (job, mut recovered) = self.find(job)?;
        self.store.sweep()?;
        let checkpoints = &mut recovered.checkpoints;
        checkpoints.sort_by_key(|metadata| metadata.checkpoint);
        let excess = checkpoints.len().saturating_sub(job.config().checkpoints_retained.max(1));
        let mut excess = checkpoints.drain(..excess);
        excess.try_for_each(|old| self.store.discard(old.checkpoint))?;
        drop(excess);
        Ok((job, recovered))
    }

    /// Reads what is asked for and removes what it abandons. What was stored by a job of another
    /// shape is dealt out to this one, with as many key groups as it had then.
    fn find(self, job: &Job) -> Result<(Job, Recovered), RunError> {
        let Self { store, resume, left, claim } = self;
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
                let goes_on =
                    !job.config().mechanism.takes_checkpoints() && !begins_anew(job, store)?;
                if goes_on && attempt.is_none() {
                    return Err(damaged(store, StoreKey::Attempt, "it is missing"));
                }
                let checkpoints = stored_checkpoints(store)?
                    .into_iter()
                    .map(|checkpoint| read_metadata(store, checkpoint))
                    .collect::<Result<Vec<_>, _>>()?;
                let Some((latest, older)) = checkpoints.split_last() else {
                    return Ok((job.clone(), found(Vec::new())));
                };
                let key = StoreKey::Metadata(latest.checkpoint);
                let fitted = Fitted::new(job, latest, left, &store.place_of(key))?;
                if let Some(job) = fitted.unchanged() {
                    return Ok((job, found(checkpoints)));
                }
                let dealt = fitted.deal(read_states(store, latest)?)?;
                // Under a number of its own, so that a crash leaves the one or the other.
                let dealt = dealt.with_number(latest.checkpoint.next());
                let (job, metadata) = dealt.store(store)?;
                Ok((job, found([older, &[latest.clone(), metadata]].concat())))
            }
            Resume::Never => {
                abandon(store, |_| true)?;
                Ok((job.clone(), found(Vec::new())))
            }
            Resume::From(path) => {
                let (job, metadata) = begin_at(job, store, path, left, claim)?;
                Ok((job, found(vec![metadata])))
            }
        }
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
    let listed = store.list()?;
    Ok(!first_reservation(job).is_some_and(|first| listed.contains(&first)))
}

/// Without checkpoints, what is in the store if and only if an earlier run has come to anything:
/// the first positions are stored in such an order that these are there last.
pub fn first_reservation(job: &Job) -> Option<StoreKey> {
    let keys = deploy::reservation_keys(job.graph());
    let first = keys.first().map(|(key, _)| *key);
    first.filter(|_| !job.config().mechanism.takes_checkpoints())
}

/// Makes the checkpoint or savepoint at `path` the only one in the store. One of another place is
/// copied, so that a crash before the next checkpoint leaves something to go on from, and removed
/// behind the copy if it is claimed.
fn begin_at(
    job: &Job,
    store: &dyn CheckpointStore,
    path: &Path,
    left: Left,
    claim: Option<Claim>,
) -> Result<(Job, CheckpointMetadata), RunError> {
    if !job.config().mechanism.takes_checkpoints() {
        let text = format!(
            "{}: the mechanism {} starts from no checkpoint",
            path.display(),
            job.config().mechanism
        );
        return Err(RunError::Restore(text));
    }
    if Savepoint::is_at(path) {
        let Savepoint { metadata, states } = Savepoint::read(path)?;
        let fitted = Fitted::new(job, &metadata, left, &path.display().to_string())?;
        let dealt = fitted.deal(states)?;
        abandon(store, |_| true)?;
        let begun = dealt.store(store)?;
        if claim == Some(Claim::Run) {
            Savepoint::remove(path)?;
        }
        return Ok(begun);
    }
    let Some((folder, checkpoint)) = split_checkpoint_path(path).filter(|_| path.is_dir()) else {
        let text = format!(
            "{}: no checkpoint is there (a folder chk-<number>), and no savepoint",
            path.display()
        );
        return Err(RunError::Restore(text));
    };
    let key = StoreKey::Metadata(checkpoint);
    let own = PathBuf::from(store.place_of(key));
    if own.parent().is_some_and(|own| is_same(own, path)) {
        if claim == Some(Claim::User) {
            let text = format!(
                "{}: a checkpoint in the run's own store is the run's: keep the checkpoints of \
                 this run in another place, or copy this one",
                path.display()
            );
            return Err(RunError::Restore(text));
        }
        let metadata = read_metadata(store, checkpoint)?;
        let fitted = Fitted::new(job, &metadata, left, &store.place_of(key))?;
        let states = read_states(store, &metadata)?;
        if let Some(job) = fitted.unchanged() {
            fitted.check(&states)?;
            abandon(store, |other| other != key)?;
            return Ok((job, metadata));
        }
        let dealt = fitted.deal(states)?;
        let dealt = dealt.with_number(checkpoint.next());
        abandon(store, |other| other != key)?;
        return dealt.store(store);
    }
    let other = FileStore::open(folder)?;
    let begun = begin_with_copy(job, store, &other, checkpoint, left)?;
    if claim == Some(Claim::Run) {
        other.discard(checkpoint)?;
    }
    Ok(begun)
}

/// Makes a copy of the checkpoint of another store the only one in this one.
fn begin_with_copy(
    job: &Job,
    store: &dyn CheckpointStore,
    other: &FileStore,
    checkpoint: CheckpointId,
    left: Left,
) -> Result<(Job, CheckpointMetadata), RunError> {
    let key = StoreKey::Metadata(checkpoint);
    let metadata = read_metadata(other, checkpoint)?;
    let fitted = Fitted::new(job, &metadata, left, &other.place_of(key))?;
    let states = read_states(other, &metadata)?;
    let Some(job) = fitted.unchanged() else {
        let dealt = fitted.deal(states)?;
        abandon(store, |_| true)?;
        return dealt.store(store);
    };
    fitted.check(&states)?;
    abandon(store, |_| true)?;
    for handle in &metadata.tasks {
        copy(store, handle.key, &read_part(other, handle)?)?;
    }
    copy(store, key, &codec::seal(Kind::Metadata, &metadata))?;
    Ok((job, metadata))
}

/// Looks whether a job can be restored from a savepoint.
pub(super) fn try_on(job: &Job, savepoint: &Savepoint, place: &str) -> Result<(), RunError> {
    let fitted = Fitted::new(job, &savepoint.metadata, Left::Refused, place)?;
    fitted.deal(savepoint.states.clone()).map(drop)
}

/// A job and a checkpoint that it may begin at.
struct Fitted<'a> {
    job: Job,
    metadata: &'a CheckpointMetadata,
    left: Left,
    /// Where the checkpoint lies, for people.
    place: String,
}

impl<'a> Fitted<'a> {
    /// Has the job take over the number of key groups.
    fn new(
        job: &Job,
        metadata: &'a CheckpointMetadata,
        left: Left,
        place: &str,
    ) -> Result<Self, RunError> {
        let job = if metadata.job == job.name() {
            let job = job.with_key_groups_of(&metadata.shape);
            job.map_err(|error| refused(place, &error))?
        } else if left == Left::Dropped {
            job.clone()
        } else {
            let text = format!(
                "{place}: it belongs to the job '{}', not to '{}'",
                metadata.job,
                job.name()
            );
            return Err(RunError::Restore(text));
        };
        Ok(Self { job, metadata, left, place: place.to_owned() })
    }

    /// The job, if it can begin there as it is.
    fn unchanged(&self) -> Option<Job> {
        let Self { job, metadata, .. } = self;
        let is_same = metadata.shape == job.shape() && metadata.job == job.name();
        is_same.then(|| self.job.clone())
    }

    /// Looks whether all tasks can be restored, before anything is given up for that.
    fn check(&self, states: &[TaskState]) -> Result<(), RunError> {
        let place = &self.place;
        let unions = deploy::unions_by_task(&self.job, states);
        let restored = states.iter().zip(unions).try_for_each(|(state, unions)| {
            let (task, mut state) = (state.task, state.clone());
            unions.join(&mut state);
            let start = TaskStart::Restored(Box::new(state));
            let name = self.job.graph().task_name(task);
            guard::catch(|| match self.job.task(task, AttemptId::default(), start) {
                Ok(_) => Ok(()),
                Err(error) => Err(TaskError::Restore(format!("{place}: {name}: {error}"))),
            })
        });
        restored.map_err(|error| RunError::Restore(error.to_string()))
    }

    fn deal(self, states: Vec<TaskState>) -> Result<DealtOut, RunError> {
        let Self { job, metadata, left, place } = &self;
        let (left, config) = (*left, job.config());
        if config.state.is_external() {
            let text = format!(
                "{place}: it was taken in another layout of the job, and state that is {} can not \
                 be dealt out anew: keep graph and parallelism as they were",
                config.state
            );
            return Err(RunError::Restore(text));
        }
        // That a uid of another job is the same is an accident.
        let dealt = match metadata.job == job.name() {
            true => job.deal(&metadata.shape, states, &metadata.pools, left),
            false => job.deal(&job.shape().without_vertices(), Vec::new(), &[], left),
        };
        let Dealt { mut states, pools, .. } = dealt.map_err(|error| refused(place, &error))?;
        let first = job.discover().map_err(|error| RunError::Input(error.to_string()))?;
        for (state, first) in states.iter_mut().zip(first) {
            state.checkpoint = metadata.checkpoint;
            state.source = state.source.take().or(first);
        }
        let metadata = CheckpointMetadata {
            job: job.name().to_owned(),
            shape: job.shape(),
            finished: metadata.finished && states.iter().all(|state| state.finished),
            pools,
            ..(*metadata).clone()
        };
        self.check(&states)?;
        Ok(DealtOut { job: self.job, metadata, states })
    }
}

/// A checkpoint that was dealt out to a job.
struct DealtOut {
    job: Job,
    metadata: CheckpointMetadata,
    states: Vec<TaskState>,
}

impl DealtOut {
    fn with_number(mut self, checkpoint: CheckpointId) -> Self {
        self.metadata.checkpoint = checkpoint;
        self.states.iter_mut().for_each(|state| state.checkpoint = checkpoint);
        self
    }

    /// Stores it as a complete checkpoint, where the job begins.
    fn store(self, store: &dyn CheckpointStore) -> Result<(Job, CheckpointMetadata), RunError> {
        let CheckpointMetadata { checkpoint, attempt, .. } = self.metadata;
        let parts = self.states.iter().map(|state| {
            let key = StoreKey::State { checkpoint, attempt, task: state.task };
            let bytes = codec::seal(Kind::State, state);
            copy(store, key, &bytes)?;
            Ok(StateHandle::of(key, &bytes))
        });
        let tasks = parts.collect::<Result<_, StoreError>>()?;
        let metadata = CheckpointMetadata { tasks, ..self.metadata };
        let key = StoreKey::Metadata(checkpoint);
        copy(store, key, &codec::seal(Kind::Metadata, &metadata))?;
        Ok((self.job, metadata))
    }
}

/// All parts of a checkpoint.
pub(super) fn read_states(
    store: &dyn CheckpointStore,
    metadata: &CheckpointMetadata,
) -> Result<Vec<TaskState>, RunError> {
    let read = |handle: &StateHandle| {
        let bytes = read_part(store, handle)?;
        codec::open(Kind::State, &bytes).map_err(|error| damaged(store, handle.key, &error))
    };
    metadata.tasks.iter().map(read).collect()
}

fn refused(place: &str, error: &DealError) -> RunError {
    RunError::Restore(format!("{place}: {error}"))
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
    store: &dyn CheckpointStore,
    checkpoint: CheckpointId,
) -> Result<CheckpointMetadata, RunError> {
    let key = StoreKey::Metadata(checkpoint);
    let bytes = store.get(key)?;
    let bytes = bytes.ok_or_else(|| damaged(store, key, "it is missing"))?;
    let metadata: CheckpointMetadata =
        codec::open(Kind::Metadata, &bytes).map_err(|error| damaged(store, key, &error))?;
    Ok(metadata)
}

fn stored_checkpoints(store: &dyn CheckpointStore) -> Result<Vec<CheckpointId>, StoreError> {
    Ok(store.list()?.into_iter().filter_map(StoreKey::complete_checkpoint).collect())
}

/// Removes what a run that has ended leaves of checkpoints that did not complete, and all else too
/// unless it is kept.
pub(super) fn clean_up(store: &dyn CheckpointStore, is_kept: bool) -> Result<(), StoreError> {
    if !is_kept {
        abandon(store, |_| true)?;
        store.remove(StoreKey::Attempt)?;
    }
    store.sweep()
}

/// Removes the checkpoints and reservations that the run does not go on from, or leaves behind: a
/// later one must not take them for its own.
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
