//! What can be seen of a run from outside: the words in which a driver records it and in which
//! judges read it. It knows no machine.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{AttemptId, ChannelId, CheckpointId, SplitId, TaskId, TransactionId, VertexId};
use crate::message::AbortReason;
use crate::time::{EventTime, Instant};

/// A source record: which of the job's sources, and its position in that source's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RecordId {
    /// The source's place among the sources of the job, from 0.
    pub source: u32,
    /// The record's place in the source's input, from 0.
    pub offset: u64,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} of source {}", self.offset, self.source)
    }
}

/// The identity of a record anywhere in a graph (ORACLES C10): the source record that gave rise to
/// it and the path it took, as a hash of the emission indices; without a source record, what a
/// timer fired, by operator and content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The source record.
    pub record: Option<RecordId>,
    /// The path.
    pub path: u64,
}

/// An event and when it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Traced {
    /// When.
    pub at: Instant,
    /// What.
    pub event: TraceEvent,
}

/// What a channel carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Carried {
    /// So many records.
    Records(u32),
    /// A watermark.
    Watermark(EventTime),
    /// The channel is idle.
    Idle,
    /// A barrier.
    Barrier(CheckpointId),
    /// What a writer has prepared for this checkpoint.
    Committables(CheckpointId),
    /// A cancel marker.
    Cancel(CheckpointId),
    /// The end of data.
    EndOfData,
    /// The end of everything.
    EndOfPartition,
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Records(1) => f.pad("1 record"),
            Self::Records(records) => write!(f, "{records} records"),
            Self::Watermark(time) => write!(f, "watermark {time}"),
            Self::Idle => f.pad("that it is idle"),
            Self::Barrier(checkpoint) => write!(f, "the barrier of {checkpoint}"),
            Self::Committables(checkpoint) => write!(f, "what is prepared for {checkpoint}"),
            Self::Cancel(checkpoint) => write!(f, "the cancel marker of {checkpoint}"),
            Self::EndOfData => f.pad("the end of data"),
            Self::EndOfPartition => f.pad("the end"),
        }
    }
}

/// Some records in their order, as a number of them and a hash that two parts can be joined by: so
/// two sequences can be compared without their records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Content {
    /// How many records.
    pub records: u64,
    /// The hashes of the records as digits of one number, modulo 2^64.
    pub hash: u64,
}

impl Content {
    /// One record with this hash.
    pub const fn of(hash: u64) -> Self {
        Self { records: 1, hash }
    }

    /// These records, then `later`.
    #[must_use]
    pub const fn then(self, later: Self) -> Self {
        let hash = self.hash.wrapping_mul(weight(later.records)).wrapping_add(later.hash);
        Self { records: self.records + later.records, hash }
    }

    /// What is left of these records without `earlier`, which they begin with.
    #[must_use]
    pub const fn without(self, earlier: Self) -> Self {
        let records = self.records - earlier.records;
        let hash = self.hash.wrapping_sub(earlier.hash.wrapping_mul(weight(records)));
        Self { records, hash }
    }
}

/// The weight of a digit with so many behind it.
const fn weight(digits: u64) -> u64 {
    // Odd, so that no power of it is 0 modulo 2^64.
    0x9e37_79b9_7f4a_7c15_u64.wrapping_pow(digits as u32)
}

/// The part of the protocol that a task, or the coordinator, is in when a fault hits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Window {
    /// A record was taken from its channel and not yet processed.
    Receive,
    /// State was updated and nothing emitted.
    Update,
    /// Some of the outputs of a record were emitted.
    Emit,
    /// Some barriers have come and others are awaited.
    Aligning,
    /// A snapshot was taken and is not durable yet.
    Snapshotting,
    /// A transaction is prepared and its checkpoint not complete.
    PreCommitted,
    /// A commit was asked for and is not confirmed.
    Committing,
    /// State is being restored, or restored transactions are being committed.
    Restoring,
    /// Positions are being reserved (at-most-once).
    Reserving,
    /// The data has ended and the last checkpoint is awaited.
    Ending,
    /// None of these.
    Idle,
    /// The coordinator awaits acknowledgements.
    Collecting,
    /// The coordinator awaits the metadata's reply.
    Completing,
    /// The coordinator tells tasks of a completion.
    Notifying,
    /// The coordinator is starting or restarting the job.
    Recovering,
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TraceEvent {
    /// An attempt began, from a checkpoint or from the start.
    Deployed {
        /// The attempt.
        attempt: AttemptId,
        /// The checkpoint.
        restored: Option<CheckpointId>,
    },
    /// A task began; the digest is that of its state as it holds it now.
    Started {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptId,
        /// The checkpoint it was restored from, with the digest.
        restored: Option<(CheckpointId, u64)>,
    },
    /// A task died.
    Crashed {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptId,
        /// Where in the protocol.
        window: Window,
    },
    /// The coordinator died.
    CoordinatorCrashed {
        /// Where in the protocol.
        window: Window,
    },
    /// A new coordinator has read the store.
    CoordinatorStarted,
    /// The job was stopped as a whole, and begins again in another layout: tasks and channels are
    /// numbered anew from here on.
    LaidOut {
        /// The checkpoint that it goes on from, and the one that the state of it was dealt out to,
        /// under the attempt that took the first one; none if it begins at the start.
        dealt: Option<(CheckpointId, CheckpointId, AttemptId)>,
        /// How many tasks there are now.
        tasks: u32,
    },
    /// Every task of the attempt was told to stop.
    Cancelled {
        /// The attempt.
        attempt: AttemptId,
    },
    /// An element was put on a channel.
    Sent {
        /// The channel.
        channel: ChannelId,
        /// The attempt.
        attempt: AttemptId,
        /// Its place on the channel in this attempt.
        sequence: u64,
        /// What.
        what: Carried,
    },
    /// A task has emitted records on a channel, which may still wait for room; noted where
    /// snapshots hold records in flight.
    Emitted {
        /// The channel.
        channel: ChannelId,
        /// The attempt.
        attempt: AttemptId,
        /// Which records.
        content: Content,
    },
    /// A task has taken a barrier ahead of what was sent on its channel before it.
    Overtook {
        /// The channel.
        channel: ChannelId,
        /// The attempt.
        attempt: AttemptId,
        /// The barrier's place on the channel.
        sequence: u64,
        /// The barrier's checkpoint.
        checkpoint: CheckpointId,
    },
    /// A task has asked the store to keep records in flight as part of its snapshot.
    InFlight {
        /// The channel.
        channel: ChannelId,
        /// The attempt.
        attempt: AttemptId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// They waited for room at the sender; otherwise they had left it.
        is_output: bool,
        /// Which records.
        content: Content,
    },
    /// A task has taken an element from a channel and processed it.
    Received {
        /// The channel.
        channel: ChannelId,
        /// The attempt of the receiver.
        attempt: AttemptId,
        /// Its place on the channel in the attempt that sent it.
        sequence: u64,
        /// What.
        what: Carried,
    },
    /// A task has taken its snapshot; the digest is that of its state at this moment.
    Snapshot {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptId,
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The digest.
        digest: u64,
    },
    /// A task's part of a checkpoint is durable.
    StateStored {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptId,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A task has begun a write of its progress.
    ProgressCut {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptId,
        /// The number of the write.
        write: CheckpointId,
        /// The digest of the state in it.
        digest: u64,
    },
    /// A task's write of its progress is durable.
    ProgressStored {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptId,
        /// The number of the write.
        write: CheckpointId,
        /// The digest of the state in it.
        digest: u64,
        /// How many records the task had produced by then, over all channels and attempts.
        produced: u64,
    },
    /// A task goes on from the last write of its progress.
    Resumed {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptId,
        /// The write, and the digest of the state that came of it.
        restored: Option<(CheckpointId, u64)>,
        /// How many of the records that it had produced it does not send again.
        sent: u64,
    },
    /// A task has acknowledged a checkpoint.
    Acknowledged {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptId,
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A checkpoint began.
    Triggered {
        /// The checkpoint.
        checkpoint: CheckpointId,
    },
    /// A checkpoint is complete.
    Completed {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// The attempt that took it.
        attempt: AttemptId,
    },
    /// A checkpoint was given up.
    Aborted {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// Why.
        reason: AbortReason,
    },
    /// A sink has written rows that are visible, or will be when the transaction is committed.
    Written {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptId,
        /// The transaction.
        transaction: Option<TransactionId>,
        /// How many rows.
        rows: u32,
    },
    /// A transaction can be committed from now on, by whomever.
    Prepared {
        /// The transaction.
        transaction: TransactionId,
        /// The checkpoint that it belongs to.
        checkpoint: CheckpointId,
    },
    /// A transaction has become visible, or was visible and was committed again.
    Committed {
        /// The transaction.
        transaction: TransactionId,
        /// The attempt that asked.
        attempt: AttemptId,
        /// It was visible before.
        again: bool,
    },
    /// The external system has rolled a transaction back by itself, because nobody committed it in
    /// time.
    TimedOut {
        /// The transaction.
        transaction: TransactionId,
    },
    /// A transaction was rolled back.
    RolledBack {
        /// The transaction.
        transaction: TransactionId,
        /// The attempt that asked.
        attempt: AttemptId,
    },
    /// A write-ahead sink has put rows into its task's state.
    Logged {
        /// The task.
        task: TaskId,
        /// The portion that they are part of.
        portion: TransactionId,
        /// How many rows.
        rows: u32,
    },
    /// A portion of logged rows has become visible, or was sent again.
    Delivered {
        /// The portion.
        portion: TransactionId,
        /// The attempt that sent it.
        attempt: AttemptId,
        /// It was visible before.
        again: bool,
    },
    /// A portion of logged rows is marked as sent.
    Marked {
        /// The portion.
        portion: TransactionId,
        /// The attempt that marked it.
        attempt: AttemptId,
    },
    /// A source has reserved positions.
    Reserved {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptId,
    },
    /// A log has dropped its oldest records.
    Truncated {
        /// The task that reads it.
        task: TaskId,
        /// The split.
        split: SplitId,
        /// The offset of the first record that is left.
        first: u64,
    },
    /// A task has reported that a record is gone which it was to read; it fails or goes on without.
    LossReported {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptId,
        /// The split.
        split: SplitId,
        /// The offset of the record.
        wanted: u64,
        /// The offset of the first record that is left.
        first: u64,
    },
    /// A fault other than a crash: a lost, late or doubled message, or a store that does not do
    /// what it was asked to.
    Disturbed {
        /// The fault.
        fault: Disturbance,
        /// The task it concerns, if any.
        task: Option<TaskId>,
    },
    /// The job is done.
    Finished,
    /// The job has failed for good.
    Failed,
    /// The coordinator gives a split to a task that has asked for one.
    Assigned {
        /// The task.
        task: TaskId,
        /// The attempt.
        attempt: AttemptId,
        /// The source.
        source: VertexId,
        /// The split.
        split: SplitId,
    },
}

/// A fault that is not a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Disturbance {
    /// A notice, or an acknowledgement between tasks, was lost.
    NoticeLost,
    /// A notice, or an acknowledgement between tasks, came long after it was sent.
    NoticeLate,
    /// A notice, or an acknowledgement between tasks, came twice.
    NoticeDoubled,
    /// The store took long.
    StoreSlow,
    /// The store refused.
    StoreFailed,
    /// The store did not say whether it had written.
    StoreUnknown,
    /// A write was cut in the middle by its writer's death.
    StoreTorn,
    /// Rows that were not flushed were lost with their worker.
    RowsLost,
    /// A task that was declared dead goes on.
    Zombie,
    /// The job was stopped and began again with another parallelism.
    Rescaled,
    /// An external system refused a commit.
    CommitRefused,
    /// An external system did not say whether it had committed.
    CommitUnknown,
    /// A commit, or an abort, came long after it was asked for, be it after a newer attempt began.
    CommitLate,
}
