//! Which checkpoints are complete. Not a judge: what several judges need to know.
//!
//! A checkpoint is complete when its metadata is durable, and its coordinator may die before it can
//! say so. A checkpoint that every task had acknowledged at such a death is in doubt until the next
//! attempt begins: it is complete if that attempt begins there. Without this a judge would call a
//! recovery from it wrong.

use std::collections::BTreeMap;

use cofferdam::id::{AttemptId, CheckpointId, TaskId};
use cofferdam::trace::TraceEvent;

/// A complete checkpoint, and the attempt that took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) checkpoint: CheckpointId,
    pub(super) attempt: AttemptId,
}

/// Follows a trace.
pub(super) struct Completions {
    tasks: usize,
    /// The current attempt.
    attempt: AttemptId,
    latest: Option<Completion>,
    /// Which tasks have acknowledged each checkpoint in flight.
    in_flight: BTreeMap<CheckpointId, Vec<bool>>,
    in_doubt: Vec<Completion>,
}

impl Completions {
    pub(super) fn new(tasks: usize) -> Self {
        Self {
            tasks,
            attempt: AttemptId::default(),
            latest: None,
            in_flight: BTreeMap::new(),
            in_doubt: Vec::new(),
        }
    }

    /// The greatest complete checkpoint.
    pub(super) fn latest(&self) -> Option<Completion> {
        self.latest
    }

    /// The checkpoints in flight, the oldest first.
    pub(super) fn in_flight(&self) -> impl Iterator<Item = CheckpointId> {
        self.in_flight.keys().copied()
    }

    /// Whether the checkpoint is in flight and every task has acknowledged it.
    pub(super) fn is_acknowledged(&self, checkpoint: CheckpointId) -> bool {
        self.in_flight.get(&checkpoint).is_some_and(|tasks| !tasks.contains(&false))
    }

    /// Takes the next event in; returns the checkpoint that is known to be complete by it.
    pub(super) fn note(&mut self, event: &TraceEvent) -> Option<Completion> {
        let completion = match *event {
            TraceEvent::Triggered { checkpoint } => {
                self.in_flight.insert(checkpoint, vec![false; self.tasks]);
                None
            }
            TraceEvent::Acknowledged { task, attempt, checkpoint } => {
                self.acknowledge(task, attempt, checkpoint);
                None
            }
            TraceEvent::Completed { checkpoint, attempt } => {
                self.in_flight.remove(&checkpoint);
                Some(Completion { checkpoint, attempt })
            }
            TraceEvent::Aborted { checkpoint, .. } => {
                self.in_flight.remove(&checkpoint);
                None
            }
            TraceEvent::CoordinatorCrashed { .. } => {
                self.doubt();
                None
            }
            TraceEvent::LaidOut { dealt, tasks } => {
                self.doubt();
                self.tasks = tasks as usize;
                let from = dealt.map(|(from, ..)| from);
                let in_doubt = std::mem::take(&mut self.in_doubt);
                let was_complete = in_doubt.into_iter().find(|of| Some(of.checkpoint) == from);
                let laid = dealt.map(|(_, checkpoint, attempt)| Completion { checkpoint, attempt });
                self.latest = laid.or(self.latest);
                return was_complete;
            }
            TraceEvent::Deployed { attempt, restored } => {
                self.attempt = attempt;
                self.in_flight.clear();
                let in_doubt = std::mem::take(&mut self.in_doubt);
                in_doubt.into_iter().find(|completion| restored == Some(completion.checkpoint))
            }
            // Nearly all of what happens.
            _ => return None,
        };
        let newest = self.latest.into_iter().chain(completion);
        self.latest = newest.max_by_key(|completion| completion.checkpoint);
        completion
    }

    /// Nobody has said what became of the checkpoints in flight. What was in doubt stays so: the
    /// next coordinator may die as well.
    fn doubt(&mut self) {
        let attempt = self.attempt;
        let acknowledged = self.in_flight().filter(|id| self.is_acknowledged(*id));
        let in_doubt: Vec<Completion> =
            acknowledged.map(|checkpoint| Completion { checkpoint, attempt }).collect();
        self.in_doubt.extend(in_doubt);
        self.in_flight.clear();
    }

    fn acknowledge(&mut self, task: TaskId, attempt: AttemptId, checkpoint: CheckpointId) {
        if attempt == self.attempt
            && let Some(tasks) = self.in_flight.get_mut(&checkpoint)
        {
            tasks[task.index()] = true;
        }
    }
}
