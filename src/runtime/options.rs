//! What a run is asked for and what it tells.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::coordinator::{CoordinatorNote, JobError};
use crate::job::Left;
use crate::runtime::control::Orders;
use crate::runtime::store::{CheckpointStore, MemoryStore, StoreError};
use crate::state::codec::Compression;
use crate::state::store::StateStore;

/// How to run a job.
pub struct RunOptions {
    /// How many threads run tasks, at most as many as an operator has subtasks; by default one for
    /// each core.
    pub workers: usize,
    /// Where checkpoints and reservations go.
    pub store: Arc<dyn CheckpointStore>,
    /// Where keyed state goes that lives outside of the tasks; needed if any does.
    pub state_store: Option<Arc<dyn StateStore>>,
    /// Where to begin.
    pub resume: Resume,
    /// How many records all sources together may read in a second.
    pub records_per_second: Option<u64>,
    /// Hears what happens, on the calling thread.
    pub observer: Box<dyn FnMut(RunEvent<'_>)>,
    /// Set it to stop the run; it can be resumed from its latest checkpoint.
    pub stop: Arc<AtomicBool>,
    /// If the run is to stop with a savepoint.
    pub stop_at: Option<StopAt>,
    /// What is said to the run by its [`JobHandle`](super::JobHandle).
    pub orders: Option<Orders>,
    /// What to do with restored state that no operator of the job claims.
    pub left: Left,
    /// Who encodes and writes snapshots.
    pub snapshots: Snapshots,
    /// Whether parts of checkpoints are compressed. Both kinds are read whatever it says.
    pub compression: Compression,
    /// When the run leaves its checkpoints behind.
    pub kept: Kept,
    /// Whose the checkpoint or savepoint is that [`Resume::From`] names. If nothing is said: the
    /// run's, if it lies in the run's own store, else the user's.
    pub claim: Option<Claim>,
}

/// When a run that has ended leaves its checkpoints behind (rule 111). A process that dies leaves
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Whatever its end is. The last checkpoint of a run that has done its work covers the end of
    /// the input.
    Always,
    /// When it was stopped by [`RunOptions::stop`] or failed.
    OnCancel,
    /// When it failed.
    OnFailure,
    /// Never.
    Never,
}

impl Kept {
    /// Whether they are left behind after such an end.
    pub fn after<T>(self, end: &Result<T, RunError>) -> bool {
        match (self, end) {
            (Self::Always, _) => true,
            (Self::Never, _) => false,
            (Self::OnCancel, end) => end.is_err(),
            (Self::OnFailure, end) => end.as_ref().is_err_and(|error| *error != RunError::Stopped),
        }
    }
}

/// Whose the checkpoint or savepoint is that a run begins at (rule 112).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The user's: the run copies it, and neither changes nor needs it.
    User,
    /// The run's: it is moved into the run's own store, where it goes as any other checkpoint does.
    Run,
}

/// Who encodes and writes a task's part of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshots {
    /// A thread of its own. The task shares its state with the snapshot, goes on, and copies what
    /// it writes to meanwhile.
    Async,
    /// The task itself: no record is handled before its part is stored. Nothing is copied, so that
    /// state needs its memory once.
    Sync,
}

/// Where a run stops with a savepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopAt {
    /// When all sources together have given so many records in this run, replayed ones not counted
    /// again, or at the end of input.
    pub records: u64,
    /// The folder of the savepoint, which is made.
    pub savepoint: PathBuf,
    /// The data ends there: all event-time timers fire. Nothing can go on from such a savepoint
    /// (rule 104).
    pub drains: bool,
}

impl RunOptions {
    /// One worker for each core, the latest checkpoint in `store`, and no limit.
    pub fn new(store: impl CheckpointStore + 'static) -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            store: Arc::new(store),
            state_store: None,
            resume: Resume::Latest,
            records_per_second: None,
            observer: Box::new(|_| {}),
            stop: Arc::default(),
            stop_at: None,
            orders: None,
            left: Left::Refused,
            snapshots: Snapshots::Async,
            compression: Compression::None,
            kept: Kept::Always,
            claim: None,
        }
    }
}

impl Default for RunOptions {
    /// Checkpoints in memory.
    fn default() -> Self {
        Self::new(MemoryStore::new())
    }
}

/// Where a run begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resume {
    /// At the latest checkpoint in the store, or behind the reserved positions; at the start of the
    /// input if there is none.
    Latest,
    /// At the checkpoint in this folder, `chk-<id>`, or at the savepoint in it. It becomes the only
    /// one in the run's own store: it is copied there if it lies elsewhere, and others are removed.
    From(PathBuf),
    /// At the start of the input. What is in the store is removed.
    Never,
}

/// Something that happened.
#[derive(Debug)]
pub enum RunEvent<'a> {
    /// The coordinator did something.
    Note(&'a CoordinatorNote),
    /// A moment has passed.
    Progress {
        /// As in [`RunReport`].
        records_in: u64,
        /// As in [`RunReport`].
        records_out: u64,
    },
    /// A task's part of a checkpoint, or what else it has to store, is not stored.
    NotStored(&'a str),
}

/// What came of a run that did its work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunReport {
    /// The records that sources gave in this run, replayed ones included.
    pub records_in: u64,
    /// The records that were handed to sinks in this run, replayed ones included.
    pub records_out: u64,
    /// The records that sources have gone on without, in this run and in those before that it goes
    /// on from (see [`OnLoss`](crate::config::OnLoss)).
    pub records_lost: u64,
    /// The checkpoints that were completed.
    pub checkpoints: CheckpointFigures,
    /// How often the job was restarted in the process.
    pub restarts: u64,
    /// The time from start to end.
    pub wall: Duration,
}

/// What the completed checkpoints of a run took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointFigures {
    /// How many there were.
    pub count: u64,
    /// From the trigger to the end, all together.
    pub duration: Duration,
    /// The longest.
    pub duration_max: Duration,
    /// The longest that a task took to cut its state, or under [`Snapshots::Sync`] to store it:
    /// for so long no record went through it. Checkpoints that did not complete are counted too.
    pub sync_max: Duration,
    /// The bytes of all tasks' parts, all together.
    pub bytes: u64,
}

impl CheckpointFigures {
    /// From the trigger to the end, on average.
    pub fn duration_mean(&self) -> Duration {
        let count = u32::try_from(self.count).unwrap_or(u32::MAX);
        self.duration.checked_div(count).unwrap_or_default()
    }
}

/// Why a run ended before its work was done, by blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// The input is wrong. What was committed before stays.
    #[error("{0}")]
    Input(String),
    /// The input does not hold records any more that the job still needs.
    #[error("{0}")]
    Lost(String),
    /// A checkpoint or savepoint is damaged, missing, or another job's.
    #[error("{0}")]
    Restore(String),
    /// The savepoint that was asked for can not be written.
    #[error("{0}")]
    Savepoint(String),
    /// Output that a checkpoint covers is gone from the external system.
    #[error("{0}")]
    OutputLost(String),
    /// The store can not be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Too many failures.
    #[error("{0}")]
    Failed(String),
    /// The stop flag was set.
    #[error("stopped")]
    Stopped,
}

impl From<JobError> for RunError {
    fn from(error: JobError) -> Self {
        match error {
            JobError::Input { text, .. } => Self::Input(text),
            JobError::Lost { .. } => Self::Lost(error.to_string()),
            JobError::Restore(text) => Self::Restore(text),
            JobError::OutputLost(text) => Self::OutputLost(text),
            JobError::RestartsExhausted { .. } | JobError::TooManyFailures { .. } => {
                Self::Failed(error.to_string())
            }
            JobError::Cancelled => Self::Stopped,
        }
    }
}
