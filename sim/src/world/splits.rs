//! Searches for splits: each takes its time, and may have to be made again. Also what broken
//! variants do to splits.

use cofferdam::coordinator::Readers;
use cofferdam::id::{AttemptId, TaskId, VertexId};
use cofferdam::message::{Found, FromTask, TaskError, ToTask};
use cofferdam::storage::StoreValue;

use super::{Event, World};
use crate::decide::Choice;
use crate::interpose::Variant;

impl World {
    /// The coordinator has splits searched for.
    pub(super) fn search(&mut self, source: VertexId, known: u32) {
        let most = self.plan.options.external_delay_us;
        let delay = self.delay(Choice::Search, source.get(), most);
        let life = self.control.life;
        let known = self.interposer.searched(source, known);
        self.queue.schedule(self.now + delay, Event::Search { life, source, known });
    }

    /// A search has found what there is by now. One whose coordinator has died is heard by nobody.
    pub(super) fn end_search(&mut self, life: u64, source: VertexId, known: u32) {
        if life != self.control.life {
            return;
        }
        let is_early = self.may_disturb()
            && self.decider.chance(Choice::Search, source.get(), FOUND_LATER_PERMILLE);
        let found = match is_early {
            true => Ok(Found::Nothing),
            false => {
                let client = self.plan.job.source(source);
                client.expect("only a vertex with a source is searched").search(known)
            }
        };
        match found {
            Ok(Found::Nothing) => self.search(source, known),
            found => self.with_coordinator(|machine, now| {
                machine.handle_found(now, source, found.map_err(TaskError::from));
            }),
        }
    }

    /// The coordinator says something to a task, as far as a variant lets it.
    pub(super) fn say(&mut self, task: TaskId, attempt: AttemptId, message: ToTask) {
        let (source, _) = self.plan.job.graph().place_of(task);
        if self.loses_split(task, attempt, &message) {
            return;
        }
        if let ToTask::Assign(assignment) = &message
            && self.interposer.holds(source, task, attempt, assignment)
        {
            return;
        }
        let is_of_splits = matches!(message, ToTask::Assign(_) | ToTask::NoMoreSplits);
        self.send_to_task(task, attempt, message);
        if is_of_splits {
            self.send_held(Some(source));
        }
    }

    /// Sends what a variant has held back of splits, of one source or of all.
    pub(super) fn send_held(&mut self, source: Option<VertexId>) {
        for (task, attempt, assignment) in self.interposer.held(source) {
            self.send_to_task(task, attempt, ToTask::Assign(assignment));
        }
    }

    /// Whether a variant loses a split that a task is given. The coordinator hears that the task
    /// asks for another one.
    fn loses_split(&mut self, task: TaskId, attempt: AttemptId, message: &ToTask) -> bool {
        let ToTask::Assign(assignment) = message else { return false };
        let (source, _) = self.plan.job.graph().place_of(task);
        let loses = self.interposer.loses(source, task, attempt, assignment);
        if loses {
            self.report(task, attempt, FromTask::WantsSplit);
        }
        loses
    }

    /// Lets a variant change what the coordinator stores of splits.
    pub(super) fn change_pools(&mut self, value: &mut StoreValue) {
        if let (Some(_), StoreValue::Metadata(metadata)) = (self.plan.variant, value) {
            let assigned = self.plan.job.plan().assigned;
            let sources: Vec<VertexId> = assigned.iter().map(|readers| readers.source).collect();
            self.interposer.completing(&sources, metadata);
        }
    }

    /// Lets a variant do its part where an attempt begins.
    pub(super) fn deploy_readers(&mut self, attempt: AttemptId) {
        if self.plan.variant.is_none() {
            return;
        }
        for Readers { source, tasks } in self.plan.job.plan().assigned {
            self.interposer.deployed(source, &tasks);
            if self.interposer.is(Variant::SplitBeforeRegistered) {
                tasks.iter().for_each(|task| self.report(*task, attempt, FromTask::WantsSplit));
            }
        }
    }
}

/// How often there are no splits yet when some are searched for, of 1000.
const FOUND_LATER_PERMILLE: u64 = 300;
