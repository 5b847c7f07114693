//! Broken variants of going on in another layout: they change what state is dealt out from, and
//! what it is dealt out to.

use cofferdam::graph::PhysicalGraph;
use cofferdam::id::{ChannelIndex, TaskId};
use cofferdam::job::Job;
use cofferdam::state::snapshot::{OperatorState, Redistribution, SourceState, TaskState};
use cofferdam::time::EventTime;

use super::restores::invent;
use super::{Interposer, Variant};

impl Interposer {
    /// What is dealt out, of the subtasks of a graph.
    pub fn dealing(&mut self, before: &PhysicalGraph, states: &mut [TaskState]) {
        self.remember_layout(before, states);
        if !self.is(Variant::LastHandleKept) {
            return;
        }
        for vertex in before.vertex_ids() {
            let tasks: Vec<TaskId> = before.tasks_of(vertex).collect();
            for task in tasks.split_last().map_or(&[][..], |(_, others)| others) {
                let operators = states[task.index()].operators.iter_mut();
                operators.for_each(|operator| {
                    operator.keyed = operator.keyed.take().map(|_| Vec::new())
                });
            }
        }
    }

    /// What has been dealt out to a job, that began with these positions. Returns the channels of
    /// the records in flight that are lost, the first one of each.
    pub fn dealt(
        &mut self,
        before: &[TaskState],
        first: &[Option<SourceState>],
        job: &Job,
        states: &mut [TaskState],
    ) -> Vec<(TaskId, ChannelIndex)> {
        let mut skipped = Vec::new();
        let newest = before.first().map(|state| state.checkpoint).unwrap_or_default();
        for state in states.iter_mut() {
            let (_, subtask) = job.graph().place_of(state.task);
            let is_new = |uid: &str| {
                let holders =
                    before.iter().filter(|old| old.operators.iter().any(|o| o.uid == uid));
                subtask.index() >= holders.count()
            };
            for operator in &mut state.operators {
                if self.is(Variant::NewCopiesEmpty) && is_new(&operator.uid) {
                    empty_copies(operator);
                }
                if self.is(Variant::TimersLeftBehind) && is_new(&operator.uid) {
                    operator.timers = None;
                }
                if self.is(Variant::HighestWatermark) {
                    operator.watermark = highest(before, &operator.uid);
                }
                let is_new = is_new(&operator.uid);
                self.deal_otherwise(newest, subtask.index(), is_new, operator);
            }
            if self.is(Variant::MovedSplitsAnew)
                && let Some(source) = &mut state.source
            {
                begin_anew(source, before.get(state.task.index()), first);
            }
            if self.is(Variant::EmptyListInvented)
                && let Some(source) = &mut state.source
            {
                invent(source, first);
            }
            let loses = self.is(Variant::FirstInFlightSkipped)
                || self.is(Variant::StatelessInFlightLost) && state.operators.is_empty();
            for (channel, batches) in &mut state.in_flight.inputs {
                while loses && !batches.is_empty() {
                    batches.remove(0);
                    skipped.push((state.task, *channel));
                    if self.is(Variant::FirstInFlightSkipped) {
                        break;
                    }
                }
            }
        }
        self.end_dealing(states);
        skipped
    }
}

fn empty_copies(operator: &mut OperatorState) {
    let copies = operator.lists.iter_mut();
    let copies = copies.filter(|list| list.redistribution == Redistribution::Broadcast);
    copies.for_each(|list| list.elements.clear());
}

/// The highest watermark that any subtask of an operator had.
fn highest(before: &[TaskState], uid: &str) -> Option<EventTime> {
    let operators = before.iter().flat_map(|state| &state.operators);
    operators.filter(|operator| operator.uid == uid).filter_map(|operator| operator.watermark).max()
}

/// Splits that the subtask did not have before begin where they began at first.
fn begin_anew(source: &mut SourceState, before: Option<&TaskState>, first: &[Option<SourceState>]) {
    let had = before.and_then(|state| state.source.as_ref());
    let had = |split| had.is_some_and(|source| source.splits.iter().any(|old| old.split == split));
    for split in source.splits.iter_mut().filter(|split| !had(split.split)) {
        let all = first.iter().flatten().flat_map(|source| &source.splits);
        if let Some(begun) = all.into_iter().find(|begun| begun.split == split.split) {
            split.clone_from(begun);
        }
    }
}
