//! Where a job stands, and what the tasks of its current attempt have reported.

use std::collections::BTreeSet;

use super::recovery::FailureCause;
use crate::id::TaskId;
use crate::time::Instant;

/// Where a job stands; each phase is named for what it awaits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The put of the attempt's number is out; nothing is deployed.
    AwaitingAttempt,
    /// The attempt is deployed; not every task has reported that it runs.
    AwaitingTasks,
    /// Every task runs.
    Running {
        /// When the next checkpoint is due. Without meaning if none are taken.
        trigger_at: Instant,
    },
    /// The newest checkpoint covers the end of all input; some tasks have yet to commit it.
    Finishing {
        /// When its completion is told again.
        notify_at: Instant,
    },
    /// The attempt has failed; its tasks are being stopped.
    AwaitingCancelled {
        /// Why it failed.
        cause: FailureCause,
    },
    /// The tasks are stopped; whether the checkpoint in flight is complete is not known yet.
    AwaitingMetadata {
        /// Why the attempt failed.
        cause: FailureCause,
    },
    /// Nothing is deployed and nothing in flight; the next attempt begins after a pause.
    AwaitingRestart {
        /// The end of the pause.
        at: Instant,
    },
    /// The job has finished or failed.
    Ended,
}

impl Phase {
    /// Whether tasks are deployed that may be talked to.
    pub const fn is_live(&self) -> bool {
        match self {
            Self::AwaitingTasks | Self::Running { .. } | Self::Finishing { .. } => true,
            Self::AwaitingAttempt
            | Self::AwaitingCancelled { .. }
            | Self::AwaitingMetadata { .. }
            | Self::AwaitingRestart { .. }
            | Self::Ended => false,
        }
    }
}

/// What the tasks of one attempt have reported.
#[derive(Clone, Debug)]
pub(super) struct Reports {
    tasks: usize,
    pub(super) running: BTreeSet<TaskId>,
    pub(super) at_end: BTreeSet<TaskId>,
    pub(super) finished: BTreeSet<TaskId>,
}

impl Reports {
    /// Of an attempt with so many tasks, none of which has reported anything.
    pub(super) fn new(tasks: u32) -> Self {
        Self {
            tasks: tasks as usize,
            running: BTreeSet::new(),
            at_end: BTreeSet::new(),
            finished: BTreeSet::new(),
        }
    }

    pub(super) fn all_running(&self) -> bool {
        self.running.len() == self.tasks
    }

    pub(super) fn all_at_end(&self) -> bool {
        self.at_end.len() == self.tasks
    }

    pub(super) fn all_finished(&self) -> bool {
        self.finished.len() == self.tasks
    }
}
