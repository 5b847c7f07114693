//! The checkpoints in flight: each first collects parts, then its metadata is on its way to the
//! store. It does not know when to give up, nor what follows: that is the coordinator's.

use std::collections::BTreeMap;

use crate::graph::JobShape;
use crate::id::{AttemptId, CheckpointId, TaskId};
use crate::storage::{CheckpointMetadata, SplitPool, StateHandle, StoreKey};
use crate::time::Instant;

/// The checkpoints that are neither complete nor aborted.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight {
    /// Their metadata has not been written.
    pub(super) collecting: BTreeMap<CheckpointId, PendingCheckpoint>,
    /// Every part is durable; whether the checkpoint completes is the store's word alone. It can
    /// neither expire nor be aborted, for its metadata may be durable already. One at a time, so
    /// that checkpoints complete in the order of their ids.
    pub(super) finalizing: Option<Finalization>,
}

impl InFlight {
    pub(super) fn checkpoints(&self) -> impl Iterator<Item = CheckpointId> {
        let finalizing = self.finalizing.iter().map(|of| of.metadata.checkpoint);
        self.collecting.keys().copied().chain(finalizing)
    }

    /// Whether the job is to stop at one.
    pub(super) fn any_stops(&self) -> bool {
        self.collecting.values().any(|pending| pending.stops)
            || self.finalizing.as_ref().is_some_and(|of| of.stops)
    }

    /// The oldest one that no part is missing of.
    pub(super) fn whole(&self) -> Option<&PendingCheckpoint> {
        self.collecting.values().find(|pending| pending.is_whole())
    }

    /// The oldest one that lacks parts and has taken too long.
    pub(super) fn expired(&self, now: Instant) -> Option<CheckpointId> {
        let expired = self.lacking().find(|pending| pending.expires_at <= now)?;
        Some(expired.checkpoint)
    }

    /// When something is to be done about one, if no message comes before.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let retry = self.finalizing.as_ref().and_then(|finalization| match finalization.put {
            MetadataPut::AwaitingRetry { at } => Some(at),
            MetadataPut::First | MetadataPut::Again => None,
        });
        self.lacking().map(|pending| pending.expires_at).chain(retry).min()
    }

    fn lacking(&self) -> impl Iterator<Item = &PendingCheckpoint> {
        self.collecting.values().filter(|pending| !pending.is_whole())
    }
}

/// A checkpoint that collects its parts.
#[derive(Clone, Debug)]
pub(super) struct PendingCheckpoint {
    pub(super) checkpoint: CheckpointId,
    attempt: AttemptId,
    pub(super) triggered_at: Instant,
    pub(super) expires_at: Instant,
    /// By task. The tasks to wait for are fixed at the trigger: no failure shortens the list.
    parts: Vec<Option<Part>>,
    /// The coordinator's own part.
    pools: Vec<SplitPool>,
    /// The job is to stop at it.
    pub(super) stops: bool,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    state: StateHandle,
    finished: bool,
}

/// What an acknowledgement came to (rule 47).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckResult {
    /// The part was missing and is there now.
    Accepted,
    /// The part was there already; the first one stays.
    Duplicate,
    /// The handle names another checkpoint's, attempt's or task's state.
    WrongPart,
}

impl PendingCheckpoint {
    pub(super) fn new(
        checkpoint: CheckpointId,
        attempt: AttemptId,
        tasks: u32,
        pools: Vec<SplitPool>,
        triggered_at: Instant,
        expires_at: Instant,
    ) -> Self {
        let parts = vec![None; tasks as usize];
        Self { checkpoint, attempt, triggered_at, expires_at, parts, pools, stops: false }
    }

    /// Whether the part of `task` is there.
    pub(super) fn has_part(&self, task: TaskId) -> bool {
        self.parts[task.index()].is_some()
    }

    /// Takes in the part of `task`, which is one of the plan's tasks.
    pub(super) fn acknowledge(
        &mut self,
        task: TaskId,
        state: StateHandle,
        finished: bool,
    ) -> AckResult {
        let Self { checkpoint, attempt, .. } = *self;
        if state.key != (StoreKey::State { checkpoint, attempt, task }) {
            return AckResult::WrongPart;
        }
        let part = &mut self.parts[task.index()];
        if part.is_some() {
            return AckResult::Duplicate;
        }
        *part = Some(Part { state, finished });
        AckResult::Accepted
    }

    /// Whether no part is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.parts.iter().all(Option::is_some)
    }

    /// The metadata of the checkpoint, if no part is missing. It is final if every task had seen
    /// the end of its data.
    pub(super) fn metadata(&self, job: &str, shape: &JobShape) -> Option<CheckpointMetadata> {
        let parts: Vec<Part> = self.parts.iter().copied().collect::<Option<_>>()?;
        Some(CheckpointMetadata {
            checkpoint: self.checkpoint,
            attempt: self.attempt,
            job: job.to_owned(),
            shape: shape.clone(),
            tasks: parts.iter().map(|part| part.state).collect(),
            pools: self.pools.clone(),
            finished: parts.iter().all(|part| part.finished),
        })
    }
}

/// A checkpoint with all its parts, whose metadata is being written.
#[derive(Clone, Debug)]
pub(super) struct Finalization {
    pub(super) metadata: CheckpointMetadata,
    pub(super) triggered_at: Instant,
    /// The job is to stop at it.
    pub(super) stops: bool,
    pub(super) put: MetadataPut,
}

/// How the writing of the metadata stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetadataPut {
    /// The first put is out: if it fails, the metadata is not there.
    First,
    /// The outcome of an earlier put is unknown; the next one goes out at this time.
    AwaitingRetry {
        /// The time.
        at: Instant,
    },
    /// Another put is out. Only `Stored` answers for the earlier one too.
    Again,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle(checkpoint: u64, attempt: u64, task: u32) -> StateHandle {
        let (checkpoint, attempt) = (CheckpointId::new(checkpoint), AttemptId::new(attempt));
        let key = StoreKey::State { checkpoint, attempt, task: TaskId::new(task) };
        StateHandle::of(key, b"state")
    }

    /// A checkpoint of two tasks.
    fn pending(checkpoint: u64, attempt: u64) -> PendingCheckpoint {
        let (checkpoint, attempt) = (CheckpointId::new(checkpoint), AttemptId::new(attempt));
        let at = Instant::ZERO;
        PendingCheckpoint::new(checkpoint, attempt, 2, Vec::new(), at, at)
    }

    #[test]
    fn a_part_counts_once_and_only_for_its_own_checkpoint_attempt_and_task() {
        let mut pending = pending(3, 2);
        let [first, second] = [0, 1].map(TaskId::new);
        for wrong in [handle(2, 2, 0), handle(3, 1, 0), handle(3, 2, 1)] {
            assert_eq!(pending.acknowledge(first, wrong, true), AckResult::WrongPart);
        }
        assert_eq!(pending.acknowledge(first, handle(3, 2, 0), true), AckResult::Accepted);
        assert_eq!(pending.acknowledge(first, handle(3, 2, 0), false), AckResult::Duplicate);
        assert_eq!(pending.metadata("job", &JobShape::default()), None);
        assert_eq!(pending.acknowledge(second, handle(3, 2, 1), true), AckResult::Accepted);
        let metadata = pending.metadata("job", &JobShape::default()).unwrap();
        assert_eq!(metadata.tasks, [handle(3, 2, 0), handle(3, 2, 1)]);
        assert!(metadata.finished, "the duplicate must not have replaced the first part");
    }

    #[test]
    fn one_task_that_still_has_data_keeps_a_checkpoint_from_being_final() {
        let mut pending = pending(1, 1);
        pending.acknowledge(TaskId::new(0), handle(1, 1, 0), true);
        pending.acknowledge(TaskId::new(1), handle(1, 1, 1), false);
        assert!(!pending.metadata("job", &JobShape::default()).unwrap().finished);
    }
}
