//! The durable store's contract, as data: what tasks and coordinator ask for and what they hear.
//! It does not know where the bytes go.
//!
//! A put is atomic and durable when its reply is [`StoreOutcome::Stored`]: after a crash the value
//! is there as a whole. [`StoreOutcome::Failed`] means that it is not there and never will be.
//! [`StoreOutcome::Unknown`] means neither: nothing may be deleted and nothing may be promised on
//! it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::graph::JobShape;
use crate::id::{AttemptId, CheckpointId, SubtaskIndex, TaskId, VertexId};
use crate::message::Assignment;
use crate::state::codec::{self, DecodeError, Format};
use crate::state::snapshot::{Extent, SourceState, TaskSnapshot, TaskState};

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

impl StoreKey {
    /// The checkpoint that is complete because something lies under this name.
    pub const fn complete_checkpoint(self) -> Option<CheckpointId> {
        match self {
            Self::Metadata(checkpoint) => Some(checkpoint),
            Self::State { .. }
            | Self::Reservation { .. }
            | Self::Progress { .. }
            | Self::Attempt => None,
        }
    }
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
    Metadata(Box<CheckpointMetadata>),
    /// A source's positions: reserved ones, or acknowledged ones.
    Reservation(SourceState),
    /// A task's state, positions and productions. Changes do not replace what is there but are put
    /// behind it.
    Progress(Box<TaskSnapshot>, Extent),
    /// An attempt.
    Attempt(AttemptId),
}

impl StoreValue {
    /// The bytes to write: the value in its envelope (magic, kind, version, length, checksum).
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::State(snapshot) | Self::Progress(snapshot, Extent::Whole) => {
                codec::seal(codec::Kind::State, &snapshot.to_state(Format::Binary))
            }
            Self::Progress(snapshot, Extent::Changes) => {
                let sealed = codec::seal(codec::Kind::Changes, &snapshot.to_state(Format::Binary));
                [&frame(sealed.len() as u64)[..], &sealed].concat()
            }
            Self::Metadata(metadata) => codec::seal(codec::Kind::Metadata, metadata),
            Self::Reservation(state) => codec::seal(codec::Kind::Reservation, state),
            Self::Attempt(attempt) => codec::seal(codec::Kind::Attempt, attempt),
        }
    }
}

/// What lies under the key of a task's progress: its last whole write, and the changes since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressLog {
    /// The whole write.
    pub base: TaskState,
    /// The writes after it, in order, their operators' state as changes.
    pub changes: Vec<TaskState>,
}

impl ProgressLog {
    /// Reads a log. A last write that was cut short was never confirmed, and is left out.
    ///
    /// # Errors
    /// If anything else is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (first, mut rest) = codec::split_first(bytes);
        let base: TaskState = codec::open(codec::Kind::State, first)?;
        let mut log = Self { base, changes: Vec::new() };
        while let Some([next, behind]) = split_frame(rest)? {
            let change: TaskState = codec::open(codec::Kind::Changes, next)?;
            let (last, found) = (log.last().checkpoint, change.checkpoint);
            if found != last.next() {
                return Err(DecodeError::Gap { last, found });
            }
            log.changes.push(change);
            rest = behind;
        }
        Ok(log)
    }

    /// The last write.
    pub fn last(&self) -> &TaskState {
        self.changes.last().unwrap_or(&self.base)
    }
}

/// What stands before changes: their length and its checksum, so that changes that were cut short
/// are told from changes whose length is wrong.
fn frame(length: u64) -> [u8; FRAME_BYTES] {
    let mut frame = [0; FRAME_BYTES];
    let (number, checksum) = frame.split_at_mut(8);
    number.copy_from_slice(&length.to_le_bytes());
    checksum.copy_from_slice(&crc32fast::hash(number).to_le_bytes());
    frame
}

/// The first changes of `bytes`, and what lies behind; nothing if none are there as a whole.
fn split_frame(bytes: &[u8]) -> Result<Option<[&[u8]; 2]>, DecodeError> {
    let Some((found, rest)) = bytes.split_first_chunk::<FRAME_BYTES>() else { return Ok(None) };
    let length = found.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
    if *found != frame(length) {
        return Err(DecodeError::Checksum);
    }
    let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
    Ok(split.map(<[&[u8]; 2]>::from))
}

const FRAME_BYTES: usize = 12;

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
    /// How the job was laid out.
    pub shape: JobShape,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::snapshot::{InFlight, OperatorSnapshot};
    use crate::time::EventTime;

    /// A write whose state is its number.
    fn write(number: u64, extent: Extent) -> Vec<u8> {
        let operator = OperatorSnapshot {
            uid: "op".into(),
            keyed: None,
            timers: None,
            processing_timers: None,
            watermark: Some(EventTime::from_millis(number as i64)),
            lists: Vec::new(),
        };
        let snapshot = TaskSnapshot {
            checkpoint: CheckpointId::new(number),
            task: TaskId::new(0),
            finished: false,
            operators: vec![operator],
            source: None,
            transactions: Vec::new(),
            log: Vec::new(),
            shown: Vec::new(),
            in_flight: InFlight::default(),
            numbers: None,
        };
        StoreValue::Progress(Box::new(snapshot), extent).encode()
    }

    fn log(changes: &[u64]) -> Vec<u8> {
        let changes = changes.iter().flat_map(|number| write(*number, Extent::Changes));
        write(4, Extent::Whole).into_iter().chain(changes).collect()
    }

    #[test]
    fn a_last_write_that_was_cut_short_is_left_out_wherever_it_was_cut() {
        let (shorter, whole) = (log(&[5]), log(&[5, 6]));
        for length in shorter.len()..whole.len() {
            let read = ProgressLog::read(&whole[..length]).unwrap();
            assert_eq!((read.last().checkpoint.get(), read.changes.len()), (5, 1), "at {length}");
        }
        let read = ProgressLog::read(&whole).unwrap();
        assert_eq!((read.base.checkpoint.get(), read.last().checkpoint.get()), (4, 6));
    }

    #[test]
    fn anything_else_that_is_wrong_with_a_log_is_said() {
        let whole = log(&[5, 6]);
        for place in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[place] ^= 0x10;
            assert!(ProgressLog::read(&bytes).is_err(), "byte {place} was changed");
        }
        let (last, found) = (CheckpointId::new(5), CheckpointId::new(7));
        assert_eq!(ProgressLog::read(&log(&[5, 7])), Err(DecodeError::Gap { last, found }));
        let base = write(4, Extent::Whole);
        let cut = ProgressLog::read(&base[..base.len() - 1]);
        assert!(matches!(cut, Err(DecodeError::Truncated { .. })), "nothing replaces it in part");
    }
}
