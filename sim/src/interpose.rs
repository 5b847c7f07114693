//! Broken variants of the protocol: each changes what passes a machine's boundary, and the machines
//! themselves stay as they are. A judge that does not notice one of them is blind.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use cofferdam::element::{Anchor, Element, Root};
use cofferdam::id::{AttemptId, ChannelIndex, CheckpointId, MessageId, SplitId, TaskId};
use cofferdam::message::ToPeer;
use cofferdam::operator::queue::Acknowledgement;
use cofferdam::operator::sink::{SinkReply, SinkRequest};
use cofferdam::state::snapshot::{InFlight, SourceState, TaskSnapshot, TaskState};
use cofferdam::storage::{
    StateHandle, StoreKey, StoreOutcome, StoreReply, StoreRequest, StoreValue,
};
use cofferdam::task::{Task, TaskOutput};
use smallvec::{SmallVec, smallvec};

/// A broken variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The barrier of a task's first input channel is held back until those of all others have
    /// come: what follows it on that channel gets into the snapshot.
    BarrierNotAligned,
    /// A two-phase sink commits when it has prepared, not when the checkpoint is complete.
    CommitAtSnapshot,
    /// A task hears that its state is durable before the store has written it.
    AcknowledgeBeforeStored,
    /// Snapshots do not hold the timers.
    TimersLeftOut,
    /// Snapshots hold no positions of sources.
    PositionsLeftOut,
    /// Snapshots hold the positions of the source's checkpoint before, be it of an older attempt:
    /// they lie behind what the state has taken in, or ahead of it.
    PositionsStale,
    /// Snapshots do not hold the rows that a write-ahead sink has not sent.
    LogLeftOut,
    /// Snapshots do not hold the transactions that await their commit.
    TransactionsLeftOut,
    /// A two-phase sink hears that its transaction is prepared before it is.
    PreparedUnseen,
    /// Every other commit fails, and the sink takes it for done.
    CommitErrorSwallowed,
    /// A transaction that is committed again shows its rows again, and so does a portion of logged
    /// rows that is sent again.
    RepeatedEffect,
    /// A task's death rolls back what it has prepared.
    RolledBackAtDeath,
    /// Older attempts are not refused: not by external systems, and not on channels.
    OldAttemptNotFenced,
    /// A sink acknowledges records when it has written them, not when they are flushed.
    AcknowledgeBeforeFlushed,
    /// What comes of a record is not in its tree: the tree is done while a part is open.
    TreeCutShort,
    /// The position that is made durable is that behind what was read, acknowledged or not.
    PositionBehindOpenReads,
    /// A word that comes a second time stands for one that has not come: the tree is done while a
    /// part is open.
    DoubledWordEndsTree,
    /// Snapshots hold no records in flight.
    InFlightLeftOut,
    /// Snapshots hold the records in flight of a task's first input only.
    FirstInputInFlight,
    /// Records in flight are stored twice, as if those of a recovery were recorded again.
    InFlightTwice,
    /// Records in flight are stored in another order than they are in the channel.
    InFlightDisordered,
    /// What a barrier overtakes at the receiver includes what was sent behind it.
    InFlightBehindBarrier,
    /// What a barrier overtakes at the sender is not part of its snapshot.
    OutputNotInFlight,
    /// A barrier that overtakes is handed in after the next record.
    RecordBeforeBarrier,
    /// A source whose log was truncated goes on behind the gap and says nothing.
    GapSkipped,
    /// A source acknowledges messages when it has emitted them.
    AcknowledgedWhenEmitted,
    /// At a completion everything is acknowledged that was emitted by then, and not just what the
    /// checkpoint holds.
    AcknowledgedBeyondCheckpoint,
    /// What was emitted is acknowledged from time to time as well.
    AcknowledgedByTime,
    /// What waited for a checkpoint of an older attempt is acknowledged with a later one.
    WaiterOutlivesAttempt,
    /// A restored source forgets the ids that its checkpoint holds.
    IdsResetAtOpen,
    /// Snapshots hold no ids of emitted messages.
    IdsLeftOut,
    /// A source forgets an id when it has told the queue, not when the queue has confirmed.
    ConfirmedUnheard,
    /// A queue gives a message that comes again another id.
    RedeliveredUnderNewId,
    /// What comes again and is in the restored state is dropped and not acknowledged.
    RestoredNotAcknowledged,
}

impl Variant {
    /// Every variant.
    pub const ALL: [Self; 34] = [
        Self::BarrierNotAligned,
        Self::CommitAtSnapshot,
        Self::AcknowledgeBeforeStored,
        Self::TimersLeftOut,
        Self::PositionsLeftOut,
        Self::PositionsStale,
        Self::LogLeftOut,
        Self::TransactionsLeftOut,
        Self::PreparedUnseen,
        Self::CommitErrorSwallowed,
        Self::RepeatedEffect,
        Self::RolledBackAtDeath,
        Self::OldAttemptNotFenced,
        Self::AcknowledgeBeforeFlushed,
        Self::TreeCutShort,
        Self::PositionBehindOpenReads,
        Self::DoubledWordEndsTree,
        Self::InFlightLeftOut,
        Self::FirstInputInFlight,
        Self::InFlightTwice,
        Self::InFlightDisordered,
        Self::InFlightBehindBarrier,
        Self::OutputNotInFlight,
        Self::RecordBeforeBarrier,
        Self::GapSkipped,
        Self::AcknowledgedWhenEmitted,
        Self::AcknowledgedBeyondCheckpoint,
        Self::AcknowledgedByTime,
        Self::WaiterOutlivesAttempt,
        Self::IdsResetAtOpen,
        Self::IdsLeftOut,
        Self::ConfirmedUnheard,
        Self::RedeliveredUnderNewId,
        Self::RestoredNotAcknowledged,
    ];
}

impl Variant {
    /// Takes out of a snapshot what the variant leaves out, if it does that, or spoils it.
    fn change(self, snapshot: &mut TaskSnapshot) {
        let InFlight { inputs, outputs } = &mut snapshot.in_flight;
        let in_flight = inputs.values_mut().chain(outputs.values_mut());
        match self {
            Self::TimersLeftOut => {
                snapshot.operators.iter_mut().for_each(|operator| operator.timers = None);
            }
            Self::LogLeftOut => snapshot.log.clear(),
            Self::TransactionsLeftOut => snapshot.transactions.clear(),
            Self::InFlightLeftOut => snapshot.in_flight = InFlight::default(),
            Self::FirstInputInFlight => inputs.retain(|channel, _| channel.get() == 0),
            Self::InFlightTwice => in_flight.for_each(|batches| batches.extend_from_within(..)),
            Self::InFlightDisordered => in_flight.for_each(|batches| batches.reverse()),
            Self::BarrierNotAligned
            | Self::CommitAtSnapshot
            | Self::AcknowledgeBeforeStored
            | Self::PositionsLeftOut
            | Self::PositionsStale
            | Self::PreparedUnseen
            | Self::CommitErrorSwallowed
            | Self::RepeatedEffect
            | Self::RolledBackAtDeath
            | Self::OldAttemptNotFenced
            | Self::AcknowledgeBeforeFlushed
            | Self::TreeCutShort
            | Self::PositionBehindOpenReads
            | Self::DoubledWordEndsTree
            | Self::InFlightBehindBarrier
            | Self::OutputNotInFlight
            | Self::RecordBeforeBarrier
            | Self::GapSkipped
            | Self::AcknowledgedWhenEmitted
            | Self::AcknowledgedBeyondCheckpoint
            | Self::AcknowledgedByTime
            | Self::WaiterOutlivesAttempt
            | Self::IdsResetAtOpen
            | Self::IdsLeftOut
            | Self::ConfirmedUnheard
            | Self::RedeliveredUnderNewId
            | Self::RestoredNotAcknowledged => {}
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BarrierNotAligned => "barrier-not-aligned",
            Self::CommitAtSnapshot => "commit-at-snapshot",
            Self::AcknowledgeBeforeStored => "acknowledge-before-stored",
            Self::TimersLeftOut => "timers-left-out",
            Self::PositionsLeftOut => "positions-left-out",
            Self::PositionsStale => "positions-stale",
            Self::LogLeftOut => "log-left-out",
            Self::TransactionsLeftOut => "transactions-left-out",
            Self::PreparedUnseen => "prepared-unseen",
            Self::CommitErrorSwallowed => "commit-error-swallowed",
            Self::RepeatedEffect => "repeated-effect",
            Self::RolledBackAtDeath => "rolled-back-at-death",
            Self::OldAttemptNotFenced => "old-attempt-not-fenced",
            Self::AcknowledgeBeforeFlushed => "acknowledge-before-flushed",
            Self::TreeCutShort => "tree-cut-short",
            Self::PositionBehindOpenReads => "position-behind-open-reads",
            Self::DoubledWordEndsTree => "doubled-word-ends-tree",
            Self::InFlightLeftOut => "in-flight-left-out",
            Self::FirstInputInFlight => "first-input-in-flight",
            Self::InFlightTwice => "in-flight-twice",
            Self::InFlightDisordered => "in-flight-disordered",
            Self::InFlightBehindBarrier => "in-flight-behind-barrier",
            Self::OutputNotInFlight => "output-not-in-flight",
            Self::RecordBeforeBarrier => "record-before-barrier",
            Self::GapSkipped => "gap-skipped",
            Self::AcknowledgedWhenEmitted => "acknowledged-when-emitted",
            Self::AcknowledgedBeyondCheckpoint => "acknowledged-beyond-checkpoint",
            Self::AcknowledgedByTime => "acknowledged-by-time",
            Self::WaiterOutlivesAttempt => "waiter-outlives-attempt",
            Self::IdsResetAtOpen => "ids-reset-at-open",
            Self::IdsLeftOut => "ids-left-out",
            Self::ConfirmedUnheard => "confirmed-unheard",
            Self::RedeliveredUnderNewId => "redelivered-under-new-id",
            Self::RestoredNotAcknowledged => "restored-not-acknowledged",
        })
    }
}

/// Stands at the boundaries of all machines of a world.
#[derive(Clone, Debug, Default)]
pub struct Interposer {
    variant: Option<Variant>,
    alignments: BTreeMap<(TaskId, AttemptId), Alignment>,
    /// The edges that the task at work has sent and that no word has named yet.
    edges: u64,
    /// The trees that have begun, for the variant that ends one by a word that comes again.
    trees: BTreeMap<(AttemptId, Root), OpenTree>,
    /// Where each split was last asked to be read, for the variant that stores that.
    cursors: BTreeMap<(TaskId, SplitId), Vec<u8>>,
    /// The ids that each task was restored with, for the variant that never acknowledges those.
    restored: BTreeMap<(TaskId, AttemptId), BTreeSet<(SplitId, MessageId)>>,
    /// Each source's positions at its last checkpoint, for the variant that stores those.
    positions: BTreeMap<TaskId, SourceState>,
}

/// The barriers that a task's channels have brought, for the variant that holds the first one back.
#[derive(Clone, Debug)]
struct Alignment {
    checkpoint: CheckpointId,
    others: usize,
    holds_first: bool,
}

/// What a tree's acker knows, and what it has heard.
#[derive(Clone, Debug)]
struct OpenTree {
    edges: u64,
    heard: BTreeSet<u64>,
}

/// What passes a task's boundary in place of one output.
#[derive(Debug)]
pub enum Passed {
    /// To the outside.
    Out(TaskOutput),
    /// Back to the task, as an answer of the store.
    Stored(StoreReply),
    /// Back to the task, as an answer of its sink.
    Replied(SinkReply),
    /// Back to the task, as a confirmation of its queue.
    Confirmed(Acknowledgement),
}

impl Interposer {
    /// With no variant everything passes as it is.
    pub fn new(variant: Option<Variant>) -> Self {
        Self { variant, ..Self::default() }
    }

    /// Whether this variant is at work.
    pub fn is(&self, variant: Variant) -> bool {
        self.variant == Some(variant)
    }

    /// What becomes of an output.
    pub fn output(&mut self, task: &Task, output: TaskOutput) -> SmallVec<[Passed; 1]> {
        match (self.variant, output) {
            (Some(Variant::AcknowledgeBeforeFlushed), TaskOutput::Sink(SinkRequest::Flush(to))) => {
                smallvec![
                    Passed::Out(TaskOutput::Sink(SinkRequest::Flush(to))),
                    Passed::Replied(SinkReply::Flushed(to)),
                ]
            }
            (
                Some(
                    Variant::TreeCutShort
                    | Variant::PositionBehindOpenReads
                    | Variant::DoubledWordEndsTree,
                ),
                output,
            ) => smallvec![Passed::Out(self.acknowledging(task, output))],
            (Some(_), TaskOutput::Acknowledge(told)) => self.told_to_queue(task, told),
            (Some(Variant::CommitAtSnapshot), TaskOutput::Sink(SinkRequest::Prepare(pending))) => {
                smallvec![
                    Passed::Out(TaskOutput::Sink(SinkRequest::Prepare(pending))),
                    Passed::Out(TaskOutput::Sink(SinkRequest::Commit(pending.transaction))),
                ]
            }
            (Some(Variant::PreparedUnseen), TaskOutput::Sink(SinkRequest::Prepare(pending))) => {
                smallvec![
                    Passed::Replied(SinkReply::Prepared(pending)),
                    Passed::Out(TaskOutput::Sink(SinkRequest::Prepare(pending))),
                ]
            }
            (Some(Variant::CommitErrorSwallowed), TaskOutput::Sink(SinkRequest::Commit(id)))
                if !id.sequence.is_multiple_of(2) =>
            {
                smallvec![Passed::Replied(SinkReply::Committed(id))]
            }
            (
                Some(Variant::AcknowledgeBeforeStored),
                TaskOutput::Store(StoreRequest::Put { key, value: StoreValue::State(snapshot) }),
            ) => {
                let value = StoreValue::State(snapshot);
                let handle = StateHandle::of(key, &value.encode());
                let reply = StoreReply { key, outcome: StoreOutcome::Stored(handle) };
                let put = TaskOutput::Store(StoreRequest::Put { key, value });
                smallvec![Passed::Out(put), Passed::Stored(reply)]
            }
            (
                Some(variant),
                TaskOutput::Store(StoreRequest::Put {
                    key: key @ StoreKey::State { .. },
                    value: StoreValue::State(mut snapshot),
                }),
            ) => {
                variant.change(&mut snapshot);
                self.displace(variant, &mut snapshot);
                let value = StoreValue::State(snapshot);
                smallvec![Passed::Out(TaskOutput::Store(StoreRequest::Put { key, value }))]
            }
            (_, output) => smallvec![Passed::Out(output)],
        }
    }

    /// An output of a task whose records are acknowledged.
    fn acknowledging(&mut self, task: &Task, mut output: TaskOutput) -> TaskOutput {
        let cuts_short = self.is(Variant::TreeCutShort);
        match &mut output {
            TaskOutput::Send(_, Element::Batch(records)) => {
                if let Some(Anchor { root, edge }) = records.anchor() {
                    self.edges ^= edge;
                    let edge = if cuts_short { 0 } else { edge };
                    records.set_anchor(Anchor { root, edge });
                }
            }
            TaskOutput::Tell(_, ToPeer::Acknowledged { root, edges }) => {
                let begun = *edges ^ std::mem::take(&mut self.edges);
                if cuts_short {
                    *edges = begun;
                }
                // The first word of a tree is that of its source.
                let tree = OpenTree { edges: begun, heard: BTreeSet::new() };
                self.trees.entry((task.attempt(), *root)).or_insert(tree);
            }
            TaskOutput::Read(request) => {
                self.cursors.insert((task.id(), request.split), request.cursor.clone());
            }
            TaskOutput::Store(StoreRequest::Put {
                value: StoreValue::Reservation(state), ..
            }) if self.is(Variant::PositionBehindOpenReads) => {
                for split in &mut state.splits {
                    if let Some(cursor) = self.cursors.get(&(task.id(), split.split)) {
                        split.cursor.clone_from(cursor);
                    }
                }
            }
            TaskOutput::Send(..)
            | TaskOutput::Store(_)
            | TaskOutput::Block(_)
            | TaskOutput::Unblock(_)
            | TaskOutput::Report(_)
            | TaskOutput::Sink(_)
            | TaskOutput::Acknowledge(_)
            | TaskOutput::Alarm(_)
            | TaskOutput::Cut(_)
            | TaskOutput::Overtake(..)
            | TaskOutput::Hurry(..)
            | TaskOutput::WaitUntil(_) => {}
        }
        output
    }

    /// What becomes of what a task tells its queue.
    fn told_to_queue(&self, task: &Task, mut told: Acknowledgement) -> SmallVec<[Passed; 1]> {
        if self.is(Variant::ConfirmedUnheard) {
            let out = Passed::Out(TaskOutput::Acknowledge(told.clone()));
            return smallvec![Passed::Confirmed(told), out];
        }
        if let Some(restored) = self.restored.get(&(task.id(), task.attempt())) {
            told.ids.retain(|id| !restored.contains(&(told.split, *id)));
        }
        smallvec![Passed::Out(TaskOutput::Acknowledge(told))]
    }

    /// The state that a task is to begin with.
    pub fn restored(&mut self, task: TaskId, attempt: AttemptId, state: &mut TaskState) {
        let Some(source) = &mut state.source else { return };
        if self.is(Variant::IdsResetAtOpen) {
            source.emitted.clear();
        }
        if self.is(Variant::RestoredNotAcknowledged) {
            self.restored.insert((task, attempt), source.emitted.iter().copied().collect());
        }
    }

    /// Puts other positions into a source's snapshot, if the variant does.
    fn displace(&mut self, variant: Variant, snapshot: &mut TaskSnapshot) {
        let Some(source) = &mut snapshot.source else { return };
        if variant == Variant::PositionsLeftOut {
            *source = SourceState::default();
        }
        if variant == Variant::IdsLeftOut {
            source.emitted.clear();
        }
        if variant == Variant::PositionsStale {
            let now = source.clone();
            if let Some(before) = self.positions.insert(snapshot.task, now) {
                *source = before;
            }
        }
    }

    /// What a task hears that was told something.
    pub fn told(&mut self, attempt: AttemptId, message: ToPeer) -> ToPeer {
        let ToPeer::Acknowledged { root, edges } = message;
        if !self.is(Variant::DoubledWordEndsTree) {
            return message;
        }
        let Some(tree) = self.trees.get_mut(&(attempt, root)) else { return message };
        if tree.heard.insert(edges) {
            tree.edges ^= edges;
            return message;
        }
        ToPeer::Acknowledged { root, edges: std::mem::take(&mut tree.edges) }
    }

    /// Which elements reach a task of `channels` inputs when one has been taken from a channel.
    pub fn delivery(
        &mut self,
        task: TaskId,
        attempt: AttemptId,
        channels: usize,
        channel: ChannelIndex,
        element: Element,
    ) -> SmallVec<[(ChannelIndex, Element); 1]> {
        let first = ChannelIndex::new(0);
        let Element::Barrier(barrier) = element else { return smallvec![(channel, element)] };
        let checkpoint = barrier.checkpoint;
        if !self.is(Variant::BarrierNotAligned) || channels < 2 {
            return smallvec![(channel, element)];
        }
        let begun = Alignment { checkpoint, others: 0, holds_first: false };
        let alignment = self.alignments.entry((task, attempt)).or_insert(begun.clone());
        if alignment.checkpoint != checkpoint {
            *alignment = begun;
        }
        if channel == first {
            alignment.holds_first = alignment.others < channels - 1;
            return if alignment.holds_first {
                SmallVec::new()
            } else {
                smallvec![(channel, element)]
            };
        }
        alignment.others += 1;
        let mut deliveries = smallvec![(channel, element.clone())];
        if alignment.others == channels - 1 && alignment.holds_first {
            deliveries.push((first, element));
        }
        deliveries
    }
}
