//! What the coordinator is told at its start and what it asks its driver to do.

use std::time::Duration;

use super::recovery::{FailureCause, JobError};
use crate::graph::JobShape;
use crate::id::{AttemptId, CheckpointId, TaskId, VertexId};
use crate::message::{AbortReason, Loss, ToTask};
use crate::storage::{CheckpointMetadata, StoreRequest};
use crate::time::Instant;

/// The tasks of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many there are: their ids are `0..tasks`.
    pub tasks: u32,
    /// Those that get the trigger of a checkpoint.
    pub sources: Vec<TaskId>,
    /// The sources whose splits are assigned to readers that ask.
    pub assigned: Vec<Readers>,
    /// How the job is laid out, for whoever restores it in another layout.
    pub shape: JobShape,
}

/// Who reads a source whose splits are assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readers {
    /// The source.
    pub source: VertexId,
    /// Its tasks: at least one.
    pub tasks: Vec<TaskId>,
}

impl Plan {
    /// Why this plan's job can not begin at a checkpoint, if it can not.
    pub(super) fn refuse(&self, job: &str, metadata: &CheckpointMetadata) -> Option<String> {
        let CheckpointMetadata { checkpoint, job: of, pools, .. } = metadata;
        let (stored, assigned) = (pools.len(), self.assigned.len());
        if of != job {
            Some(format!("{checkpoint} belongs to the job '{of}'"))
        } else if stored != assigned {
            Some(format!(
                "{checkpoint} has {stored} sources whose splits are assigned, and the job has \
                 {assigned}: the graph has to be the same as before"
            ))
        } else {
            None
        }
    }
}

/// What an earlier coordinator of the job left in the store.
///
/// All of it must be durable by now, not just readable: an attempt that begins at a checkpoint
/// commits its transactions, so the checkpoint must not vanish in a later crash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The complete checkpoints, in any order.
    pub checkpoints: Vec<CheckpointMetadata>,
    /// The highest attempt that was ever started.
    pub attempt: Option<AttemptId>,
}

/// What the driver is to do, in the order in which it is asked.
#[derive(Clone, Debug)]
pub enum CoordinatorOutput {
    /// Deliver a message. Only ever for an attempt that was deployed and not cancelled.
    Send {
        /// The receiver.
        task: TaskId,
        /// The receiver's attempt.
        attempt: AttemptId,
        /// What to say.
        message: ToTask,
    },
    /// Pass a request to the durable store, and the reply of a put, exactly one, to
    /// [`handle_stored`](super::Coordinator::handle_stored).
    Store(StoreRequest),
    /// Create all tasks. The attempt's number is durable by now.
    Deploy {
        /// The attempt.
        attempt: AttemptId,
        /// Where it begins; `None` is the job's start. Without checkpoints the driver restores the
        /// sources' reservations itself.
        restore: Option<CheckpointMetadata>,
        /// The job stops where it begins: the tasks are to be told by
        /// [`Task::halt`](crate::task::Task::halt).
        halts: bool,
    },
    /// Search the source for splits behind the first `known` ones, and pass what is found, exactly
    /// once, to [`handle_found`](super::Coordinator::handle_found). A search that finds nothing is
    /// asked for again at once: the driver pauses.
    Search {
        /// The source.
        source: VertexId,
        /// How many splits are known.
        known: u32,
    },
    /// Stop every task of the attempt, then call
    /// [`handle_cancelled`](super::Coordinator::handle_cancelled).
    Cancel(AttemptId),
    /// Call [`handle_time`](super::Coordinator::handle_time) at this time. Replaces the one before;
    /// comes last, and only when it changed. A call that is too early or too many does no harm.
    WaitUntil(Instant),
    /// Nothing to do: for logs and counters.
    Note(CoordinatorNote),
    /// The job's work is done and committed. Nothing follows.
    Finished,
    /// The job has ended before its work was done. Nothing follows.
    Failed(JobError),
}

/// What people may want to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CoordinatorNote {
    /// A checkpoint has begun.
    CheckpointTriggered(CheckpointId),
    /// A checkpoint is complete and durable.
    CheckpointCompleted {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The time since its trigger.
        duration: Duration,
        /// It covers the end of all input.
        finished: bool,
    },
    /// A checkpoint will not complete.
    CheckpointAborted {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: AbortReason,
    },
    /// The number of an attempt could not be written, which counts as its failure.
    AttemptNotStored {
        /// The attempt, which never begins.
        attempt: AttemptId,
        /// What the store said.
        text: String,
    },
    /// A source goes on although records are gone.
    RecordsLost {
        /// The source's task.
        task: TaskId,
        /// What is lost.
        loss: Loss,
    },
    /// An attempt has failed and is being stopped.
    AttemptFailed {
        /// The attempt.
        attempt: AttemptId,
        /// Why.
        cause: FailureCause,
    },
    /// Another attempt follows after a pause.
    Restarting {
        /// The how-manieth restart since the last completed checkpoint.
        restart: u32,
        /// The pause.
        delay: Duration,
        /// Where the attempt begins; `None` is the job's start.
        from: Option<CheckpointId>,
    },
}

/// Counters over the life of this coordinator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoordinatorStats {
    /// Checkpoints that began. Each of them completes, aborts or is still in flight.
    pub checkpoints_triggered: u64,
    /// Checkpoints that completed.
    pub checkpoints_completed: u64,
    /// Checkpoints that were aborted.
    pub checkpoints_aborted: u64,
    /// Restarts.
    pub restarts: u64,
    /// Messages that were dropped because their attempt is over or their sender is unknown.
    pub messages_fenced: u64,
}
