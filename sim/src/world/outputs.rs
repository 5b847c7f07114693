//! One call of a task's machine and what becomes of its outputs, one after the other: a crash cuts
//! their list, since a task's memory is gone and what it has sent is not.

use std::ops::ControlFlow;
use std::sync::Arc;

use cofferdam::element::{Batch, Element};
use cofferdam::graph::Channel;
use cofferdam::id::{AttemptId, ChannelId, OutletIndex, TaskId, TransactionId};
use cofferdam::message::{FromTask, Loss, TaskError, TaskMessage, ToPeer};
use cofferdam::operator::sink::{SinkPlace, SinkReply, SinkRequest};
use cofferdam::state::codec::{self, Format, Kind};
use cofferdam::state::snapshot::Extent;
use cofferdam::state::store::SavedState;
use cofferdam::storage::{StoreKey, StoreOutcome, StoreReply, StoreRequest, StoreValue};
use cofferdam::task::{Task, TaskOutput};
use cofferdam::trace::{Disturbance, Origin, TraceEvent};

use super::in_flight::Shadow;
use super::lineage::{Lineage, logged, logged_since};
use super::saved::Value;
use super::steps::digest;
use super::{Event, Life, Put, World, Writer};
use crate::decide::Choice;
use crate::external::{Refusal, Row, RowBytes};
use crate::fault::Cut;
use crate::interpose::{Passed, Variant};
use crate::link::{Origins, carried};
use crate::log::Log;

impl World {
    /// Calls a task's machine where no record is handled.
    pub(super) fn with_task(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        call: impl FnOnce(&mut Task),
    ) {
        self.call(id, attempt, Lineage::of(None), call);
    }

    /// Calls a task's machine and carries out what it asks for.
    pub(super) fn call(
        &mut self,
        id: TaskId,
        attempt: AttemptId,
        mut lineage: Lineage,
        call: impl FnOnce(&mut Task),
    ) {
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        let Life::Live(_) = slot.life else { return };
        let fault = self.next_call(id);
        if let Some((fault, cut @ (Cut::Before | Cut::Received))) = fault {
            return self.strike_task(id, attempt, fault, Some(cut));
        }
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        // The machine is taken out, so that its outputs can change the rest of the world.
        let Life::Live(mut task) = std::mem::replace(&mut slot.life, Life::Dead) else { return };
        let accepted = (task.accepts_elements(), task.accepts_reads());
        let could_hand_out = task.reserved().is_some();
        let before = logged(&task);
        call(&mut task);
        self.note_logged(&task, before, &mut lineage);
        task.flush();
        self.note_produced(&task, &mut lineage);
        let wakes = (!accepted.0 && task.accepts_elements())
            || (!accepted.1 && task.accepts_reads())
            || (!could_hand_out && task.reserved().is_some());
        let mut left = match fault {
            Some((_, Cut::Updated)) => 0,
            Some((_, Cut::Emitted(outputs))) => outputs,
            Some((_, Cut::Before | Cut::Received)) | None => u32::MAX,
        };
        let cut = loop {
            if left == 0 {
                break true;
            }
            let Some(output) = task.poll_output() else { break false };
            left -= 1;
            if self.carry_out(&mut task, output, &mut lineage).is_break() {
                break false;
            }
        };
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        slot.life = Life::Live(task);
        if let Some((fault, cut_at)) = fault.filter(|_| cut) {
            return self.strike_task(id, attempt, fault, Some(cut_at));
        }
        if wakes {
            self.wake(id, attempt, self.now);
        }
        self.strike_in_window(id, attempt);
    }

    fn carry_out(
        &mut self,
        task: &mut Task,
        output: TaskOutput,
        lineage: &mut Lineage,
    ) -> ControlFlow<()> {
        let bytes = self.note_snapshot(task, &output);
        if self.plan.variant.is_none() {
            return self.pass_on(task, output, bytes, lineage);
        }
        for passed in self.interposer.output(task, output) {
            match passed {
                Passed::Stored(reply) => task.handle_stored(reply),
                Passed::Replied(reply) => task.handle_sink(reply),
                Passed::Confirmed(told) => task.handle_confirmed(&told),
                Passed::Out(output) => self.pass_on(task, output, bytes.clone(), lineage)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// Has the world do what a task asks for; ends with the task's failure. `bytes` are those of a
    /// snapshot that is to be stored, if they are known.
    fn pass_on(
        &mut self,
        task: &mut Task,
        output: TaskOutput,
        bytes: Option<Arc<[u8]>>,
        lineage: &mut Lineage,
    ) -> ControlFlow<()> {
        match output {
            TaskOutput::Send(outlet, Element::Barrier(barrier)) => {
                self.send_barrier(task, outlet, barrier);
            }
            TaskOutput::Cut(checkpoint) => self.note_cut(task, checkpoint),
            TaskOutput::Hurry(outlet, checkpoint) => self.hurry(task, outlet, checkpoint),
            TaskOutput::Overtake(channel, checkpoint) => {
                self.take_barrier(task, channel, checkpoint);
            }
            TaskOutput::WaitUntil(at) => {
                let event = Event::TaskTimer(task.id(), task.attempt());
                self.queue.schedule(at.max(self.now), event);
            }
            TaskOutput::WakeAt(at) => {
                let at = self.when_clock_says(at).max(self.now);
                self.queue.schedule(at, Event::Clock(task.id(), task.attempt()));
            }
            TaskOutput::Send(outlet, element) => self.send(task, outlet, element, lineage),
            TaskOutput::Block(_) => {}
            TaskOutput::Unblock(_) => self.wake(task.id(), task.attempt(), self.now),
            TaskOutput::Report(body) => {
                let failed = matches!(body, FromTask::Failed(_));
                self.report(task.id(), task.attempt(), body);
                if failed {
                    return ControlFlow::Break(());
                }
            }
            TaskOutput::Store(request) => self.ask_store(task, request, bytes),
            TaskOutput::Save(state) => {
                if !self.save(task, &state) {
                    let error = "a later attempt has opened the store of its state".to_owned();
                    task.fail(TaskError::External(error));
                    return ControlFlow::Break(());
                }
            }
            TaskOutput::Read(request) => {
                let (id, attempt) = (task.id(), task.attempt());
                if let Some(slot) = self.slot_mut(id, attempt) {
                    slot.read = Some(request);
                }
                self.wake(id, attempt, self.now);
            }
            TaskOutput::Acknowledge(told) => self.tell_queue(task.id(), task.attempt(), told),
            TaskOutput::Sink(request) => self.ask_sink(task, request, lineage),
            TaskOutput::Tell(to, message) => self.tell(task, to, message),
            TaskOutput::Alarm(after) => {
                self.queue.schedule(self.now + after, Event::Alarm(task.id(), task.attempt()));
            }
        }
        ControlFlow::Continue(())
    }

    /// Has the store of state hold what a task gives it; whether it does.
    fn save(&mut self, task: &Task, state: &SavedState) -> bool {
        let (id, attempt) = (task.id(), task.attempt());
        let operators =
            state.operators.iter().map(|operator| operator.to_state(Format::Binary)).collect();
        let applied = self.slot_mut(id, attempt).map(|slot| slot.applied.clone());
        let applied = applied.expect("a task that is called has its slot");
        self.saved.save(id, attempt, state.follows, Value { operators, applied })
    }

    fn send(&mut self, task: &Task, outlet: OutletIndex, element: Element, lineage: &mut Lineage) {
        let plan = self.plan.clone();
        let origins = match &element {
            Element::Batch(records) => match records.number() {
                Some(first) => self.origins_of_produced(task, outlet, first, records.len()),
                None => lineage.origins(&plan, task, outlet.index(), records),
            },
            Element::Watermark(_)
            | Element::Idle
            | Element::Barrier(_)
            | Element::Committables(_)
            | Element::Cancel(_)
            | Element::EndOfData
            | Element::EndOfPartition => Origins::new(),
        };
        let channel = plan.job.graph().outputs(task.id())[outlet.index()];
        if let Element::Batch(records) = &element {
            self.note_emitted(channel, task.attempt(), records);
        }
        let Some(slot) = self.slot_mut(task.id(), task.attempt()) else { return };
        if !slot.waiting.is_empty() {
            slot.waiting.push_back((channel, element, origins));
            return;
        }
        if let Some((element, origins)) = self.push(channel, task.attempt(), element, origins) {
            let slot = self.slot_mut(task.id(), task.attempt());
            let slot = slot.expect("a push changes other tasks only");
            slot.waiting.push_back((channel, element, origins));
        }
    }

    /// Messages between tasks come in no order, and may be lost, late or doubled (rule 82).
    fn tell(&mut self, task: &Task, to: TaskId, message: ToPeer) {
        let most = self.plan.options.message_delay_us;
        let at = self.now + self.delay(Choice::MessageDelay, to.get(), most);
        for at in self.fates(to, at) {
            self.queue.schedule(at, Event::Told(to, task.attempt(), message));
        }
    }

    /// Puts an element on a channel; gives it back if there is no room. A channel whose receiver is
    /// dead swallows everything.
    pub(super) fn push(
        &mut self,
        channel: ChannelId,
        attempt: AttemptId,
        element: Element,
        origins: Origins,
    ) -> Option<(Element, Origins)> {
        let plan = self.plan.clone();
        let Channel { to, index, .. } = plan.job.graph().channels()[channel.index()];
        let what = carried(&element);
        let now = self.now;
        let most = plan.options.batch_records_max as usize;
        let slot = self.slot_mut(to, attempt).filter(|slot| !matches!(slot.life, Life::Dead))?;
        let link = &mut slot.inputs[index.index()];
        let (element, origins) = match element {
            Element::Batch(records) => match link.join(now, most, records, origins) {
                Ok(sequence) => {
                    self.record(TraceEvent::Sent { channel, attempt, sequence, what });
                    return None;
                }
                Err((records, origins)) => (Element::Batch(records), origins),
            },
            element @ (Element::Watermark(_)
            | Element::Idle
            | Element::Barrier(_)
            | Element::Committables(_)
            | Element::Cancel(_)
            | Element::EndOfData
            | Element::EndOfPartition) => (element, origins),
        };
        if !link.has_room() {
            return Some((element, origins));
        }
        let delay = self.delay(Choice::ChannelDelay, channel.get(), plan.options.channel_delay_us);
        let slot = self.slot_mut(to, attempt).expect("it was there a moment ago");
        let link = &mut slot.inputs[index.index()];
        let (sequence, arrival) = link.push(now, now + delay, attempt, element, origins);
        self.record(TraceEvent::Sent { channel, attempt, sequence, what });
        self.wake(to, attempt, arrival);
        None
    }

    pub(super) fn report(&mut self, id: TaskId, attempt: AttemptId, body: FromTask) {
        if let FromTask::Acknowledged { checkpoint, .. } = body {
            self.record(TraceEvent::Acknowledged { task: id, attempt, checkpoint });
        }
        if let FromTask::Failed(TaskError::Lost { split, wanted, first })
        | FromTask::Lost(Loss { split, gap: Some((wanted, first)), .. }) = body
        {
            self.record(TraceEvent::LossReported { task: id, attempt, split, wanted, first });
        }
        let most = self.plan.options.message_delay_us;
        let delay = self.delay(Choice::MessageDelay, id.get(), most);
        let at = self.now + delay;
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        slot.is_finished |= body == FromTask::Finished;
        let at = at.max(slot.last_report);
        slot.last_report = at;
        self.queue.schedule(at, Event::Report(TaskMessage { task: id, attempt, body }));
    }

    pub(super) fn report_failure(&mut self, id: TaskId, attempt: AttemptId, error: TaskError) {
        self.report(id, attempt, FromTask::Failed(error));
        if let Some(slot) = self.slot_mut(id, attempt) {
            slot.life = Life::Dead;
        }
    }

    /// Notes what a task says its state is, before anything can come between it and the store.
    /// Returns the bytes to store, as long as nothing is going to change them.
    fn note_snapshot(&mut self, task: &Task, output: &TaskOutput) -> Option<Arc<[u8]>> {
        let TaskOutput::Store(StoreRequest::Put {
            key: key @ StoreKey::State { checkpoint, .. },
            value: StoreValue::State(snapshot),
        }) = output
        else {
            return None;
        };
        let (id, attempt) = (task.id(), task.attempt());
        let state = snapshot.to_state(Format::Binary);
        let drops_state = self.plan.job.config().mechanism.drops_state();
        if let Some(slot) = self.slot_mut(id, attempt).filter(|_| drops_state) {
            let batch = std::mem::take(&mut slot.applied);
            self.incarnations.entry(attempt).or_default().push(batch);
        }
        if let Some(shadow) = self.shadow_of_cut(id, attempt, *checkpoint) {
            self.shadows.insert(*key, shadow);
        } else if let Some(slot) = self.slot_mut(id, attempt) {
            let applied = slot.applied.clone();
            self.shadows.insert(*key, Shadow { applied, ..Shadow::default() });
            let (digest, checkpoint) = (digest(&state), *checkpoint);
            self.record(TraceEvent::Snapshot { task: id, attempt, checkpoint, digest });
        }
        self.plan.variant.is_none().then(|| codec::seal(Kind::State, &state).into())
    }

    fn ask_store(&mut self, task: &Task, request: StoreRequest, bytes: Option<Arc<[u8]>>) {
        match request {
            StoreRequest::Put { key, value } => {
                if let StoreValue::State(snapshot) = &value {
                    self.note_in_flight(task, snapshot);
                }
                let writer = Writer::Task(task.id(), task.attempt());
                let is_appended = matches!(value, StoreValue::Progress(_, Extent::Changes));
                let bytes = bytes.unwrap_or_else(|| value.encode().into());
                self.put(writer, Put { key, bytes, is_appended });
            }
            StoreRequest::Discard(checkpoint) => self.store.discard(checkpoint),
        }
    }

    /// Sends a write on its way: it lands after a while, and its writer hears of it later still.
    pub(super) fn put(&mut self, writer: Writer, put: Put) {
        let subject = writer.subject();
        let most = self.plan.options.external_delay_us;
        let mut delay = self.delay(Choice::WriteDelay, subject, most);
        let slow = self.plan.options.store_slow_permille;
        if self.may_disturb() && self.decider.chance(Choice::WriteFate, subject, slow) {
            delay *= 20;
            self.disturbed(Disturbance::StoreSlow, writer.task());
        }
        let number = self.writes;
        self.writes += 1;
        if let Writer::Coordinator(_) = writer {
            self.control.puts.push(number);
        }
        self.queue.schedule(self.now + delay, Event::Write { writer, put, number });
    }

    /// A write lands, unless its writer's death came first.
    pub(super) fn write(&mut self, writer: Writer, put: Put, number: u64) {
        let Put { key, bytes, is_appended } = put;
        if self.lost_writes.remove(&number) {
            return;
        }
        if let Writer::Coordinator(_) = writer {
            self.control.puts.retain(|put| *put != number);
        }
        let subject = writer.subject();
        let options = &self.plan.options;
        let (failed, unknown) = (options.store_failed_permille, options.store_unknown_permille);
        let outcome = if self.is_fenced(writer, key) {
            StoreOutcome::Failed("a newer attempt has taken over".to_owned())
        } else if !self.may_disturb() {
            let handle = self.store.put(key, bytes, is_appended);
            self.note_progress_stored(writer, key);
            StoreOutcome::Stored(handle)
        } else if self.decider.chance(Choice::WriteFate, subject, failed) {
            self.disturbed(Disturbance::StoreFailed, writer.task());
            if is_appended {
                // A part of it may be there, which nobody takes for the whole.
                self.store.append(key, &bytes[..bytes.len() / 2]);
            }
            StoreOutcome::Failed("the store refused".to_owned())
        } else if self.decider.chance(Choice::WriteFate, subject, unknown) {
            self.disturbed(Disturbance::StoreUnknown, writer.task());
            if self.decider.below(Choice::WriteFate, subject, 2) == 0 {
                self.store.put(key, bytes, is_appended);
                self.note_progress_stored(writer, key);
            }
            StoreOutcome::Unknown("the store did not answer".to_owned())
        } else {
            let handle = self.store.put(key, bytes, is_appended);
            self.note_progress_stored(writer, key);
            StoreOutcome::Stored(handle)
        };
        if let (Writer::Task(task, attempt), StoreOutcome::Stored(_)) = (writer, &outcome) {
            match key {
                StoreKey::State { checkpoint, .. } => {
                    self.record(TraceEvent::StateStored { task, attempt, checkpoint });
                }
                StoreKey::Reservation { .. } => {
                    self.record(TraceEvent::Reserved { task, attempt });
                }
                StoreKey::Progress { .. } | StoreKey::Metadata(_) | StoreKey::Attempt => {}
            }
        }
        let delay = self.delay(Choice::WriteDelay, subject, self.plan.options.message_delay_us);
        let reply = StoreReply { key, outcome };
        self.queue.schedule(self.now + delay, Event::Written { writer, reply });
    }

    fn is_fenced(&self, writer: Writer, key: StoreKey) -> bool {
        match writer {
            Writer::Task(_, attempt) => {
                self.plan.variant != Some(Variant::OldAttemptNotFenced)
                    && self.store.is_fenced(key, attempt)
            }
            Writer::Coordinator(_) => false,
        }
    }

    pub(super) fn written(&mut self, writer: Writer, reply: StoreReply) {
        match writer {
            Writer::Coordinator(life) => {
                if life == self.control.life {
                    self.with_coordinator(|machine, now| machine.handle_stored(now, reply));
                }
            }
            Writer::Task(id, attempt) => {
                self.with_task(id, attempt, |task| task.handle_stored(reply));
            }
        }
    }

    /// Writes go to the external system at once and in order; what needs an answer takes its time.
    fn ask_sink(&mut self, task: &Task, request: SinkRequest, lineage: &mut Lineage) {
        let (id, attempt) = (task.id(), task.attempt());
        if let SinkRequest::Write { transaction, records } = &request {
            return self.write_rows(task, *transaction, records, lineage);
        }
        let most = self.plan.options.external_delay_us;
        let mut delay = self.delay(Choice::WriteDelay, id.get(), most);
        if matches!(request, SinkRequest::Commit(_) | SinkRequest::AbortDangling) {
            delay = self.commit_delay(id, delay);
        }
        let at = self.now + delay;
        let Some(slot) = self.slot_mut(id, attempt) else { return };
        let at = at.max(slot.last_external);
        slot.last_external = at;
        self.queue.schedule(at, Event::External { task: id, attempt, request });
    }

    fn write_rows(
        &mut self,
        task: &Task,
        transaction: Option<TransactionId>,
        records: &Batch,
        lineage: &mut Lineage,
    ) {
        let plan = self.plan.clone();
        let (id, attempt) = (task.id(), task.attempt());
        let (vertex, subtask) = plan.job.graph().place_of(id);
        let (_, sink) = plan.job.sink(vertex).expect("a task that writes ends in a sink");
        let origins = lineage.sink_origins(&plan, task, records);
        let keyed = sink.contract() == cofferdam::guarantee::SinkContract::Idempotent;
        let rows = origins.into_iter().enumerate().map(|(position, origin)| Row {
            origin,
            attempt,
            bytes: RowBytes::from_slice(&records.encode_record(position)),
            key: keyed.then(|| RowBytes::from_slice(&sink.key_of(records, position))),
        });
        let count = records.len() as u32;
        match self.external.write(vertex, subtask, attempt, transaction, rows) {
            Ok(()) => {
                self.record(TraceEvent::Written { task: id, attempt, transaction, rows: count });
            }
            // The zombie will be told to stop; what it wrote has no effect.
            Err(Refusal::Fenced | Refusal::NoSuchTransaction | Refusal::TimedOut) => {}
        }
    }

    /// Notes where rows come from that a write-ahead sink keeps and did not keep before.
    fn note_logged(
        &mut self,
        task: &Task,
        before: Option<(TransactionId, usize)>,
        lineage: &mut Lineage,
    ) {
        let Some((portion, batches)) = logged_since(task, before) else { return };
        let plan = self.plan.clone();
        for batch in batches {
            let origins = lineage.sink_origins(&plan, task, batch);
            self.logged.entry(portion).or_default().extend(origins);
            let rows = batch.len() as u32;
            self.record(TraceEvent::Logged { task: task.id(), portion, rows });
        }
    }

    /// The rows of a portion with their origins, as written by the attempt that had them.
    fn logged_rows(&self, portion: TransactionId, batches: &[Batch]) -> Vec<Row> {
        let rows = batches
            .iter()
            .flat_map(|batch| (0..batch.len()).map(|position| batch.encode_record(position)));
        let origins = self.logged.get(&portion).into_iter().flat_map(Log::iter);
        let row = |(origin, row): (&Origin, Vec<u8>)| Row {
            origin: *origin,
            attempt: portion.attempt,
            bytes: RowBytes::from_vec(row),
            key: None,
        };
        origins.zip(rows).map(row).collect()
    }

    pub(super) fn ask_external(&mut self, id: TaskId, attempt: AttemptId, request: SinkRequest) {
        let (vertex, subtask) = self.plan.job.graph().place_of(id);
        let answer = match &request {
            SinkRequest::Write { .. } => unreachable!("rows are written at once"),
            SinkRequest::Flush(checkpoint) => self
                .external
                .flush(vertex, subtask, attempt)
                .map(|()| SinkReply::Flushed(*checkpoint)),
            SinkRequest::Prepare(pending) => {
                let done = self.external.prepare(pending.transaction, attempt, self.now);
                done.map(|()| {
                    let (transaction, checkpoint) = (pending.transaction, pending.checkpoint);
                    self.record(TraceEvent::Prepared { transaction, checkpoint });
                    SinkReply::Prepared(*pending)
                })
            }
            SinkRequest::Commit(transaction) => self.commit(id, attempt, *transaction),
            SinkRequest::AbortDangling => {
                let mut places = self.sink_places(id).into_iter();
                let done = places.try_for_each(|(vertex, subtask)| {
                    let parallelism = self.plan.job.graph().tasks_of(vertex).count();
                    let shown = Vec::new();
                    let place = SinkPlace { subtask, parallelism, attempt, shown };
                    let dangling = self.external.abort_dangling(vertex, &place)?;
                    for transaction in dangling {
                        self.record(TraceEvent::RolledBack { transaction, attempt });
                    }
                    Ok(())
                });
                done.map(|()| SinkReply::DanglingAborted)
            }
            SinkRequest::LookUp(portion) => {
                let marked = self.external.is_marked(*portion, attempt);
                marked.map(|is_marked| SinkReply::LookedUp { id: *portion, is_marked })
            }
            SinkRequest::Send { id: portion, records } => {
                let rows = self.logged_rows(*portion, records);
                let done = self.external.deliver(*portion, attempt, rows);
                done.map(|again| {
                    self.record(TraceEvent::Delivered { portion: *portion, attempt, again });
                    SinkReply::Sent(*portion)
                })
            }
            SinkRequest::Mark(portion) => {
                let done = self.external.mark(*portion, attempt);
                done.map(|()| {
                    self.record(TraceEvent::Marked { portion: *portion, attempt });
                    SinkReply::Marked(*portion)
                })
            }
        };
        match answer {
            Ok(reply) => {
                let reply = self.interposer.replied(attempt, reply);
                self.with_task(id, attempt, |task| task.handle_sink(reply));
            }
            Err(Refusal::Fenced) => {}
            Err(Refusal::NoSuchTransaction | Refusal::TimedOut) => {
                self.with_task(id, attempt, |task| {
                    task.fail(TaskError::External("there is no such transaction".to_owned()));
                });
            }
        }
    }
}

impl Writer {
    fn subject(self) -> u32 {
        match self {
            Self::Task(task, _) => task.get(),
            Self::Coordinator(_) => u32::MAX,
        }
    }

    fn task(self) -> Option<TaskId> {
        match self {
            Self::Task(task, _) => Some(task),
            Self::Coordinator(_) => None,
        }
    }
}
