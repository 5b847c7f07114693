//! Another layout: the whole job is killed, or stops with a savepoint, and begins again with
//! another parallelism, at what its latest checkpoint is dealt out to. Nothing of the processes
//! before outlives that but what is durable.

use std::collections::BTreeMap;

use cofferdam::coordinator::JobError;
use cofferdam::graph::PhysicalGraph;
use cofferdam::id::{ChannelId, TaskId};
use cofferdam::job::{DealError, Dealt, Job, Left};
use cofferdam::state::codec::{self, Kind};
use cofferdam::state::snapshot::TaskState;
use cofferdam::storage::{CheckpointMetadata, StateHandle, StoreKey};
use cofferdam::trace::{Disturbance, Origin, TraceEvent};

use super::in_flight::Shadow;
use super::{Ending, Event, World};

impl World {
    pub(super) fn plan_layout(&mut self) {
        if let Some(next) = &self.plan.next {
            self.queue.schedule(next.at.max(self.now), Event::Layout);
        }
    }

    /// Tells the job to stop with a savepoint, or kills it, unless it is over.
    pub(super) fn leave_layout(&mut self) {
        self.stopping = self.plan.next.as_ref().is_some_and(|next| next.stops);
        match self.stopping {
            true => self.with_coordinator(|_, _| ()),
            false => self.change_layout(),
        }
    }

    /// Whether a job that has nothing left to do has stopped with a savepoint, and is not at the
    /// end of its data.
    pub(super) fn has_stopped(&self) -> bool {
        let latest = self.latest_checkpoint();
        self.stopping && latest.is_some_and(|metadata| !metadata.finished)
    }

    fn latest_checkpoint(&self) -> Option<CheckpointMetadata> {
        let checkpoints = self.store.recovered().checkpoints;
        checkpoints.into_iter().max_by_key(|metadata| metadata.checkpoint)
    }

    /// Kills everything and begins again in the next layout, unless the job is over.
    pub(super) fn change_layout(&mut self) {
        let next = self.plan.next.as_ref().filter(|_| self.ending.is_none());
        let Some(next) = next.map(|next| next.plan.clone()) else { return };
        let slots = std::mem::take(&mut self.slots).into_iter();
        for slot in slots.chain(std::mem::take(&mut self.zombies)) {
            self.incarnations.entry(slot.attempt).or_default().push(slot.applied);
        }
        for number in std::mem::take(&mut self.control.puts) {
            self.settle_write(number);
        }
        self.queue.retain(|event| matches!(event, Event::Truncation(_)));
        self.control.machine = None;
        self.external.lay_out();
        self.armed = vec![true; next.faults.len()];
        self.window_counts = vec![0; next.faults.len()];
        self.calls = vec![0; next.job.graph().task_count()];
        self.control.outputs = 0;
        let before = std::mem::replace(&mut self.plan, next);
        let stopped = std::mem::take(&mut self.stopping).then_some(&before.job);
        let latest = self.latest_checkpoint();
        let dealt = match latest.map(|metadata| self.deal(&metadata, stopped)).transpose() {
            Ok(dealt) => dealt.flatten(),
            Err(error) => {
                self.ending = Some(Ending::Failed(JobError::Restore(error.to_string())));
                return;
            }
        };
        let tasks = self.plan.job.graph().task_count() as u32;
        self.record(TraceEvent::LaidOut { dealt, tasks });
        self.disturbed(Disturbance::Rescaled, None);
        self.plan_layout();
        self.start_coordinator();
    }

    /// Stores what a checkpoint is dealt out to, under the next number; or what a savepoint is that
    /// a job has stopped with there.
    fn deal(
        &mut self,
        metadata: &CheckpointMetadata,
        stopped: Option<&Job>,
    ) -> Result<Option<Laid>, DealError> {
        let states = metadata.tasks.iter().map(|handle| self.store.state(handle));
        // What can not be read can not be restored either, and the coordinator will say so.
        let Ok(mut states) = states.collect::<Result<Vec<TaskState>, String>>() else {
            return Ok(None);
        };
        if let Some(stopped) = stopped {
            states = states.into_iter().map(|state| saved_by(stopped, state)).collect();
        }
        let job = &self.plan.job;
        let before = metadata.shape.graph().expect("a job had this shape");
        self.interposer.dealing(&before, &mut states);
        let mut dealt =
            job.deal(&metadata.shape, states.clone(), &metadata.pools, Left::Refused)?;
        let shape = job.shape();
        let attempt = metadata.attempt;
        let checkpoint = metadata.checkpoint.next();
        let key_of = |task| StoreKey::State { checkpoint, attempt, task };
        self.deal_shadows(metadata, &before, &dealt, key_of);
        let (job, first) = (&self.plan.job, &self.plan.initial);
        for (task, channel) in self.interposer.dealt(&states, first, job, &mut dealt.states) {
            let shadow = self.shadows.get_mut(&key_of(task)).expect("it was just dealt out");
            shadow.in_flight.inputs.entry(channel).and_modify(|origins| {
                origins.remove(0);
            });
        }
        let parts = dealt.states.into_iter().map(|state| {
            let key = StoreKey::State { checkpoint, attempt, task: state.task };
            let bytes = codec::seal(Kind::State, &TaskState { checkpoint, ..state });
            let handle = StateHandle::of(key, &bytes);
            self.store.put(key, bytes.into(), false);
            handle
        });
        let tasks = parts.collect();
        let pools = dealt.pools;
        let laid = CheckpointMetadata { checkpoint, shape, tasks, pools, ..metadata.clone() };
        let bytes = codec::seal(Kind::Metadata, &laid);
        self.store.put(StoreKey::Metadata(checkpoint), bytes.into(), false);
        Ok(Some((metadata.checkpoint, checkpoint, attempt)))
    }

    /// What the subtasks of a vertex had taken in is the first one's now: whose it is, nobody asks.
    /// Records in flight keep their origins.
    fn deal_shadows(
        &mut self,
        metadata: &CheckpointMetadata,
        before: &PhysicalGraph,
        dealt: &Dealt,
        key_of: impl Fn(TaskId) -> StoreKey,
    ) {
        let plan = self.plan.clone();
        let graph = plan.job.graph();
        let old = |task: TaskId| self.shadows.get(&metadata.tasks[task.index()].key);
        let mut shadows: Vec<Shadow> = vec![Shadow::default(); graph.task_count()];
        for vertex in graph.vertex_ids() {
            let Some(first) = graph.tasks_of(vertex).next() else { continue };
            let taken = before.tasks_of(vertex).filter_map(&old).flat_map(|of| of.applied.iter());
            for applied in taken.copied().collect::<Vec<_>>() {
                shadows[first.index()].applied.push(applied);
            }
        }
        let mut origins: BTreeMap<ChannelId, std::vec::IntoIter<Origin>> = BTreeMap::new();
        for channel in before.channels() {
            let received = old(channel.to).and_then(|of| of.in_flight.inputs.get(&channel.index));
            let emitted =
                old(channel.from).and_then(|of| of.in_flight.outputs.get(&channel.outlet));
            let all = received.into_iter().chain(emitted).flatten().copied();
            origins.insert(channel.id, all.collect::<Vec<_>>().into_iter());
        }
        for (from, to) in &dealt.moved {
            let channel = graph.channels()[to.index()];
            let inputs = &mut shadows[channel.to.index()].in_flight.inputs;
            let origin = origins.get_mut(from).and_then(Iterator::next);
            inputs.entry(channel.index).or_default().extend(origin);
        }
        self.shadows.extend(graph.tasks().map(&key_of).zip(shadows));
    }
}

/// A task's part of the savepoint that a job stops with: all that was pending has been committed.
fn saved_by(job: &Job, state: TaskState) -> TaskState {
    let committed = TaskState { transactions: Vec::new(), log: Vec::new(), ..state };
    job.portable(committed).expect("what a task has stored is of the types of its job")
}

/// A checkpoint, what it was dealt out to, and the attempt that took it.
type Laid = (cofferdam::id::CheckpointId, cofferdam::id::CheckpointId, cofferdam::id::AttemptId);
