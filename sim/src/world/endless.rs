//! Runs of endless jobs: one is stopped when no record has moved for a while, a checkpoint is
//! complete that covers them all, and no sink has anything left to show. What is there by then is
//! judged as that of a job that has ended.

use std::time::Duration;

use super::{Ending, World};

impl World {
    /// A checkpoint is complete: stops the run of an endless job if nothing is to come of it.
    pub(super) fn stop_if_quiet(&mut self) {
        let quiet_from = self.last_moved.max(self.faults_stop());
        if self.now.since(quiet_from) < QUIET || !self.is_endless() {
            return;
        }
        // A checkpoint may still complete when its attempt has failed.
        let is_whole = self.tasks().count() == self.plan.job.graph().task_count();
        let is_awaited = self
            .tasks()
            .filter_map(|(task, _)| task.sink())
            .any(|sink| sink.has_pre_committed() || sink.is_committing());
        if is_whole && !is_awaited {
            self.ending.get_or_insert(Ending::Stopped);
        }
    }

    fn is_endless(&self) -> bool {
        let job = &self.plan.job;
        let mut sources = self.plan.sources.iter().filter_map(|(vertex, _)| job.source(*vertex));
        sources.any(|source| source.is_endless())
    }
}

/// Longer than a split is searched for, assigned and begun to be read, and than a checkpoint takes.
const QUIET: Duration = Duration::from_millis(10);
