//! The store in files. A folder holds
//! ```text
//! attempt                             the highest attempt
//! reserved-<vertex>-<subtask>         positions handed out under at-most-once
//! progress-<vertex>-<subtask>         all of a task under transactional updates
//! chk-<id>/<task>-<attempt>.state     a task's part of a checkpoint
//! chk-<id>/metadata                   present: the checkpoint is complete
//! .lock                               locked by the process that uses the folder
//! ```
//! Each file is written whole (see `durable`); names that begin with a dot hold nothing. The parts
//! of a checkpoint are made durable together, before its metadata is written: each on its own would
//! wait for the disk, and none is of use before. What is found at the start is synced before
//! anything relies on it: a rename that was read need not be durable.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::durable::{self, ReplaceError};
use crate::id::{CheckpointId, SubtaskIndex, VertexId};
use crate::runtime::store::{CheckpointStore, PutError, StoreError};
use crate::storage::StoreKey;

/// A store in a folder of its own.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    /// Held for as long as the store is open; the system frees it when the process dies.
    _lock: File,
}

impl FileStore {
    /// Opens the store in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// If the folder can not be used, or another process uses it.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let folder = folder.into();
        let lock = prepare(&folder)?;
        let store = Self { folder, _lock: lock };
        store.settle().map_err(|error| failed(&store.folder, &error))?;
        Ok(store)
    }

    /// Whether a process uses the folder.
    pub fn is_used(folder: &Path) -> bool {
        let lock = File::open(folder.join(LOCK));
        lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
    }

    /// Syncs what is there.
    fn settle(&self) -> io::Result<()> {
        for (name, path) in durable::names_in(&self.folder)? {
            if checkpoint_of(&name).is_some() && path.join(METADATA).is_file() {
                durable::sync_folder(&path)?;
            }
        }
        durable::sync_folder(&self.folder)
    }

    fn path_of(&self, key: StoreKey) -> PathBuf {
        match key {
            StoreKey::State { .. } => self.folder.join(format!("{key}.state")),
            StoreKey::Metadata(_)
            | StoreKey::Reservation { .. }
            | StoreKey::Progress { .. }
            | StoreKey::Attempt => self.folder.join(key.to_string()),
        }
    }
}

impl CheckpointStore for FileStore {
    fn put(&self, key: StoreKey, bytes: &[u8]) -> Result<(), PutError> {
        let path = self.path_of(key);
        let folder = path.parent().expect("a value lies in a folder");
        durable::create_folder(folder)
            .map_err(|error| PutError::Failed(failed(folder, &error).0))?;
        let written = match key {
            // Nobody relies on a part before the metadata is there.
            StoreKey::State { .. } => durable::place(&path, bytes).map_err(ReplaceError::Before),
            StoreKey::Metadata(_) => sync_parts(folder)
                .map_err(ReplaceError::Before)
                .and_then(|()| durable::replace(&path, bytes)),
            StoreKey::Reservation { .. } | StoreKey::Progress { .. } | StoreKey::Attempt => {
                durable::replace(&path, bytes)
            }
        };
        written.map_err(|error| match error {
            ReplaceError::Before(error) => PutError::Failed(failed(&path, &error).0),
            ReplaceError::Unknown(error) => PutError::Unknown(failed(&path, &error).0),
        })
    }

    fn append(&self, key: StoreKey, bytes: &[u8]) -> Result<(), PutError> {
        let path = self.path_of(key);
        let append = || {
            let mut file = File::options().append(true).open(&path)?;
            file.write_all(bytes)?;
            file.sync_data()
        };
        append().map_err(|error| PutError::Unknown(failed(&path, &error).0))
    }

    fn get(&self, key: StoreKey) -> Result<Option<Vec<u8>>, StoreError> {
        let path = self.path_of(key);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(&path, &error)),
        }
    }

    fn list(&self) -> Result<Vec<StoreKey>, StoreError> {
        let names = durable::names_in(&self.folder);
        let names = names.map_err(|error| failed(&self.folder, &error))?;
        let mut keys: Vec<_> = names
            .into_iter()
            .filter_map(|(name, path)| match checkpoint_of(&name) {
                Some(checkpoint) => {
                    path.join(METADATA).is_file().then_some(StoreKey::Metadata(checkpoint))
                }
                None => key_of(&name),
            })
            .collect();
        keys.sort();
        Ok(keys)
    }

    fn remove(&self, key: StoreKey) -> Result<(), StoreError> {
        let path = self.path_of(key);
        durable::remove(&path)
            .and_then(|()| durable::sync_folder(path.parent().expect("a value lies in a folder")))
            .map_err(|error| failed(&path, &error))
    }

    fn discard(&self, checkpoint: CheckpointId) -> Result<(), StoreError> {
        let folder = self.folder.join(checkpoint.to_string());
        if !folder.is_dir() {
            return Ok(());
        }
        self.remove(StoreKey::Metadata(checkpoint))?;
        remove_parts(&folder).map_err(|error| failed(&folder, &error))
    }

    fn sweep(&self) -> Result<(), StoreError> {
        let sweep = || {
            for (name, path) in durable::names_in(&self.folder)? {
                if name.starts_with(durable::TEMPORARY_PREFIX) {
                    durable::remove(&path)?;
                } else if checkpoint_of(&name).is_some() && !path.join(METADATA).is_file() {
                    remove_parts(&path)?;
                }
            }
            durable::sync_folder(&self.folder)
        };
        sweep().map_err(|error| failed(&self.folder, &error))
    }

    fn place_of(&self, key: StoreKey) -> String {
        self.path_of(key).display().to_string()
    }
}

/// The checkpoint in the folder at `path`, and the folder of the store around it.
pub(super) fn split_checkpoint_path(path: &Path) -> Option<(PathBuf, CheckpointId)> {
    let checkpoint = checkpoint_of(path.file_name()?.to_str()?)?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    Some((parent.unwrap_or(Path::new(".")).to_owned(), checkpoint))
}

fn prepare(folder: &Path) -> Result<File, StoreError> {
    let lock = durable::create_folder(folder)
        .and_then(|()| File::create(folder.join(LOCK)))
        .map_err(|error| failed(folder, &error))?;
    for _ in 0..LOCK_TRIES {
        match lock.try_lock() {
            Ok(()) => return Ok(lock),
            // Who looks whether it is locked has it for a moment.
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_PAUSE),
            Err(TryLockError::Error(error)) => return Err(failed(folder, &error)),
        }
    }
    Err(StoreError(format!("{}: another run uses these checkpoints", folder.display())))
}

fn checkpoint_of(name: &str) -> Option<CheckpointId> {
    let checkpoint = name.strip_prefix("chk-")?.parse().ok().map(CheckpointId::new)?;
    // Numbers can be written in other ways, which are not ours.
    (checkpoint.to_string() == name).then_some(checkpoint)
}

/// Removes the parts of a checkpoint, and its folder unless somebody else keeps something there.
fn remove_parts(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    let mut is_ours = true;
    for (name, path) in durable::names_in(folder)? {
        if is_part(name.strip_prefix(durable::TEMPORARY_PREFIX).unwrap_or(&name)) {
            durable::remove(&path)?;
        } else {
            is_ours = false;
        }
    }
    if is_ours { fs::remove_dir(folder) } else { Ok(()) }
}

/// Makes the parts in the folder of a checkpoint durable.
fn sync_parts(folder: &Path) -> io::Result<()> {
    let names = durable::names_in(folder)?.into_iter();
    let parts: Vec<_> = names.filter(|(name, _)| is_part(name)).map(|(_, path)| path).collect();
    durable::sync_files(folder, &parts)
}

/// Whether the name is one of a checkpoint's files: `t<task>-a<attempt>.state`, or the metadata.
fn is_part(name: &str) -> bool {
    let numbers = name.strip_suffix(".state").and_then(|name| name.split_once('-'));
    let is_state = numbers.is_some_and(|(task, attempt)| {
        let is_number = |text: Option<&str>| text.is_some_and(|text| text.parse::<u64>().is_ok());
        is_number(task.strip_prefix('t')) && is_number(attempt.strip_prefix('a'))
    });
    is_state || name == METADATA
}

/// The key of a file of one subtask.
fn key_of(name: &str) -> Option<StoreKey> {
    let (kind, place) = name.split_once("-v")?;
    let (vertex, subtask) = place.split_once('-')?;
    let vertex = VertexId::new(vertex.parse().ok()?);
    let subtask = SubtaskIndex::new(subtask.parse().ok()?);
    match kind {
        "reserved" => Some(StoreKey::Reservation { vertex, subtask }),
        "progress" => Some(StoreKey::Progress { vertex, subtask }),
        _ => None,
    }
}

fn failed(path: &Path, error: &io::Error) -> StoreError {
    StoreError(format!("{}: {error}", path.display()))
}

const METADATA: &str = "metadata";
const LOCK: &str = ".lock";
const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{AttemptId, TaskId};

    fn keys(checkpoint: u64) -> (StoreKey, StoreKey) {
        let checkpoint = CheckpointId::new(checkpoint);
        let (attempt, task) = (AttemptId::new(1), TaskId::new(0));
        (StoreKey::State { checkpoint, attempt, task }, StoreKey::Metadata(checkpoint))
    }

    #[test]
    fn a_checkpoint_without_metadata_is_none_and_is_cleaned_away() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path().join("new")).unwrap();
        let (state, metadata) = keys(3);
        store.put(state, b"state").unwrap();
        assert_eq!(store.list(), Ok(vec![]));
        store.put(metadata, b"metadata").unwrap();
        let (incomplete, _) = keys(4);
        store.put(incomplete, b"state").unwrap();
        drop(store);
        let store = FileStore::open(folder.path().join("new")).unwrap();
        let precious = folder.path().join("new/chk-5/precious");
        fs::create_dir(precious.parent().unwrap()).unwrap();
        fs::write(&precious, "mine").unwrap();
        assert_eq!(store.get(incomplete), Ok(Some(b"state".to_vec())), "nothing is decided yet");
        store.sweep().unwrap();
        assert_eq!(store.list(), Ok(vec![metadata]));
        assert_eq!(store.get(state), Ok(Some(b"state".to_vec())));
        assert_eq!(store.get(incomplete), Ok(None));
        assert!(!folder.path().join("new/chk-4").exists());
        assert!(precious.is_file(), "what is not ours stays");
        store.discard(CheckpointId::new(3)).unwrap();
        store.discard(CheckpointId::new(3)).unwrap();
        assert_eq!(store.list(), Ok(vec![]));
    }

    #[test]
    fn parts_of_subtasks_are_listed_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        let (vertex, subtask) = (VertexId::new(2), SubtaskIndex::new(11));
        let reservation = StoreKey::Reservation { vertex, subtask };
        let progress = StoreKey::Progress { vertex, subtask };
        store.put(progress, b"x").unwrap();
        store.put(reservation, b"x").unwrap();
        store.put(StoreKey::Attempt, b"y").unwrap();
        assert_eq!(store.list(), Ok(vec![reservation, progress]));
        store.remove(reservation).unwrap();
        assert_eq!(store.list(), Ok(vec![progress]));
    }

    #[test]
    fn what_is_appended_comes_behind_what_is_there_and_a_put_replaces_it_all() {
        let folder = tempfile::tempdir().unwrap();
        let store = FileStore::open(folder.path()).unwrap();
        let key = StoreKey::Progress { vertex: VertexId::new(0), subtask: SubtaskIndex::new(0) };
        assert!(store.append(key, b"lost").is_err(), "there is nothing to be behind");
        store.put(key, b"one").unwrap();
        store.append(key, b" two").unwrap();
        assert_eq!(store.get(key), Ok(Some(b"one two".to_vec())));
        store.put(key, b"three").unwrap();
        assert_eq!(store.get(key), Ok(Some(b"three".to_vec())));
    }

    #[test]
    fn two_runs_do_not_share_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        let first = FileStore::open(folder.path()).unwrap();
        let error = FileStore::open(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("another run uses these checkpoints"), "{error}");
        drop(first);
        assert!(FileStore::open(folder.path()).is_ok());
    }

    #[test]
    fn a_path_to_a_checkpoint_names_the_store_and_the_id() {
        let of = |path: &str| split_checkpoint_path(Path::new(path));
        assert_eq!(of("out/chk-7"), Some((PathBuf::from("out"), CheckpointId::new(7))));
        assert_eq!(of("chk-7"), Some((PathBuf::from("."), CheckpointId::new(7))));
        assert_eq!(of("out/reserved-v0-0"), None);
    }
}
