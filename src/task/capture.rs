//! The part of a task that cuts its channels: which records in flight belong to a snapshot that it
//! has taken, and when that snapshot is whole.

use std::collections::BTreeSet;

use super::{Phase, Task, TaskOutput};
use crate::element::{Barrier, Batch, Element};
use crate::guarantee::Mechanism;
use crate::id::{ChannelIndex, CheckpointId, OutletIndex};
use crate::message::{FromTask, TaskError};
use crate::operator::sink::SinkRequest;
use crate::state::snapshot::TaskSnapshot;
use crate::storage::{StateHandle, StoreKey, StoreRequest, StoreValue};
use crate::time::Instant;

/// A snapshot that was taken and is not whole. A newer one takes its place: only one is recorded at
/// a time (rule 24).
#[derive(Clone, Debug)]
pub(super) struct Capture {
    snapshot: TaskSnapshot,
    /// Some channel has not delivered its barrier.
    awaits_inputs: bool,
    /// Where the barrier was sent and the driver has not said what it overtook.
    unsent: BTreeSet<OutletIndex>,
    /// When barriers that still wait for room begin to overtake (rule 37).
    hurry_at: Instant,
}

impl Capture {
    pub(super) fn new(
        snapshot: TaskSnapshot,
        unsent: BTreeSet<OutletIndex>,
        hurry_at: Instant,
    ) -> Self {
        Self { snapshot, awaits_inputs: true, unsent, hurry_at }
    }

    /// Records of an input, behind those that were recorded before.
    pub(super) fn record(
        &mut self,
        channel: ChannelIndex,
        records: impl IntoIterator<Item = Batch>,
    ) {
        let mut records = records.into_iter().peekable();
        if records.peek().is_some() {
            self.snapshot.in_flight.inputs.entry(channel).or_default().extend(records);
        }
    }
}

/// What a snapshot still waits for before it is acknowledged.
#[derive(Clone, Debug)]
pub(super) struct Snapshotting {
    pub(super) awaits: Awaits,
    /// Known once the store has replied.
    pub(super) state: Option<StateHandle>,
    /// The data had ended when it was taken.
    pub(super) finished: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    StoreAndSink,
    Store,
    Sink,
    Nothing,
}

impl Awaits {
    pub(super) const fn without_store(self) -> Self {
        match self {
            Self::StoreAndSink | Self::Sink => Self::Sink,
            Self::Store | Self::Nothing => Self::Nothing,
        }
    }

    pub(super) const fn without_sink(self) -> Self {
        match self {
            Self::StoreAndSink | Self::Store => Self::Store,
            Self::Sink | Self::Nothing => Self::Nothing,
        }
    }
}

impl Task {
    /// The cut: barrier first, then the snapshot, nothing in between (rule 2). The snapshot is
    /// stored when the records in flight on both sides are known, if any belong to it.
    pub(super) fn start_checkpoint(&mut self, checkpoint: CheckpointId, overtakes: bool) {
        let triggered_at = self.triggered.remove(&checkpoint).unwrap_or_default();
        let stops = triggered_at == Instant::MAX;
        self.triggered.retain(|other, _| *other > checkpoint);
        if self.latest.is_some_and(|latest| checkpoint <= latest) {
            return;
        }
        // Only one snapshot is recorded at a time (rule 24).
        self.capture = None;
        if self.aborted.remove(&checkpoint) {
            self.latest = Some(checkpoint);
            self.handler.abort(checkpoint, &mut self.actions);
            self.outlet.broadcast(Element::Cancel(checkpoint), &mut self.outputs);
            return;
        }
        self.latest = Some(checkpoint);
        self.stops = stops;
        self.aborted.retain(|aborted| *aborted > checkpoint);
        let prepare = match self.pre_commit(checkpoint) {
            Ok(prepare) => prepare,
            Err(error) => return self.fail(error),
        };
        if let Some(told) = self.sink.as_ref().and_then(|sink| sink.committables(checkpoint)) {
            self.outlet.broadcast(Element::Committables(told), &mut self.outputs);
        }
        // Where the job stops nothing may come behind the cut (rule 27).
        let overtakes = overtakes && !stops;
        let barrier = Barrier { checkpoint, overtakes, triggered_at };
        self.outlet.send_barrier(barrier, &mut self.outputs);
        if let Some(source) = &mut self.source {
            source.cut(checkpoint);
        }
        let snapshot = self.capture(checkpoint);
        if let Some(blank) = &self.blank {
            self.stage = blank.clone();
            self.tell_clock_again();
        }
        let finished = snapshot.finished;
        let is_preparing = self.sink.as_ref().is_some_and(|sink| sink.is_preparing(checkpoint));
        let awaits = match prepare.is_some() || is_preparing {
            true => Awaits::StoreAndSink,
            false => Awaits::Store,
        };
        self.snapshots.insert(checkpoint, Snapshotting { awaits, state: None, finished });
        self.outputs.extend(prepare.map(TaskOutput::Sink));
        let mut unsent = BTreeSet::new();
        if self.mechanism.stores_in_flight() {
            self.outputs.push_back(TaskOutput::Cut(checkpoint));
            unsent.extend(self.outlet.overtaking());
        }
        let hurry_at = triggered_at + self.alignment_timeout;
        self.capture = Some(Capture::new(snapshot, unsent, hurry_at));
    }

    /// Has the sink get ready for a snapshot: what it has to answer before, if anything.
    pub(super) fn pre_commit(
        &mut self,
        checkpoint: CheckpointId,
    ) -> Result<Option<SinkRequest>, TaskError> {
        self.sink.as_mut().map_or(Ok(None), |sink| sink.pre_commit(checkpoint))
    }

    /// A barrier has come ahead of its turn. `overtaken` are copies, the oldest first, of the
    /// records that were sent before it and stay in the channel.
    ///
    /// # Panics
    /// If the channel has ended: the driver broke the contract.
    pub fn handle_overtaking(
        &mut self,
        channel: ChannelIndex,
        barrier: Barrier,
        overtaken: Vec<Batch>,
    ) {
        if matches!(self.phase, Phase::Failed | Phase::Finished) {
            return;
        }
        self.triggered.insert(barrier.checkpoint, barrier.triggered_at);
        self.handler.handle_barrier(channel, barrier, &mut self.actions);
        self.act(overtaken);
    }

    /// A barrier has come to the end of a channel's queue and waits for its turn.
    ///
    /// # Panics
    /// As [`Task::handle_overtaking`].
    pub fn handle_announcement(&mut self, channel: ChannelIndex, barrier: Barrier) {
        if matches!(self.phase, Phase::Failed | Phase::Finished) {
            return;
        }
        let deadline = barrier.triggered_at + self.alignment_timeout;
        self.triggered.insert(barrier.checkpoint, barrier.triggered_at);
        let checkpoint = barrier.checkpoint;
        self.handler.handle_announcement(channel, checkpoint, deadline, &mut self.actions);
        self.act(Vec::new());
        self.outputs.extend(self.handler.deadline().map(TaskOutput::WaitUntil));
    }

    /// A barrier that this task sent has entered its channel, ahead of these records that the task
    /// has emitted and that still wait for room.
    pub fn handle_barrier_sent(
        &mut self,
        outlet: OutletIndex,
        checkpoint: CheckpointId,
        overtaken: Vec<Batch>,
    ) {
        let of_checkpoint = |capture: &&mut Capture| capture.snapshot.checkpoint == checkpoint;
        let Some(capture) = self.capture.as_mut().filter(of_checkpoint) else { return };
        if capture.unsent.remove(&outlet) && !overtaken.is_empty() {
            capture.snapshot.in_flight.outputs.insert(outlet, overtaken);
        }
        self.store_if_whole();
    }

    /// A time that the task waited for has come.
    pub fn handle_time(&mut self, now: Instant) {
        if let Some(capture) = self.capture.as_ref().filter(|capture| capture.hurry_at <= now) {
            let checkpoint = capture.snapshot.checkpoint;
            let hurry = |outlet: &OutletIndex| TaskOutput::Hurry(*outlet, checkpoint);
            self.outputs.extend(capture.unsent.iter().map(hurry));
        }
        self.handler.handle_time(now, &mut self.actions);
        self.act(Vec::new());
    }

    /// Every channel has given its part of the snapshot.
    pub(super) fn complete_inputs(&mut self, checkpoint: CheckpointId) {
        let of_checkpoint = |capture: &&mut Capture| capture.snapshot.checkpoint == checkpoint;
        let Some(capture) = self.capture.as_mut().filter(of_checkpoint) else { return };
        capture.awaits_inputs = false;
        if self.mechanism == Mechanism::AlignedTimeout && !capture.unsent.is_empty() {
            self.outputs.push_back(TaskOutput::WaitUntil(capture.hurry_at));
        }
        self.store_if_whole();
    }

    pub(super) fn drop_capture(&mut self, checkpoint: CheckpointId) {
        self.capture = self.capture.take().filter(|c| c.snapshot.checkpoint != checkpoint);
    }

    fn store_if_whole(&mut self) {
        let is_whole = |capture: &mut Capture| !capture.awaits_inputs && capture.unsent.is_empty();
        let Some(Capture { snapshot, .. }) = self.capture.take_if(is_whole) else { return };
        let (task, attempt) = (self.subtask.task, self.subtask.attempt);
        self.outputs.push_back(TaskOutput::Store(StoreRequest::Put {
            key: StoreKey::State { checkpoint: snapshot.checkpoint, attempt, task },
            value: StoreValue::State(Box::new(snapshot)),
        }));
    }

    pub(super) fn confirm_sink(&mut self, checkpoint: CheckpointId) {
        self.store_progress();
        if let Some(snapshot) = self.snapshots.get_mut(&checkpoint) {
            snapshot.awaits = snapshot.awaits.without_sink();
            self.acknowledge_if_whole(checkpoint);
        }
    }

    pub(super) fn acknowledge_if_whole(&mut self, checkpoint: CheckpointId) {
        let Some(snapshot) = self.snapshots.get(&checkpoint) else { return };
        if snapshot.awaits != Awaits::Nothing {
            return;
        }
        let finished = snapshot.finished;
        let state = snapshot.state.expect("the store has replied, or the store would be awaited");
        self.snapshots.remove(&checkpoint);
        self.report(FromTask::Acknowledged { checkpoint, state, finished });
    }
}
