//! Broken variants of assigning splits: they change what the coordinator says and stores.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam::id::{AttemptId, CheckpointId, SplitId, TaskId, VertexId};
use cofferdam::message::Assignment;
use cofferdam::storage::CheckpointMetadata;
use cofferdam::task::Task;

use super::{Interposer, Variant};

/// What has become of splits.
#[derive(Clone, Debug, Default)]
pub(super) struct Splits {
    /// The attempts in which each was assigned, the last one with its task.
    given: BTreeMap<(VertexId, SplitId), (u32, TaskId, AttemptId)>,
    /// The assignments that have come to their tasks.
    heard: BTreeSet<(TaskId, AttemptId, SplitId)>,
    /// The last assignment of each source.
    last: BTreeMap<VertexId, Assignment>,
    /// The same when the newest checkpoint was triggered.
    last_at_trigger: BTreeMap<VertexId, Assignment>,
    /// The sources that are to be searched from the start.
    forgotten: BTreeSet<VertexId>,
    /// The first checkpoint that holds what was given.
    since: BTreeMap<(VertexId, SplitId), CheckpointId>,
    /// What was given behind the trigger of a checkpoint that is complete by now.
    pruned: BTreeSet<(VertexId, SplitId)>,
    /// A split of each source that comes back, and waits for a newer one to go ahead.
    held: BTreeMap<VertexId, (TaskId, AttemptId, Assignment)>,
}

impl Splits {
    /// A task hears of a split.
    pub(super) fn hear(&mut self, task: &Task, assignment: &Assignment) {
        self.heard.insert((task.id(), task.attempt(), assignment.split));
    }

    /// A coordinator remembers nothing of what an earlier one has given.
    pub(super) fn restart(&mut self) {
        self.since.clear();
        self.pruned.clear();
    }
}

impl Interposer {
    /// Whether a split that a task of `source` is given does not get there.
    pub fn loses(
        &mut self,
        source: VertexId,
        task: TaskId,
        attempt: AttemptId,
        assignment: &Assignment,
    ) -> bool {
        let split = assignment.split;
        self.splits.last.insert(source, assignment.clone());
        self.splits.since.insert((source, split), self.several.triggered.next());
        let is_pruned = self.splits.pruned.remove(&(source, split));
        let given = self.splits.given.insert((source, split), (1, task, attempt));
        let Some((times, to, before)) = given.filter(|(_, _, before)| *before < attempt) else {
            return false;
        };
        self.splits.given.insert((source, split), (times + 1, task, attempt));
        match self.variant {
            Some(Variant::ReturnedSplitsLost) => true,
            Some(Variant::ReassignedSplitsLost) => times > 1,
            Some(Variant::GivenForgottenAtCompletion) => is_pruned,
            Some(Variant::SplitForTheDeadLost) => !self.splits.heard.contains(&(to, before, split)),
            Some(_) | None => false,
        }
    }

    /// Whether a split that was just given, and was in an earlier attempt, has to wait for a newer
    /// one.
    pub fn holds(
        &mut self,
        source: VertexId,
        task: TaskId,
        attempt: AttemptId,
        assignment: &Assignment,
    ) -> bool {
        let given = self.splits.given.get(&(source, assignment.split));
        let comes_back = given.is_some_and(|(times, ..)| *times > 1);
        let holds = self.is(Variant::ReturnedSplitsLast)
            && comes_back
            && !self.splits.held.contains_key(&source);
        if holds {
            self.splits.held.insert(source, (task, attempt, assignment.clone()));
        }
        holds
    }

    /// The split of `source` that has waited, or those of all sources.
    pub fn held(&mut self, source: Option<VertexId>) -> Vec<(TaskId, AttemptId, Assignment)> {
        match source {
            Some(source) => self.splits.held.remove(&source).into_iter().collect(),
            None => std::mem::take(&mut self.splits.held).into_values().collect(),
        }
    }

    /// An attempt begins: `readers` are those of one source.
    pub fn deployed(&mut self, source: VertexId, readers: &[TaskId]) {
        self.splits.held.remove(&source);
        let given: BTreeSet<TaskId> = self.splits.given.values().map(|(_, to, _)| *to).collect();
        let has_given = !given.is_empty();
        if self.is(Variant::EmptyReturnForgets) && has_given {
            let is_empty = readers.iter().any(|reader| !given.contains(reader));
            self.splits.forgotten.extend(is_empty.then_some(source));
        }
    }

    /// How many splits are known to a search.
    pub fn searched(&mut self, source: VertexId, known: u32) -> u32 {
        if self.splits.forgotten.remove(&source) { 0 } else { known }
    }

    pub(super) fn splits_at_trigger(&mut self) {
        self.splits.last_at_trigger = self.splits.last.clone();
    }

    pub(super) fn splits_at_completion(&mut self, checkpoint: CheckpointId) {
        let given = std::mem::take(&mut self.splits.since).into_iter();
        let newer = given.filter(|(_, since)| *since > checkpoint).map(|(split, _)| split);
        self.splits.pruned.extend(newer);
    }

    /// What the coordinator stores of a checkpoint; `sources` are those whose splits it assigns.
    pub fn completing(&self, sources: &[VertexId], metadata: &mut CheckpointMetadata) {
        for (source, pool) in sources.iter().zip(&mut metadata.pools) {
            if self.is(Variant::UnassignedLeftOut) {
                pool.unassigned.clear();
            }
            if self.is(Variant::PoolBeforeAssignment) {
                pool.unassigned.extend(self.splits.last_at_trigger.get(source).cloned());
            }
        }
    }
}
