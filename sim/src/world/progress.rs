//! Transactional updates: the origins of what tasks produce and hold until it is durable, and where
//! an attempt goes on.

use cofferdam::element::{Batch, Element};
use cofferdam::guarantee::Mechanism;
use cofferdam::id::{AttemptId, ChannelIndex, CheckpointId, OutletIndex, TaskId};
use cofferdam::state::codec::Format;
use cofferdam::state::snapshot::TaskState;
use cofferdam::storage::StoreKey;
use cofferdam::task::{Task, TaskOutput};
use cofferdam::trace::{Origin, TraceEvent};

use super::in_flight::Shadow;
use super::lineage::Lineage;
use super::steps::digest;
use super::{Life, World, Writer};
use crate::link::Origins;

impl World {
    /// How many of the first records of a batch a task will drop.
    pub(super) fn known(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        channel: ChannelIndex,
        records: &Batch,
    ) -> usize {
        match self.slot_mut(id, attempt).map(|slot| &slot.life) {
            Some(Life::Live(task)) => task.known(channel, records),
            Some(Life::Starting | Life::Dead) | None => 0,
        }
    }

    /// Notes where new productions of a task come from.
    pub(super) fn note_produced(&mut self, task: &Task, lineage: &mut Lineage) {
        if self.plan.job.config().mechanism != Mechanism::Transactional {
            return;
        }
        let plan = self.plan.clone();
        for (outlet, records) in task.held(0).filter_map(sent_records) {
            let Some(slot) = self.slot_mut(task.id(), task.attempt()) else { return };
            let noted = slot.productions.entry(outlet).or_default();
            if records.number() == Some(noted.len() as u64) {
                noted.extend(lineage.origins(&plan, task, outlet.index(), records));
            }
        }
    }

    pub(super) fn origins_of_produced(
        &mut self,
        task: &Task,
        outlet: OutletIndex,
        first: u64,
        records: usize,
    ) -> Origins {
        let slot = self.slot_mut(task.id(), task.attempt());
        let noted = slot.and_then(|slot| slot.productions.get(&outlet));
        let noted = noted.into_iter().flat_map(|noted| noted.range(first as usize, records));
        // Where a variant loses track of them, they are nobody's.
        let nobodys = std::iter::repeat_n(Origin { record: None, path: 0 }, records);
        noted.copied().chain(nobodys).take(records).collect()
    }

    /// Notes what the write of its progress holds that a task begins now.
    pub(super) fn note_progress_cut(&mut self, task: &mut Task, write: CheckpointId) {
        let (id, attempt, key) = (task.id(), task.attempt(), self.progress_key(task.id()));
        let digest = digest(&task.capture(write).to_state(Format::Binary));
        self.record(TraceEvent::ProgressCut { task: id, attempt, write, digest });
        // What an old attempt writes does not land.
        if self.store.is_fenced(key, task.attempt()) {
            return;
        }
        let Some(slot) = self.slot_mut(task.id(), task.attempt()) else { return };
        let (applied, productions) = (slot.applied.clone(), slot.productions.clone());
        let shadow = Shadow { applied, productions, ..Shadow::default() };
        let is_recent = |number: &CheckpointId| number.get() + WRITES_REMEMBERED > write.get();
        self.progress.retain(|(of, number), _| *of != key || is_recent(number));
        self.progress.insert((key, write), shadow);
    }

    /// Notes that a value has become durable, if it is a task's progress, whether its writer hears
    /// of it or not.
    pub(super) fn note_progress_stored(&mut self, writer: Writer, key: StoreKey) {
        let (StoreKey::Progress { .. }, Writer::Task(task, attempt)) = (key, writer) else {
            return;
        };
        let log = self.store.progress(key);
        let state = log.and_then(|log| self.plan.job.last_write(task, log).ok());
        let Some(state) = state else { return };
        let produced = state.numbers.as_ref().map_or(0, |numbers| numbers.outputs.iter().sum());
        let (write, digest) = (state.checkpoint, digest(&state));
        self.record(TraceEvent::ProgressStored { task, attempt, write, digest, produced });
    }

    /// The last write of a task's progress, for an attempt that goes on from it.
    pub(super) fn last_progress(&mut self, id: TaskId, attempt: AttemptId) -> Option<TaskState> {
        let key = self.progress_key(id);
        let is_written = self.plan.job.config().mechanism == Mechanism::Transactional;
        let log = is_written.then(|| self.store.begin_progress(key, attempt)).flatten()?;
        let log = self.interposer.replayed(id, log)?;
        self.plan.job.last_write(id, log).ok()
    }

    /// Gives a task that goes on from a write of its progress the origins of what that holds.
    pub(super) fn resume(&mut self, task: &mut Task, restored: Option<CheckpointId>) {
        if self.plan.job.config().mechanism != Mechanism::Transactional {
            return;
        }
        let (id, attempt, key) = (task.id(), task.attempt(), self.progress_key(task.id()));
        let mut sent = 0;
        let restored = restored.map(|write| {
            let state = task.capture(write);
            let kept = state.in_flight.outputs.values().flatten().map(|records| records.len());
            let produced: u64 = state.numbers.iter().flat_map(|numbers| &numbers.outputs).sum();
            sent = produced - kept.sum::<usize>() as u64;
            (write, digest(&state.to_state(Format::Binary)))
        });
        let shadow = restored.and_then(|(write, _)| self.progress.get(&(key, write)).cloned());
        let Shadow { applied, productions, .. } = shadow.unwrap_or_default();
        let slot = self.slot_mut(id, attempt).expect("it was there a moment ago");
        (slot.applied, slot.productions) = (applied, productions);
        self.record(TraceEvent::Resumed { task: id, attempt, restored, sent });
    }

    fn progress_key(&self, task: TaskId) -> StoreKey {
        let (vertex, subtask) = self.plan.job.graph().place_of(task);
        StoreKey::Progress { vertex, subtask }
    }
}

fn sent_records(output: &TaskOutput) -> Option<(OutletIndex, &Batch)> {
    if let TaskOutput::Send(outlet, Element::Batch(records)) = output {
        Some((*outlet, records))
    } else {
        None
    }
}

/// How many writes of a task may be under way at once: one, unless a variant hurries them.
const WRITES_REMEMBERED: u64 = 32;
