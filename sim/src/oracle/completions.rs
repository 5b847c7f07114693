//! Which checkpoints are complete. Not a judge: what several judges need to know.
//!
//! A checkpoint is complete when its metadata is durable, and its coordinator may die before it can
//! say so. A checkpoint that every task had acknowledged at such a death is in doubt until the next
//! attempt begins: it is complete if that attempt begins there. Without this a judge would call a
//! recovery from it wrong.

use cofferdam::id::{AttemptId, CheckpointId};
use cofferdam::trace::TraceEvent;

/// A complete checkpoint, and the attempt that took it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Completion {
    pub(super) checkpoint: CheckpointId,
    pub(super) attempt: AttemptId,
}

/// Follows a trace.
pub(super) struct Completions {
    /// The current attempt.
    attempt: AttemptId,
    latest: Option<Completion>,
    in_flight: Option<CheckpointId>,
    /// Which tasks have acknowledged the one in flight.
    acknowledged: Vec<bool>,
    in_doubt: Option<Completion>,
}

impl Completions {
    pub(super) fn new(tasks: usize) -> Self {
        Self {
            attempt: AttemptId::default(),
            latest: None,
            in_flight: None,
            acknowledged: vec![false; tasks],
            in_doubt: None,
        }
    }

    /// The greatest complete checkpoint.
    pub(super) fn latest(&self) -> Option<Completion> {
        self.latest
    }

    /// The checkpoint in flight.
    pub(super) fn in_flight(&self) -> Option<CheckpointId> {
        self.in_flight
    }

    /// Whether every task has acknowledged the checkpoint in flight.
    pub(super) fn is_acknowledged(&self) -> bool {
        !self.acknowledged.contains(&false)
    }

    /// Takes the next event in; returns the checkpoint that is known to be complete by it.
    pub(super) fn note(&mut self, event: &TraceEvent) -> Option<Completion> {
        let completion = match *event {
            TraceEvent::Triggered { checkpoint } => {
                self.in_flight = Some(checkpoint);
                self.acknowledged.fill(false);
                None
            }
            TraceEvent::Acknowledged { task, attempt, checkpoint } => {
                if attempt == self.attempt && self.in_flight == Some(checkpoint) {
                    self.acknowledged[task.index()] = true;
                }
                None
            }
            TraceEvent::Completed { checkpoint, attempt } => {
                self.in_flight = None;
                Some(Completion { checkpoint, attempt })
            }
            TraceEvent::Aborted { checkpoint, .. } => {
                self.in_flight = self.in_flight.filter(|in_flight| *in_flight != checkpoint);
                None
            }
            TraceEvent::CoordinatorCrashed { .. } => {
                if let Some(checkpoint) = self.in_flight.take().filter(|_| self.is_acknowledged()) {
                    self.in_doubt = Some(Completion { checkpoint, attempt: self.attempt });
                }
                None
            }
            TraceEvent::Deployed { attempt, restored } => {
                self.attempt = attempt;
                self.in_flight = None;
                let in_doubt = self.in_doubt.take();
                in_doubt.filter(|completion| restored == Some(completion.checkpoint))
            }
            _ => None,
        };
        self.latest = completion.or(self.latest);
        completion
    }
}
