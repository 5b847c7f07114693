//! A task's part of a checkpoint: first as shares of live state that were taken in microseconds
//! ([`TaskSnapshot`]), later as bytes ([`TaskState`]). Its parts are separate fields.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::element::{Batch, Record};
use crate::id::{
    ChannelIndex, CheckpointId, MessageId, OutletIndex, SplitId, TaskId, TransactionId,
};
use crate::message::Loss;
use crate::state::codec::Format;
use crate::state::key_group::KeyGroup;
use crate::time::EventTime;

/// Encoded values, which are themselves encoded as one string of bytes.
pub use serde_bytes::ByteBuf as Bytes;

/// A share of live state that turns into bytes later, on whatever thread writes it.
pub trait Share: Send + Sync {
    /// The state as it was when the share was taken, by key group in increasing order.
    fn encode_groups(&self, format: Format) -> Vec<(KeyGroup, Bytes)>;
}

/// How much of its operators' state a snapshot holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it.
    Whole,
    /// What has changed since the last one: entries of keyed state with their value, if they still
    /// have one, and timers with whether they are still there. All else is whole.
    Changes,
}

/// One operator's part of a snapshot, found again by the operator's uid.
#[derive(Clone)]
pub struct OperatorSnapshot {
    /// The operator's uid.
    pub uid: Arc<str>,
    /// Its keyed state.
    pub keyed: Option<Arc<dyn Share>>,
    /// Its event-time timers.
    pub timers: Option<Arc<dyn Share>>,
    /// Its processing-time timers, if it uses the clock.
    pub processing_timers: Option<Arc<dyn Share>>,
    /// How far event time was, if it is part of the operator's state.
    pub watermark: Option<EventTime>,
    /// State that is not keyed.
    pub lists: Vec<ListShare>,
}

impl fmt::Debug for OperatorSnapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperatorSnapshot({})", self.uid)
    }
}

/// Which elements a subtask gets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Redistribution {
    /// Its own, as long as the parallelism is the same; otherwise all elements are one list that is
    /// cut into even parts (rule 91).
    Split,
    /// All elements of all subtasks at each restore, be the parallelism what it was or not: each
    /// takes what is its own (rule 92). To keep more than that makes the state grow each time.
    /// Under transactional updates a restart in the same layout gives each its own elements: there
    /// is no moment at which all have written.
    Union,
    /// Every subtask has the same elements at a barrier, and gets them back (rule 93).
    Broadcast,
}

/// A list in a snapshot: turns into bytes later.
#[derive(Clone)]
pub struct ListShare {
    name: Arc<str>,
    redistribution: Redistribution,
    elements: Arc<dyn Elements>,
}

impl ListShare {
    pub(crate) fn new<T: Record>(
        name: Arc<str>,
        redistribution: Redistribution,
        elements: Arc<Vec<T>>,
    ) -> Self {
        Self { name, redistribution, elements }
    }

    /// Encodes its elements.
    pub fn to_state(&self, format: Format) -> StoredList {
        StoredList {
            name: self.name.to_string(),
            redistribution: self.redistribution,
            elements: self.elements.encode(format),
        }
    }
}

impl fmt::Debug for ListShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListShare({})", self.name)
    }
}

trait Elements: Send + Sync {
    fn encode(&self, format: Format) -> Vec<Bytes>;
}

impl<T: Record> Elements for Vec<T> {
    fn encode(&self, format: Format) -> Vec<Bytes> {
        self.iter().map(|element| Bytes::from(format.encode(element))).collect()
    }
}

/// A list as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StoredList {
    /// Its name.
    pub name: String,
    /// How it is dealt out.
    pub redistribution: Redistribution,
    /// Its elements, each encoded.
    pub elements: Vec<Bytes>,
}

/// A task's part of a checkpoint at the moment of its barrier.
#[derive(Clone, Debug)]
pub struct TaskSnapshot {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The task.
    pub task: TaskId,
    /// The task had seen the end of all its data.
    pub finished: bool,
    /// Its operators' state, in chain order.
    pub operators: Vec<OperatorSnapshot>,
    /// Its source's positions.
    pub source: Option<SourceState>,
    /// Its sink's pre-committed transactions, in the order in which they are to be committed.
    pub transactions: Vec<PendingTransaction>,
    /// The rows that its write-ahead sink has not sent, in the order in which they are to be.
    pub log: Vec<LoggedRows>,
    /// What its sink knows to be visible and newest: an output that lacks it is older than this.
    pub shown: Vec<TransactionId>,
    /// Records that were under way at the cut.
    pub in_flight: InFlight<Batch>,
    /// Where the channels stood, if records are numbered.
    pub numbers: Option<ChannelNumbers>,
}

impl OperatorSnapshot {
    /// Encodes its shares.
    pub fn to_state(&self, format: Format) -> OperatorState {
        let groups = |share: &Option<Arc<dyn Share>>| {
            share.as_ref().map(|share| share.encode_groups(format))
        };
        OperatorState {
            uid: self.uid.to_string(),
            format,
            keyed: groups(&self.keyed),
            timers: groups(&self.timers),
            processing_timers: groups(&self.processing_timers),
            watermark: self.watermark,
            lists: self.lists.iter().map(|list| list.to_state(format)).collect(),
        }
    }
}

impl TaskSnapshot {
    /// Encodes every share.
    pub fn to_state(&self, format: Format) -> TaskState {
        TaskState {
            format,
            checkpoint: self.checkpoint,
            task: self.task,
            finished: self.finished,
            operators: self.operators.iter().map(|operator| operator.to_state(format)).collect(),
            source: self.source.clone(),
            transactions: self.transactions.clone(),
            log: self.log.iter().map(|rows| rows.to_state(format)).collect(),
            shown: self.shown.clone(),
            in_flight: self.in_flight.encode(format),
            numbers: self.numbers.clone(),
        }
    }
}

/// A task's part of a checkpoint as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskState {
    /// How records are encoded.
    pub format: Format,
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The task.
    pub task: TaskId,
    /// The task had seen the end of all its data.
    pub finished: bool,
    /// Its operators' state, in chain order.
    pub operators: Vec<OperatorState>,
    /// Its source's positions.
    pub source: Option<SourceState>,
    /// Its sink's pre-committed transactions, in the order in which they are to be committed.
    pub transactions: Vec<PendingTransaction>,
    /// The rows that its write-ahead sink has not sent, in the order in which they are to be.
    pub log: Vec<LoggedState>,
    /// As [`TaskSnapshot::shown`].
    #[serde(default)]
    pub shown: Vec<TransactionId>,
    /// Records that were under way at the cut, each batch in the checkpoint encoding.
    pub in_flight: InFlight<Bytes>,
    /// Where the channels stood, if records are numbered.
    pub numbers: Option<ChannelNumbers>,
}

/// Where a task's channels stand under transactional updates: records are numbered on their channel
/// over all attempts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChannelNumbers {
    /// By input: the number of the first record that was not taken in.
    pub inputs: Vec<u64>,
    /// By output: the number of the record to be produced next, behind those that are kept in
    /// [`InFlight::outputs`].
    pub outputs: Vec<u64>,
}

/// The records of a task's channels that its cut of a checkpoint, or a neighbour's, passed over:
/// sent before the sender's cut, and not received before the receiver's (rules 21, 22). `B` is a
/// batch, or its bytes. Control elements are not kept: they follow from the restored state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InFlight<B> {
    /// By input: what was sent and not yet received, the oldest first.
    pub inputs: BTreeMap<ChannelIndex, Vec<B>>,
    /// By output: what was emitted and waited for room in the channel; it comes behind the
    /// receiver's part.
    pub outputs: BTreeMap<OutletIndex, Vec<B>>,
}

impl<B> Default for InFlight<B> {
    fn default() -> Self {
        Self { inputs: BTreeMap::new(), outputs: BTreeMap::new() }
    }
}

impl InFlight<Batch> {
    pub(crate) fn encode(&self, format: Format) -> InFlight<Bytes> {
        fn bytes<K: Copy + Ord>(
            format: Format,
            side: &BTreeMap<K, Vec<Batch>>,
        ) -> BTreeMap<K, Vec<Bytes>> {
            let encode = |batch: &Batch| Bytes::from(batch.encode(format));
            side.iter().map(|(key, all)| (*key, all.iter().map(encode).collect())).collect()
        }
        InFlight { inputs: bytes(format, &self.inputs), outputs: bytes(format, &self.outputs) }
    }
}

/// One operator's state as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OperatorState {
    /// The operator's uid.
    pub uid: String,
    /// How keys, values and elements are encoded.
    pub format: Format,
    /// Its keyed state by key group.
    pub keyed: Option<Vec<(KeyGroup, Bytes)>>,
    /// Its event-time timers by key group.
    pub timers: Option<Vec<(KeyGroup, Bytes)>>,
    /// Its processing-time timers by key group, if it uses the clock.
    #[serde(default)]
    pub processing_timers: Option<Vec<(KeyGroup, Bytes)>>,
    /// How far event time was, if it is part of the operator's state.
    pub watermark: Option<EventTime>,
    /// State that is not keyed.
    pub lists: Vec<StoredList>,
}

/// The positions of a source subtask: behind the last record it emitted before the barrier (rule
/// 77).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceState {
    /// One for each split that the subtask owns.
    pub splits: Vec<SplitState>,
    /// The messages of queues that were emitted and may be given out again (rule 79), in order.
    pub emitted: Vec<(SplitId, MessageId)>,
    /// The watermark that it has said, if any.
    #[serde(default)]
    pub watermark: Option<EventTime>,
}

impl SourceState {
    /// How many records lie before its cursors.
    pub fn records(&self) -> u64 {
        self.splits.iter().map(|split| split.records).sum()
    }
}

/// How far one split has been read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SplitState {
    /// The split.
    pub split: SplitId,
    /// The source's own cursor, in the checkpoint encoding.
    #[serde(with = "serde_bytes")]
    pub cursor: Vec<u8>,
    /// How many records of the split lie before the cursor.
    pub records: u64,
    /// How many of them were gone when they were to be read.
    pub lost: u64,
    /// How far event time has come in it, at least to the watermark that its subtask has said.
    #[serde(default)]
    pub watermark: Option<EventTime>,
}

impl SplitState {
    /// The next records are gone, from position `wanted` up to `first`, which is at `cursor`.
    pub(crate) fn pass_over(&mut self, wanted: u64, first: u64, cursor: Vec<u8>) -> Loss {
        self.cursor = cursor;
        self.records += first - wanted;
        self.lost += first - wanted;
        self.loss(Some((wanted, first)))
    }

    /// What is lost by now, with a gap that was found just now.
    pub(crate) fn loss(&self, gap: Option<(u64, u64)>) -> Loss {
        Loss { split: self.split, gap, in_all: self.lost }
    }
}

/// A pre-committed transaction, and the checkpoint whose completion commits it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PendingTransaction {
    /// The checkpoint.
    pub checkpoint: CheckpointId,
    /// The transaction.
    pub transaction: TransactionId,
}

/// Rows that a write-ahead sink sends when a checkpoint is complete.
#[derive(Clone, Debug)]
pub struct LoggedRows {
    /// The checkpoint, and the id of these rows.
    pub pending: PendingTransaction,
    /// The rows.
    pub batches: Arc<Vec<Batch>>,
}

impl LoggedRows {
    pub(crate) fn to_state(&self, format: Format) -> LoggedState {
        let encoded = |batch: &Batch| -> Vec<_> {
            let encode = |position| Bytes::from(batch.encode_record_in(format, position));
            (0..batch.len()).map(encode).collect()
        };
        LoggedState { pending: self.pending, rows: self.batches.iter().flat_map(encoded).collect() }
    }
}

/// Rows of a write-ahead sink as they are stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LoggedState {
    /// The checkpoint whose completion sends them, and their id.
    pub pending: PendingTransaction,
    /// The rows, each encoded.
    pub rows: Vec<Bytes>,
}
