//! The life of a checkpoint: trigger, parts, metadata, completion or abortion.

use super::enumerator::Enumerator;
use super::pending::{Finalization, MetadataPut, PendingCheckpoint};
use super::{
    Coordinator, CoordinatorNote, CoordinatorOutput, FailureCause, Phase, STORE_RETRY_DELAY,
};
use crate::id::{AttemptId, CheckpointId, TaskId};
use crate::message::{AbortReason, ToTask};
use crate::storage::{
    CheckpointMetadata, StateHandle, StoreKey, StoreOutcome, StoreRequest, StoreValue,
};
use crate::time::Instant;

impl Coordinator {
    /// Whether a checkpoint may begin when it is due: a due one waits while as many are in flight
    /// as may be (rule 43), where only the end is covered, for the end, while a reader waits for
    /// the parts of those in flight, which overlapping ones could put off for ever, and behind one
    /// that the job stops at: if the later one were given up, sources would go on reading.
    pub(super) fn may_trigger(&self) -> bool {
        let mechanism = self.config.mechanism;
        let awaits_end = mechanism.awaits_end() && !self.reports.all_at_end();
        let has_room = self.in_flight.checkpoints().count() < self.concurrent_max();
        let is_free = !awaits_end && !self.has_reader_put_off() && !self.in_flight.any_stops();
        mechanism.takes_checkpoints() && has_room && is_free
    }

    /// How many checkpoints may be in flight.
    pub(super) fn concurrent_max(&self) -> usize {
        self.config.checkpoints_concurrent.max(1)
    }

    /// Begins a checkpoint: id, timeout, then the sources (rule 40). Called in the phase `Running`,
    /// where every task is able to take part (rule 39).
    pub(super) fn trigger(&mut self, now: Instant) {
        let checkpoint = self.checkpoint_next;
        self.checkpoint_next = checkpoint.next();
        self.phase = Phase::Running { trigger_at: now + self.interval() };
        let expires_at = now + self.config.checkpoint_timeout;
        let pools = self.enumerators.iter().map(Enumerator::pool).collect();
        let (attempt, tasks) = (self.attempt, self.plan.tasks);
        let mut pending =
            PendingCheckpoint::new(checkpoint, attempt, tasks, pools, now, expires_at);
        let stops = self.stops;
        pending.stops = stops;
        self.in_flight.collecting.insert(checkpoint, pending);
        self.stats.checkpoints_triggered += 1;
        self.note(CoordinatorNote::CheckpointTriggered(checkpoint));
        for source in self.plan.sources.clone() {
            self.send(source, ToTask::Trigger { checkpoint, at: now, stops });
        }
    }

    /// A task's part is durable. One that nobody waits for is discarded (rule 47).
    pub(super) fn acknowledge(
        &mut self,
        task: TaskId,
        checkpoint: CheckpointId,
        state: StateHandle,
        finished: bool,
    ) {
        match self.in_flight.collecting.get_mut(&checkpoint) {
            Some(pending) => {
                // A duplicate or a wrong handle changes nothing; if the part never comes, the
                // checkpoint expires.
                let _ = pending.acknowledge(task, state, finished);
            }
            None => self.discard_stray(self.attempt, checkpoint),
        }
    }

    /// Discards what a late acknowledgement brought, unless it may belong to a checkpoint that
    /// counts: one that is complete or in flight, or one of an earlier coordinator, whose ids may
    /// be in use again.
    pub(super) fn discard_stray(&mut self, attempt: AttemptId, checkpoint: CheckpointId) {
        let is_own = self.attempt_recovered < attempt && attempt <= self.attempt;
        let is_over = checkpoint < self.checkpoint_next
            && self.in_flight.checkpoints().all(|in_flight| in_flight != checkpoint)
            && !self.completed.contains(checkpoint);
        if self.phase != Phase::Ended && is_own && is_over {
            self.discard(checkpoint);
        }
    }

    /// A task can not take its part: nobody's helps any more (rule 52).
    pub(super) fn decline(&mut self, checkpoint: CheckpointId, reason: AbortReason) {
        if self.in_flight.collecting.contains_key(&checkpoint) {
            self.abort(checkpoint, reason);
        }
    }

    /// Takes the steps that the checkpoints in flight are ready for, if any.
    pub(super) fn advance_checkpoints(&mut self, now: Instant) {
        match &self.in_flight.finalizing {
            Some(finalization) => {
                if let MetadataPut::AwaitingRetry { at } = finalization.put
                    && at <= now
                {
                    let finalization = finalization.clone();
                    self.put_metadata(Finalization { put: MetadataPut::Again, ..finalization });
                }
            }
            None => {
                let whole = self.in_flight.whole().and_then(|pending| {
                    let metadata = pending.metadata(&self.job, &self.plan.shape)?;
                    let PendingCheckpoint { triggered_at, stops, .. } = *pending;
                    Some(Finalization { metadata, triggered_at, stops, put: MetadataPut::First })
                });
                if let Some(finalization) = whole {
                    self.in_flight.collecting.remove(&finalization.metadata.checkpoint);
                    self.put_metadata(finalization);
                }
            }
        }
        while let Some(checkpoint) = self.in_flight.expired(now) {
            self.abort(checkpoint, AbortReason::Expired);
        }
    }

    /// Writes the metadata: once it is durable the checkpoint is complete.
    fn put_metadata(&mut self, finalization: Finalization) {
        let metadata = finalization.metadata.clone();
        let key = StoreKey::Metadata(metadata.checkpoint);
        self.in_flight.finalizing = Some(finalization);
        self.put(key, StoreValue::Metadata(Box::new(metadata)));
    }

    /// The store has answered a put of a checkpoint's metadata.
    ///
    /// If it does not know, the checkpoint may be complete or not, and the same value is put again
    /// until it is known to be there. A failure of that later put says nothing about the earlier
    /// one, so it does not settle the matter. This ends when the store works again; until then no
    /// other attempt could begin either, for its number has to be stored.
    pub(super) fn metadata_stored(
        &mut self,
        now: Instant,
        checkpoint: CheckpointId,
        outcome: StoreOutcome,
    ) {
        let Some(finalization) = &mut self.in_flight.finalizing else { return };
        if finalization.metadata.checkpoint != checkpoint {
            return;
        }
        match (finalization.put, outcome) {
            // Not asked for: no put is out.
            (MetadataPut::AwaitingRetry { .. }, _) => {}
            (MetadataPut::First | MetadataPut::Again, StoreOutcome::Stored(_)) => {
                let finalization = finalization.clone();
                self.complete(now, finalization);
            }
            (MetadataPut::First, StoreOutcome::Failed(_)) => {
                self.in_flight.finalizing = None;
                self.abort(checkpoint, AbortReason::FinalizeFailed);
            }
            (MetadataPut::First, StoreOutcome::Unknown(text))
            | (MetadataPut::Again, StoreOutcome::Failed(text) | StoreOutcome::Unknown(text)) => {
                finalization.put = MetadataPut::AwaitingRetry { at: now + STORE_RETRY_DELAY };
                if self.phase.is_live() {
                    self.fail(FailureCause::MetadataUnknown { checkpoint, text });
                }
            }
        }
    }

    /// The metadata is durable: the checkpoint is complete, older ones are no longer needed, those
    /// still in flight are subsumed, and the tasks may commit (rule 49). If the attempt has failed
    /// meanwhile its tasks are told nothing; the next attempt begins here and commits first (rule
    /// 121).
    ///
    /// Failures up to this checkpoint no longer count. Those of newer ones do: unlike in other
    /// engines, a success says nothing about what has failed after it (rule 57).
    fn complete(&mut self, now: Instant, finalization: Finalization) {
        let Finalization { metadata, triggered_at, stops, .. } = finalization;
        let CheckpointMetadata { checkpoint, finished, .. } = metadata;
        if stops {
            self.stopped_at = Some(checkpoint);
        }
        self.in_flight.finalizing = None;
        while let Some((older, _)) = self.in_flight.collecting.range(..checkpoint).next() {
            self.give_up(*older, AbortReason::Subsumed);
        }
        self.failed.retain(|failed| *failed > checkpoint);
        self.restarts.progress();
        self.stats.checkpoints_completed += 1;
        self.enumerators.iter_mut().for_each(|of| of.complete(checkpoint));
        for old in self.completed.add(metadata) {
            self.discard(old);
        }
        let duration = now - triggered_at;
        self.note(CoordinatorNote::CheckpointCompleted { checkpoint, duration, finished });
        let Phase::Running { trigger_at } = self.phase else { return };
        if finished || stops {
            self.suspend_checkpoints();
            return self.tell_to_finish(now);
        }
        for task in self.tasks() {
            self.send(task, ToTask::Completed(checkpoint));
        }
        self.phase = if self.reports.all_at_end() {
            Phase::Running { trigger_at }
        } else {
            Phase::Running { trigger_at: trigger_at.max(now + self.config.checkpoint_pause_min) }
        };
    }

    /// A checkpoint in flight is given up. No metadata of it is, or ever will be, in the store.
    /// Too many failures without a completion are a failure of the attempt (rule 55).
    fn abort(&mut self, checkpoint: CheckpointId, reason: AbortReason) {
        self.give_up(checkpoint, reason);
        if !self.phase.is_live() {
            return;
        }
        let oldest_in_flight = self.in_flight.checkpoints().min().unwrap_or(self.checkpoint_next);
        for task in self.tasks() {
            self.send(task, ToTask::Aborted { checkpoint, oldest_in_flight });
        }
        if reason.counts_as_failure() {
            self.failed.insert(checkpoint);
        }
        let failures = self.failed.len();
        if failures > self.config.checkpoint_failures_tolerable as usize {
            let failures = failures as u32;
            self.fail(FailureCause::CheckpointFailures { failures, last: reason });
        }
    }

    /// The job does not run any more: so much for checkpoints that still collect parts. One whose
    /// metadata is on its way stays in flight until the store has answered.
    pub(super) fn suspend_checkpoints(&mut self) {
        while let Some((checkpoint, _)) = self.in_flight.collecting.first_key_value() {
            self.give_up(*checkpoint, AbortReason::Suspended);
        }
    }

    fn give_up(&mut self, checkpoint: CheckpointId, reason: AbortReason) {
        self.in_flight.collecting.remove(&checkpoint);
        self.stats.checkpoints_aborted += 1;
        self.note(CoordinatorNote::CheckpointAborted { checkpoint, reason });
        self.discard(checkpoint);
    }

    /// Tells the tasks that have not finished, perhaps once more, that the last checkpoint is
    /// complete: a notice can be lost (rule 58), and no later one would make up for this one.
    pub(super) fn tell_to_finish(&mut self, now: Instant) {
        let last = self.restore_point().expect("a job is finishing only by a complete checkpoint");
        let checkpoint = last.checkpoint;
        for task in self.tasks() {
            if !self.reports.finished.contains(&task) {
                self.send(task, ToTask::Finish(checkpoint));
            }
        }
        self.phase = Phase::Finishing { notify_at: now + self.interval() };
    }

    fn discard(&mut self, checkpoint: CheckpointId) {
        self.emit(CoordinatorOutput::Store(StoreRequest::Discard(checkpoint)));
    }
}
