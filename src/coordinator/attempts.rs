//! The life of one attempt: its number, its tasks, its end, and what follows its failure.

use super::enumerator::Enumerator;
use super::phase::Reports;
use super::{
    Coordinator, CoordinatorNote, CoordinatorOutput, FailureCause, Phase, RecoveryDecision,
    RecoveryFacts, decide_recovery,
};
use crate::id::TaskId;
use crate::storage::{CheckpointMetadata, StoreKey, StoreOutcome, StoreValue};
use crate::time::Instant;

impl Coordinator {
    /// Asks for the next attempt's number to be made durable.
    pub(super) fn begin_attempt(&mut self) {
        self.attempt = self.attempt.next();
        self.phase = Phase::AwaitingAttempt;
        self.put(StoreKey::Attempt, StoreValue::Attempt(self.attempt));
    }

    pub(super) fn attempt_stored(&mut self, now: Instant, outcome: StoreOutcome) {
        if self.phase != Phase::AwaitingAttempt {
            return;
        }
        match outcome {
            StoreOutcome::Stored(_) => {
                self.phase = Phase::AwaitingTasks;
                self.reports = Reports::new(self.plan.tasks);
                self.failed.clear();
                self.enumerators.iter_mut().for_each(Enumerator::reset);
                self.stops = false;
                let restore = self.restore_point().cloned();
                let halts = self.has_stopped();
                self.emit(CoordinatorOutput::Deploy { attempt: self.attempt, restore, halts });
            }
            StoreOutcome::Failed(text) | StoreOutcome::Unknown(text) => {
                // A disk that is full may stay so: this counts as a failure of the attempt.
                let attempt = self.attempt;
                self.note(CoordinatorNote::AttemptNotStored { attempt, text: text.clone() });
                self.recover(now, &FailureCause::AttemptNotStored { attempt, text });
            }
        }
    }

    pub(super) fn begin_running(&mut self, now: Instant) {
        self.phase = if self.is_at_last_checkpoint() {
            Phase::Finishing { notify_at: now }
        } else if self.reports.all_at_end() {
            Phase::Running { trigger_at: now }
        } else {
            Phase::Running { trigger_at: now + self.interval() }
        };
    }

    /// A task has seen all its data; the last one to do so makes a checkpoint due at once, so that
    /// the rest of the output gets committed.
    pub(super) fn reach_end(&mut self, now: Instant, task: TaskId) {
        let is_news = self.reports.at_end.insert(task);
        if is_news
            && self.reports.all_at_end()
            && let Phase::Running { trigger_at } = &mut self.phase
        {
            *trigger_at = now;
        }
    }

    /// Whether every task has finished, and what it has finished is covered by a checkpoint, if
    /// any are taken.
    pub(super) fn is_done(&self) -> bool {
        let is_covered = match self.phase {
            Phase::Finishing { .. } => true,
            Phase::Running { .. } => !self.config.mechanism.takes_checkpoints(),
            Phase::AwaitingAttempt
            | Phase::AwaitingTasks
            | Phase::AwaitingCancelled { .. }
            | Phase::AwaitingMetadata { .. }
            | Phase::AwaitingRestart { .. }
            | Phase::Ended => false,
        };
        is_covered && self.reports.all_finished()
    }

    /// The current attempt has failed, and with it all that it had in flight (rule 53), but for
    /// metadata on its way to the store. The first failure counts; what dies of it is part of it.
    pub(super) fn fail(&mut self, cause: FailureCause) {
        self.suspend_checkpoints();
        self.emit(CoordinatorOutput::Cancel(self.attempt));
        self.note(CoordinatorNote::AttemptFailed { attempt: self.attempt, cause: cause.clone() });
        self.phase = Phase::AwaitingCancelled { cause };
    }

    /// Nothing of the failed attempt is left: decides what follows.
    pub(super) fn recover(&mut self, now: Instant, cause: &FailureCause) {
        let restarts = self.restarts.in_a_row();
        let decision = decide_recovery(RecoveryFacts {
            cause,
            strategy: self.restarts.fail(self.config.restart, now),
            restarts,
            latest: self.restore_point().map(|metadata| metadata.checkpoint),
        });
        match decision {
            RecoveryDecision::Restart { delay, from } => {
                self.stats.restarts += 1;
                self.phase = Phase::AwaitingRestart { at: now + delay };
                let restart = self.restarts.in_a_row();
                self.note(CoordinatorNote::Restarting { restart, delay, from });
            }
            RecoveryDecision::Fail(error) => self.end(CoordinatorOutput::Failed(error)),
        }
    }

    /// Whether the latest checkpoint covers the end of all input, or is the one that the job stops
    /// at: nothing is left but to commit.
    pub(super) fn is_at_last_checkpoint(&self) -> bool {
        self.restore_point().is_some_and(|metadata| metadata.finished) || self.has_stopped()
    }

    /// Whether an attempt begins at the checkpoint that the job stops at.
    fn has_stopped(&self) -> bool {
        let latest = self.restore_point().map(|metadata| metadata.checkpoint);
        self.stopped_at.is_some() && latest == self.stopped_at
    }

    /// Where an attempt begins: at the latest complete checkpoint (C7), if any are taken.
    pub(super) fn restore_point(&self) -> Option<&CheckpointMetadata> {
        self.completed.latest().filter(|_| self.config.mechanism.takes_checkpoints())
    }
}
