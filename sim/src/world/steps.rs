//! Stepping a task: which of its inputs it takes next, and one call of its machine for each record.

use std::time::Duration;

use cofferdam::element::{Barrier, Batch, Element};
use cofferdam::guarantee::Mechanism;
use cofferdam::id::{AttemptId, ChannelIndex, TaskId};
use cofferdam::job::{TaskStart, Unions, has_unions};
use cofferdam::message::{TaskError, ToTask};
use cofferdam::operator::source::{ReadOutcome, ReadReply};
use cofferdam::state::codec::Format;
use cofferdam::state::hash::KeyHash;
use cofferdam::state::snapshot::{Redistribution, StoredList, TaskState};
use cofferdam::storage::{CheckpointMetadata, StoreKey};
use cofferdam::task::Task;
use cofferdam::time::Instant;
use cofferdam::trace::{Origin, TraceEvent};
use smallvec::SmallVec;

use super::lineage::{self, Lineage};
use super::{Life, Slot, World};
use crate::decide::Choice;
use crate::interpose::Variant;
use crate::link::{InFlight, Origins, carried};

/// One of the things a task could do next.
#[derive(Clone, Copy, Debug)]
enum Ready {
    Channel(ChannelIndex),
    HandOut,
    Read,
}

impl World {
    pub(super) fn step_task(&mut self, id: TaskId, attempt: AttemptId) {
        let now = self.now;
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        if slot.step_at != Some(now) {
            return;
        }
        slot.step_at = None;
        self.deliver_waiting(id, attempt);
        if self.interposer.is(Variant::RecordBeforeBarrier) {
            self.take_first(id, attempt);
        }
        self.take_notices(id, attempt);
        self.tell_clock(id, attempt);
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        let (ready, next) = slot.ready(now);
        if ready.is_empty() {
            if let Some(next) = next {
                self.wake(id, attempt, next);
            }
            return;
        }
        let choice = self.decider.below(Choice::NextInput, id.get(), ready.len() as u64);
        match ready[choice as usize] {
            Ready::Channel(channel) => self.take_element(id, attempt, channel),
            Ready::HandOut => self.hand_out(id, attempt),
            Ready::Read => self.read_source(id, attempt),
        }
        let step = self.delay(Choice::StepTime, id.get(), self.plan.options.step_us);
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        slot.busy_until = now + step;
        let (ready, next) = slot.ready(now);
        let next = if ready.is_empty() { next } else { Some(now) };
        if let Some(next) = next {
            self.wake(id, attempt, next);
        }
    }

    /// Moves what waits into the channels behind, as far as there is room.
    fn deliver_waiting(&mut self, id: TaskId, attempt: AttemptId) {
        while let Some(slot) = self.slot_mut(id, attempt)
            && let Some((channel, element, origins)) = slot.waiting.pop_front()
        {
            let barrier = element.barrier();
            if let Some((element, origins)) = self.push(channel, attempt, element, origins) {
                let slot = self.slot_mut(id, attempt).expect("a push changes other tasks only");
                slot.waiting.push_front((channel, element, origins));
                return;
            }
            if let Some(Barrier { checkpoint, .. }) = barrier {
                let outlet = self.plan.job.graph().channels()[channel.index()].outlet;
                self.with_task(id, attempt, |task| {
                    task.handle_barrier_sent(outlet, checkpoint, Vec::new());
                });
            }
        }
    }

    /// There is room in a channel: its sender uses it, at once or when its step is over.
    fn give_room(&mut self, sender: TaskId, attempt: AttemptId) {
        let now = self.now;
        let Some(slot) = self.slot_mut(sender, attempt) else { return };
        if slot.waiting.is_empty() {
            return;
        }
        let is_busy = slot.busy_until > now;
        if !is_busy {
            self.deliver_waiting(sender, attempt);
        }
        let Some(slot) = self.slot_mut(sender, attempt) else { return };
        if is_busy || slot.waiting.is_empty() {
            self.wake(sender, attempt, now);
        }
    }

    /// Takes an element before the barriers that overtake are heeded.
    fn take_first(&mut self, id: TaskId, attempt: AttemptId) {
        let now = self.now;
        let ready = self.slot_mut(id, attempt).map(|slot| slot.ready(now).0);
        if let Some(Ready::Channel(channel)) = ready.and_then(|ready| ready.first().copied()) {
            self.take_element(id, attempt, channel);
        }
    }

    fn take_element(&mut self, id: TaskId, attempt: AttemptId, channel: ChannelIndex) {
        let plan = self.plan.clone();
        let of_channel = plan.job.graph().inputs(id)[channel.index()];
        let sender = plan.job.graph().channels()[of_channel.index()].from;
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        let Some(next) = slot.inputs[channel.index()].pop() else { return };
        let InFlight { sequence, attempt: sent_by, element, origins, .. } = next;
        let what = carried(&element);
        let channels = plan.job.graph().inputs(id).len();
        self.record(TraceEvent::Received { channel: of_channel, attempt, sequence, what });
        for (channel, element) in self.interposer.delivery(id, sent_by, channels, channel, element)
        {
            match element {
                Element::Batch(records) => {
                    self.note_recorded(id, attempt, channel, &origins);
                    let known = self.known(id, attempt, channel, &records);
                    if known < records.len() {
                        let (records, origins) = (records.skip(known), &origins[known..]);
                        self.process(id, attempt, records, origins, lineage::handle_on(channel));
                    }
                }
                element @ (Element::Watermark(_)
                | Element::Idle
                | Element::Barrier(_)
                | Element::Committables(_)
                | Element::Cancel(_)
                | Element::EndOfData
                | Element::EndOfPartition) => {
                    self.with_task(id, attempt, |task| task.handle_element(channel, element));
                }
            }
        }
        self.give_room(sender, attempt);
    }

    /// Has a task process records, one call each or all in one call.
    fn process(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        records: Batch,
        origins: &[Origin],
        handle: impl Fn(&mut Task, Batch),
    ) {
        self.last_moved = self.now;
        if self.plan.options.whole_batches && records.len() > 1 {
            let plan = self.plan.clone();
            let (vertex, _) = plan.job.graph().place_of(id);
            let Some(slot) = self.slot_mut(id, attempt) else { return };
            let Life::Live(task) = &slot.life else { return };
            lineage::applied(vertex, task, &records, origins, &mut slot.applied);
            let lineage = Lineage::plan(&plan, task, &records, origins, &handle);
            self.call(id, attempt, lineage, |task| handle(task, records));
            return;
        }
        if let [origin] = origins {
            return self.process_one(id, attempt, records, *origin, &handle);
        }
        for (origin, record) in origins.iter().zip(records.split()) {
            self.process_one(id, attempt, record, *origin, &handle);
        }
    }

    fn process_one(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        record: Batch,
        origin: Origin,
        handle: impl Fn(&mut Task, Batch),
    ) {
        let (vertex, _) = self.plan.job.graph().place_of(id);
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        let Life::Live(task) = &slot.life else { return };
        lineage::applied(vertex, task, &record, &[origin], &mut slot.applied);
        self.call(id, attempt, Lineage::of(Some(origin)), |task| handle(task, record));
    }

    /// Hands a task what the coordinator says.
    pub(super) fn notify(&mut self, id: TaskId, attempt: AttemptId, message: ToTask) {
        let slots = self.slots.iter().chain(&self.zombies);
        let mut of_task = slots.filter(|slot| (slot.task, slot.attempt) == (id, attempt));
        let Some(Slot { life: Life::Live(task), .. }) = of_task.next() else { return };
        let heard = self.interposer.notice(task, message);
        if let Some(message) = heard {
            self.with_task(id, attempt, |task| task.handle_message(message));
        }
    }

    /// Hands a task what its source gave, and what it is told behind that.
    pub(super) fn hand_in(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        reply: ReadReply,
        origins: Origins,
    ) {
        let pause = match reply.outcome {
            ReadOutcome::Nothing => PAUSE,
            ReadOutcome::Records { .. }
            | ReadOutcome::Messages { .. }
            | ReadOutcome::End
            | ReadOutcome::Gone { .. }
            | ReadOutcome::Failed(_) => Duration::from_micros(self.plan.options.read_pause_us),
        };
        let read_from = self.now + pause;
        let has_records = !origins.is_empty();
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        slot.read_from = read_from;
        let goes_on = slot.is_restored && has_records;
        self.is_restored |= goes_on;
        self.hand_on(id, attempt, reply, origins);
        for message in self.interposer.noticed(id, attempt, has_records) {
            self.with_task(id, attempt, |task| task.handle_message(message));
        }
    }

    fn hand_on(&mut self, id: TaskId, attempt: AttemptId, reply: ReadReply, origins: Origins) {
        let records = match &reply.outcome {
            ReadOutcome::Records { records, .. } => records,
            ReadOutcome::Nothing
            | ReadOutcome::End
            | ReadOutcome::Messages { .. }
            | ReadOutcome::Gone { .. }
            | ReadOutcome::Failed(_) => {
                return self.with_task(id, attempt, |task| task.handle_read(reply));
            }
        };
        if self.plan.job.config().mechanism == Mechanism::None {
            let Some(slot) = self.slot_mut(id, attempt) else { return };
            slot.read_ahead.push_back(origins);
            return self.with_task(id, attempt, |task| task.handle_read(reply));
        }
        let lineage = self.note_emission(id, attempt, records, &origins);
        self.call(id, attempt, lineage, |task| task.handle_read(reply));
    }

    /// Has a source hand out some of what it has read and reserved.
    fn hand_out(&mut self, id: TaskId, attempt: AttemptId) {
        for _ in 0..self.draw_calls(id).0 {
            let Some(slot) = self.slot_mut(id, attempt) else { return };
            let Life::Live(task) = &slot.life else { return };
            let Some(ReadReply { outcome, .. }) = task.reserved() else { return };
            let lineage = if let ReadOutcome::Records { records, .. } = outcome {
                let records = records.clone();
                let origins = slot.read_ahead.pop_front().expect("each read is noted");
                self.note_emission(id, attempt, &records, &origins)
            } else {
                Lineage::of(None)
            };
            self.call(id, attempt, lineage, Task::hand_out);
        }
    }

    /// Notes records that a source is about to emit by one call; where what that call gives comes
    /// from.
    pub(super) fn note_emission(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        records: &Batch,
        origins: &[Origin],
    ) -> Lineage {
        self.last_moved = self.now;
        let plan = self.plan.clone();
        let slot = self.slot_mut(id, attempt);
        let Some(Slot { life: Life::Live(task), applied, .. }) = slot else {
            return Lineage::of(None);
        };
        let (vertex, _) = plan.job.graph().place_of(id);
        lineage::applied(vertex, task, records, origins, applied);
        match origins {
            [origin] => Lineage::of(Some(*origin)),
            _ => Lineage::plan(&plan, task, records, origins, Task::process),
        }
    }

    /// What a task is restored from, with what union lists of the vertex hold elsewhere.
    fn stored_state(&self, id: TaskId, metadata: &CheckpointMetadata) -> Result<TaskState, String> {
        let state = self.store.state(&metadata.tasks[id.index()])?;
        if !has_unions(&state) {
            return Ok(state);
        }
        let graph = self.plan.job.graph();
        let (vertex, subtask) = graph.place_of(id);
        let subtasks = graph.tasks_of(vertex);
        let states = subtasks.map(|task| self.store.state(&metadata.tasks[task.index()]));
        let mut states: Vec<TaskState> = states.collect::<Result<_, _>>()?;
        let unions = Unions::of(&states);
        let mut state = states.swap_remove(subtask.index());
        unions.join(&mut state);
        Ok(state)
    }

    pub(super) fn start_task(&mut self, id: TaskId, attempt: AttemptId) {
        let plan = self.plan.clone();
        let (vertex, subtask) = plan.job.graph().place_of(id);
        let restore = self.control.restore.clone();
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        let Life::Starting = slot.life else { return };
        let (mut restored, mut resumed, mut is_restored) = (None, None, false);
        let start = match &restore {
            Some(metadata) => match self.stored_state(id, metadata) {
                Ok(mut state) => {
                    self.interposer.restored(id, attempt, &mut state);
                    is_restored = state.source.as_ref().is_some_and(|s| s.records() > 0);
                    restored = Some((metadata.checkpoint, metadata.tasks[id.index()].key));
                    TaskStart::Restored(Box::new(state))
                }
                Err(text) => {
                    return self.report_failure(id, attempt, TaskError::Restore(text));
                }
            },
            None => {
                let written = self.last_progress(id, attempt);
                resumed = written.as_ref().map(|state| state.checkpoint);
                let key = StoreKey::Reservation { vertex, subtask };
                let reserved = self.store.begin_reserving(key, attempt);
                let mut positions = reserved.or(plan.initial[id.index()].clone());
                if let Some(positions) = &mut positions {
                    self.interposer.begun(id, attempt, positions);
                }
                let restored = written.map(|state| TaskStart::Restored(Box::new(state)));
                restored.unwrap_or(TaskStart::Fresh(positions))
            }
        };
        for (vertex, subtask) in self.sink_places(id) {
            self.external.open(vertex, subtask, attempt);
        }
        let task = plan.job.task(id, attempt, start).map_err(|error| error.to_string());
        let mut task = match task.and_then(|task| self.external.check_shown(task)) {
            Ok(task) => task,
            Err(text) => return self.report_failure(id, attempt, TaskError::Restore(text)),
        };
        let is_external = plan.job.config().state.is_external();
        let saved = is_external.then(|| {
            let checkpoint = restored.map(|(checkpoint, _)| checkpoint);
            self.saved.open(id, attempt, checkpoint)
        });
        if let Some(saved) = &saved {
            let restored = task.restore_saved(&saved.operators);
            restored.expect("the store of the state gives what the task has saved");
        }
        let restored = restored.map(|(checkpoint, key)| {
            let digest = digest(&task.capture(checkpoint).to_state(Format::Binary));
            let shadow = self.shadows.get(&key).cloned().unwrap_or_default();
            let slot = self.slot_mut(id, attempt).expect("it was there a moment ago");
            slot.applied = shadow.applied;
            (checkpoint, digest)
        });
        if let (Some(saved), Some(slot)) = (saved, self.slot_mut(id, attempt)) {
            slot.applied = saved.applied;
        }
        self.control.halts.into_iter().for_each(|checkpoint| task.halt(checkpoint));
        self.record(TraceEvent::Started { task: id, attempt, restored });
        self.resume(&mut task, resumed);
        let slot = self.slot_mut(id, attempt).expect("it was there a moment ago");
        slot.life = Life::Live(Box::new(task));
        slot.is_restored = is_restored;
        self.call(id, attempt, Lineage::of(None), |_| ());
        self.wake(id, attempt, self.now);
    }
}

impl Slot {
    /// What the task could do now, and if there is nothing, when there may be something.
    fn ready(&self, now: Instant) -> (SmallVec<[Ready; 8]>, Option<Instant>) {
        let Life::Live(task) = &self.life else { return (SmallVec::new(), None) };
        if !task.accepts_elements() {
            return (SmallVec::new(), None);
        }
        let announces = task.wants_announcements();
        let notices = self.inputs.iter().filter_map(|link| link.next_notice_arrival(announces));
        let mut next = notices.min();
        if !self.waiting.is_empty() {
            return (SmallVec::new(), next);
        }
        let mut ready = SmallVec::new();
        for (position, link) in self.inputs.iter().enumerate() {
            let channel = ChannelIndex::new(position as u32);
            let Some(arrival) = link.next_arrival().filter(|_| !task.is_blocked(channel)) else {
                continue;
            };
            if arrival <= now {
                ready.push(Ready::Channel(channel));
            } else {
                next = Some(next.map_or(arrival, |other: Instant| other.min(arrival)));
            }
        }
        if task.reserved().is_some() {
            ready.push(Ready::HandOut);
        }
        // What a task held back would come out of another call, where nobody knows its origins.
        if self.read.is_some() && task.accepts_reads() {
            if self.read_from <= now {
                ready.push(Ready::Read);
            } else {
                next =
                    Some(next.map_or(self.read_from, |other: Instant| other.min(self.read_from)));
            }
        }
        (ready, next)
    }
}

/// A digest of what a task's state holds: operators, positions, transactions.
pub(super) fn digest(state: &TaskState) -> u64 {
    let TaskState { operators, source, transactions, log, shown, numbers, .. } = state;
    if has_unions(state) {
        // What a task is restored with is not what it has stored.
        let mut state = state.clone();
        state.operators.iter_mut().for_each(|operator| operator.lists.retain(is_own));
        return digest(&state);
    }
    KeyHash::of(&(operators, source, transactions, log, shown, numbers)).get()
}

fn is_own(list: &StoredList) -> bool {
    list.redistribution != Redistribution::Union
}

/// The time before a source that had nothing is asked again.
const PAUSE: Duration = Duration::from_micros(100);
