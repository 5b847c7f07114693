//! The subtask machine: everything between a task's input channels and its output channels that the
//! protocol prescribes. It does no I/O and asks no clock; a driver feeds it and carries out what it
//! answers, in order. It does not know what its operators compute.
//!
//! ```text
//!                elements, messages, replies
//!                           |
//!  gate (inputs) -> barrier handler -> stage (operators) -> outlet (outputs) / sink machine
//!                           |
//!                TaskOutput, one ordered stream
//! ```
//! Methods: getters; `handle_*` for what arrives; the command [`Task::flush`];
//! [`Task::poll_output`], to be called until it is empty after each of the others.
//!
//! Invariants: between the barrier that a task sends on and its snapshot stands no record (rule 2);
//! no checkpoint is acknowledged before the store and the sink have confirmed their part.

mod acks;
mod capture;
mod clock;
mod ending;
mod external;
mod gate;
mod outlet;
mod parts;
mod progress;
mod reading;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::barrier::{BarrierAction, BarrierHandler};
use crate::element::{Anchor, Batch, Element};
use crate::graph::Subtask;
use crate::guarantee::Mechanism;
use crate::id::{AttemptId, ChannelIndex, CheckpointId, OutletIndex, TaskId};
use crate::message::{AbortReason, FromTask, TaskError, ToPeer, ToTask};
use crate::operator::queue::Acknowledgement;
use crate::operator::sink::{AfterCommit, SinkMachine, SinkReply, SinkRequest};
use crate::operator::source::{ReadReply, ReadRequest, SourceMachine, SourceStep};
use crate::operator::stage::Stage;
use crate::state::snapshot::{Extent, TaskSnapshot};
use crate::state::store::SavedState;
use crate::storage::{StoreKey, StoreOutcome, StoreReply, StoreRequest, StoreValue};
use crate::task::capture::{Capture, Snapshotting};
use crate::time::{self, EventTime, Instant, ProcessingTime};

use acks::Acks;
use clock::Clock;
pub(crate) use gate::Gate;
pub(crate) use outlet::Outlet;
pub(crate) use parts::TaskParts;
pub(crate) use progress::Progress;

/// A running subtask.
#[derive(Clone)]
pub struct Task {
    subtask: Subtask,
    mechanism: Mechanism,
    /// Keyed state is kept outside as well, and not in snapshots.
    is_external: bool,
    /// The operators without state, where state does not outlive a barrier.
    blank: Option<Box<dyn Stage>>,
    alignment_timeout: Duration,
    phase: Phase,
    gate: Gate,
    handler: BarrierHandler,
    source: Option<SourceMachine>,
    stage: Box<dyn Stage>,
    sink: Option<SinkMachine>,
    outlet: Outlet,
    /// If records are acknowledged.
    acks: Option<Acks>,
    /// Under transactional updates.
    progress: Option<Progress>,
    /// The highest checkpoint that was started or aborted here: older ones are out of order (rule
    /// 9).
    latest: Option<CheckpointId>,
    /// The newest checkpoint that is known to be complete.
    completed: Option<CheckpointId>,
    /// Aborted by the coordinator before the barrier came (rule 8); bounded.
    aborted: BTreeSet<CheckpointId>,
    /// Snapshots whose parts are not all confirmed.
    snapshots: BTreeMap<CheckpointId, Snapshotting>,
    /// When the checkpoints began whose barriers have come and which have not begun here.
    triggered: BTreeMap<CheckpointId, Instant>,
    /// The snapshot that records in flight are still added to.
    capture: Option<Capture>,
    /// If an operator uses the clock.
    clock: Option<Clock>,
    /// The last cut is that at which the job stops.
    stops: bool,
    /// The checkpoint that the job stops at: the source reads nothing behind it.
    halted: Option<CheckpointId>,
    /// What was read meanwhile.
    held_back: Option<ReadReply>,
    outputs: VecDeque<TaskOutput>,
    actions: Vec<BarrierAction>,
}

/// What a driver has to do for a task, in this order.
#[derive(Clone, Debug)]
pub enum TaskOutput {
    /// Put the element at the end of the channel.
    Send(OutletIndex, Element),
    /// Deliver nothing more of this channel until it is unblocked.
    Block(ChannelIndex),
    /// Deliver this channel again.
    Unblock(ChannelIndex),
    /// Nothing: the task's state is cut here, and is stored when the records in flight are known.
    Cut(CheckpointId),
    /// Hand this barrier, which waits in the channel, to [`Task::handle_overtaking`] now.
    Overtake(ChannelIndex, CheckpointId),
    /// Let this barrier, if it waits for room, overtake; then [`Task::handle_barrier_sent`].
    Hurry(OutletIndex, CheckpointId),
    /// Call [`Task::handle_time`] at this time, or earlier if another one is asked for.
    WaitUntil(Instant),
    /// Call [`Task::handle_clock`] when the clock of the machine says this, or earlier if another
    /// one is asked for.
    WakeAt(ProcessingTime),
    /// Tell the coordinator.
    Report(FromTask),
    /// Ask the store; the reply goes to [`Task::handle_stored`].
    Store(StoreRequest),
    /// Have the store of keyed state hold this in place of what it holds of the task, before
    /// anything else is carried out.
    Save(SavedState),
    /// Read from the source when the outputs have room; to [`Task::handle_read`].
    Read(ReadRequest),
    /// Tell a queue that it need not give these messages out again; its confirmation goes to
    /// [`Task::handle_confirmed`].
    Acknowledge(Acknowledgement),
    /// Ask the sink's external system; replies go to [`Task::handle_sink`].
    Sink(SinkRequest),
    /// Tell another task of the attempt, or this one: [`Task::handle_peer`].
    Tell(TaskId, ToPeer),
    /// Call [`Task::handle_alarm`] after this time.
    Alarm(Duration),
}

/// What a task awaits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The commits of restored transactions and the abort of what earlier attempts left open, or
    /// the delivery of restored rows.
    AwaitingSinkRecovery,
    /// Records.
    AwaitingRecords,
    /// The data has ended: the completion of a checkpoint that covers its end.
    AwaitingFinalCheckpoint,
    /// Everything was covered by a completed checkpoint: the confirmation of the last commits.
    AwaitingLastCommits,
    /// The data has ended and no checkpoint is taken: the last flush.
    AwaitingLastFlush,
    /// Nothing.
    Finished,
    /// Nothing: the task is dead.
    Failed,
}

impl Task {
    /// Puts a task together. `finished`: it was restored from a checkpoint that covers the end of
    /// its data.
    pub(crate) fn new(parts: TaskParts, finished: bool) -> Self {
        let TaskParts {
            subtask,
            mechanism,
            acknowledge_timeout,
            inputs,
            source,
            mut stage,
            mut sink,
            outlet,
            ..
        } = parts;
        let acks = match mechanism {
            Mechanism::Acks => Some(Acks::new(&subtask, acknowledge_timeout)),
            Mechanism::None
            | Mechanism::Tracked
            | Mechanism::FullReplay
            | Mechanism::MiniBatch
            | Mechanism::Aligned
            | Mechanism::Unaligned
            | Mechanism::AlignedTimeout
            | Mechanism::Transactional => None,
        };
        if parts.progress.is_some() {
            stage.track_changes();
        }
        let uses_clock = stage.describe().iter().any(|(_, traits)| traits.uses_clock);
        let recovery = sink.as_mut().and_then(SinkMachine::recover);
        let mut task = Self {
            subtask,
            mechanism,
            is_external: parts.is_external,
            blank: parts.blank,
            alignment_timeout: parts.alignment_timeout,
            phase: Phase::AwaitingSinkRecovery,
            gate: Gate::new(inputs, finished && parts.progress.is_none()),
            handler: BarrierHandler::new(mechanism, inputs, parts.may_overtake),
            source,
            stage,
            sink,
            outlet,
            acks,
            progress: parts.progress,
            latest: None,
            completed: None,
            aborted: BTreeSet::new(),
            snapshots: BTreeMap::new(),
            triggered: BTreeMap::new(),
            capture: None,
            clock: uses_clock.then(Clock::new),
            stops: false,
            halted: None,
            held_back: None,
            outputs: VecDeque::new(),
            actions: Vec::new(),
        };
        match recovery {
            Some(request) => task.outputs.push_back(TaskOutput::Sink(request)),
            None => task.start(finished),
        }
        task
    }

    /// Which subtask it is.
    pub fn id(&self) -> TaskId {
        self.subtask.task
    }

    /// The attempt it belongs to.
    pub fn attempt(&self) -> AttemptId {
        self.subtask.attempt
    }

    /// The newest checkpoint that it has cut or given up.
    pub fn latest(&self) -> Option<CheckpointId> {
        self.latest
    }

    /// What it awaits.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Whether the channel must not be delivered from.
    pub fn is_blocked(&self, channel: ChannelIndex) -> bool {
        self.handler.is_blocked(channel)
    }

    /// Whether elements may be delivered: not before restored transactions are dealt with, nor
    /// while too much is held that is not durable.
    pub fn accepts_elements(&self) -> bool {
        match self.phase {
            Phase::AwaitingRecords | Phase::AwaitingFinalCheckpoint => !self.holds_enough(),
            Phase::AwaitingSinkRecovery
            | Phase::AwaitingLastCommits
            | Phase::AwaitingLastFlush
            | Phase::Finished
            | Phase::Failed => false,
        }
    }

    /// Whether what its source was read for is taken up at once: it is held back while the job is
    /// to stop.
    pub fn accepts_reads(&self) -> bool {
        self.halted.is_none()
    }

    /// Whether snapshots are not yet acknowledged, or a write of the task's progress not confirmed.
    pub fn is_snapshotting(&self) -> bool {
        !self.snapshots.is_empty() || self.is_writing_progress()
    }

    /// Whether some barriers of a checkpoint have come and others are awaited.
    pub fn is_collecting_barriers(&self) -> bool {
        self.handler.oldest_pending().is_some()
    }

    /// Whether the records that the channel delivers now are part of a snapshot as well.
    pub fn is_recording(&self, channel: ChannelIndex) -> bool {
        self.capture.is_some() && self.handler.is_recording(channel)
    }

    /// Whether the task wants to hear of barriers that wait for their turn
    /// ([`Task::handle_announcement`]).
    pub fn wants_announcements(&self) -> bool {
        self.mechanism == Mechanism::AlignedTimeout
    }

    /// Its fused operators.
    pub fn stage(&self) -> &dyn Stage {
        self.stage.as_ref()
    }

    /// Where its sink stands, if it has one.
    pub fn sink(&self) -> Option<&SinkMachine> {
        self.sink.as_ref()
    }

    /// Where its source stands, if it has one.
    pub fn source(&self) -> Option<&SourceMachine> {
        self.source.as_ref()
    }

    /// The task's state as a snapshot at this moment would hold it.
    pub fn capture(&mut self, checkpoint: CheckpointId) -> TaskSnapshot {
        self.capture_of(checkpoint, Extent::Whole)
    }

    fn capture_of(&mut self, checkpoint: CheckpointId, extent: Extent) -> TaskSnapshot {
        let (in_flight, numbers) = self.channels();
        let leaves_out = self.is_external || self.blank.is_some();
        TaskSnapshot {
            checkpoint,
            task: self.subtask.task,
            finished: self.phase == Phase::AwaitingFinalCheckpoint || self.has_written_end(),
            operators: match extent {
                Extent::Whole if leaves_out => Vec::new(),
                Extent::Whole => self.stage.snapshot(),
                Extent::Changes => self.stage.changes(),
            },
            source: self.source.as_ref().map(SourceMachine::state),
            transactions: self
                .sink
                .as_ref()
                .map(|sink| sink.transactions(checkpoint))
                .unwrap_or_default(),
            log: self.sink.as_ref().map(SinkMachine::log).unwrap_or_default(),
            shown: self.sink.as_ref().map(SinkMachine::shown).unwrap_or_default(),
            in_flight,
            numbers,
        }
    }

    /// Makes copies of the task cheap: keyed state is copied only where one of the two changes it.
    pub fn share_state(&mut self) {
        self.stage.snapshot();
    }

    /// The next thing to do; to be asked until there is none.
    pub fn poll_output(&mut self) -> Option<TaskOutput> {
        self.outputs.pop_front()
    }

    /// Sends on what the outlet collected. To be called when no more input is at hand, so that a
    /// half full batch does not wait.
    pub fn flush(&mut self) {
        let (outlet, produced) = self.produced();
        outlet.flush(produced);
        self.number_produced();
        self.write_progress();
        if self.acks.as_mut().is_some_and(Acks::begin_flush) {
            self.outputs.push_back(TaskOutput::Sink(SinkRequest::Flush(None)));
        }
    }

    /// Has the operators handle records, from wherever they come, and sends on what they emit.
    pub fn process(&mut self, records: Batch) {
        let anchor = records.anchor();
        let out = self.stage.process(records);
        self.save();
        self.ask_for_wake();
        match anchor {
            Some(anchor) => self.send_on_anchored(out, anchor),
            None => self.send_on(out),
        }
    }

    /// An element has come on a channel.
    ///
    /// # Panics
    /// If the channel is blocked or has ended: the driver broke the contract.
    pub fn handle_element(&mut self, channel: ChannelIndex, element: Element) {
        if matches!(self.phase, Phase::Failed | Phase::Finished) {
            return;
        }
        assert!(!self.is_blocked(channel), "{channel} of {} is blocked", self.id());
        match element {
            Element::Batch(records) => {
                if self.handler.is_recording(channel)
                    && let Some(capture) = &mut self.capture
                {
                    capture.record(channel, [records.clone()]);
                }
                if let Some(records) = self.take_in(channel, records) {
                    self.process(records);
                    self.number_produced();
                }
            }
            Element::Watermark(watermark) => {
                let progress = self.gate.handle_watermark(channel, watermark);
                self.advance_time(progress);
            }
            Element::Idle => {
                let progress = self.gate.handle_idle(channel);
                self.advance_time(progress);
            }
            Element::Barrier(barrier) => self.handle_overtaking(channel, barrier, Vec::new()),
            Element::Committables(committables) => {
                if let Some(sink) = &mut self.sink {
                    sink.handle_committables(committables);
                }
            }
            Element::Cancel(checkpoint) => {
                self.handler.handle_cancel(channel, checkpoint, &mut self.actions);
                self.act(Vec::new());
            }
            Element::EndOfData => self.handle_end_of_data(channel),
            Element::EndOfPartition => {
                self.handle_end_of_data(channel);
                self.handler.handle_end_of_partition(channel, &mut self.actions);
                self.act(Vec::new());
            }
        }
    }

    /// The coordinator says something.
    pub fn handle_message(&mut self, message: ToTask) {
        match message {
            ToTask::Trigger { checkpoint, at, stops } => self.handle_trigger(checkpoint, at, stops),
            ToTask::Completed(checkpoint) => self.handle_completed(checkpoint),
            ToTask::Finish(checkpoint) => self.handle_finish(checkpoint),
            // Behind the end of its partition a task sends nothing.
            ToTask::Aborted { .. } if self.phase == Phase::Finished => {}
            ToTask::Aborted { checkpoint, oldest_in_flight } => {
                while let Some(pending) = self.handler.oldest_pending()
                    && pending < oldest_in_flight
                {
                    self.handle_aborted(pending);
                }
                self.handle_aborted(checkpoint);
            }
            ToTask::Assign(assignment) => self.handle_assigned(Some(assignment)),
            ToTask::NoMoreSplits => self.handle_assigned(None),
        }
    }

    /// Another task says something.
    pub fn handle_peer(&mut self, message: ToPeer) {
        match message {
            ToPeer::Acknowledged { root, edges } => {
                let done = self.acks.as_mut().and_then(|acks| acks.hear(root, edges));
                if let (Some(read), Some(source)) = (done, &mut self.source) {
                    source.acknowledge(read);
                    self.pull();
                }
            }
            ToPeer::TakenIn { outlet, next } => self.forget_taken_in(outlet, next),
        }
    }

    /// The time is over that was asked for.
    pub fn handle_alarm(&mut self) {
        let again = self.sink.as_mut().and_then(SinkMachine::retry);
        self.outputs.extend(again.map(TaskOutput::Sink));
        let timed_out = self.acks.as_mut().map(Acks::ring).unwrap_or_default();
        if let Some(source) = &mut self.source {
            timed_out.into_iter().for_each(|read| source.time_out(read));
        }
        self.pull();
        self.outputs.extend(self.acks.as_mut().and_then(Acks::alarm));
    }

    /// The store has replied.
    pub fn handle_stored(&mut self, reply: StoreReply) {
        match (reply.key, reply.outcome) {
            (StoreKey::State { checkpoint, .. }, StoreOutcome::Stored(handle)) => {
                if let Some(snapshot) = self.snapshots.get_mut(&checkpoint) {
                    snapshot.state = Some(handle);
                    snapshot.awaits = snapshot.awaits.without_store();
                    self.acknowledge_if_whole(checkpoint);
                }
            }
            (
                StoreKey::State { checkpoint, .. },
                StoreOutcome::Failed(_) | StoreOutcome::Unknown(_),
            ) => {
                if self.snapshots.remove(&checkpoint).is_some() {
                    let reason = AbortReason::StoreFailed;
                    self.report(FromTask::Declined { checkpoint, reason });
                }
            }
            (StoreKey::Reservation { .. }, StoreOutcome::Stored(_)) => {
                self.source.iter_mut().for_each(SourceMachine::handle_stored);
                self.pull();
            }
            (
                StoreKey::Reservation { .. },
                StoreOutcome::Failed(error) | StoreOutcome::Unknown(error),
            ) => self.fail(TaskError::External(format!("positions were not stored: {error}"))),
            (StoreKey::Progress { .. }, StoreOutcome::Stored(handle)) => {
                self.handle_progress_stored(handle.bytes);
            }
            (
                StoreKey::Progress { .. },
                StoreOutcome::Failed(error) | StoreOutcome::Unknown(error),
            ) => self.fail(TaskError::External(format!("progress was not stored: {error}"))),
            (StoreKey::Metadata(_) | StoreKey::Attempt, _) => {
                unreachable!("a task stores its own parts only")
            }
        }
    }

    /// The sink's external system has replied.
    pub fn handle_sink(&mut self, reply: SinkReply) {
        if self.phase == Phase::Failed {
            return;
        }
        match reply {
            SinkReply::Flushed(None) => {
                if let Some(acks) = self.acks.as_mut().filter(|acks| acks.is_flushing()) {
                    self.outputs.extend(acks.end_flush());
                } else if self.phase == Phase::AwaitingLastFlush {
                    self.finish();
                }
            }
            SinkReply::Flushed(Some(checkpoint)) => self.confirm_sink(checkpoint),
            SinkReply::Prepared(pending) => {
                let sink = self.sink.as_mut().expect("only a task with a sink hears of prepares");
                sink.handle_prepared(pending);
                let waiting: Vec<_> = self.snapshots.keys().copied().collect();
                let confirmed = waiting.into_iter().filter(|id| !sink.is_preparing(*id));
                for checkpoint in confirmed.collect::<Vec<_>>() {
                    self.confirm_sink(checkpoint);
                }
                self.store_prepared_progress();
            }
            SinkReply::Commit { transaction, outcome } => {
                let sink = self.sink.as_mut().expect("only a task with a sink hears of commits");
                match sink.handle_commit(transaction, outcome) {
                    Ok(AfterCommit::Ask(next)) => self.outputs.push_back(TaskOutput::Sink(next)),
                    Ok(AfterCommit::Pause(pause)) => {
                        self.outputs.push_back(TaskOutput::Alarm(pause));
                    }
                    Ok(AfterCommit::Rest) => {
                        if self.phase == Phase::AwaitingLastCommits && sink.is_settled() {
                            self.finish();
                        }
                    }
                    Err(error) => self.fail(error),
                }
            }
            SinkReply::LookedUp { .. } | SinkReply::Sent(_) | SinkReply::Marked(_) => {
                let sink = self.sink.as_mut().expect("only a task with a sink hears of deliveries");
                let next = sink.handle_delivery(reply);
                let (is_delivering, is_settled) = (sink.is_committing(), sink.is_settled());
                self.outputs.extend(next.map(TaskOutput::Sink));
                if self.phase == Phase::AwaitingSinkRecovery && !is_delivering {
                    self.start(self.gate.is_finished() || self.has_written_end());
                } else if self.phase == Phase::AwaitingLastCommits && is_settled {
                    self.finish();
                }
            }
            SinkReply::DanglingAborted => {
                if self.phase == Phase::AwaitingSinkRecovery {
                    self.start(self.gate.is_finished() || self.has_written_end());
                }
            }
        }
    }

    /// The driver could not carry something out, or caught a panic: the task is dead.
    pub fn fail(&mut self, error: TaskError) {
        self.phase = Phase::Failed;
        self.outputs.clear();
        self.report(FromTask::Failed(error));
    }

    fn start(&mut self, finished: bool) {
        self.phase = Phase::AwaitingRecords;
        self.report(FromTask::Running);
        let losses = self.source.iter().flat_map(SourceMachine::losses).collect::<Vec<_>>();
        losses.into_iter().for_each(|loss| self.report(FromTask::Lost(loss)));
        self.send_unacknowledged();
        self.acknowledge_messages();
        if !finished {
            self.ask_for_wake();
            let resumed = self.source.as_mut().and_then(SourceMachine::resume);
            self.advance_time(resumed.map(time::Progress::Watermark));
            self.pull();
        } else if self.progress.is_none() || self.source.is_some() {
            self.announce_end();
        }
    }

    /// Lets the source go on until it awaits something.
    fn pull(&mut self) {
        while self.phase == Phase::AwaitingRecords
            && self.halted.is_none()
            && !self.holds_enough()
            && let Some(source) = &mut self.source
            && let Some(step) = source.position_to_store().or_else(|| source.step())
        {
            self.take_step(step);
        }
    }

    fn take_step(&mut self, step: SourceStep) {
        match step {
            SourceStep::Read(request) => self.outputs.push_back(TaskOutput::Read(request)),
            SourceStep::Store(state) => {
                let (vertex, subtask) = (self.subtask.vertex, self.subtask.index);
                let key = StoreKey::Reservation { vertex, subtask };
                let value = StoreValue::Reservation(state);
                self.outputs.push_back(TaskOutput::Store(StoreRequest::Put { key, value }));
            }
            SourceStep::Emit { mut records, read } => {
                if let (Some(read), Some(acks)) = (read, &mut self.acks) {
                    records.set_anchor(acks.begin(read));
                    self.outputs.extend(acks.alarm());
                }
                // Nobody may think it idle when the records come.
                let awake = self.source.as_mut().and_then(SourceMachine::wake);
                self.advance_time(awake.map(time::Progress::Watermark));
                self.note_read(&records);
                self.process(records);
                self.number_produced();
                self.advance_source();
            }
            SourceStep::Ask => self.report(FromTask::WantsSplit),
            SourceStep::Lose(loss) => self.report(FromTask::Lost(loss)),
            SourceStep::End => self.end_data(),
        }
    }

    fn send_on(&mut self, records: Batch) {
        if records.is_empty() {
            return;
        }
        match &mut self.sink {
            Some(sink) => self.outputs.extend(sink.write(records).map(TaskOutput::Sink)),
            None => {
                let (outlet, produced) = self.produced();
                outlet.send(records, produced);
            }
        }
    }

    /// Sends on what came of a batch in the batch's tree, and acknowledges the batch: at once, or
    /// when its rows are flushed.
    fn send_on_anchored(&mut self, out: Batch, handled: Anchor) {
        let acks = self.acks.as_mut().expect("only acknowledged records have a place in a tree");
        if self.sink.is_some() && (!out.is_empty() || acks.has_written_part()) {
            acks.keep_until_flushed(handled);
            self.send_on(out);
            return;
        }
        let first = self.outputs.len();
        if !out.is_empty() {
            self.outlet.send(out, &mut self.outputs);
            self.outlet.flush(&mut self.outputs);
        }
        let word = acks.hand_on(handled, self.outputs.range_mut(first..));
        self.outputs.extend(word);
    }

    fn advance_watermark(&mut self, watermark: EventTime) {
        let out = self.stage.on_watermark(watermark);
        self.save();
        self.ask_for_wake();
        self.send_on(out);
        let (outlet, produced) = self.produced();
        outlet.broadcast(Element::Watermark(watermark), produced);
        self.note_change();
    }

    fn handle_end_of_data(&mut self, channel: ChannelIndex) {
        let progress = self.gate.handle_end_of_data(channel);
        self.advance_time(progress);
    }

    /// Event time has advanced, or nobody knows when it will.
    fn advance_time(&mut self, progress: Option<time::Progress>) {
        match progress {
            Some(time::Progress::Watermark(EventTime::MAX)) => self.end_data(),
            Some(time::Progress::Watermark(lowest)) => self.advance_watermark(lowest),
            Some(time::Progress::Idle(reached)) => {
                reached.into_iter().for_each(|reached| self.advance_watermark(reached));
                let (outlet, produced) = self.produced();
                outlet.broadcast(Element::Idle, produced);
                self.note_change();
            }
            None => {}
        }
    }

    fn handle_trigger(&mut self, checkpoint: CheckpointId, at: Instant, stops: bool) {
        match self.phase {
            Phase::AwaitingRecords | Phase::AwaitingFinalCheckpoint => {
                let at = if stops { Instant::MAX } else { at };
                self.triggered.insert(checkpoint, at);
                self.halted = stops.then_some(checkpoint);
                self.start_checkpoint(checkpoint, self.mechanism == Mechanism::Unaligned);
                self.complete_inputs(checkpoint);
                self.go_on_reading();
            }
            Phase::AwaitingSinkRecovery | Phase::AwaitingLastCommits | Phase::AwaitingLastFlush => {
                self.refuse(checkpoint, AbortReason::TaskNotReady);
            }
            Phase::Finished | Phase::Failed => {}
        }
    }

    fn handle_completed(&mut self, checkpoint: CheckpointId) {
        self.completed = self.completed.max(Some(checkpoint));
        self.snapshots.retain(|id, _| *id > checkpoint);
        if let Some(source) = &mut self.source {
            source.complete(checkpoint);
            self.acknowledge_messages();
        }
        if let Some(sink) = &mut self.sink {
            let due = sink.handle_completed(checkpoint);
            self.outputs.extend(due.map(TaskOutput::Sink));
        }
    }

    fn handle_aborted(&mut self, checkpoint: CheckpointId) {
        self.snapshots.remove(&checkpoint);
        self.drop_capture(checkpoint);
        if self.latest == Some(checkpoint) {
            self.go_on_with_clock();
        }
        if self.halted == Some(checkpoint) {
            self.halted = None;
            self.go_on_reading();
        }
        if self.handler.is_pending(checkpoint) {
            self.latest = self.latest.max(Some(checkpoint));
            self.handler.abort(checkpoint, &mut self.actions);
            self.act(Vec::new());
            self.outlet.broadcast(Element::Cancel(checkpoint), &mut self.outputs);
        } else if self.latest.is_none_or(|latest| latest < checkpoint) {
            self.aborted.insert(checkpoint);
            if self.aborted.len() > ABORTED_REMEMBERED_MAX {
                self.aborted.pop_first();
            }
        }
    }

    /// Carries out what the barrier handler has decided, in order. `overtaken` is what the barrier
    /// that it decided about has passed over.
    fn act(&mut self, mut overtaken: Vec<Batch>) {
        let mut actions = std::mem::take(&mut self.actions);
        for action in actions.drain(..) {
            match action {
                BarrierAction::Block(channel) => self.outputs.push_back(TaskOutput::Block(channel)),
                BarrierAction::Unblock(channel) => {
                    self.outputs.push_back(TaskOutput::Unblock(channel));
                }
                BarrierAction::Start(checkpoint) => {
                    self.start_checkpoint(checkpoint, self.mechanism == Mechanism::Unaligned);
                    self.complete_inputs(checkpoint);
                }
                BarrierAction::Begin(checkpoint) => self.start_checkpoint(checkpoint, true),
                BarrierAction::Capture(channel) => {
                    if let Some(capture) = &mut self.capture {
                        capture.record(channel, std::mem::take(&mut overtaken));
                    }
                }
                BarrierAction::Complete(checkpoint) => self.complete_inputs(checkpoint),
                BarrierAction::Overtake(channel, checkpoint) => {
                    self.outputs.push_back(TaskOutput::Overtake(channel, checkpoint));
                }
                BarrierAction::Abort(checkpoint, reason) => self.refuse(checkpoint, reason),
            }
        }
        self.actions = actions;
    }

    /// The task takes no part in the checkpoint: nobody downstream may wait for its barrier (rule
    /// 7).
    fn refuse(&mut self, checkpoint: CheckpointId, reason: AbortReason) {
        self.latest = self.latest.max(Some(checkpoint));
        self.drop_capture(checkpoint);
        self.outlet.broadcast(Element::Cancel(checkpoint), &mut self.outputs);
        self.report(FromTask::Declined { checkpoint, reason });
    }

    fn report(&mut self, body: FromTask) {
        self.outputs.push_back(TaskOutput::Report(body));
    }
}

/// How many aborted checkpoints a task remembers whose barriers have not come.
const ABORTED_REMEMBERED_MAX: usize = 32;

#[cfg(test)]
mod tests;
