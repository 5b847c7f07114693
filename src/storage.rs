//! The durable store's contract, as data: what tasks and coordinator ask for and what they hear.
//! It does not know where the bytes go.
//!
//! A put is atomic and durable when its reply is [`StoreOutcome::Stored`]: after a crash the value
//! is there as a whole. [`StoreOutcome::Failed`] means that it is not there and never will be.
//! [`StoreOutcome::Unknown`] means neither: nothing may be deleted and nothing may be promised on
//! it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{AttemptId, CheckpointId, SubtaskIndex, TaskId, VertexId};
use crate::message::Assignment;
use crate::state::codec;
use crate::state::snapshot::{SourceState, TaskSnapshot};

/// The name of a stored value. The same name is never written with two different meanings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum StoreKey {
    /// A task's part of a checkpoint, as one attempt took it.
    State {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The attempt.
        attempt: AttemptId,
        /// The task.
        task: TaskId,
    },
    /// A complete checkpoint: its presence is what makes the checkpoint complete.
    Metadata(CheckpointId),
    /// How far a source subtask has come without checkpoints: handed out records under
    /// at-most-once, had them acknowledged in full under acknowledgements.
    Reservation {
        /// The source's vertex.
        vertex: VertexId,
        /// The source's subtask.
        subtask: SubtaskIndex,
    },
    /// All of a subtask under transactional updates: the last of its writes.
    Progress {
        /// The vertex.
        vertex: VertexId,
        /// The subtask.
        subtask: SubtaskIndex,
    },
    /// The highest attempt that was ever started.
    Attempt,
}

impl fmt::Display for StoreKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State { checkpoint, attempt, task } => write!(f, "{checkpoint}/{task}-{attempt}"),
            Self::Metadata(checkpoint) => write!(f, "{checkpoint}/metadata"),
            Self::Reservation { vertex, subtask } => write!(f, "reserved-{vertex}-{subtask}"),
            Self::Progress { vertex, subtask } => write!(f, "progress-{vertex}-{subtask}"),
            Self::Attempt => f.write_str("attempt"),
        }
    }
}

/// Something to do in the store.
#[derive(Clone, Debug)]
pub enum StoreRequest {
    /// Write `value` under `key`, replacing what is there. Answered by a [`StoreReply`].
    Put {
        /// The name.
        key: StoreKey,
        /// What to write.
        value: StoreValue,
    },
    /// Remove a checkpoint with all its parts. Best effort, not answered.
    Discard(CheckpointId),
}

/// A value to write. Encoding a snapshot is left to whoever writes it, off the path of the records.
#[derive(Clone, Debug)]
pub enum StoreValue {
    /// A task's part of a checkpoint.
    State(Box<TaskSnapshot>),
    /// A complete checkpoint.
    Metadata(CheckpointMetadata),
    /// A source's positions: reserved ones, or acknowledged ones.
    Reservation(SourceState),
    /// A task's state, positions and productions.
    Progress(Box<TaskSnapshot>),
    /// An attempt.
    Attempt(AttemptId),
}

impl StoreValue {
    /// The bytes to write: the value in its envelope (magic, kind, version, length, checksum).
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::State(snapshot) | Self::Progress(snapshot) => {
                codec::seal(codec::Kind::State, &snapshot.to_state())
            }
            Self::Metadata(metadata) => codec::seal(codec::Kind::Metadata, metadata),
            Self::Reservation(state) => codec::seal(codec::Kind::Reservation, state),
            Self::Attempt(attempt) => codec::seal(codec::Kind::Attempt, attempt),
        }
    }
}

/// What became of a put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreReply {
    /// The name that was to be written.
    pub key: StoreKey,
    /// How it ended.
    pub outcome: StoreOutcome,
}

/// How a put ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// Durable.
    Stored(StateHandle),
    /// Not there, and never will be; the text says why.
    Failed(String),
    /// There or not: nobody knows; the text says why.
    Unknown(String),
}

/// Where a stored value lies and how to tell that it is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateHandle {
    /// Its name.
    pub key: StoreKey,
    /// Its length in bytes, envelope included.
    pub bytes: u64,
    /// The CRC-32 of all those bytes.
    pub checksum: u32,
}

impl StateHandle {
    /// The handle of `bytes` stored under `key`.
    pub fn of(key: StoreKey, bytes: &[u8]) -> Self {
        Self { key, bytes: bytes.len() as u64, checksum: crc32fast::hash(bytes) }
    }

    /// Whether `bytes` are those that were stored.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        self.bytes == bytes.len() as u64 && self.checksum == crc32fast::hash(bytes)
    }
}

/// A complete checkpoint: what a restart needs to find everything else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointMetadata {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The attempt that took it.
    pub attempt: AttemptId,
    /// The name of the job, so that another job does not take it for its own.
    pub job: String,
    /// The parts, in task order.
    pub tasks: Vec<StateHandle>,
    /// What the coordinator has of the splits that it assigns, by source in the order of the plan.
    pub pools: Vec<SplitPool>,
    /// The checkpoint covers the end of all input: a run from it has nothing left to do.
    pub finished: bool,
}

/// The splits of one source that no reader had at a checkpoint (rule 80).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitPool {
    /// How many splits were found: those that are not here are the readers'.
    pub found: u32,
    /// No more will be found.
    pub is_complete: bool,
    /// Those that are to be assigned, the first one found first.
    pub unassigned: Vec<Assignment>,
}
