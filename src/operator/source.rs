//! Sources: the trait that users write, and the machine that decides when to read and what to
//! remember about it. The machine does no I/O; it asks, and the driver answers.
//!
//! ```text
//!            Read{split, cursor}
//!  Idle ---------------------> AwaitingRead
//!   ^                            | records: emit, move the cursor
//!   +----------------------------+
//! ```
//! Under at-most-once an answer waits until the position behind it is durable, and the source reads
//! on meanwhile (see `operator::read_ahead`). Where records are acknowledged, a read that is not
//! acknowledged in time is asked for again, and how far everything is acknowledged is made durable
//! meanwhile (see `operator::unacknowledged`).
//!
//! Invariant: the cursor of a split moves exactly when the records before it are emitted, in one
//! step that no barrier can come between (rule 77).

use std::marker::PhantomData;

use crate::config::OnLoss;
use crate::element::{Batch, Record};
use crate::id::{CheckpointId, MessageId, SplitId, SubtaskIndex};
use crate::message::{Assignment, Found, Loss, TaskError};
use crate::operator::queue::{Acknowledgement, Deliveries};
use crate::operator::read_ahead::ReadAhead;
use crate::operator::split_progress::SplitProgress;
use crate::operator::unacknowledged::Unacknowledged;
use crate::state::codec;
use crate::state::snapshot::{SourceState, SplitState};
use crate::time::{EventTime, Progress};

/// A source of records that can be read again from any earlier cursor.
///
/// The driver calls it where it may block; a value of this type is copied for every subtask.
pub trait Source: Clone + Send + 'static {
    /// The records it gives.
    type Record: Record;
    /// A cursor: which part of the input, and how far in it the next record stands.
    type Split: Record;

    /// Cuts the input into at most `parallelism` splits that are read side by side. Called once, at
    /// the first start: later starts go on from stored cursors.
    ///
    /// # Errors
    /// If the input is not there or can not be read.
    fn discover(&mut self, parallelism: usize) -> Result<Vec<Self::Split>, SourceError>;

    /// Reads at most `records_max` records at the cursor and moves it behind them.
    ///
    /// # Errors
    /// If the input is wrong or can not be read. The cursor is then of no importance.
    fn read(
        &mut self,
        split: &mut Self::Split,
        records_max: usize,
    ) -> Result<Fetch<Self::Record>, SourceError>;

    /// Whether reading again from an earlier cursor gives the same records. Without that no record
    /// can be replayed, and a stronger guarantee than at-most-once is refused.
    fn is_replayable(&self) -> bool {
        true
    }

    /// Whether the input loses its oldest records while it is read. A replay that comes too late
    /// finds them [`Fetch::Gone`]: so retention bounds what such a source can promise.
    fn is_truncated(&self) -> bool {
        false
    }

    /// Whether it never ends: it may have nothing for now, and never says that nothing will come.
    fn is_endless(&self) -> bool {
        false
    }
}

/// What a read gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetch<T> {
    /// At least one record.
    Records(Vec<T>),
    /// Nothing now, perhaps later.
    Nothing,
    /// Nothing ever again.
    End,
    /// The record at the cursor was there and is not any more. The cursor is at the first one that
    /// is left. The job fails, or counts what is lost and goes on there ([`OnLoss`]).
    Gone {
        /// The position of the record.
        wanted: u64,
        /// The first position that is left.
        first: u64,
    },
}

/// Why a source can not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The input is wrong; the text says where and how. Reading it again does not help.
    #[error("{0}")]
    Input(String),
    /// The input could not be read this time.
    #[error("{0}")]
    Io(String),
}

impl From<SourceError> for TaskError {
    fn from(error: SourceError) -> Self {
        match error {
            SourceError::Input(text) => Self::Input(text),
            SourceError::Io(text) => Self::External(text),
        }
    }
}

/// A source with its types erased, as drivers call it.
pub trait ErasedSource: Send {
    /// As [`Source::discover`]: the cursors, encoded.
    ///
    /// # Errors
    /// As there.
    fn discover(&mut self, parallelism: usize) -> Result<Vec<Vec<u8>>, SourceError>;
    /// As [`Source::read`].
    fn read(&mut self, cursor: &[u8], records_max: usize) -> ReadOutcome;
    /// As [`Source::is_replayable`].
    fn is_replayable(&self) -> bool;
    /// As [`Source::is_truncated`].
    fn is_truncated(&self) -> bool;
    /// As [`Source::is_endless`].
    fn is_endless(&self) -> bool {
        false
    }
    /// Whether it gives [`ReadOutcome::Messages`], which are to be acknowledged.
    fn is_queue(&self) -> bool {
        false
    }
    /// Whether its splits are found as time goes on, and assigned to the tasks that ask for one.
    fn is_assigned(&self) -> bool {
        false
    }
    /// As [`SplitSource::search`](crate::operator::split_source::SplitSource::search): the cursors,
    /// encoded.
    ///
    /// # Errors
    /// As there.
    fn search(&mut self, _known: u32) -> Result<Found<Vec<u8>>, SourceError> {
        unreachable!("only a source whose splits are assigned is searched")
    }
    /// As [`Queue::acknowledge`](crate::operator::queue::Queue::acknowledge).
    ///
    /// # Errors
    /// As there.
    fn acknowledge(&mut self, _cursor: &[u8], _ids: &[MessageId]) -> Result<(), TaskError> {
        unreachable!("only a queue is told of messages")
    }
    /// A copy.
    fn clone_box(&self) -> Box<dyn ErasedSource>;
}

impl Clone for Box<dyn ErasedSource> {
    fn clone(&self) -> Self {
        self.as_ref().clone_box()
    }
}

impl<S: Source> ErasedSource for S {
    fn discover(&mut self, parallelism: usize) -> Result<Vec<Vec<u8>>, SourceError> {
        Ok(Source::discover(self, parallelism)?.iter().map(codec::encode).collect())
    }

    fn read(&mut self, cursor: &[u8], records_max: usize) -> ReadOutcome {
        read_at(cursor, |split| Source::read(self, split, records_max))
    }

    fn is_replayable(&self) -> bool {
        Source::is_replayable(self)
    }

    fn is_truncated(&self) -> bool {
        Source::is_truncated(self)
    }

    fn is_endless(&self) -> bool {
        Source::is_endless(self)
    }

    fn clone_box(&self) -> Box<dyn ErasedSource> {
        Box::new(self.clone())
    }
}

/// Reads at an encoded cursor.
pub(crate) fn read_at<T: Record, S: Record>(
    cursor: &[u8],
    read: impl FnOnce(&mut S) -> Result<Fetch<T>, SourceError>,
) -> ReadOutcome {
    let mut split = match codec::decode(cursor) {
        Ok(split) => split,
        Err(error) => return ReadOutcome::Failed(TaskError::Restore(error.to_string())),
    };
    match read(&mut split) {
        Ok(Fetch::Records(records)) => {
            let (records, next) = (Batch::new(records), codec::encode(&split));
            if records.is_empty() && next == cursor {
                // It would be asked for ever.
                return ReadOutcome::Failed(TaskError::Input(NO_PROGRESS.to_owned()));
            }
            ReadOutcome::Records { records, cursor: next }
        }
        Ok(Fetch::Nothing) => ReadOutcome::Nothing,
        Ok(Fetch::End) => ReadOutcome::End,
        Ok(Fetch::Gone { wanted, first }) => {
            ReadOutcome::Gone { wanted, first, cursor: codec::encode(&split) }
        }
        Err(error) => ReadOutcome::Failed(error.into()),
    }
}

const NO_PROGRESS: &str = "the source gave no records and stayed where it was: it has to give \
                           Fetch::Nothing if there may be some later, and Fetch::End if not";

/// A request to read. The driver answers when it likes: not while the task's outputs are full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The split.
    pub split: SplitId,
    /// Where to begin.
    pub cursor: Vec<u8>,
    /// How many records at the most.
    pub records_max: usize,
}

/// The answer to a [`ReadRequest`].
#[derive(Clone, Debug)]
pub struct ReadReply {
    /// The split.
    pub split: SplitId,
    /// What came of it.
    pub outcome: ReadOutcome,
}

/// What a read gave, its types erased.
#[derive(Clone, Debug)]
pub enum ReadOutcome {
    /// At least one record, and the cursor behind the last one.
    Records {
        /// The records.
        records: Batch,
        /// The new cursor.
        cursor: Vec<u8>,
    },
    /// At least one message of a queue.
    Messages {
        /// What they hold.
        records: Batch,
        /// An id for each.
        ids: Vec<MessageId>,
    },
    /// Nothing now.
    Nothing,
    /// The split has ended.
    End,
    /// As [`Fetch::Gone`].
    Gone {
        /// The position of the record.
        wanted: u64,
        /// The first position that is left.
        first: u64,
        /// The cursor there.
        cursor: Vec<u8>,
    },
    /// The source can not go on.
    Failed(TaskError),
}

/// Gives a batch's greatest event time: where a source's watermarks come from.
pub trait EventTimes: Send {
    /// The greatest event time in the batch, if it holds a record.
    fn latest(&self, batch: &Batch) -> Option<EventTime>;
    /// A copy.
    fn clone_box(&self) -> Box<dyn EventTimes>;
}

/// Event times read by a closure.
pub(crate) struct TimeOf<T, F>(F, PhantomData<fn(T)>);

impl<T: Record, F: Fn(&T) -> EventTime + Clone + Send + 'static> TimeOf<T, F> {
    pub(crate) fn new(time_of: F) -> Self {
        Self(time_of, PhantomData)
    }
}

impl<T: Record, F: Fn(&T) -> EventTime + Clone + Send + 'static> EventTimes for TimeOf<T, F> {
    fn latest(&self, batch: &Batch) -> Option<EventTime> {
        batch.records::<T>().iter().map(&self.0).max()
    }

    fn clone_box(&self) -> Box<dyn EventTimes> {
        Box::new(Self::new(self.0.clone()))
    }
}

/// How a source makes watermarks: the greatest time seen in each split less the greatest disorder.
pub struct WatermarkStrategy {
    /// Where times come from.
    pub times: Box<dyn EventTimes>,
    /// By how many milliseconds a record may stand behind a later one of its split.
    pub disorder_ms: i64,
    /// After how many reads in a row that gave nothing a split is idle: its watermark is not waited
    /// for until it has records again. Drivers pause between such reads.
    pub idle_after: Option<u32>,
}

impl Clone for WatermarkStrategy {
    fn clone(&self) -> Self {
        Self {
            times: self.times.clone_box(),
            disorder_ms: self.disorder_ms,
            idle_after: self.idle_after,
        }
    }
}

/// The splits that subtask `subtask` of `parallelism` reads at the first start.
pub fn assign_splits(
    cursors: &[Vec<u8>],
    subtask: SubtaskIndex,
    parallelism: usize,
) -> SourceState {
    let splits = cursors.iter().enumerate().skip(subtask.index()).step_by(parallelism);
    SourceState {
        splits: splits
            .map(|(split, cursor)| SplitState {
                split: SplitId::new(split as u32),
                cursor: cursor.clone(),
                records: 0,
                lost: 0,
                watermark: None,
            })
            .collect(),
        emitted: Vec::new(),
        watermark: None,
    }
}

/// The machine of a source subtask.
#[derive(Clone)]
pub struct SourceMachine {
    splits: Vec<SplitProgress>,
    supply: Supply,
    phase: SourcePhase,
    turn: usize,
    watermarks: Option<WatermarkStrategy>,
    /// What it has said, if anything.
    watermark: Option<EventTime>,
    /// It has said that it is idle, and nothing else since.
    is_idle: bool,
    release: Release,
    /// If the splits are queues.
    deliveries: Option<Deliveries>,
    records_max: usize,
    on_loss: OnLoss,
}

/// Which splits there are beside those that a source machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Supply {
    /// None: each task has had its own from the start.
    Fixed,
    /// Perhaps some, one of which is asked for when all others are read.
    Assigned,
    /// One was asked for.
    Asked,
    /// None any more.
    Over,
}

/// The answer to a read of what was read before and not acknowledged.
fn read_again(
    kept: &mut Unacknowledged,
    reply: ReadReply,
) -> Result<Option<SourceStep>, TaskError> {
    match reply.outcome {
        ReadOutcome::Failed(error) => Err(error),
        ReadOutcome::Gone { wanted, first, .. } => {
            Err(TaskError::Lost { split: reply.split, wanted, first })
        }
        ReadOutcome::Messages { .. } => unreachable!("no mechanism reads a queue again"),
        ReadOutcome::Nothing => kept.give_nothing(false).map(|()| None),
        ReadOutcome::End => kept.give_nothing(true).map(|()| None),
        ReadOutcome::Records { records, cursor } => {
            let read = Some(kept.add_again(cursor, records.len() as u64));
            Ok(Some(SourceStep::Emit { records, read }))
        }
    }
}

/// What has to happen to a record that was read beside its being emitted.
#[derive(Clone)]
pub(crate) enum Release {
    /// Nothing.
    AtOnce,
    /// Its position is made durable before.
    Reserved(ReadAhead),
    /// Its position is kept until it is acknowledged.
    Kept(Box<Unacknowledged>),
}

#[derive(Clone)]
enum SourcePhase {
    Idle,
    AwaitingRead,
    Ended,
}

/// What a source machine wants done next.
pub(crate) enum SourceStep {
    Read(ReadRequest),
    /// Make these positions durable.
    Store(SourceState),
    Emit {
        records: Batch,
        /// The number of the read, where it is to be acknowledged.
        read: Option<u64>,
    },
    /// Ask for another split.
    Ask,
    /// Report that the source goes on without some records.
    Lose(Loss),
    End,
}

impl SourceMachine {
    /// Begins at `state`; with `deliveries`, the splits are queues.
    pub(crate) fn new(
        state: SourceState,
        supply: Supply,
        watermarks: Option<WatermarkStrategy>,
        release: Release,
        deliveries: Option<Deliveries>,
        records_max: usize,
        on_loss: OnLoss,
    ) -> Self {
        Self {
            splits: state.splits.into_iter().map(SplitProgress::new).collect(),
            supply,
            phase: SourcePhase::Idle,
            turn: 0,
            watermarks,
            watermark: state.watermark,
            is_idle: false,
            release,
            deliveries,
            records_max,
            on_loss,
        }
    }

    /// What was lost before, for each split that has lost records.
    pub(crate) fn losses(&self) -> Vec<Loss> {
        let splits = self.splits.iter().map(|split| &split.state);
        splits.filter(|state| state.lost > 0).map(|state| state.loss(None)).collect()
    }

    /// Whether a position is on its way to the store that reserves records.
    pub fn is_reserving(&self) -> bool {
        match &self.release {
            Release::Reserved(ahead) => ahead.is_storing(),
            Release::AtOnce | Release::Kept(_) => false,
        }
    }

    /// The cursors behind the last emitted records, the emitted messages of queues, and how far
    /// event time is.
    pub fn state(&self) -> SourceState {
        self.state_at(|split| &split.state)
    }

    /// The same with other cursors.
    fn state_at(&self, cursor_of: impl Fn(&SplitProgress) -> &SplitState) -> SourceState {
        let watermark = self.watermark;
        // What a split that was idle has below that is late, in whichever subtask.
        let reached = |of: &SplitProgress| SplitState {
            watermark: of.state.watermark.max(watermark),
            ..cursor_of(of).clone()
        };
        SourceState {
            splits: self.splits.iter().map(reached).collect(),
            emitted: self.deliveries.iter().flat_map(Deliveries::emitted).collect(),
            watermark,
        }
    }

    /// The watermark at which it begins, if it is restored and had one.
    pub(crate) fn resume(&mut self) -> Option<EventTime> {
        self.advance_watermark();
        self.watermark.filter(|_| self.watermarks.is_some())
    }

    /// Whether a message of a queue was emitted before, and is not to be emitted again.
    pub fn is_known(&self, split: SplitId, id: MessageId) -> bool {
        self.deliveries.as_ref().is_some_and(|deliveries| deliveries.is_known(split, id))
    }

    /// A snapshot is being taken.
    pub(crate) fn cut(&mut self, checkpoint: CheckpointId) {
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.cut(checkpoint);
        }
    }

    /// A checkpoint is complete.
    pub(crate) fn complete(&mut self, checkpoint: CheckpointId) {
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.complete(checkpoint);
        }
    }

    /// A queue has confirmed an acknowledgement.
    pub(crate) fn confirm(&mut self, confirmed: &Acknowledgement) {
        if let Some(deliveries) = &mut self.deliveries {
            deliveries.confirm(confirmed.split, &confirmed.ids);
        }
    }

    /// What the queues are to be told.
    pub(crate) fn acknowledge_messages(&mut self) -> Vec<Acknowledgement> {
        let Some(deliveries) = &mut self.deliveries else { return Vec::new() };
        let of_splits = self.splits.iter().map(|of| Acknowledgement {
            split: of.state.split,
            cursor: of.state.cursor.clone(),
            ids: deliveries.acknowledge(of.state.split),
        });
        of_splits.filter(|acknowledgement| !acknowledgement.ids.is_empty()).collect()
    }

    /// The next thing to do, if nothing is awaited.
    pub(crate) fn step(&mut self) -> Option<SourceStep> {
        match self.phase {
            SourcePhase::AwaitingRead | SourcePhase::Ended => None,
            SourcePhase::Idle => match self.next_read() {
                Some(request) => {
                    self.phase = SourcePhase::AwaitingRead;
                    Some(SourceStep::Read(request))
                }
                None if self.supply == Supply::Assigned => {
                    self.supply = Supply::Asked;
                    Some(SourceStep::Ask)
                }
                None if self.may_end() => {
                    self.phase = SourcePhase::Ended;
                    Some(SourceStep::End)
                }
                None => None,
            },
        }
    }

    /// The answer to [`SourceStep::Ask`]. What was not asked for is read as well: it is nobody
    /// else's.
    pub(crate) fn handle_assigned(&mut self, assignment: Option<Assignment>) {
        match assignment {
            Some(Assignment { split, cursor }) => {
                self.splits.push(SplitProgress::new(SplitState {
                    split,
                    cursor,
                    lost: 0,
                    records: 0,
                    watermark: None,
                }));
                self.supply = Supply::Assigned;
            }
            None => self.supply = Supply::Over,
        }
    }

    /// The positions to make durable beside all else.
    pub(crate) fn position_to_store(&mut self) -> Option<SourceStep> {
        match &mut self.release {
            Release::AtOnce => None,
            Release::Reserved(ahead) => ahead
                .begin_storing()
                .then(|| SourceStep::Store(self.state_at(SplitProgress::read_to))),
            Release::Kept(kept) => kept.position_to_store().map(SourceStep::Store),
        }
    }

    /// The tree of a read is done.
    pub(crate) fn acknowledge(&mut self, read: u64) {
        if let Release::Kept(kept) = &mut self.release {
            kept.acknowledge(read);
        }
    }

    /// The tree of a read was not done in time.
    pub(crate) fn time_out(&mut self, read: u64) {
        if let Release::Kept(kept) = &mut self.release {
            kept.time_out(read);
        }
    }

    /// The driver has read. Replies that are not awaited belong to nobody and are dropped.
    ///
    /// # Errors
    /// If the source can not go on.
    pub(crate) fn handle_read(
        &mut self,
        reply: ReadReply,
    ) -> Result<Option<SourceStep>, TaskError> {
        let SourcePhase::AwaitingRead = self.phase else { return Ok(None) };
        let Some(split) = self.splits.iter_mut().find(|s| s.state.split == reply.split) else {
            return Ok(None);
        };
        self.phase = SourcePhase::Idle;
        if let Release::Reserved(ahead) = &mut self.release {
            split.read_ahead(&reply.outcome, self.on_loss);
            ahead.push(reply);
            // What has no records need not wait, unless for such as have.
            return if ahead.is_alone() { self.hand_out() } else { Ok(None) };
        }
        self.take_up(reply)
    }

    /// What waits to be handed out, and may be.
    pub fn reserved(&self) -> Option<&ReadReply> {
        match &self.release {
            Release::Reserved(ahead) => ahead.first(),
            Release::AtOnce | Release::Kept(_) => None,
        }
    }

    /// Takes up the first answer that waits, if it may be taken up.
    ///
    /// # Errors
    /// As [`SourceMachine::handle_read`].
    pub(crate) fn hand_out(&mut self) -> Result<Option<SourceStep>, TaskError> {
        let Release::Reserved(ahead) = &mut self.release else { return Ok(None) };
        match ahead.pop() {
            Some(reply) => self.take_up(reply),
            None => Ok(None),
        }
    }

    fn take_up(&mut self, reply: ReadReply) -> Result<Option<SourceStep>, TaskError> {
        let Some(split) = self.splits.iter_mut().find(|s| s.state.split == reply.split) else {
            return Ok(None);
        };
        if let Release::Kept(kept) = &mut self.release
            && kept.is_repeating()
        {
            return read_again(kept, reply);
        }
        match reply.outcome {
            ReadOutcome::Failed(error) => return Err(error),
            ReadOutcome::Gone { wanted, first, cursor } => {
                if self.on_loss == OnLoss::Fail || matches!(self.release, Release::Kept(_)) {
                    return Err(TaskError::Lost { split: reply.split, wanted, first });
                }
                return Ok(Some(SourceStep::Lose(split.state.pass_over(wanted, first, cursor))));
            }
            // Perhaps it waits for an acknowledgement that was lost.
            ReadOutcome::Nothing => {
                split.empty_reads = split.empty_reads.saturating_add(1);
                if let Some(deliveries) = &mut self.deliveries {
                    deliveries.repeat();
                }
            }
            // What is lost is part of the state for good.
            ReadOutcome::End if self.supply == Supply::Fixed || split.state.lost > 0 => {
                split.ended = true;
            }
            // Neither the coordinator nor this task has it any more: it is done.
            ReadOutcome::End => self.splits.retain(|of| of.state.split != reply.split),
            ReadOutcome::Messages { records, ids } => {
                let deliveries = self.deliveries.as_mut().expect("only a queue gives messages");
                let fresh = deliveries.receive(reply.split, records, &ids);
                if let Some(records) = &fresh {
                    split.note(records, self.watermarks.as_ref());
                }
                return Ok(fresh.map(|records| SourceStep::Emit { records, read: None }));
            }
            ReadOutcome::Records { records, cursor } => {
                let from = std::mem::replace(&mut split.state.cursor, cursor);
                split.note(&records, self.watermarks.as_ref());
                let read = match &mut self.release {
                    Release::AtOnce | Release::Reserved(_) => None,
                    Release::Kept(kept) => {
                        let count = records.len() as u64;
                        Some(kept.add(reply.split, from, &split.state.cursor, count))
                    }
                };
                return Ok(Some(SourceStep::Emit { records, read }));
            }
        }
        Ok(None)
    }

    /// The positions are durable.
    pub(crate) fn handle_stored(&mut self) {
        match &mut self.release {
            Release::AtOnce => {}
            Release::Reserved(ahead) => ahead.handle_stored(),
            Release::Kept(kept) => kept.handle_stored(),
        }
    }

    /// The last watermark again, if the source has said that it is idle and has records now.
    pub(crate) fn wake(&mut self) -> Option<EventTime> {
        std::mem::take(&mut self.is_idle).then_some(self.watermark.unwrap_or(EventTime::MIN))
    }

    /// The watermark that the emitted records allow, if it has risen since it was last asked for,
    /// or that the source is idle, if that is new.
    pub(crate) fn advance_watermark(&mut self) -> Option<Progress> {
        let idle_after = self.watermarks.as_ref()?.idle_after.unwrap_or(u32::MAX);
        let open = || self.splits.iter().filter(|split| !split.ended);
        let farthest = open().map(|split| split.state.watermark).max()?;
        let active = open().filter(|split| split.empty_reads < idle_after);
        let lowest = active.map(|split| split.state.watermark).min();
        let reached = lowest.unwrap_or(farthest);
        let risen = reached.filter(|_| reached > self.watermark);
        self.watermark = self.watermark.max(reached);
        if lowest.is_none() {
            let was_idle = std::mem::replace(&mut self.is_idle, true);
            return (!was_idle).then_some(Progress::Idle(risen));
        }
        risen.map(Progress::Watermark)
    }

    /// What is to be read again goes first.
    fn next_read(&mut self) -> Option<ReadRequest> {
        match &mut self.release {
            Release::AtOnce => {}
            Release::Reserved(ahead) => {
                if !ahead.has_room() {
                    return None;
                }
            }
            Release::Kept(kept) => {
                if let Some(request) = kept.repeat() {
                    return Some(request);
                }
                if kept.is_full() {
                    return None;
                }
            }
        }
        let SplitState { split, cursor, .. } = self.next_split()?;
        Some(ReadRequest { split, cursor, records_max: self.records_max })
    }

    fn may_end(&self) -> bool {
        let is_settled = match &self.release {
            Release::AtOnce => true,
            Release::Reserved(ahead) => ahead.is_empty(),
            Release::Kept(kept) => kept.is_settled(),
        };
        let may_get_more = match self.supply {
            Supply::Fixed | Supply::Over => false,
            Supply::Assigned | Supply::Asked => true,
        };
        is_settled && !may_get_more && self.splits.iter().all(|split| split.ended)
    }

    /// The splits take turns, so that their event times advance together.
    fn next_split(&mut self) -> Option<SplitState> {
        let count = self.splits.len();
        let next = (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|position| !self.splits[*position].ended)?;
        self.turn = next + 1;
        Some(self.splits[next].read_to().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: SplitId = SplitId::new(0);
    const SECOND: SplitId = SplitId::new(1);

    /// Two splits, of numbers that are event times.
    fn machine(idle_after: Option<u32>) -> SourceMachine {
        let cursors = [Vec::new(), Vec::new()];
        let state = assign_splits(&cursors, SubtaskIndex::new(0), 1);
        let times = Box::new(TimeOf::new(|millis: &i64| EventTime::from_millis(*millis)));
        let watermarks = WatermarkStrategy { times, disorder_ms: 0, idle_after };
        let fixed = Supply::Fixed;
        let (at_once, on_loss) = (Release::AtOnce, OnLoss::Fail);
        SourceMachine::new(state, fixed, Some(watermarks), at_once, None, 1, on_loss)
    }

    /// Whether it wakes, and what is new about event time, after a read.
    fn read(
        machine: &mut SourceMachine,
        split: SplitId,
        outcome: ReadOutcome,
    ) -> (bool, Option<Progress>) {
        machine.phase = SourcePhase::AwaitingRead;
        let step = machine.handle_read(ReadReply { split, outcome }).unwrap();
        let wakes = step.is_some() && machine.wake().is_some();
        (wakes, machine.advance_watermark())
    }

    fn record(millis: i64) -> ReadOutcome {
        ReadOutcome::Records { records: Batch::new(vec![millis]), cursor: Vec::new() }
    }

    fn reached(millis: i64) -> Option<Progress> {
        Some(Progress::Watermark(EventTime::from_millis(millis)))
    }

    #[test]
    fn an_idle_split_is_not_waited_for_until_it_has_records_again() {
        let mut source = machine(Some(2));
        assert_eq!(read(&mut source, FIRST, record(8)), (false, None));
        assert_eq!(read(&mut source, SECOND, ReadOutcome::Nothing), (false, None));
        assert_eq!(read(&mut source, SECOND, ReadOutcome::Nothing), (false, reached(7)));
        assert_eq!(read(&mut source, SECOND, record(3)), (false, None));
        assert_eq!(read(&mut source, FIRST, record(20)), (false, None));
        assert_eq!(read(&mut source, SECOND, record(15)), (false, reached(14)));
        let mut patient = machine(None);
        read(&mut patient, FIRST, record(8));
        for _ in 0..9 {
            assert_eq!(read(&mut patient, SECOND, ReadOutcome::Nothing), (false, None));
        }
    }

    #[test]
    fn a_source_is_idle_when_all_its_splits_are_and_wakes_before_its_next_records() {
        let mut source = machine(Some(1));
        read(&mut source, FIRST, record(8));
        read(&mut source, SECOND, record(8));
        assert_eq!(read(&mut source, FIRST, ReadOutcome::End), (false, None));
        let idle = Some(Progress::Idle(None));
        assert_eq!(read(&mut source, SECOND, ReadOutcome::Nothing), (false, idle));
        assert_eq!(read(&mut source, SECOND, ReadOutcome::Nothing), (false, None));
        assert_eq!(read(&mut source, SECOND, record(9)), (true, reached(8)));
    }

    #[test]
    fn where_all_splits_are_idle_event_time_comes_to_where_the_farthest_is() {
        let mut source = machine(Some(1));
        read(&mut source, FIRST, record(8));
        read(&mut source, FIRST, ReadOutcome::Nothing);
        let idle = Some(Progress::Idle(Some(EventTime::from_millis(7))));
        assert_eq!(read(&mut source, SECOND, ReadOutcome::Nothing), (false, idle));
    }

    #[test]
    fn a_restored_source_is_where_it_was_in_event_time_and_each_split_in_whichever_subtask() {
        let restored = |state: SourceState| {
            let mut source = machine(Some(2));
            source.splits = state.splits.into_iter().map(SplitProgress::new).collect();
            source.watermark = state.watermark;
            let resumed = source.resume().map(EventTime::as_millis);
            (source, resumed)
        };
        let mut source = machine(Some(2));
        read(&mut source, FIRST, record(8));
        assert_eq!(read(&mut source, SECOND, record(4)), (false, reached(3)));
        let state = source.state();
        let (mut again, resumed) = restored(state.clone());
        assert_eq!(resumed, Some(3));
        assert_eq!(read(&mut again, SECOND, record(30)), (false, reached(7)));
        let first = SourceState { splits: state.splits[..1].to_vec(), ..state.clone() };
        assert_eq!(restored(first).1, Some(7), "it waits for no split of another subtask");
        let none = SourceState { splits: Vec::new(), ..state };
        assert_eq!(restored(none).1, Some(3), "its next split is behind that");
        // A split that was idle is as far as it was passed by.
        read(&mut source, SECOND, ReadOutcome::Nothing);
        assert_eq!(read(&mut source, SECOND, ReadOutcome::Nothing), (false, reached(7)));
        let (mut again, resumed) = restored(source.state());
        assert_eq!(resumed, Some(7));
        assert_eq!(read(&mut again, SECOND, record(5)), (false, None));
        assert_eq!(read(&mut again, FIRST, record(20)), (false, None));
        assert_eq!(read(&mut again, SECOND, record(15)), (false, reached(14)));
    }

    #[test]
    fn what_is_gone_is_reported_with_its_place() {
        let mut source = machine(None);
        source.phase = SourcePhase::AwaitingRead;
        let outcome = ReadOutcome::Gone { wanted: 3, first: 9, cursor: vec![9] };
        let lost = source.handle_read(ReadReply { split: SECOND, outcome }).err().unwrap();
        assert_eq!(lost, TaskError::Lost { split: SECOND, wanted: 3, first: 9 });
        assert!(!lost.is_recoverable());
        let text = lost.to_string();
        assert!(text.contains("record 3 of split-1 is gone, and the first one that is left is 9"));
    }

    #[test]
    fn a_source_that_goes_on_counts_what_it_has_lost_as_part_of_its_state() {
        let mut source = SourceMachine { on_loss: OnLoss::GoOn, ..machine(None) };
        let mut lose = |wanted, first, cursor| {
            source.phase = SourcePhase::AwaitingRead;
            let outcome = ReadOutcome::Gone { wanted, first, cursor };
            let step = source.handle_read(ReadReply { split: SECOND, outcome }).unwrap();
            let Some(SourceStep::Lose(loss)) = step else { panic!("it does not go on") };
            loss
        };
        assert_eq!(lose(3, 9, vec![9]), Loss { split: SECOND, gap: Some((3, 9)), in_all: 6 });
        assert_eq!(lose(11, 12, vec![12]).in_all, 7);
        let split = source.state().splits.remove(1);
        assert_eq!((split.cursor, split.lost, split.records), (vec![12], 7, 7));
        assert_eq!(source.losses(), [Loss { split: SECOND, gap: None, in_all: 7 }]);
    }
    /// It reads ahead of what is reserved, and has read this.
    fn reading_ahead(on_loss: OnLoss, outcomes: Vec<ReadOutcome>) -> SourceMachine {
        let release = Release::Reserved(ReadAhead::new(1));
        let mut source = SourceMachine { on_loss, release, ..machine(Some(1)) };
        for outcome in outcomes {
            source.phase = SourcePhase::AwaitingRead;
            let reply = ReadReply { split: FIRST, outcome };
            assert!(source.handle_read(reply).unwrap().is_none(), "nothing is reserved");
        }
        source
    }

    #[test]
    fn a_gap_behind_what_waits_is_reported_in_its_turn_and_counted_with_the_reservation() {
        let gone = || ReadOutcome::Gone { wanted: 3, first: 9, cursor: vec![9] };
        let store = |source: &mut SourceMachine| {
            let Some(SourceStep::Store(at)) = source.position_to_store() else { panic!("none") };
            source.handle_stored();
            (at.splits[0].cursor.clone(), at.splits[0].lost)
        };
        let mut source = reading_ahead(OnLoss::GoOn, vec![record(8), gone()]);
        assert_eq!(store(&mut source), (vec![9], 6));
        assert!(matches!(source.hand_out(), Ok(Some(SourceStep::Emit { .. }))));
        assert_eq!(source.state().splits[0].lost, 0);
        let Ok(Some(SourceStep::Lose(loss))) = source.hand_out() else { panic!("no loss") };
        assert_eq!((loss.gap, source.state().splits[0].lost), (Some((3, 9)), 6));

        let mut source = reading_ahead(OnLoss::Fail, vec![record(8), gone()]);
        assert_eq!(store(&mut source), (vec![], 0), "the next start fails there too");
        assert!(source.hand_out().is_ok() && source.hand_out().is_err());
    }

    #[test]
    fn event_time_is_that_of_what_was_handed_out() {
        let mut source = reading_ahead(OnLoss::Fail, vec![record(8), ReadOutcome::Nothing]);
        source.splits.pop();
        assert_eq!(source.advance_watermark(), None, "it is not idle: a record waits");
        source.position_to_store();
        source.handle_stored();
        assert!(matches!(source.hand_out(), Ok(Some(SourceStep::Emit { .. }))));
        assert_eq!(source.advance_watermark(), reached(7));
        assert!(matches!(source.hand_out(), Ok(None)));
        assert_eq!(source.advance_watermark(), Some(Progress::Idle(None)));
    }
}
