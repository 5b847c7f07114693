//! The splits of one source, which are found as time goes on and assigned to the readers that ask.
//! It knows neither how splits are found nor how an assignment travels; when it may answer a
//! reader is the coordinator's decision.
//!
//! Invariant: each split that was found is in just one place: to be assigned, in the history, or in
//! the part of a reader in the newest complete checkpoint, unless it is read by then.

use std::collections::BTreeMap;

use crate::id::{CheckpointId, SplitId, TaskId, VertexId};
use crate::message::{Assignment, Found, ToTask};
use crate::storage::SplitPool;

/// A source whose splits the coordinator assigns.
#[derive(Clone, Debug)]
pub(super) struct Enumerator {
    source: VertexId,
    readers: Vec<TaskId>,
    found: u32,
    is_complete: bool,
    /// A search is under way.
    is_searching: bool,
    /// By number: what comes back goes ahead of what was found later.
    unassigned: BTreeMap<SplitId, Vec<u8>>,
    /// Assignments that no complete checkpoint holds.
    history: Vec<Given>,
    /// The readers that have asked, in that order.
    waiting: Vec<TaskId>,
}

/// A split that some reader was given. All begin again together: the job is one region (rule 118).
#[derive(Clone, Debug)]
struct Given {
    /// The first checkpoint that holds it, in the part of the reader that was given it.
    since: CheckpointId,
    assignment: Assignment,
}

impl Enumerator {
    /// Goes on from what a checkpoint holds, if there is one.
    pub(super) fn new(source: VertexId, readers: Vec<TaskId>, restored: Option<SplitPool>) -> Self {
        let SplitPool { found, is_complete, unassigned } = restored.unwrap_or_default();
        Self {
            source,
            readers,
            found,
            is_complete,
            is_searching: false,
            unassigned: unassigned.into_iter().map(|open| (open.split, open.cursor)).collect(),
            history: Vec::new(),
            waiting: Vec::new(),
        }
    }

    pub(super) const fn source(&self) -> VertexId {
        self.source
    }

    pub(super) fn first_reader(&self) -> TaskId {
        self.readers[0]
    }

    /// The part of a checkpoint that is triggered now.
    pub(super) fn pool(&self) -> SplitPool {
        let assignment = |(split, cursor): (&SplitId, &Vec<u8>)| Assignment {
            split: *split,
            cursor: cursor.clone(),
        };
        SplitPool {
            found: self.found,
            is_complete: self.is_complete,
            unassigned: self.unassigned.iter().map(assignment).collect(),
        }
    }

    /// `task` asks for a split, if it is one of the readers.
    pub(super) fn ask(&mut self, task: TaskId) {
        if self.readers.contains(&task) && !self.waiting.contains(&task) {
            self.waiting.push(task);
        }
    }

    /// Answers the first reader that waits and may be answered. What it is given is held by its
    /// part of the checkpoint `next` and of later ones.
    pub(super) fn answer(
        &mut self,
        next: CheckpointId,
        may_hear: impl Fn(TaskId) -> bool,
    ) -> Option<(TaskId, ToTask)> {
        let place = self.waiting.iter().position(|reader| may_hear(*reader))?;
        let message = match self.unassigned.pop_first() {
            Some((split, cursor)) => {
                let assignment = Assignment { split, cursor };
                self.history.push(Given { since: next, assignment: assignment.clone() });
                ToTask::Assign(assignment)
            }
            None if self.is_complete => ToTask::NoMoreSplits,
            None => return None,
        };
        Some((self.waiting.remove(place), message))
    }

    /// Whether there is an answer for a reader that waits, and of which `is_meant` says so.
    pub(super) fn could_answer(&self, is_meant: impl Fn(TaskId) -> bool) -> bool {
        let has_answer = !self.unassigned.is_empty() || self.is_complete;
        has_answer && self.waiting.iter().any(|reader| is_meant(*reader))
    }

    /// Whether to search behind so many splits: a reader waits, and there is none left.
    pub(super) fn search(&mut self) -> Option<u32> {
        let is_due = !self.waiting.is_empty()
            && self.unassigned.is_empty()
            && !self.is_complete
            && !self.is_searching;
        self.is_searching |= is_due;
        is_due.then_some(self.found)
    }

    /// A search has ended, perhaps without anything to tell.
    pub(super) fn end_search(&mut self, found: Option<Found<Vec<u8>>>) {
        self.is_searching = false;
        match found {
            Some(Found::Splits(cursors)) => {
                for cursor in cursors {
                    self.unassigned.insert(SplitId::new(self.found), cursor);
                    self.found += 1;
                }
            }
            Some(Found::End) => self.is_complete = true,
            Some(Found::Nothing) | None => {}
        }
    }

    /// A checkpoint is complete: what it holds never comes back (rule 81).
    pub(super) fn complete(&mut self, checkpoint: CheckpointId) {
        self.history.retain(|given| given.since > checkpoint);
    }

    /// All readers begin again at the newest complete checkpoint: what they were given since comes
    /// back (rule 81), and what they asked is void.
    pub(super) fn reset(&mut self) {
        self.waiting.clear();
        for Given { assignment, .. } in self.history.drain(..) {
            self.unassigned.insert(assignment.split, assignment.cursor);
        }
    }
}
