//! Broken variants of assigning splits: they change what the coordinator says and stores.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam::id::{AttemptId, SplitId, TaskId, VertexId};
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
}

impl Splits {
    /// A task hears of a split.
    pub(super) fn hear(&mut self, task: &Task, assignment: &Assignment) {
        self.heard.insert((task.id(), task.attempt(), assignment.split));
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
        let given = self.splits.given.insert((source, split), (1, task, attempt));
        let Some((times, to, before)) = given.filter(|(_, _, before)| *before < attempt) else {
            return false;
        };
        self.splits.given.insert((source, split), (times + 1, task, attempt));
        match self.variant {
            Some(Variant::ReturnedSplitsLost) => true,
            Some(Variant::ReassignedSplitsLost) => times > 1,
            Some(Variant::SplitForTheDeadLost) => !self.splits.heard.contains(&(to, before, split)),
            Some(_) | None => false,
        }
    }

    /// An attempt begins: `readers` are those of one source.
    pub fn deployed(&mut self, source: VertexId, readers: &[TaskId]) {
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

    /// A checkpoint is triggered.
    pub fn triggered(&mut self) {
        self.splits.last_at_trigger = self.splits.last.clone();
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
