//! The external systems behind the sinks, as a model: what a reader of committed data would see,
//! with the origin of every row. They outlive every crash; rows that were not flushed do not
//! outlive their worker. An older attempt is fenced as soon as a newer one has opened the same sink
//! subtask.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cofferdam::guarantee::SinkContract;
use cofferdam::id::{AttemptId, SubtaskIndex, TransactionId, VertexId};
use cofferdam::operator::sink::{ErasedSink, SinkMachine, SinkPlace};
use cofferdam::task::Task;
use cofferdam::time::Instant;
use cofferdam::trace::Origin;
use smallvec::SmallVec;

use crate::interpose::Variant;
use crate::log::Log;

/// A written row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Where it comes from.
    pub origin: Origin,
    /// The attempt that wrote it.
    pub attempt: AttemptId,
    /// The row in the checkpoint encoding.
    pub bytes: RowBytes,
    /// The row's key, where rows replace each other.
    pub key: Option<RowBytes>,
}

/// Encoded rows and keys, which are short nearly always: most of them need no memory of their own.
pub type RowBytes = SmallVec<[u8; 24]>;

/// All external systems of a job.
#[derive(Clone, Debug)]
pub struct External {
    sinks: BTreeMap<VertexId, SinkModel>,
    /// The broken variant that is at work, if any.
    variant: Option<Variant>,
}

/// The system behind one sink vertex.
#[derive(Clone, Debug)]
struct SinkModel {
    contract: SinkContract,
    openers: BTreeMap<SubtaskIndex, AttemptId>,
    /// Rows that became visible in earlier layouts of the job, the oldest first.
    earlier: Vec<Written>,
    /// Rows that are visible, by subtask in the order of writing; those behind `flushed` are not
    /// durable yet.
    visible: BTreeMap<SubtaskIndex, Written>,
    transactions: BTreeMap<TransactionId, Transaction>,
    /// After what time it rolls back what is prepared.
    timeout: Option<Duration>,
    /// Sending rows again that were sent before changes nothing.
    resends_idempotently: bool,
    /// Portions of rows that were sent, and whether they are marked.
    portions: BTreeMap<TransactionId, bool>,
    /// Transactions that a refused commit has left half done, for the variant that does that.
    held: BTreeSet<TransactionId>,
}

impl SinkModel {
    /// Makes rows visible and durable.
    fn show(&mut self, subtask: SubtaskIndex, rows: Vec<Row>) {
        let visible = self.visible.entry(subtask).or_default();
        visible.rows.extend(rows);
        visible.flushed = visible.rows.len();
    }
}

#[derive(Clone, Debug, Default)]
struct Written {
    rows: Log<Row>,
    flushed: usize,
}

#[derive(Clone, Debug)]
struct Transaction {
    state: TransactionState,
    rows: Vec<Row>,
}

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionState {
    /// It takes rows.
    Open,
    /// It can be committed.
    Prepared {
        /// When it was prepared.
        since: Instant,
    },
    /// It is visible.
    Committed,
    /// It was rolled back, since nobody committed it in time.
    TimedOut,
}

/// What the external system answers to a request that it refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A newer attempt has taken over.
    Fenced,
    /// There is no such transaction to commit: it was rolled back, or never prepared.
    NoSuchTransaction,
    /// It was prepared and not committed in time, and was rolled back.
    TimedOut,
}

impl External {
    /// No system yet.
    pub fn new(variant: Option<Variant>) -> Self {
        Self { sinks: BTreeMap::new(), variant }
    }

    /// Adds the system behind a sink vertex. Unless the sink says when transactions time out they
    /// do after `timeout`.
    pub fn add(&mut self, vertex: VertexId, sink: &dyn ErasedSink, timeout: Option<Duration>) {
        self.sinks.insert(
            vertex,
            SinkModel {
                contract: sink.contract(),
                openers: BTreeMap::new(),
                earlier: Vec::new(),
                visible: BTreeMap::new(),
                transactions: BTreeMap::new(),
                timeout: sink.timeout().or(timeout),
                resends_idempotently: sink.resends_idempotently(),
                portions: BTreeMap::new(),
                held: BTreeSet::new(),
            },
        );
    }

    /// From now on other subtasks write: what they write comes behind all that is there, be it
    /// under the same key.
    pub fn lay_out(&mut self) {
        for sink in self.sinks.values_mut() {
            sink.earlier.extend(std::mem::take(&mut sink.visible).into_values());
        }
    }

    /// A new attempt opens a sink subtask.
    pub fn open(&mut self, vertex: VertexId, subtask: SubtaskIndex, attempt: AttemptId) {
        self.sink(vertex).openers.insert(subtask, attempt);
    }

    /// Refuses a task whose state knows something to be visible that is not.
    ///
    /// # Errors
    /// If it does.
    pub fn check_shown(&self, task: Task) -> Result<Task, String> {
        // These systems can not say.
        if self.is(Variant::CommittedForgotten) || self.is(Variant::PooledHandles) {
            return Ok(task);
        }
        let mut shown = task.sink().map(SinkMachine::shown).unwrap_or_default().into_iter();
        let missing = shown.find(|id| {
            let sink = &self.sinks[&id.vertex];
            let found = sink.transactions.get(id);
            let is_committed = found.is_some_and(|of| of.state == TransactionState::Committed);
            !is_committed && !sink.portions.contains_key(id)
        });
        match missing {
            Some(id) => Err(format!("the output lacks the rows of {id}, which were shown")),
            None => Ok(task),
        }
    }

    /// Whether no newer attempt has opened a sink subtask.
    pub fn is_open_to(&self, vertex: VertexId, subtask: SubtaskIndex, attempt: AttemptId) -> bool {
        let opener = self.sinks[&vertex].openers.get(&subtask);
        opener.is_none_or(|opener| *opener <= attempt)
    }

    /// Writes rows.
    ///
    /// # Errors
    /// If a newer attempt has opened the subtask.
    pub fn write(
        &mut self,
        vertex: VertexId,
        subtask: SubtaskIndex,
        attempt: AttemptId,
        transaction: Option<TransactionId>,
        rows: impl IntoIterator<Item = Row>,
    ) -> Result<(), Refusal> {
        self.check(vertex, subtask, attempt)?;
        let transaction = transaction.map(|transaction| self.handle(transaction));
        let is_pooled = self.is(Variant::PooledHandles);
        let sink = self.sink(vertex);
        match transaction {
            Some(transaction) => {
                let open = Transaction { state: TransactionState::Open, rows: Vec::new() };
                let written = sink.transactions.entry(transaction).or_insert(open);
                if is_pooled {
                    if written.state == TransactionState::Committed {
                        written.rows.clear();
                    }
                    written.state = TransactionState::Open;
                }
                written.rows.extend(rows);
            }
            None if sink.contract == SinkContract::Discard => {}
            None => sink.visible.entry(subtask).or_default().rows.extend(rows),
        }
        Ok(())
    }

    /// Makes a subtask's rows durable.
    ///
    /// # Errors
    /// As [`External::write`].
    pub fn flush(
        &mut self,
        vertex: VertexId,
        subtask: SubtaskIndex,
        attempt: AttemptId,
    ) -> Result<(), Refusal> {
        self.check(vertex, subtask, attempt)?;
        let written = self.sink(vertex).visible.entry(subtask).or_default();
        written.flushed = written.rows.len();
        Ok(())
    }

    /// Makes a transaction durable.
    ///
    /// # Errors
    /// As [`External::write`].
    pub fn prepare(
        &mut self,
        transaction: TransactionId,
        attempt: AttemptId,
        now: Instant,
    ) -> Result<(), Refusal> {
        self.check(transaction.vertex, transaction.subtask, attempt)?;
        let transaction = self.handle(transaction);
        let sink = self.sink(transaction.vertex);
        let prepared = sink.transactions.get_mut(&transaction).ok_or(Refusal::NoSuchTransaction)?;
        if prepared.state == TransactionState::Open {
            prepared.state = TransactionState::Prepared { since: now };
        }
        Ok(())
    }

    /// Makes a transaction visible; says whether it was before.
    ///
    /// # Errors
    /// As [`External::write`]; also if it is not prepared, or not any more.
    pub fn commit(
        &mut self,
        transaction: TransactionId,
        attempt: AttemptId,
        now: Instant,
    ) -> Result<bool, Refusal> {
        self.check(transaction.vertex, transaction.subtask, attempt)?;
        let keeps_rows = self.is(Variant::RepeatedEffect) || self.is(Variant::CommitKeyHasAttempt);
        let repeats =
            self.is(Variant::RepeatedEffect) || keeps_rows && transaction.attempt != attempt;
        let (forgets, is_pooled) =
            (self.is(Variant::CommittedForgotten), self.is(Variant::PooledHandles));
        let transaction = self.handle(transaction);
        let sink = self.sink(transaction.vertex);
        let timeout = sink.timeout;
        let committed =
            sink.transactions.get_mut(&transaction).ok_or(Refusal::NoSuchTransaction)?;
        match committed.state {
            TransactionState::Committed => {
                if repeats {
                    let rows = committed.rows.clone();
                    sink.show(transaction.subtask, rows);
                }
                Ok(true)
            }
            TransactionState::Open if !is_pooled => Err(Refusal::NoSuchTransaction),
            TransactionState::Prepared { since }
                if timeout.is_some_and(|timeout| now.since(since) >= timeout) =>
            {
                committed.state = TransactionState::TimedOut;
                Err(Refusal::TimedOut)
            }
            TransactionState::TimedOut => Err(Refusal::TimedOut),
            TransactionState::Open | TransactionState::Prepared { .. } => {
                committed.state = TransactionState::Committed;
                let rows = committed.rows.clone();
                if !keeps_rows {
                    committed.rows.clear();
                }
                if forgets {
                    sink.transactions.remove(&transaction);
                }
                sink.show(transaction.subtask, rows);
                Ok(false)
            }
        }
    }

    /// Notes that a commit was refused.
    pub fn refuse(&mut self, transaction: TransactionId) {
        if self.is(Variant::RefusedCommitHeld) {
            self.sink(transaction.vertex).held.insert(transaction);
        }
    }

    /// Whether a refused commit has left the transaction half done.
    pub fn is_held(&mut self, transaction: TransactionId) -> bool {
        self.sink(transaction.vertex).held.contains(&transaction)
    }

    /// The name by which the system knows a transaction.
    fn handle(&self, transaction: TransactionId) -> TransactionId {
        if !self.is(Variant::PooledHandles) {
            return transaction;
        }
        let (attempt, sequence) = (AttemptId::default(), transaction.sequence % 2);
        TransactionId { attempt, sequence, ..transaction }
    }

    /// Rolls back what attempts before `attempt` left open or prepared in a subtask, or in those
    /// that it looks after.
    ///
    /// # Errors
    /// As [`External::write`].
    pub fn abort_dangling(
        &mut self,
        vertex: VertexId,
        place: &SinkPlace,
    ) -> Result<Vec<TransactionId>, Refusal> {
        let attempt = place.attempt;
        self.check(vertex, place.subtask, attempt)?;
        let sink = self.sink(vertex);
        let dangling = sink.transactions.iter().filter(|(id, transaction)| {
            place.takes_over(id.subtask)
                && id.attempt < attempt
                && transaction.state != TransactionState::Committed
        });
        let dangling: Vec<_> = dangling.map(|(id, _)| *id).collect();
        for transaction in &dangling {
            sink.transactions.remove(transaction);
        }
        Ok(dangling)
    }

    /// Makes a portion of rows visible; says whether it was before.
    ///
    /// # Errors
    /// As [`External::write`].
    pub fn deliver(
        &mut self,
        portion: TransactionId,
        attempt: AttemptId,
        rows: Vec<Row>,
    ) -> Result<bool, Refusal> {
        self.check(portion.vertex, portion.subtask, attempt)?;
        let repeats = self.is(Variant::RepeatedEffect);
        let sink = self.sink(portion.vertex);
        let again = sink.portions.contains_key(&portion);
        sink.portions.entry(portion).or_default();
        if !again || repeats || !sink.resends_idempotently {
            sink.show(portion.subtask, rows);
        }
        Ok(again)
    }

    /// Marks a portion as sent.
    ///
    /// # Errors
    /// As [`External::write`].
    pub fn mark(&mut self, portion: TransactionId, attempt: AttemptId) -> Result<(), Refusal> {
        self.check(portion.vertex, portion.subtask, attempt)?;
        self.sink(portion.vertex).portions.insert(portion, true);
        Ok(())
    }

    /// Whether a portion is marked as sent.
    ///
    /// # Errors
    /// As [`External::write`].
    pub fn is_marked(
        &mut self,
        portion: TransactionId,
        attempt: AttemptId,
    ) -> Result<bool, Refusal> {
        self.check(portion.vertex, portion.subtask, attempt)?;
        Ok(self.sink(portion.vertex).portions.get(&portion).is_some_and(|is_marked| *is_marked))
    }

    /// The rows of a subtask that the death of the worker that runs this attempt of it would lose.
    /// What an earlier attempt has written lies with another worker, which may still flush it.
    pub fn unflushed(
        &mut self,
        vertex: VertexId,
        subtask: SubtaskIndex,
        attempt: AttemptId,
    ) -> usize {
        let Some(written) = self.sink(vertex).visible.get(&subtask) else { return 0 };
        let unflushed = written.rows.range(written.flushed, written.rows.len() - written.flushed);
        // Only the last ones can go: what stands before another attempt's row stays.
        unflushed.fold(0, |own, row| if row.attempt == attempt { own + 1 } else { 0 })
    }

    /// Loses the last `rows` rows of a subtask.
    pub fn lose(&mut self, vertex: VertexId, subtask: SubtaskIndex, rows: usize) {
        if let Some(written) = self.sink(vertex).visible.get_mut(&subtask) {
            written.rows.truncate(written.rows.len() - rows);
        }
    }

    /// A task's death; what it has prepared outlives it.
    pub fn forget_worker(&mut self, vertex: VertexId, subtask: SubtaskIndex) {
        if self.is(Variant::RolledBackAtDeath) {
            self.sink(vertex).transactions.retain(|id, transaction| {
                id.subtask != subtask || transaction.state == TransactionState::Committed
            });
        }
    }

    /// What a reader of committed data sees in a sink, in no order that means anything.
    pub fn visible(&self, vertex: VertexId) -> impl Iterator<Item = &Row> {
        let SinkModel { earlier, visible, .. } = &self.sinks[&vertex];
        earlier.iter().chain(visible.values()).flat_map(|written| written.rows.iter())
    }

    /// How often a reader of a table saw a row again that had been replaced: until the replay has
    /// caught up an upsert brings back what its key had before (rule 75).
    pub fn seen_again(&self, vertex: VertexId) -> u64 {
        let mut current: BTreeMap<&[u8], &[u8]> = BTreeMap::new();
        let mut seen: BTreeSet<(&[u8], &[u8])> = BTreeSet::new();
        let mut again = 0;
        for row in self.visible(vertex) {
            let Some(key) = row.key.as_deref() else { continue };
            let changes =
                current.insert(key, &row.bytes).is_some_and(|before| *before != *row.bytes);
            let is_new = seen.insert((key, &row.bytes));
            again += u64::from(changes && !is_new);
        }
        again
    }

    fn is(&self, variant: Variant) -> bool {
        self.variant == Some(variant)
    }

    fn sink(&mut self, vertex: VertexId) -> &mut SinkModel {
        self.sinks.get_mut(&vertex).expect("every sink vertex was added at the start")
    }

    fn check(
        &self,
        vertex: VertexId,
        subtask: SubtaskIndex,
        attempt: AttemptId,
    ) -> Result<(), Refusal> {
        let opener = self.sinks[&vertex].openers.get(&subtask);
        match opener {
            Some(opener) if *opener > attempt && !self.is(Variant::OldAttemptNotFenced) => {
                Err(Refusal::Fenced)
            }
            Some(_) | None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use cofferdam::config::JobConfig;
    use cofferdam::connector::memory::{Collect, Numbers};
    use cofferdam::job::JobBuilder;

    use super::*;

    #[test]
    fn the_death_of_one_attempt_takes_no_rows_of_another() {
        let builder = JobBuilder::new("numbers", 1);
        builder.source("numbers", Numbers::up_to(1)).sink("out", Collect::default());
        let job = builder.build(JobConfig::default()).unwrap();
        let (vertex, subtask) = (VertexId::new(0), SubtaskIndex::new(0));
        let mut external = External::new(None);
        external.add(vertex, job.sink(vertex).unwrap().1, None);
        let mut write = |attempt: u64, rows: usize| {
            let attempt = AttemptId::new(attempt);
            let origin = Origin { record: None, path: 0 };
            let row = Row { origin, attempt, bytes: RowBytes::new(), key: None };
            external.write(vertex, subtask, attempt, None, vec![row; rows]).unwrap();
        };
        write(1, 3);
        write(2, 2);
        let mut unflushed = |attempt| external.unflushed(vertex, subtask, AttemptId::new(attempt));
        assert_eq!([1, 2, 3].map(&mut unflushed), [0, 2, 0]);
        external.flush(vertex, subtask, AttemptId::new(2)).unwrap();
        assert_eq!(external.unflushed(vertex, subtask, AttemptId::new(2)), 0);
    }
}
