//! What follows a failure: facts in, decision out. It does not know how the job gets there.
//!
//! All channels are pipelined, so the whole job is one region and is restarted as a whole (rule
//! 118).

use std::time::Duration;

use crate::coordinator::restarts::RestartVerdict;
use crate::id::{AttemptId, CheckpointId, TaskId};
use crate::message::{AbortReason, TaskError};

/// Why an attempt ended before its work was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailureCause {
    /// A task died.
    #[error("task {task}: {error}")]
    Task {
        /// The first one of the attempt.
        task: TaskId,
        /// What it died of.
        error: TaskError,
    },
    /// More checkpoints failed in a row than are tolerable (rule 55).
    #[error("{failures} checkpoints failed in a row, the last one because {last}")]
    CheckpointFailures {
        /// How many.
        failures: u32,
        /// Why the last one did.
        last: AbortReason,
    },
    /// The store does not know whether it holds a checkpoint's metadata (rule 50).
    #[error("whether {checkpoint} is complete is unknown: {text}")]
    MetadataUnknown {
        /// The checkpoint.
        checkpoint: CheckpointId,
        /// What the store said.
        text: String,
    },
    /// It never began, since its number is not known to be durable.
    #[error("the number of attempt {attempt} could not be stored: {text}")]
    AttemptNotStored {
        /// The attempt.
        attempt: AttemptId,
        /// What the store said.
        text: String,
    },
    /// The user asked for it.
    #[error("cancelled")]
    Cancelled,
}

/// Why a job ended before its work was done, by blame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JobError {
    /// The input: reading it again would not help.
    #[error("bad input in task {task}: {text}")]
    Input {
        /// The task that read it.
        task: TaskId,
        /// What is wrong with it.
        text: String,
    },
    /// The input has lost records that the job still needs.
    #[error("task {task}: {error}")]
    Lost {
        /// The task that was to read them.
        task: TaskId,
        /// What is missing.
        error: TaskError,
    },
    /// The stored state: restoring it again would not help.
    #[error("state can not be restored: {0}")]
    Restore(String),
    /// The external system: it has lost output that a complete checkpoint covers, so going on would
    /// hide the loss (rules 67 and 68).
    #[error("output is lost: {0}")]
    OutputLost(String),
    /// Whatever made the last attempt fail, after as many restarts as the strategy allows.
    #[error("failed after {restarts} restarts without progress: {cause}")]
    RestartsExhausted {
        /// The restarts since the last completed checkpoint.
        restarts: u32,
        /// Why the last attempt failed.
        cause: FailureCause,
    },
    /// Whatever made the last attempt fail, after more failures than the strategy allows within a
    /// time.
    #[error("failed {failures} times within {interval:?}: {cause}")]
    TooManyFailures {
        /// The failures within the interval, the last one among them.
        failures: u32,
        /// The interval.
        interval: Duration,
        /// Why the last attempt failed.
        cause: FailureCause,
    },
    /// The user.
    #[error("cancelled")]
    Cancelled,
}

/// What the decision is taken from. No metadata write is in flight or in doubt when it is taken:
/// `latest` is then the one checkpoint that a later coordinator would find, too (rules 121, 122).
#[derive(Clone, Copy, Debug)]
pub struct RecoveryFacts<'a> {
    /// Why the attempt failed.
    pub cause: &'a FailureCause,
    /// What the restart strategy says, should another attempt be of use.
    pub strategy: RestartVerdict,
    /// The restarts since the last completed checkpoint, or since the start if there is none.
    pub restarts: u32,
    /// The newest complete checkpoint that may be restored.
    pub latest: Option<CheckpointId>,
}

/// What follows a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecoveryDecision {
    /// Another attempt.
    Restart {
        /// The time to wait before it.
        delay: Duration,
        /// Where it begins; `None` is the job's start.
        from: Option<CheckpointId>,
    },
    /// The end of the job.
    Fail(JobError),
}

/// Decides what follows a failure.
pub fn decide_recovery(facts: RecoveryFacts<'_>) -> RecoveryDecision {
    let RecoveryFacts { cause, strategy, restarts, latest } = facts;
    let error = match cause {
        FailureCause::Cancelled => Some(JobError::Cancelled),
        FailureCause::Task { task, error } => match error {
            TaskError::Input(text) => Some(JobError::Input { task: *task, text: text.clone() }),
            error @ TaskError::Lost { .. } => {
                Some(JobError::Lost { task: *task, error: error.clone() })
            }
            TaskError::Restore(text) => Some(JobError::Restore(text.clone())),
            TaskError::OutputLost(text) => Some(JobError::OutputLost(text.clone())),
            TaskError::Crashed(_) | TaskError::External(_) => None,
        },
        FailureCause::CheckpointFailures { .. }
        | FailureCause::MetadataUnknown { .. }
        | FailureCause::AttemptNotStored { .. } => None,
    };
    if let Some(error) = error {
        return RecoveryDecision::Fail(error);
    }
    match strategy {
        RestartVerdict::Restart(delay) => RecoveryDecision::Restart { delay, from: latest },
        RestartVerdict::Exhausted => {
            RecoveryDecision::Fail(JobError::RestartsExhausted { restarts, cause: cause.clone() })
        }
        RestartVerdict::TooOften { failures, interval } => {
            let cause = cause.clone();
            RecoveryDecision::Fail(JobError::TooManyFailures { failures, interval, cause })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task_failure(error: TaskError) -> FailureCause {
        FailureCause::Task { task: TaskId::new(1), error }
    }

    fn decide(cause: &FailureCause, strategy: RestartVerdict) -> RecoveryDecision {
        let latest = Some(CheckpointId::new(7));
        decide_recovery(RecoveryFacts { cause, strategy, restarts: 2, latest })
    }

    #[test]
    fn rule_119_the_strategy_decides_on_what_another_attempt_may_get_past() {
        let cause = task_failure(TaskError::Crashed("killed".to_owned()));
        let delay = Duration::from_millis(10);
        let restart = RecoveryDecision::Restart { delay, from: Some(CheckpointId::new(7)) };
        assert_eq!(decide(&cause, RestartVerdict::Restart(delay)), restart);
        let error = JobError::RestartsExhausted { restarts: 2, cause: cause.clone() };
        assert_eq!(decide(&cause, RestartVerdict::Exhausted), RecoveryDecision::Fail(error));
        let (failures, interval) = (4, Duration::from_secs(1));
        let decided = decide(&cause, RestartVerdict::TooOften { failures, interval });
        let error = JobError::TooManyFailures { failures, interval, cause };
        assert_eq!(error.to_string(), "failed 4 times within 1s: task t1: killed");
        assert_eq!(decided, RecoveryDecision::Fail(error));
    }

    #[test]
    fn what_another_attempt_can_not_get_past_ends_the_job() {
        let strategy = RestartVerdict::Restart(Duration::ZERO);
        let cases = [
            (
                task_failure(TaskError::Input("line 3".to_owned())),
                JobError::Input { task: TaskId::new(1), text: "line 3".to_owned() },
            ),
            (
                task_failure(TaskError::Restore("checksum".to_owned())),
                JobError::Restore("checksum".to_owned()),
            ),
            (
                task_failure(TaskError::OutputLost("rolled back".to_owned())),
                JobError::OutputLost("rolled back".to_owned()),
            ),
            (FailureCause::Cancelled, JobError::Cancelled),
        ];
        for (cause, error) in cases {
            assert_eq!(decide(&cause, strategy), RecoveryDecision::Fail(error));
        }
    }
}
