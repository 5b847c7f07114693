//! What is covered: by a complete checkpoint, or under transactional updates by a durable write of
//! the task itself. Not a judge: what the judges of sinks need to know.

use std::collections::BTreeMap;

use cofferdam::id::{AttemptId, CheckpointId, TaskId};
use cofferdam::trace::TraceEvent;

use super::by_attempt::ByAttempt;
use super::completions::Completions;

/// Follows a trace.
pub(super) struct Covered {
    completions: Completions,
    completed: ByAttempt<Option<CheckpointId>>,
    written: BTreeMap<(AttemptId, TaskId), CheckpointId>,
}

impl Covered {
    pub(super) fn new(tasks: usize) -> Self {
        Self {
            completions: Completions::new(tasks),
            completed: ByAttempt::new(None),
            written: BTreeMap::new(),
        }
    }

    /// Takes the next event in.
    pub(super) fn note(&mut self, event: &TraceEvent) {
        if let Some(completion) = self.completions.note(event) {
            *self.completed.at(completion.attempt) = Some(completion.checkpoint);
        }
        if let TraceEvent::ProgressStored { task, attempt, write, .. } = *event {
            self.written.insert((attempt, task), write);
        }
    }

    /// Whether what belongs to this checkpoint, or write, of a task in an attempt is covered.
    pub(super) fn covers(
        &mut self,
        attempt: AttemptId,
        task: TaskId,
        checkpoint: Option<CheckpointId>,
    ) -> bool {
        let written = self.written.get(&(attempt, task)).copied();
        checkpoint.is_some() && (*self.completed.at(attempt)).max(written) >= checkpoint
    }
}
