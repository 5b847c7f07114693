//! Broken variants of having several checkpoints in flight: when they become complete, which of
//! them counts, and what a completion stands for.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam::coordinator::{CoordinatorNote, Recovered};
use cofferdam::id::{AttemptId, CheckpointId, TaskId, TransactionId};
use cofferdam::job::Job;
use cofferdam::message::{AbortReason, FromTask, TaskMessage};
use cofferdam::operator::sink::{Committed, SinkReply, SinkRequest};
use cofferdam::state::snapshot::TaskSnapshot;
use cofferdam::storage::{CheckpointMetadata, StateHandle, StoreKey, StoreOutcome, StoreReply};
use cofferdam::task::{Task, TaskOutput};
use smallvec::{SmallVec, smallvec};

use super::{Interposer, Passed, Variant, of, put_snapshot};

/// What the variants remember of checkpoints.
#[derive(Clone, Debug, Default)]
pub(super) struct Several {
    /// The newest that was triggered.
    pub(super) triggered: CheckpointId,
    /// The parts of each.
    parts: BTreeMap<(AttemptId, CheckpointId), BTreeMap<TaskId, (StateHandle, bool)>>,
    /// Those that were given up for a newer one since a checkpoint was complete.
    given_up: BTreeSet<CheckpointId>,
    /// Those of them for which the newer one is complete.
    subsumed: BTreeSet<CheckpointId>,
    /// The last one that became complete, if a newer one had been before.
    last: Option<CheckpointMetadata>,
    /// The newest whose completion each task has heard of.
    heard: BTreeMap<(TaskId, AttemptId), CheckpointId>,
    /// One was given up in the life of this coordinator.
    was_aborted: bool,
    /// Which checkpoint each transaction was prepared for.
    prepared: BTreeMap<TransactionId, CheckpointId>,
}

impl Interposer {
    /// A coordinator has said what has become of a checkpoint.
    pub fn noted(&mut self, note: &CoordinatorNote) {
        match *note {
            CoordinatorNote::CheckpointTriggered(checkpoint) => {
                self.several.triggered = checkpoint;
                self.splits_at_trigger();
            }
            CoordinatorNote::CheckpointCompleted { checkpoint, .. } => {
                self.several.last = None;
                let given_up = std::mem::take(&mut self.several.given_up);
                self.several.subsumed.extend(given_up);
                self.splits_at_completion(checkpoint);
            }
            CoordinatorNote::CheckpointAborted { checkpoint, reason: AbortReason::Subsumed }
                if self.is(Variant::SubsumedCompletes) =>
            {
                self.several.given_up.insert(checkpoint);
            }
            CoordinatorNote::CheckpointAborted { .. } => self.several.was_aborted = true,
            CoordinatorNote::AttemptNotStored { .. }
            | CoordinatorNote::RecordsLost { .. }
            | CoordinatorNote::AttemptFailed { .. }
            | CoordinatorNote::Restarting { .. } => {}
        }
    }

    /// Whether a coordinator that waits for the time of the next checkpoint waits in vain.
    pub fn ends_triggers(&self) -> bool {
        self.is(Variant::AbortEndsTriggers) && self.several.was_aborted
    }

    /// Whether the parts of a checkpoint stay although its coordinator wants them discarded.
    pub fn keeps(&self, checkpoint: CheckpointId) -> bool {
        let Several { given_up, subsumed, .. } = &self.several;
        given_up.contains(&checkpoint) || subsumed.contains(&checkpoint)
    }

    /// The coordinator hears of a part of a checkpoint: the whole, if it was subsumed and nothing
    /// is missing of it now.
    pub fn heard(&mut self, message: &TaskMessage, job: &Job) -> Option<CheckpointMetadata> {
        let TaskMessage { task, attempt, body } = message;
        let FromTask::Acknowledged { checkpoint, state, finished } = body else { return None };
        if !self.is(Variant::SubsumedCompletes) {
            return None;
        }
        let parts = self.several.parts.entry((*attempt, *checkpoint)).or_default();
        parts.insert(*task, (*state, *finished));
        if parts.len() < job.graph().task_count() || !self.several.subsumed.remove(checkpoint) {
            return None;
        }
        let metadata = CheckpointMetadata {
            checkpoint: *checkpoint,
            attempt: *attempt,
            job: job.name().to_owned(),
            shape: job.shape(),
            tasks: parts.values().map(|(state, _)| *state).collect(),
            pools: Vec::new(),
            finished: parts.values().all(|(_, finished)| *finished),
        };
        self.several.last = Some(metadata.clone());
        Some(metadata)
    }

    /// Where an attempt begins.
    pub fn begins(&self, restore: Option<CheckpointMetadata>) -> Option<CheckpointMetadata> {
        self.several.last.clone().or(restore)
    }

    /// A coordinator finds the checkpoint that was written last to be the newest.
    pub(super) fn found_last(&mut self, recovered: &mut Recovered) {
        // The next coordinator may give their numbers to others.
        self.several.given_up.clear();
        self.several.subsumed.clear();
        self.several.was_aborted = false;
        if let Some(last) = &self.several.last {
            recovered.checkpoints.retain(|metadata| metadata.checkpoint <= last.checkpoint);
        }
    }

    /// What the coordinator hears at once of what it wants stored.
    pub fn stored_at_once(&self, key: StoreKey, bytes: &[u8]) -> Option<StoreReply> {
        let StoreKey::Metadata(_) = key else { return None };
        let outcome = StoreOutcome::Stored(StateHandle::of(key, bytes));
        self.is(Variant::CompletedBeforeStored).then_some(StoreReply { key, outcome })
    }

    /// A task hears of a completion.
    pub(super) fn completion_heard(&mut self, task: &Task, checkpoint: CheckpointId) {
        let heard = self.several.heard.entry(of(task)).or_default();
        *heard = checkpoint.max(*heard);
    }

    /// A sink's request, of a variant that takes a completion for that of one checkpoint only.
    pub(super) fn asked_for_own(
        &mut self,
        task: &Task,
        request: SinkRequest,
    ) -> SmallVec<[Passed; 1]> {
        if let SinkRequest::Prepare(pending) = request {
            self.several.prepared.insert(pending.transaction, pending.checkpoint);
        }
        if let SinkRequest::Commit(transaction) = request
            && let Some(heard) = self.several.heard.get(&of(task))
            && self.several.prepared.get(&transaction).is_some_and(|of| of < heard)
        {
            let outcome = Ok(Committed::Now);
            return smallvec![Passed::Replied(SinkReply::Commit { transaction, outcome })];
        }
        smallvec![Passed::Out(TaskOutput::Sink(request))]
    }

    /// A snapshot on its way to the store that is taken only after that of the next checkpoint.
    pub(super) fn after_next(
        &mut self,
        task: &Task,
        key: StoreKey,
        snapshot: Box<TaskSnapshot>,
    ) -> SmallVec<[Passed; 1]> {
        let late = self.snapshots.remove(&of(task)).map(|(key, late)| {
            let operators = snapshot.operators.clone();
            put_snapshot((key, Box::new(TaskSnapshot { operators, ..*late })))
        });
        let is_late = snapshot.source.is_none() && !snapshot.finished;
        let now = if is_late {
            self.snapshots.insert(of(task), (key, snapshot));
            None
        } else {
            Some(put_snapshot((key, snapshot)))
        };
        now.into_iter().chain(late).collect()
    }
}
