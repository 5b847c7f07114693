//! Broken variants of what a task is restored from: which of the stored parts it gets, and how much
//! of them.

use std::collections::{BTreeMap, BTreeSet};

use cofferdam::graph::PhysicalGraph;
use cofferdam::id::{CheckpointId, TaskId};
use cofferdam::state::codec::{self, Format};
use cofferdam::state::key_group::KeyGroup;
use cofferdam::state::snapshot::{Bytes, OperatorState, SourceState, TaskSnapshot, TaskState};
use cofferdam::storage::ProgressLog;
use cofferdam::time::EventTime;

use super::{Interposer, Variant};

/// What the variants remember of stored state.
#[derive(Clone, Debug, Default)]
pub(super) struct Restores {
    /// The operators' state in each part of this layout.
    parts: BTreeMap<(CheckpointId, TaskId), Vec<OperatorState>>,
    /// The last write of each task's progress.
    writes: BTreeMap<TaskId, CheckpointId>,
    /// What each subtask of an operator had when a layout ended, and in the how-manieth.
    cache: BTreeMap<(String, usize, KeyGroup), (u32, Bytes)>,
    layouts: u32,
}

impl Interposer {
    /// A part of a checkpoint is on its way to the store.
    pub(super) fn remember_part(&mut self, snapshot: &TaskSnapshot) {
        if self.is(Variant::ListsReshuffled) || self.is(Variant::NewSubtaskBehind) {
            let operators = snapshot.operators.iter().map(|of| of.to_state(Format::Binary));
            let part = (snapshot.checkpoint, snapshot.task);
            self.restores.parts.insert(part, operators.collect());
        }
    }

    /// A write of a task's progress is on its way to the store.
    pub(super) fn remember_write(&mut self, task: TaskId, write: CheckpointId) {
        self.restores.writes.insert(task, write);
    }

    /// Changes the state of a task that begins again where it was.
    pub(super) fn restore_other(&self, task: TaskId, state: &mut TaskState) {
        if self.is(Variant::ListsReshuffled) {
            self.reshuffle(task, state);
        }
        for operator in &mut state.operators {
            if self.is(Variant::ReadBeforeRecovered)
                && let Some(groups) = &mut operator.keyed
            {
                groups.truncate(groups.len() / 2);
            }
            if self.is(Variant::TimersRetimed) {
                let time = operator.watermark.unwrap_or(EventTime::MIN);
                let timers = operator.timers.iter_mut().flatten();
                timers.for_each(|(_, timers)| retime(timers, time));
            }
        }
    }

    /// Gives a task the lists of the next subtask of its vertex.
    fn reshuffle(&self, task: TaskId, state: &mut TaskState) {
        let parts = self.restores.parts.iter();
        let is_beside = |operators: &[OperatorState]| {
            let uids = |operators: &[OperatorState]| -> Vec<String> {
                operators.iter().map(|operator| operator.uid.clone()).collect()
            };
            uids(operators) == uids(&state.operators)
        };
        let beside: Vec<(TaskId, &Vec<OperatorState>)> = parts
            .filter(|((checkpoint, _), of)| *checkpoint == state.checkpoint && is_beside(of))
            .map(|((_, task), operators)| (*task, operators))
            .collect();
        let Some(own) = beside.iter().position(|(other, _)| *other == task) else { return };
        let (_, next) = beside[(own + 1) % beside.len()];
        for (operator, next) in state.operators.iter_mut().zip(next) {
            operator.lists.clone_from(&next.lists);
        }
    }

    /// What a task finds of the log of its progress.
    pub fn replayed(&self, task: TaskId, mut log: ProgressLog) -> Option<ProgressLog> {
        let writes = || self.restores.writes.values().copied();
        let own = log.last().checkpoint;
        match self.variant {
            Some(Variant::ChangesReversed) => reverse(&mut log),
            Some(Variant::RemovalsAsEmpty) => {
                let operators = log.changes.iter_mut().flat_map(|change| &mut change.operators);
                let keyed = operators.flat_map(|operator| operator.keyed.iter_mut().flatten());
                keyed.for_each(|(_, entries)| keep_removed(entries));
            }
            Some(Variant::LogsCutEven) => {
                let shortest = writes().min().unwrap_or_default();
                log.changes.retain(|change| change.checkpoint <= shortest);
            }
            Some(Variant::LogTrimmedTooFar) if !log.changes.is_empty() => {
                log.changes.remove(0);
            }
            Some(Variant::IdleLogRemoved) => {
                let newest = writes().max().unwrap_or_default();
                let is_written = self.restores.writes.contains_key(&task);
                return Some(log).filter(|_| !is_written || 2 * own.get() >= newest.get());
            }
            Some(_) | None => {}
        }
        Some(log)
    }

    /// A layout has ended, with this state.
    pub(super) fn remember_layout(&mut self, before: &PhysicalGraph, states: &[TaskState]) {
        if !self.is(Variant::OldGroupsBelieved) {
            return;
        }
        let Restores { cache, layouts, .. } = &mut self.restores;
        *layouts += 1;
        for state in states {
            let (_, subtask) = before.place_of(state.task);
            for (uid, group, bytes) in keyed_of(&state.operators) {
                let place = (uid.to_owned(), subtask.index(), group);
                cache.insert(place, (*layouts, bytes.clone()));
            }
        }
    }

    /// Gives a subtask of another layout other groups, or the same with other contents.
    pub(super) fn deal_otherwise(
        &self,
        newest: CheckpointId,
        subtask: usize,
        is_new: bool,
        operator: &mut OperatorState,
    ) {
        let Some(groups) = &mut operator.keyed else { return };
        if self.is(Variant::OldGroupsBelieved) {
            for (group, bytes) in groups.iter_mut() {
                let cached = self.restores.cache.get(&(operator.uid.clone(), subtask, *group));
                let old = cached.filter(|(layout, _)| *layout < self.restores.layouts);
                old.into_iter().for_each(|(_, old)| bytes.clone_from(old));
            }
        }
        if self.is(Variant::NewSubtaskBehind) && is_new {
            let older = self.restores.parts.range(..(newest, TaskId::new(0)));
            let older: BTreeMap<KeyGroup, &Bytes> = older
                .flat_map(|(_, operators)| keyed_of(operators))
                .filter(|(uid, ..)| *uid == operator.uid)
                .map(|(_, group, bytes)| (group, bytes))
                .collect();
            groups.retain(|(group, _)| older.contains_key(group));
            groups.iter_mut().for_each(|(group, bytes)| bytes.clone_from(older[group]));
        }
    }

    /// Forgets the parts of a layout that is over, and deals groups out as if they were a list.
    pub(super) fn end_dealing(&mut self, states: &mut [TaskState]) {
        self.restores.parts.clear();
        if !self.is(Variant::GroupsDealtEvenly) {
            return;
        }
        let operators = || states.iter().flat_map(|state| &state.operators);
        let uids: BTreeSet<String> = operators().map(|operator| operator.uid.clone()).collect();
        for uid in uids {
            let operators = states.iter_mut().flat_map(|state| &mut state.operators);
            let same = operators.filter(|operator| operator.uid == uid);
            let mut keyed: Vec<_> = same.filter_map(|operator| operator.keyed.as_mut()).collect();
            let all: Vec<(KeyGroup, Bytes)> =
                keyed.iter_mut().flat_map(|groups| std::mem::take(*groups)).collect();
            let subtasks = keyed.len();
            for (position, group) in all.into_iter().enumerate() {
                keyed[position % subtasks].push(group);
            }
        }
    }
}

/// A subtask that has no split takes the first one of all for its own.
pub(super) fn invent(source: &mut SourceState, first: &[Option<SourceState>]) {
    if source.splits.is_empty() {
        let all = first.iter().flatten().flat_map(|source| &source.splits);
        source.splits.extend(all.take(1).cloned());
    }
}

fn keyed_of(operators: &[OperatorState]) -> impl Iterator<Item = (&str, KeyGroup, &Bytes)> {
    operators.iter().flat_map(|operator| {
        let groups = operator.keyed.iter().flatten();
        groups.map(|(group, bytes)| (&*operator.uid, *group, bytes))
    })
}

fn reverse(log: &mut ProgressLog) {
    let changes = log.changes.iter_mut().map(|of| std::mem::take(&mut of.operators));
    let reversed: Vec<_> = changes.collect::<Vec<_>>().into_iter().rev().collect();
    for (change, operators) in log.changes.iter_mut().zip(reversed) {
        change.operators = operators;
    }
}

/// Puts an empty value in the place of each removal, of keys and sets that are numbers.
fn keep_removed(entries: &mut Bytes) {
    if let Ok(mut decoded) = codec::decode::<Vec<(u64, Option<BTreeSet<u64>>)>>(entries) {
        for (_, value) in &mut decoded {
            value.get_or_insert_default();
        }
        *entries = Bytes::from(codec::encode(&decoded));
    }
}

/// Puts another time in the place of that of each timer, of keys that are numbers.
fn retime(timers: &mut Bytes, time: EventTime) {
    if let Ok(decoded) = codec::decode::<Vec<(EventTime, u64)>>(timers) {
        let keys: BTreeSet<u64> = decoded.into_iter().map(|(_, key)| key).collect();
        let retimed: Vec<(EventTime, u64)> = keys.into_iter().map(|key| (time, key)).collect();
        *timers = Bytes::from(codec::encode(&retimed));
    }
}
