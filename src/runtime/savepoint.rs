//! Savepoints: the state of a job in a form that outlives the build that wrote it, in a folder of
//! its own.
//!
//! ```text
//! part-<task>     a task's part
//! savepoint       present: the savepoint is whole
//! note            what the program that took it wants to know of it later, if anything
//! ```
//! A savepoint belongs to its user: no run relies on one, changes one or removes one (rule 51).

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::durable;
use crate::guarantee::Mechanism;
use crate::id::TaskId;
use crate::job::Job;
use crate::runtime::options::RunError;
use crate::runtime::recover;
use crate::runtime::store::CheckpointStore;
use crate::state::codec::{self, DecodeError, Kind};
use crate::state::snapshot::{OperatorState, TaskState};
use crate::storage::{CheckpointMetadata, StateHandle, StoreKey};

/// A savepoint that was read or is to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// What it was taken of.
    pub metadata: CheckpointMetadata,
    /// The parts, in task order, in the portable format.
    pub states: Vec<TaskState>,
}

/// What a program keeps beside a savepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavepointNote(Vec<u8>);

impl SavepointNote {
    /// A note that says this.
    pub fn of(note: &impl Serialize) -> Self {
        Self(codec::seal(Kind::SavepointNote, note))
    }
}

/// Why a savepoint can not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SavepointError {
    /// There is none.
    #[error("{}: no savepoint is there (a folder with a file 'savepoint')", .0.display())]
    Missing(PathBuf),
    /// A file of it is not what was written.
    #[error("{}: {error}", .file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// Its state can only be read by the job that it was taken of.
    #[error("{}: {text}", .folder.display())]
    Job {
        /// The folder.
        folder: PathBuf,
        /// Why not.
        text: String,
    },
    /// Its parts do not belong together.
    #[error("{}: it is none that was written: {text}", .folder.display())]
    Torn {
        /// The folder.
        folder: PathBuf,
        /// What does not fit.
        text: String,
    },
    /// The place is taken.
    #[error("{}: something is there already: name a folder that does not exist", .0.display())]
    Taken(PathBuf),
    /// The file system refused.
    #[error("{}: {text}", .file.display())]
    Io {
        /// The file or folder.
        file: PathBuf,
        /// Why.
        text: String,
    },
}

impl From<SavepointError> for RunError {
    fn from(error: SavepointError) -> Self {
        match error {
            SavepointError::Missing(_)
            | SavepointError::Damaged { .. }
            | SavepointError::Torn { .. }
            | SavepointError::Job { .. } => Self::Restore(error.to_string()),
            SavepointError::Taken(_) | SavepointError::Io { .. } => {
                Self::Savepoint(error.to_string())
            }
        }
    }
}

impl Savepoint {
    /// A complete checkpoint as a savepoint.
    ///
    /// # Errors
    /// If the checkpoint can not be read.
    pub(super) fn of(
        job: &Job,
        store: &dyn CheckpointStore,
        metadata: &CheckpointMetadata,
    ) -> Result<Self, RunError> {
        let portable = |state: TaskState| {
            let task = state.task;
            let wrong =
                |error| RunError::Restore(format!("{}: {task}: {error}", metadata.checkpoint));
            job.portable(state).map_err(wrong)
        };
        let states = recover::read_states(store, metadata)?;
        let states = states.into_iter().map(portable).collect::<Result<_, _>>()?;
        Ok(Self { metadata: metadata.clone(), states })
    }

    /// As it is when all that was pending has been committed.
    #[must_use]
    pub fn committed(mut self) -> Self {
        for state in &mut self.states {
            state.transactions.clear();
            state.log.clear();
        }
        self
    }

    /// Checks that a job can be restored from it; `place` is what it is called in an error.
    ///
    /// # Errors
    /// If state of it is none of the job's, or has other types.
    pub fn check_for(&self, job: &Job, place: &str) -> Result<(), RunError> {
        recover::try_on(job, self, place)
    }

    /// Whether one is in this folder.
    pub fn is_at(folder: &Path) -> bool {
        folder.join(INDEX).is_file()
    }

    /// Reads the savepoint in `folder`.
    ///
    /// # Errors
    /// If there is none, or a file of it is not what was written.
    pub fn read(folder: &Path) -> Result<Self, SavepointError> {
        let index = folder.join(INDEX);
        if !index.is_file() {
            return Err(SavepointError::Missing(folder.to_owned()));
        }
        let metadata: CheckpointMetadata = read(&index, Kind::Savepoint)?;
        let states = (0..).zip(&metadata.tasks).map(|(task, handle)| {
            let file = folder.join(part_name(TaskId::new(task)));
            read_part(&file, Kind::SavepointPart, handle)
        });
        let states = states.collect::<Result<_, _>>()?;
        let savepoint = Self { metadata, states };
        let torn = |text| SavepointError::Torn { folder: folder.to_owned(), text };
        savepoint.check_parts().map_err(torn)?;
        Ok(savepoint)
    }

    /// Checks that the parts are those of the job's tasks: what belongs to none of them would be
    /// left out without a word.
    fn check_parts(&self) -> Result<(), String> {
        let Self { metadata, states } = self;
        let CheckpointMetadata { checkpoint, attempt, shape, .. } = metadata;
        let graph = shape.graph().map_err(|error| error.to_string())?;
        if checkpoint.get() == u64::MAX || states.len() != graph.task_count() {
            return Err(format!("no job has {checkpoint} of {} tasks", states.len()));
        }
        let mut splits = BTreeSet::new();
        for ((task, handle), state) in graph.tasks().zip(&metadata.tasks).zip(states) {
            let place = StoreKey::State { checkpoint: *checkpoint, attempt: *attempt, task };
            if handle.key != place || state.task != task || state.checkpoint != *checkpoint {
                return Err(format!("the part of {task} is one of another task or checkpoint"));
            }
            let vertex = graph.vertex_of(task);
            let name = graph.task_name(task);
            if vertex.is_source != state.source.is_some() {
                return Err(format!("{name}: positions in an input are missing, or of none"));
            }
            let of_task = state.source.iter().flat_map(|source| &source.splits);
            for split in of_task.map(|of| of.split) {
                if !splits.insert((&vertex.name, split)) {
                    return Err(format!("{name}: {split} is there twice"));
                }
            }
            let mut uids = BTreeSet::new();
            for OperatorState { uid, keyed, .. } in &state.operators {
                if !vertex.uids.iter().any(|of| **of == *uid) || !uids.insert(uid) {
                    return Err(format!("{name}: '{uid}' is no operator of it, or is there twice"));
                }
                let groups = keyed.iter().flatten().map(|(group, _)| group);
                if let Some(group) = groups.max().filter(|of| shape.key_groups <= of.get().into()) {
                    return Err(format!("{name}: '{uid}' has {group} of {}", shape.key_groups));
                }
            }
        }
        Ok(())
    }

    /// What the savepoint or checkpoint in `folder` was taken of, if one is there.
    ///
    /// # Errors
    /// If it is not what was written.
    pub fn metadata_at(folder: &Path) -> Result<Option<CheckpointMetadata>, SavepointError> {
        for (name, kind) in [(INDEX, Kind::Savepoint), (METADATA, Kind::Metadata)] {
            let file = folder.join(name);
            if file.is_file() {
                return read(&file, kind).map(Some);
            }
        }
        Ok(None)
    }

    /// Reads the complete checkpoint in `folder` by the types of the job that it was taken of,
    /// whoever uses the folder.
    ///
    /// # Errors
    /// If there is none, a file of it is not what was written, or the job is not known.
    pub fn read_checkpoint(
        folder: &Path,
        job_of: impl FnOnce(&CheckpointMetadata) -> Result<Job, String>,
    ) -> Result<Self, SavepointError> {
        let index = folder.join(METADATA);
        if !index.is_file() {
            return Err(SavepointError::Missing(folder.to_owned()));
        }
        let metadata: CheckpointMetadata = read(&index, Kind::Metadata)?;
        let unknown = |text: String| SavepointError::Job { folder: folder.to_owned(), text };
        let job = job_of(&metadata).map_err(unknown)?;
        let job = job.with_key_groups_of(&metadata.shape);
        let job = job.map_err(|error| unknown(error.to_string()))?;
        if job.shape().vertices != metadata.shape.vertices {
            let text = format!("the job '{}' was laid out in another way", metadata.job);
            return Err(unknown(text));
        }
        let states = metadata.tasks.iter().map(|handle| {
            let name = handle.key.to_string();
            let name = name.split_once('/').map_or(&*name, |(_, name)| name);
            let file = folder.join(format!("{name}.state"));
            let state: TaskState = read_part(&file, Kind::State, handle)?;
            job.portable(state).map_err(|error| unknown(error.to_string()))
        });
        let states = states.collect::<Result<_, _>>()?;
        Ok(Self { metadata, states })
    }

    /// Leaves a note of one's own beside the savepoint in `folder`.
    ///
    /// # Errors
    /// If it can not be written.
    pub fn leave_note(folder: &Path, note: &SavepointNote) -> Result<(), SavepointError> {
        replace(&folder.join(NOTE), &note.0)
    }

    /// The note beside the savepoint in `folder`, if one was left.
    ///
    /// # Errors
    /// If it is not what was written.
    pub fn note<T: DeserializeOwned>(folder: &Path) -> Result<Option<T>, SavepointError> {
        let file = folder.join(NOTE);
        file.is_file().then(|| read(&file, Kind::SavepointNote)).transpose()
    }

    /// Removes the savepoint in `folder`, and the folder unless somebody else keeps something
    /// there: first what makes it one.
    ///
    /// # Errors
    /// If something of it may still be there.
    pub(super) fn remove(folder: &Path) -> Result<(), SavepointError> {
        let gone = |file: &Path| durable::remove(file).map_err(|error| failed(file, &error));
        gone(&folder.join(INDEX))?;
        durable::sync_folder(folder).map_err(|error| failed(folder, &error))?;
        let names = durable::names_in(folder).map_err(|error| failed(folder, &error))?;
        let (ours, others): (Vec<_>, Vec<_>) = names.iter().partition(|(name, _)| is_left(name));
        ours.iter().try_for_each(|(_, file)| gone(file))?;
        match others.is_empty() {
            true => fs::remove_dir(folder).map_err(|error| failed(folder, &error)),
            false => Ok(()),
        }
    }

    /// Writes it into `folder`, which is made, and `note` beside it; durably, and whole or not at
    /// all.
    ///
    /// # Errors
    /// If something is there already, or it can not be written.
    pub fn write(&self, folder: &Path, note: Option<&SavepointNote>) -> Result<(), SavepointError> {
        check_free(folder)?;
        durable::create_folder(folder).map_err(|error| failed(folder, &error))?;
        note.map_or(Ok(()), |note| Self::leave_note(folder, note))?;
        let mut metadata = self.metadata.clone();
        for (state, handle) in self.states.iter().zip(&mut metadata.tasks) {
            let bytes = codec::seal(Kind::SavepointPart, state);
            *handle = StateHandle::of(handle.key, &bytes);
            replace(&folder.join(part_name(state.task)), &bytes)?;
        }
        replace(&folder.join(INDEX), &codec::seal(Kind::Savepoint, &metadata))
    }
}

fn replace(file: &Path, bytes: &[u8]) -> Result<(), SavepointError> {
    durable::replace(file, bytes).map_err(|error| failed(file, &error.into()))
}

fn read<T: DeserializeOwned>(file: &Path, kind: Kind) -> Result<T, SavepointError> {
    let bytes = fs::read(file).map_err(|error| failed(file, &error))?;
    codec::open(kind, &bytes)
        .map_err(|error| SavepointError::Damaged { file: file.to_owned(), error })
}

fn read_part(file: &Path, kind: Kind, handle: &StateHandle) -> Result<TaskState, SavepointError> {
    let bytes = fs::read(file).map_err(|error| failed(file, &error))?;
    let state = codec::open(kind, &bytes).and_then(|state| match handle.matches(&bytes) {
        true => Ok(state),
        false => Err(DecodeError::Checksum),
    });
    state.map_err(|error| SavepointError::Damaged { file: file.to_owned(), error })
}

/// Refuses before anything is run what would fail at the end.
pub(super) fn check(job: &Job, folder: &Path) -> Result<(), RunError> {
    let config = job.config();
    match config.mechanism {
        Mechanism::Tracked
        | Mechanism::Aligned
        | Mechanism::Unaligned
        | Mechanism::AlignedTimeout => {}
        mechanism @ (Mechanism::None
        | Mechanism::Acks
        | Mechanism::FullReplay
        | Mechanism::MiniBatch
        | Mechanism::Transactional) => {
            return Err(RunError::Savepoint(format!(
                "the mechanism {mechanism} has no state to put into a savepoint: use one that \
                 takes checkpoints on the way"
            )));
        }
    }
    if config.state.is_external() {
        let home = config.state;
        return Err(RunError::Savepoint(format!(
            "state that is {home} is no part of a savepoint: keep it in the heap"
        )));
    }
    Ok(check_free(folder)?)
}

/// A folder that is empty, or holds what an attempt to write here has left, is free.
fn check_free(folder: &Path) -> Result<(), SavepointError> {
    if !folder.exists() {
        return Ok(());
    }
    let names = durable::names_in(folder).map_err(|error| failed(folder, &error))?;
    match folder.is_dir() && names.iter().all(|(name, _)| is_left(name)) {
        true => Ok(()),
        false => Err(SavepointError::Taken(folder.to_owned())),
    }
}

/// Whether a file of this name is part of a savepoint without its index, or on its way there.
fn is_left(name: &str) -> bool {
    let name = name.strip_prefix(durable::TEMPORARY_PREFIX).unwrap_or(name);
    name.starts_with(PART) || name == NOTE
}

fn part_name(task: TaskId) -> String {
    format!("{PART}{}", task.get())
}

fn failed(file: &Path, error: &io::Error) -> SavepointError {
    SavepointError::Io { file: file.to_owned(), text: error.to_string() }
}

const INDEX: &str = "savepoint";
const NOTE: &str = "note";
/// As in the store of files.
const METADATA: &str = "metadata";
const PART: &str = "part-";
