//! Broken variants of the protocol: each changes what passes a machine's boundary, and the machines
//! themselves stay as they are. A judge that does not notice one of them is blind.

mod event_time;
mod layouts;
mod restores;
mod several;
mod splits;
mod state;
mod variant;

use std::collections::{BTreeMap, BTreeSet};

use cofferdam::coordinator::Recovered;
use cofferdam::element::{Anchor, Barrier, Committables, Element, Root};
use cofferdam::id::{
    AttemptId, ChannelIndex, CheckpointId, MessageId, SplitId, SubtaskIndex, TaskId,
};
use cofferdam::message::{FromTask, ToPeer, ToTask};
use cofferdam::operator::queue::Acknowledgement;
use cofferdam::operator::sink::{CommitError, Committed, SinkReply, SinkRequest};
use cofferdam::operator::source::{ReadRequest, SourceMachine};
use cofferdam::state::snapshot::{PendingTransaction, SourceState, TaskSnapshot, TaskState};
use cofferdam::state::store::SavedState;
use cofferdam::storage::{
    StateHandle, StoreKey, StoreOutcome, StoreReply, StoreRequest, StoreValue,
};
use cofferdam::task::{Phase, Task, TaskOutput};
use smallvec::{SmallVec, smallvec};

pub use variant::Variant;

/// Stands at the boundaries of all machines of a world.
#[derive(Clone, Debug, Default)]
pub struct Interposer {
    variant: Option<Variant>,
    alignments: BTreeMap<(TaskId, AttemptId), Alignment>,
    /// The checkpoint whose barriers each task awaits, and where one has come, for the variant that
    /// only counts them.
    counted: BTreeMap<(TaskId, AttemptId), (CheckpointId, BTreeSet<ChannelIndex>)>,
    /// The channels whose data has ended, for the variant that hears no barrier there.
    ended: BTreeSet<(TaskId, AttemptId, ChannelIndex)>,
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
    /// Which records each task had taken in at its last write.
    numbers: BTreeMap<TaskId, Vec<u64>>,
    /// Likewise each sink's transactions.
    transactions: BTreeMap<TaskId, Vec<PendingTransaction>>,
    /// The last barrier of each task that stood for all of its inputs.
    stood_for_all: BTreeMap<(TaskId, AttemptId), CheckpointId>,
    /// Where each split was asked to be read.
    reads: BTreeMap<(TaskId, AttemptId, SplitId), Reads>,
    /// A source's snapshot that waits for the next read.
    snapshots: BTreeMap<(TaskId, AttemptId), (StoreKey, Box<TaskSnapshot>)>,
    /// The triggers that a source has not heard of yet.
    triggers: BTreeMap<(TaskId, AttemptId), Vec<ToTask>>,
    /// How often each task has saved its state.
    saves: BTreeMap<(TaskId, AttemptId), u64>,
    /// The operators' state at each task's last snapshot.
    states: state::States,
    /// What has become of splits.
    splits: splits::Splits,
    /// What has become of checkpoints.
    several: several::Several,
    /// What was stored.
    restores: restores::Restores,
    /// What channels have brought of event time.
    times: event_time::Times,
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

/// How many records too many a sender forgets.
const RECORDS_AHEAD: u64 = 2;
/// Where a split was asked to be read.
#[derive(Clone, Debug, Default)]
struct Reads {
    last: Vec<u8>,
    before: Vec<u8>,
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
            (
                Some(
                    Variant::TreeCutShort
                    | Variant::PositionBehindOpenReads
                    | Variant::DoubledWordEndsTree,
                ),
                output,
            ) => smallvec![Passed::Out(self.acknowledging(task, output))],
            (
                Some(Variant::PositionAheadOfBarrier | Variant::PositionBeforeLastRead),
                TaskOutput::Read(request),
            ) => self.reading(task, request),
            (Some(Variant::OlderTransactionsDropped), TaskOutput::Sink(request)) => {
                self.asked_for_own(task, request)
            }
            (Some(Variant::PositionAheadOfBarrier), TaskOutput::Report(FromTask::EndOfData)) => {
                let report = Passed::Out(TaskOutput::Report(FromTask::EndOfData));
                self.waiting_snapshot(task).into_iter().chain([report]).collect()
            }
            (Some(Variant::StartPolicyAgain), TaskOutput::Read(request)) => {
                self.cursors.insert((task.id(), request.split), request.cursor.clone());
                smallvec![Passed::Out(TaskOutput::Read(request))]
            }
            (Some(Variant::StateNumberedAnew), TaskOutput::Save(state)) => {
                smallvec![self.numbered_anew(task, state)]
            }
            (Some(_), TaskOutput::Acknowledge(told)) => self.told_to_queue(task, told),
            (Some(variant), TaskOutput::Sink(request)) => asked_of_sink(variant, request),
            (
                Some(variant @ (Variant::LastCommittablesDropped | Variant::CommittablesMerged)),
                TaskOutput::Send(outlet, Element::Committables(told)),
            ) => {
                let told = match variant == Variant::CommittablesMerged {
                    true => Committables { writer: SubtaskIndex::new(0), ..told },
                    false if task.phase() == Phase::AwaitingFinalCheckpoint => {
                        Committables { transaction: None, ..told }
                    }
                    false => told,
                };
                smallvec![Passed::Out(TaskOutput::Send(outlet, Element::Committables(told)))]
            }
            (Some(variant), TaskOutput::Store(StoreRequest::Put { key, value })) => {
                self.stored(variant, task, key, value)
            }
            (_, output) => smallvec![Passed::Out(output)],
        }
    }

    /// Something on its way to the store.
    fn stored(
        &mut self,
        variant: Variant,
        task: &Task,
        key: StoreKey,
        value: StoreValue,
    ) -> SmallVec<[Passed; 1]> {
        let put = |value| Passed::Out(TaskOutput::Store(StoreRequest::Put { key, value }));
        match value {
            StoreValue::State(_) | StoreValue::Progress(..) | StoreValue::Reservation(_)
                if variant == Variant::AcknowledgeBeforeStored =>
            {
                let handle = StateHandle::of(key, &value.encode());
                let reply = StoreReply { key, outcome: StoreOutcome::Stored(handle) };
                smallvec![put(value), Passed::Stored(reply)]
            }
            StoreValue::State(mut snapshot) => {
                self.remember_part(&snapshot);
                variant.change(&mut snapshot);
                self.spoil_state(task, &mut snapshot);
                self.displace(variant, task, &mut snapshot);
                if variant == Variant::SnapshotAfterNext {
                    return self.after_next(task, key, snapshot);
                }
                self.put(variant, task, key, snapshot).into_iter().collect()
            }
            StoreValue::Progress(mut snapshot, extent) => {
                self.remember_write(task.id(), snapshot.checkpoint);
                variant.change(&mut snapshot);
                self.displace(variant, task, &mut snapshot);
                self.renumber(variant, &mut snapshot);
                smallvec![put(StoreValue::Progress(snapshot, extent))]
            }
            StoreValue::Reservation(read_to) => {
                let emitted_to = task.source().filter(|_| variant == Variant::EmittedReserved);
                let state = emitted_to.map_or(read_to, SourceMachine::state);
                smallvec![put(StoreValue::Reservation(state))]
            }
            StoreValue::Metadata(_) | StoreValue::Attempt(_) => smallvec![put(value)],
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
            | TaskOutput::Tell(_, ToPeer::TakenIn { .. })
            | TaskOutput::Cut(_)
            | TaskOutput::Overtake(..)
            | TaskOutput::Hurry(..)
            | TaskOutput::Save(_)
            | TaskOutput::WaitUntil(_)
            | TaskOutput::WakeAt(_) => {}
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

    /// The positions that a task is to begin with where there is no checkpoint.
    pub fn begun(&mut self, task: TaskId, attempt: AttemptId, source: &mut SourceState) {
        if !self.is(Variant::StartPolicyAgain) || attempt == AttemptId::new(1) {
            return;
        }
        for split in &mut source.splits {
            if let Some(cursor) = self.cursors.get(&(task, split.split)) {
                split.cursor.clone_from(cursor);
            }
        }
    }

    /// What a coordinator finds in the store.
    pub fn recovered(&mut self, recovered: &mut Recovered) {
        self.splits.restart();
        self.found_last(recovered);
        if self.is(Variant::NewestCheckpointUnseen) {
            recovered.checkpoints.sort_by_key(|metadata| metadata.checkpoint);
            recovered.checkpoints.pop();
        }
        if self.is(Variant::SplitsFoundAgain) {
            let pools = recovered.checkpoints.iter_mut().flat_map(|metadata| &mut metadata.pools);
            pools.for_each(|pool| (pool.found, pool.is_complete) = (0, false));
        }
    }

    /// The state that a task is to begin with.
    pub fn restored(&mut self, task: TaskId, attempt: AttemptId, state: &mut TaskState) {
        if self.is(Variant::StateNotFound) {
            state.operators.clear();
        }
        self.spoil_restored(state);
        self.restore_other(task, state);
        let Some(source) = &mut state.source else { return };
        if self.is(Variant::IdsResetAtOpen) {
            source.emitted.clear();
        }
        if self.is(Variant::RestoredNotAcknowledged) {
            self.restored.insert((task, attempt), source.emitted.iter().copied().collect());
        }
    }

    /// Puts what an earlier snapshot held into this one, or other positions, if the variant does.
    fn displace(&mut self, variant: Variant, task: &Task, snapshot: &mut TaskSnapshot) {
        if variant == Variant::TransactionsStale {
            let now = snapshot.transactions.clone();
            let before = self.transactions.insert(snapshot.task, now);
            snapshot.transactions = before.unwrap_or_default();
        }
        let Some(source) = &mut snapshot.source else { return };
        if variant == Variant::PositionBeforeLastRead {
            for split in &mut source.splits {
                let reads = self.reads.get(&(task.id(), task.attempt(), split.split));
                // The first read of an attempt has none before it.
                if let Some(Reads { before, .. }) = reads.filter(|read| !read.before.is_empty()) {
                    split.cursor.clone_from(before);
                }
            }
        }
        if variant == Variant::PositionsLeftOut {
            *source = SourceState::default();
        }
        if variant == Variant::PositionsOfMovedOnly {
            let now = source.clone();
            if let Some(before) = self.positions.insert(snapshot.task, now) {
                source.splits.retain(|split| !before.splits.contains(split));
            }
        }
        if variant == Variant::UnreadSplitsLeftOut {
            source.splits.retain(|split| split.records > 0);
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

    /// Puts the numbers of the write before into a task's write, if the variant does.
    fn renumber(&mut self, variant: Variant, snapshot: &mut TaskSnapshot) {
        if variant == Variant::NumbersStale
            && let Some(numbers) = &mut snapshot.numbers
        {
            let now = numbers.inputs.clone();
            if let Some(before) = self.numbers.insert(snapshot.task, now) {
                numbers.inputs = before;
            }
        }
    }

    /// A snapshot on its way to the store; one that has to wait lets an earlier one go.
    fn put(
        &mut self,
        variant: Variant,
        task: &Task,
        key: StoreKey,
        snapshot: Box<TaskSnapshot>,
    ) -> Option<Passed> {
        let waits = variant == Variant::PositionAheadOfBarrier && !snapshot.finished;
        if waits && snapshot.source.is_some() {
            return self.snapshots.insert(of(task), (key, snapshot)).map(put_snapshot);
        }
        Some(put_snapshot((key, snapshot)))
    }

    fn waiting_snapshot(&mut self, task: &Task) -> Option<Passed> {
        self.snapshots.remove(&of(task)).map(put_snapshot)
    }

    fn numbered_anew(&mut self, task: &Task, state: SavedState) -> Passed {
        let saves = self.saves.entry(of(task)).or_default();
        *saves += 1;
        let follows = Some(CheckpointId::new(*saves));
        Passed::Out(TaskOutput::Save(SavedState { follows, ..state }))
    }

    /// A source is to be read again: what it was asked before is handed out. A snapshot that has
    /// waited for that gets the position behind it.
    fn reading(&mut self, task: &Task, request: ReadRequest) -> SmallVec<[Passed; 1]> {
        let (id, attempt) = of(task);
        let reads = self.reads.entry((id, attempt, request.split)).or_default();
        reads.before = std::mem::replace(&mut reads.last, request.cursor.clone());
        let waiting = self.snapshots.remove(&(id, attempt)).map(|(key, mut snapshot)| {
            let splits = snapshot.source.iter_mut().flat_map(|source| &mut source.splits);
            for split in splits.filter(|split| split.split == request.split) {
                split.cursor.clone_from(&request.cursor);
            }
            put_snapshot((key, snapshot))
        });
        [Passed::Out(TaskOutput::Read(request))].into_iter().chain(waiting).collect()
    }

    /// What a task hears of a message of the coordinator, for now.
    pub fn notice(&mut self, task: &Task, message: ToTask) -> Option<ToTask> {
        let is_ending = task.phase() == Phase::AwaitingFinalCheckpoint;
        match &message {
            ToTask::Trigger { .. } => {}
            ToTask::Completed(_) if is_ending && self.is(Variant::EndIsHighest) => {
                return Some(ToTask::Completed(CheckpointId::new(u64::MAX)));
            }
            ToTask::Assign(assignment) => {
                self.splits.hear(task, assignment);
                return Some(message);
            }
            ToTask::Completed(checkpoint) | ToTask::Finish(checkpoint) => {
                self.completion_heard(task, *checkpoint);
                return Some(message);
            }
            ToTask::Aborted { .. } | ToTask::NoMoreSplits => return Some(message),
        }
        let has_records = task.phase() == Phase::AwaitingRecords;
        let waits = match self.variant {
            Some(Variant::EndedSourceSilent) => return Some(message).filter(|_| has_records),
            Some(Variant::FirstTriggerUnanswered) => {
                let is_first =
                    task.id() == TaskId::new(0) && !self.triggers.contains_key(&of(task));
                self.triggers.entry(of(task)).or_default();
                return Some(message).filter(|_| !is_first);
            }
            Some(Variant::TriggerAwaitsRecord) => true,
            Some(Variant::TriggerAwaitsEnd) => has_records,
            Some(_) | None => false,
        };
        if !waits {
            return Some(message);
        }
        self.triggers.entry(of(task)).or_default().push(message);
        None
    }

    /// The messages that a source hears of now that it has been read, with records or without.
    pub fn noticed(&mut self, task: TaskId, attempt: AttemptId, records: bool) -> Vec<ToTask> {
        let awaited = match self.variant {
            Some(Variant::TriggerAwaitsRecord) => records,
            Some(Variant::TriggerAwaitsEnd) => !records,
            Some(_) | None => return Vec::new(),
        };
        let triggers = self.triggers.get_mut(&(task, attempt)).filter(|_| awaited);
        triggers.map(std::mem::take).unwrap_or_default()
    }

    /// What a task hears that was told something.
    pub fn told(&mut self, attempt: AttemptId, message: ToPeer) -> ToPeer {
        let (root, edges) = match message {
            ToPeer::Acknowledged { root, edges } => (root, edges),
            ToPeer::TakenIn { outlet, next } => {
                let ahead = if self.is(Variant::ForgottenEarly) { RECORDS_AHEAD } else { 0 };
                return ToPeer::TakenIn { outlet, next: next + ahead };
            }
        };
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

    /// What a sink of an attempt hears that has asked for something.
    pub fn replied(&self, attempt: AttemptId, reply: SinkReply) -> SinkReply {
        let SinkReply::Commit { transaction, outcome } = reply else { return reply };
        let outcome = match (self.variant, outcome) {
            (Some(Variant::RestoredCommitFails), _) if transaction.attempt < attempt => {
                Err(CommitError::Unknown("the log says that it was committed".to_owned()))
            }
            (Some(Variant::UnknownTakenForDone), Err(CommitError::Unknown(_)))
            | (Some(Variant::RefusedTakenForDone), Err(CommitError::Retry(_))) => {
                Ok(Committed::Now)
            }
            (Some(Variant::LossTakenForDone), Err(CommitError::Lost(_))) => Ok(Committed::Before),
            (Some(Variant::RepeatedCommitFails), Ok(Committed::Before)) => {
                Err(CommitError::Unknown("there is nothing left to commit".to_owned()))
            }
            (_, outcome) => outcome,
        };
        SinkReply::Commit { transaction, outcome }
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
        let Element::Barrier(barrier) = element else {
            return self.beside_barriers(task, attempt, channels, channel, element);
        };
        if self.ended.contains(&(task, attempt, channel)) {
            return SmallVec::new();
        }
        let checkpoint = barrier.checkpoint;
        if self.is(Variant::BarrierForAll) {
            let newest = self.stood_for_all.get(&(task, attempt)).copied();
            if newest.is_some_and(|newest| checkpoint <= newest) {
                return SmallVec::new();
            }
            self.stood_for_all.insert((task, attempt), checkpoint);
            let inputs = (0..channels as u32).map(ChannelIndex::new);
            return inputs.map(|input| (input, Element::Barrier(barrier))).collect();
        }
        if self.is(Variant::LaterBarrierCounts) {
            let awaited =
                self.counted.entry((task, attempt)).or_insert((checkpoint, BTreeSet::new()));
            if awaited.1.len() == channels || awaited.1.is_empty() {
                *awaited = (checkpoint, BTreeSet::new());
            }
            awaited.1.insert(channel);
            let counted = Barrier { checkpoint: awaited.0, ..barrier };
            return smallvec![(channel, Element::Barrier(counted))];
        }
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

impl Interposer {
    /// An element that is no barrier arrives.
    fn beside_barriers(
        &mut self,
        task: TaskId,
        attempt: AttemptId,
        channels: usize,
        channel: ChannelIndex,
        element: Element,
    ) -> SmallVec<[(ChannelIndex, Element); 1]> {
        if let Element::Cancel(_) = element {
            self.counted.remove(&(task, attempt));
        }
        if matches!(element, Element::EndOfData) && self.is(Variant::EndedInputsUnheard) {
            self.ended.insert((task, attempt, channel));
        }
        self.event_time(task, attempt, channels, channel, element)
    }
}

/// Which task of which attempt.
fn of(task: &Task) -> (TaskId, AttemptId) {
    (task.id(), task.attempt())
}

fn put_snapshot((key, snapshot): (StoreKey, Box<TaskSnapshot>)) -> Passed {
    let value = StoreValue::State(snapshot);
    Passed::Out(TaskOutput::Store(StoreRequest::Put { key, value }))
}

/// What becomes of what a task asks of its sink.
fn asked_of_sink(variant: Variant, request: SinkRequest) -> SmallVec<[Passed; 1]> {
    let out = |request| Passed::Out(TaskOutput::Sink(request));
    match (variant, request) {
        (Variant::AcknowledgeBeforeFlushed, SinkRequest::Flush(to)) => {
            smallvec![out(SinkRequest::Flush(to)), Passed::Replied(SinkReply::Flushed(to))]
        }
        (Variant::CommitAtSnapshot, SinkRequest::Prepare(pending)) => smallvec![
            out(SinkRequest::Prepare(pending)),
            out(SinkRequest::Commit(pending.transaction)),
        ],
        (Variant::PreparedUnseen, SinkRequest::Prepare(pending)) => smallvec![
            Passed::Replied(SinkReply::Prepared(pending)),
            out(SinkRequest::Prepare(pending)),
        ],
        (Variant::CommitErrorSwallowed, SinkRequest::Commit(id))
            if !id.sequence.is_multiple_of(2) =>
        {
            let outcome = Ok(Committed::Now);
            smallvec![Passed::Replied(SinkReply::Commit { transaction: id, outcome })]
        }
        (_, request) => smallvec![out(request)],
    }
}
