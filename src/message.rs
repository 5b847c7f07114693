//! What the coordinator and the tasks say to each other. Every message travels with the attempt it
//! belongs to; a receiver of another attempt drops it.
//!
//! ```text
//! coordinator -- Trigger ------------> source tasks   (the barrier then travels on channels)
//!             -- Assign, NoMoreSplits -> source tasks that have asked (may overtake a trigger)
//!             <- Acknowledged/Declined every task
//!             -- Completed/Aborted/Finish -> every task   (may be lost, late or doubled: rule 58)
//!             <- Running, WantsSplit, EndOfData, Finished, Failed
//! task        -- Acknowledged ------> source task   (may be lost, late or doubled: rule 82)
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::element::Root;
use crate::id::{AttemptId, CheckpointId, OutletIndex, SplitId, TaskId};
use crate::storage::StateHandle;
use crate::time::Instant;

/// From the coordinator to one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToTask {
    /// To source tasks: take the snapshot and send the barrier.
    Trigger {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// When it was triggered.
        at: Instant,
        /// The job is to stop at it: nothing is read until it is aborted (rule 51). Its barrier
        /// overtakes nothing (rule 46).
        stops: bool,
    },
    /// To every task: the checkpoint is complete and durable. Newer completion covers all older.
    Completed(CheckpointId),
    /// To every task: the checkpoint is complete, and covers the end of all data or is the one that
    /// the job stops at: commit, and finish. Said again until the task has reported
    /// [`FromTask::Finished`].
    Finish(CheckpointId),
    /// To every task: the checkpoint will not complete. Best effort (rule 52).
    Aborted {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Every older checkpoint is over, this one or others: notices of theirs may have been
        /// lost, and a channel that waits for a barrier of one would wait for ever.
        oldest_in_flight: CheckpointId,
    },
    /// To a source task that has asked for one: read this split too. What is sent before a trigger
    /// comes before it.
    Assign(Assignment),
    /// To a source task that has asked for a split: there will not be another one.
    NoMoreSplits,
}

/// A split that nobody has read yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The split: splits are numbered as they are found.
    pub split: SplitId,
    /// The source's own cursor before its first record, in the checkpoint encoding.
    pub cursor: Vec<u8>,
}

/// What a search for splits has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found<S> {
    /// At least one, each with a cursor before its first record.
    Splits(Vec<S>),
    /// None now, perhaps later.
    Nothing,
    /// None ever again.
    End,
}

/// From one task to another, beside the channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToPeer {
    /// To a source task: a part of the tree of this read is done (rule 82).
    Acknowledged {
        /// The tree.
        root: Root,
        /// The edge that was done and those that came of it, folded by XOR.
        edges: u64,
    },
    /// To a sender: what came before this number on a channel is durable at the receiver.
    TakenIn {
        /// The channel, among the sender's outputs.
        outlet: OutletIndex,
        /// The number of the first record that may not be.
        next: u64,
    },
}

/// From a task to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FromTask {
    /// Restored, restored transactions committed, ready for records and triggers.
    Running,
    /// The task's part of the checkpoint is durable.
    Acknowledged {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Where the task's part is stored.
        state: StateHandle,
        /// The task had seen the end of all its data when it took this snapshot.
        finished: bool,
    },
    /// The task can not take its part; the checkpoint is to be aborted.
    Declined {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: AbortReason,
    },
    /// A source task has read all its splits and asks for another one.
    WantsSplit,
    /// The task has seen the end of its data and waits for a last checkpoint.
    EndOfData,
    /// The task has nothing left to do: its last checkpoint is complete and its output committed.
    Finished,
    /// The task goes on although records of its source are gone.
    Lost(Loss),
    /// The task is dead.
    Failed(TaskError),
}

/// Records that a source goes on without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The split.
    pub split: SplitId,
    /// The position of the first record that is gone and of the first one that is left; none if
    /// they are those of an earlier attempt, in the state that was restored.
    pub gap: Option<(u64, u64)>,
    /// How many of the split are lost in all.
    pub in_all: u64,
}

/// A message of a task, with its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskMessage {
    /// The sender.
    pub task: TaskId,
    /// The sender's attempt.
    pub attempt: AttemptId,
    /// What it says.
    pub body: FromTask,
}

/// Why a task died.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// It panicked, was killed, or an operator gave up. Recovery may help.
    #[error("{0}")]
    Crashed(String),
    /// The store or an external system refused. Recovery may help.
    #[error("{0}")]
    External(String),
    /// Its state could not be restored. Recovery from the same checkpoint will not help.
    #[error("{0}")]
    Restore(String),
    /// The input has lost records that were not read, or are to be read again. No restart brings
    /// them back, so the job fails and says what is missing.
    #[error(
        "records are lost: record {wanted} of {split} is gone, and the first one that is \
         left is {first}. Keep the input for longer than a checkpoint and a restart take; to go on \
         with what is left, start anew and not from a checkpoint"
    )]
    Lost {
        /// The split.
        split: SplitId,
        /// The position that was to be read.
        wanted: u64,
        /// The first position that is left.
        first: u64,
    },
    /// The input is wrong: reading it again will not help, so the job fails without a restart.
    #[error("{0}")]
    Input(String),
    /// Output that a complete checkpoint covers is gone for good, so the job fails without a
    /// restart (rules 67 and 68).
    #[error("{0}")]
    OutputLost(String),
}

impl TaskError {
    /// Whether another attempt may get past this error.
    pub const fn is_recoverable(&self) -> bool {
        match self {
            Self::Crashed(_) | Self::External(_) => true,
            Self::Restore(_) | Self::Lost { .. } | Self::Input(_) | Self::OutputLost(_) => false,
        }
    }
}

/// Why a checkpoint was aborted (rule 54). One that is due while it can not be triggered, because a
/// task is not running yet or the pause is too short, is put off and uses up no id (rules 39, 44).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum AbortReason {
    /// A newer barrier, or the completion of a newer checkpoint, took its place.
    Subsumed,
    /// Not all acknowledgements came in time.
    Expired,
    /// A task could not write its part.
    StoreFailed,
    /// The coordinator could not write the checkpoint's metadata (rule 50).
    FinalizeFailed,
    /// A task declined: it was not running yet or no longer.
    TaskNotReady,
    /// A task declined: an upstream task had cancelled the checkpoint.
    CancelledUpstream,
    /// The job left the running state (rule 53).
    Suspended,
}

impl AbortReason {
    /// Whether it counts against the number of tolerable failures (rule 55).
    pub const fn counts_as_failure(self) -> bool {
        match self {
            Self::Expired
            | Self::StoreFailed
            | Self::FinalizeFailed
            | Self::TaskNotReady
            | Self::CancelledUpstream => true,
            Self::Subsumed | Self::Suspended => false,
        }
    }
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Subsumed => "a newer checkpoint took its place",
            Self::Expired => "it took longer than its timeout",
            Self::StoreFailed => "a task could not write its state",
            Self::FinalizeFailed => "its metadata could not be written",
            Self::TaskNotReady => "a task was not ready",
            Self::CancelledUpstream => "a task upstream cancelled it",
            Self::Suspended => "the job left the running state",
        })
    }
}
