//! Commits in the world: what an external system makes of one, and which answer comes back (rules
//! 67 to 69).

use std::time::Duration;

use cofferdam::id::{AttemptId, SubtaskIndex, TaskId, TransactionId, VertexId};
use cofferdam::operator::sink::{CommitError, Committed, SinkReply};
use cofferdam::trace::{Disturbance, TraceEvent};

use super::World;
use crate::decide::Choice;
use crate::external::Refusal;

impl World {
    /// The sink subtasks in whose place a task acts: its own, or those that it commits for.
    pub(super) fn sink_places(&self, task: TaskId) -> Vec<(VertexId, SubtaskIndex)> {
        let job = &self.plan.job;
        let (vertex, subtask) = job.graph().place_of(task);
        match job.committer(vertex) {
            Some((writers, _)) => {
                job.graph().tasks_of(writers).map(|task| job.graph().place_of(task)).collect()
            }
            None => job.sink(vertex).map(|_| (vertex, subtask)).into_iter().collect(),
        }
    }

    /// How long a commit or an abort takes that would take `usual`: it may be overtaken by the
    /// death of who asked, and by what a newer attempt does.
    pub(super) fn commit_delay(&mut self, task: TaskId, usual: Duration) -> Duration {
        let late = self.plan.options.commits_late_permille;
        if !self.may_disturb() || !self.decider.chance(Choice::CommitFate, task.get(), late) {
            return usual;
        }
        self.disturbed(Disturbance::CommitLate, Some(task));
        usual * 20
    }

    /// A commit arrives. Whoever asked hears what came of it, but for an attempt that is fenced:
    /// nobody listens there.
    pub(super) fn commit(
        &mut self,
        task: TaskId,
        attempt: AttemptId,
        transaction: TransactionId,
    ) -> Result<SinkReply, Refusal> {
        let mut fate = self.commit_fate(task);
        if self.external.is_held(transaction) {
            fate = Fate::Refused;
        }
        let outcome = match fate {
            Fate::Answered => self.carry_out_commit(attempt, transaction)?,
            Fate::Refused => {
                self.external.refuse(transaction);
                Err(CommitError::Retry("the external system is busy".to_owned()))
            }
            Fate::Unanswered { is_done } => {
                if is_done {
                    // What came of it is what nobody hears.
                    let _ = self.carry_out_commit(attempt, transaction)?;
                }
                Err(CommitError::Unknown("no answer came".to_owned()))
            }
        };
        Ok(SinkReply::Commit { transaction, outcome })
    }

    fn commit_fate(&mut self, task: TaskId) -> Fate {
        if !self.may_disturb() {
            return Fate::Answered;
        }
        let (options, subject) = (&self.plan.options, task.get());
        let (refused, unknown) =
            (options.commits_refused_permille, options.commits_unknown_permille);
        if self.decider.chance(Choice::CommitFate, subject, refused) {
            self.disturbed(Disturbance::CommitRefused, Some(task));
            Fate::Refused
        } else if self.decider.chance(Choice::CommitFate, subject, unknown) {
            self.disturbed(Disturbance::CommitUnknown, Some(task));
            let is_done = self.decider.below(Choice::CommitFate, subject, 2) == 0;
            Fate::Unanswered { is_done }
        } else {
            Fate::Answered
        }
    }

    fn carry_out_commit(
        &mut self,
        attempt: AttemptId,
        transaction: TransactionId,
    ) -> Result<Result<Committed, CommitError>, Refusal> {
        let lost = |why: &str| {
            let text = format!(
                "transaction {transaction}, which a complete checkpoint covers, {why}; its rows \
                 are in no output: begin anew with other places for output and checkpoints"
            );
            Ok(Err(CommitError::Lost(text)))
        };
        match self.external.commit(transaction, attempt, self.now) {
            Ok(again) => {
                self.record(TraceEvent::Committed { transaction, attempt, again });
                Ok(Ok(if again { Committed::Before } else { Committed::Now }))
            }
            Err(Refusal::TimedOut) => {
                self.record(TraceEvent::TimedOut { transaction });
                lost("has timed out: let transactions live longer than a checkpoint and a restart")
            }
            Err(Refusal::NoSuchTransaction) => lost("was rolled back"),
            Err(Refusal::Fenced) => Err(Refusal::Fenced),
        }
    }
}

/// What becomes of a commit beside its own outcome.
enum Fate {
    Answered,
    /// Nothing is done.
    Refused,
    /// It is done or not, and nobody says so.
    Unanswered {
        is_done: bool,
    },
}
