//! Barriers that overtake, and the records in flight that they leave to the snapshots: what the
//! driver owes the tasks for it, the origins of those records, and putting them back at recovery.

use std::collections::BTreeMap;

use cofferdam::element::{Barrier, Batch, Element};
use cofferdam::graph::Channel;
use cofferdam::guarantee::Mechanism;
use cofferdam::id::{AttemptId, ChannelId, ChannelIndex, CheckpointId, OutletIndex, TaskId};
use cofferdam::state::codec::Format;
use cofferdam::state::snapshot::{InFlight, TaskSnapshot, TaskState};
use cofferdam::storage::{CheckpointMetadata, StoreKey};
use cofferdam::task::Task;
use cofferdam::trace::{Carried, Content, Origin, TraceEvent};

use super::lineage::{Applied, hash_bytes};
use super::steps::digest;
use super::{Life, Slot, World};
use crate::decide::Choice;
use crate::interpose::Variant;
use crate::link::{Notice, Origins, carried};
use crate::log::Log;

/// Where the records of a snapshot come from: those that its keyed state holds, and those that were
/// in flight.
#[derive(Clone, Debug, Default)]
pub(super) struct Shadow {
    pub(super) applied: Log<Applied>,
    pub(super) in_flight: InFlight<Origin>,
    /// As those of the slot.
    pub(super) productions: BTreeMap<OutletIndex, Log<Origin>>,
}

impl World {
    /// Hands a task the barriers that have come and do not wait for their turn, and tells it of
    /// those that do. A step that is under way is not interrupted (rule 32), but neither blocked
    /// channels nor full outputs keep a barrier off.
    pub(super) fn take_notices(&mut self, id: TaskId, attempt: AttemptId) {
        let now = self.now;
        while let Some(slot) = self.slot_mut(id, attempt)
            && let Some((channel, notice)) = slot.next_notice(now)
        {
            match notice {
                Notice::Waiting(barrier) => self.with_task(id, attempt, |task| {
                    task.handle_announcement(channel, barrier);
                }),
                Notice::Ahead { sequence, barrier } => {
                    let overtaken = self.overtake(id, attempt, channel, sequence, barrier);
                    self.with_task(id, attempt, |task| {
                        task.handle_overtaking(channel, barrier, overtaken);
                    });
                }
            }
        }
    }

    /// A barrier goes ahead of what its channel holds; returns copies of the records, and keeps
    /// their origins for the snapshot that they may become part of.
    fn overtake(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        channel: ChannelIndex,
        sequence: u64,
        barrier: Barrier,
    ) -> Vec<Batch> {
        let of_channel = self.plan.job.graph().inputs(id)[channel.index()];
        let checkpoint = barrier.checkpoint;
        let is_blind = self.interposer.is(Variant::InFlightBehindBarrier);
        self.record(TraceEvent::Overtook { channel: of_channel, attempt, sequence, checkpoint });
        let Some(slot) = self.slot_mut(id, attempt) else { return Vec::new() };
        let place = if is_blind { u64::MAX } else { sequence };
        let (overtaken, origins) = slot.inputs[channel.index()].before(place);
        let in_flight = slot.in_flight.entry(checkpoint).or_default();
        in_flight.inputs.entry(channel).or_default().extend(origins);
        overtaken
    }

    /// A task asks for a barrier that waits for its turn in the channel.
    pub(super) fn take_barrier(
        &mut self,
        task: &mut Task,
        channel: ChannelIndex,
        checkpoint: CheckpointId,
    ) {
        let (id, attempt) = (task.id(), task.attempt());
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        let Some((sequence, barrier)) = slot.inputs[channel.index()].pull(checkpoint) else {
            return;
        };
        let overtaken = self.overtake(id, attempt, channel, sequence, barrier);
        task.handle_overtaking(channel, barrier, overtaken);
        let sender = self.plan.job.graph().inputs(id)[channel.index()];
        let sender = self.plan.job.graph().channels()[sender.index()].from;
        // Not at once: the receiver is in the middle of a call.
        self.wake(sender, attempt, self.now);
    }

    /// A task sends a barrier: ahead of what waits for room, or behind it.
    pub(super) fn send_barrier(&mut self, task: &mut Task, outlet: OutletIndex, barrier: Barrier) {
        let (id, attempt) = (task.id(), task.attempt());
        let channel = self.plan.job.graph().outputs(id)[outlet.index()];
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        let Barrier { checkpoint, overtakes, .. } = barrier;
        if overtakes {
            let waiting = slot.waiting.len();
            let overtaken = self.leave_behind(id, attempt, channel, outlet, checkpoint, waiting);
            self.push_ahead(channel, attempt, barrier);
            return task.handle_barrier_sent(outlet, checkpoint, overtaken);
        }
        let element = Element::Barrier(barrier);
        if !slot.waiting.is_empty() {
            slot.waiting.push_back((channel, element, Origins::new()));
        } else if let Some((element, origins)) =
            self.push(channel, attempt, element, Origins::new())
        {
            let slot = self.slot_mut(id, attempt).expect("a push changes other tasks only");
            slot.waiting.push_back((channel, element, origins));
        } else {
            task.handle_barrier_sent(outlet, checkpoint, Vec::new());
        }
    }

    /// A barrier that waits for room has waited too long (rule 37).
    pub(super) fn hurry(&mut self, task: &mut Task, outlet: OutletIndex, checkpoint: CheckpointId) {
        let (id, attempt) = (task.id(), task.attempt());
        let channel = self.plan.job.graph().outputs(id)[outlet.index()];
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        let is_it = |(of, element, _): &(ChannelId, Element, Origins)| {
            *of == channel && element.barrier().is_some_and(|it| it.checkpoint == checkpoint)
        };
        let Some(place) = slot.waiting.iter().position(is_it) else { return };
        let taken = slot.waiting.remove(place).and_then(|(_, element, _)| element.barrier());
        let Some(barrier) = taken else { return };
        let overtaken = self.leave_behind(id, attempt, channel, outlet, checkpoint, place);
        self.push_ahead(channel, attempt, Barrier { overtakes: true, ..barrier });
        // It may have been all that the task waited with.
        self.wake(id, attempt, self.now);
        task.handle_barrier_sent(outlet, checkpoint, overtaken);
    }

    /// Copies of the records for a channel among the first `ahead` elements that wait for room;
    /// their origins are kept.
    fn leave_behind(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        channel: ChannelId,
        outlet: OutletIndex,
        checkpoint: CheckpointId,
        ahead: usize,
    ) -> Vec<Batch> {
        let ahead = if self.interposer.is(Variant::OutputNotInFlight) { 0 } else { ahead };
        let Some(slot) = self.slot_mut(id, attempt) else { return Vec::new() };
        let mut overtaken = Vec::new();
        let mut origins = Vec::new();
        for (of, element, of_records) in slot.waiting.iter().take(ahead) {
            if let (true, Element::Batch(records)) = (*of == channel, element) {
                overtaken.push(records.clone());
                origins.extend_from_slice(of_records);
            }
        }
        let in_flight = slot.in_flight.entry(checkpoint).or_default();
        in_flight.outputs.insert(outlet, origins);
        overtaken
    }

    /// Puts a barrier ahead of everything in its channel, whether there is room or not.
    fn push_ahead(&mut self, channel: ChannelId, attempt: AttemptId, barrier: Barrier) {
        let Channel { to, index, .. } = self.plan.job.graph().channels()[channel.index()];
        let most = self.plan.options.channel_delay_us;
        let delay = self.delay(Choice::ChannelDelay, channel.get(), most);
        let arrival = self.now + delay;
        let Some(slot) = self.slot_mut(to, attempt) else { return };
        if let Life::Dead = slot.life {
            return;
        }
        let (sequence, arrival) = slot.inputs[index.index()].push_ahead(arrival, barrier);
        let what = Carried::Barrier(barrier.checkpoint);
        self.record(TraceEvent::Sent { channel, attempt, sequence, what });
        self.wake(to, attempt, arrival);
    }

    /// The task's state is cut: what is delivered from now on is not part of it.
    pub(super) fn note_cut(&mut self, task: &mut Task, checkpoint: CheckpointId) {
        if self.plan.job.config().mechanism == Mechanism::Transactional {
            return self.note_progress_cut(task, checkpoint);
        }
        let (id, attempt) = (task.id(), task.attempt());
        let digest = digest(&task.capture(checkpoint).to_state(Format::Binary));
        self.record(TraceEvent::Snapshot { task: id, attempt, checkpoint, digest });
        if let Some(slot) = self.slot_mut(id, attempt) {
            slot.cut = Some((checkpoint, slot.applied.clone()));
        }
    }

    /// Keeps the origins of records that a task is about to take and that it records as well.
    pub(super) fn note_recorded(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        channel: ChannelIndex,
        origins: &[Origin],
    ) {
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        let Life::Live(task) = &slot.life else { return };
        if let (true, Some((checkpoint, _))) = (task.is_recording(channel), &slot.cut) {
            let in_flight = slot.in_flight.entry(*checkpoint).or_default();
            in_flight.inputs.entry(channel).or_default().extend_from_slice(origins);
        }
    }

    /// The origins of what a snapshot holds; none if it holds no records in flight.
    pub(super) fn shadow_of_cut(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        checkpoint: CheckpointId,
    ) -> Option<Shadow> {
        let slot = self.slot_mut(id, attempt)?;
        let (_, applied) = slot.cut.clone().filter(|(of, _)| *of == checkpoint)?;
        let in_flight = slot.in_flight.remove(&checkpoint).unwrap_or_default();
        slot.in_flight.retain(|other, _| *other > checkpoint);
        Some(Shadow { applied, in_flight, ..Shadow::default() })
    }

    /// Notes which records in flight are about to be stored.
    pub(super) fn note_in_flight(&mut self, task: &Task, snapshot: &TaskSnapshot) {
        let graph = self.plan.clone();
        let graph = graph.job.graph();
        let (id, attempt, checkpoint) = (task.id(), task.attempt(), snapshot.checkpoint);
        let InFlight { inputs, outputs } = &snapshot.in_flight;
        let inputs = inputs.iter().map(|(index, all)| (graph.inputs(id)[index.index()], all));
        let outputs = outputs.iter().map(|(index, all)| (graph.outputs(id)[index.index()], all));
        for (channel, batches) in inputs.chain(outputs) {
            let content = batches.iter().map(content_of).fold(Content::default(), Content::then);
            let is_output = graph.channels()[channel.index()].from == id;
            self.record(TraceEvent::InFlight { channel, attempt, checkpoint, is_output, content });
        }
    }

    /// Notes what a task has emitted, whether there is room for it or not.
    pub(super) fn note_emitted(&mut self, channel: ChannelId, attempt: AttemptId, records: &Batch) {
        if self.plan.job.config().mechanism.stores_in_flight() {
            let content = content_of(records);
            self.record(TraceEvent::Emitted { channel, attempt, content });
        }
    }

    /// Puts the records that were in flight into the channels of a new attempt, before anything is
    /// sent (rule 30). A part that can not be read stops its own task from starting.
    pub(super) fn refill(&mut self, attempt: AttemptId, restore: &CheckpointMetadata) {
        let states = restore.tasks.iter().map(|handle| self.store.state(handle));
        let Ok(states) = states.collect::<Result<Vec<TaskState>, String>>() else { return };
        let plan = self.plan.clone();
        let in_flight = plan.job.in_flight(&states);
        let in_flight = in_flight.expect("what a task has stored is of the types of its job");
        for (channel, batches) in plan.job.graph().channels().iter().zip(in_flight) {
            let mut origins = self.origins_in_flight(restore, channel).into_iter().cycle();
            for records in batches {
                let origins = origins.by_ref().take(records.len()).collect();
                self.note_emitted(channel.id, attempt, &records);
                let element = Element::Batch(records);
                let (now, what) = (self.now, carried(&element));
                let slot = self.slot_mut(channel.to, attempt).expect("it has just been made");
                let link = &mut slot.inputs[channel.index.index()];
                let (sequence, _) = link.push(now, now, attempt, element, origins);
                let channel = channel.id;
                self.record(TraceEvent::Sent { channel, attempt, sequence, what });
            }
        }
    }

    fn origins_in_flight(&self, restore: &CheckpointMetadata, channel: &Channel) -> Vec<Origin> {
        let in_flight_of = |task: TaskId| {
            let key: StoreKey = restore.tasks[task.index()].key;
            self.shadows.get(&key).map(|shadow| &shadow.in_flight)
        };
        let received = in_flight_of(channel.to).and_then(|of| of.inputs.get(&channel.index));
        let emitted = in_flight_of(channel.from).and_then(|of| of.outputs.get(&channel.outlet));
        received.into_iter().chain(emitted).flatten().copied().collect()
    }
}

impl Slot {
    /// The next barrier that has come and that the task has not heard of.
    fn next_notice(&mut self, now: cofferdam::time::Instant) -> Option<(ChannelIndex, Notice)> {
        let Life::Live(task) = &self.life else { return None };
        if !task.accepts_elements() {
            return None;
        }
        let announces = task.wants_announcements();
        let links = (0..).zip(&mut self.inputs);
        let mut notices = links.filter_map(|(position, link)| {
            let notice = link.next_notice(now, announces)?;
            Some((ChannelIndex::new(position), notice))
        });
        notices.next()
    }
}

fn content_of(records: &Batch) -> Content {
    let of_record = |position| Content::of(hash_bytes(0, &records.encode_record(position)));
    (0..records.len()).map(of_record).fold(Content::default(), Content::then)
}
