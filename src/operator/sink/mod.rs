//! Sinks: the traits that users write, and the machine that decides what is written when. The
//! machine does no I/O; it asks, and the driver answers.
//!
//! Two-phase is told in [`TwoPhase`] and its halves (ORACLES C13, rules 62 to 70):
//! ```text
//!  restore from g: commit all that snapshot g holds, in order; then abort whatever else is open
//!  commit: done, or done before -> the next one; refused -> again, so often, then the task fails;
//!          no answer -> the task fails; lost -> the job fails
//! ```
//! A checkpoint that is aborted rolls nothing back: its transaction is committed with the next one
//! that completes (rule 60).
//!
//! Write-ahead is told in [`WriteAhead`].

mod commit;
mod erased;
mod machine;
mod two_phase;
mod write_ahead;

use std::sync::Arc;
use std::time::Duration;

use crate::element::{Batch, Record};
use crate::guarantee::SinkContract;
use crate::id::{AttemptId, CheckpointId, SubtaskIndex, TransactionId};
use crate::message::TaskError;
use crate::state::snapshot::{LoggedRows, PendingTransaction};

pub(crate) use commit::AfterCommit;
pub use commit::{CommitError, Committed};
pub use erased::ErasedSink;
pub(crate) use erased::{Committing, Direct, Logged, Transactional};
pub use machine::SinkMachine;
pub use two_phase::{Committer, TwoPhase, Writer};
pub use write_ahead::WriteAhead;

/// A sink whose writes are visible at once ([`SinkContract::Plain`]), are upserts by key
/// ([`SinkContract::Idempotent`]) or go nowhere ([`SinkContract::Discard`]). The driver calls it
/// where it may block.
pub trait Sink: Clone + Send + 'static {
    /// The records it writes.
    type Record: Record;

    /// What it promises: plain, idempotent, or discard. Two-phase takes a [`TransactionalSink`],
    /// write-ahead a [`WriteAheadSink`].
    fn contract(&self) -> SinkContract {
        SinkContract::Plain
    }

    /// What an upsert of `record` replaces: equal bytes for equal keys. Asked of idempotent sinks.
    fn key_of(&self, _record: &Self::Record) -> Vec<u8> {
        Vec::new()
    }

    /// Whether records with the same key are equal, so that one that comes again, however late,
    /// changes nothing.
    fn is_key_whole(&self) -> bool {
        false
    }

    /// Where it writes, if no other sink of the job may write there too: a job with two sinks of
    /// one destination is refused.
    fn destination(&self) -> Option<String> {
        None
    }

    /// Called first in every attempt.
    ///
    /// # Errors
    /// If the external system refuses; the task fails and is recovered.
    fn open(&mut self, _place: &SinkPlace) -> Result<(), SinkError> {
        Ok(())
    }

    /// Writes records; they may stay in a buffer until the flush.
    ///
    /// # Errors
    /// As `open`.
    fn write(&mut self, records: Vec<Self::Record>) -> Result<(), SinkError>;

    /// Makes everything written so far durable. No checkpoint is acknowledged before it returns.
    ///
    /// # Errors
    /// As `open`.
    fn flush(&mut self) -> Result<(), SinkError>;
}

/// A sink with transactions ([`SinkContract::TwoPhase`]): what is written becomes visible when the
/// transaction is committed. The driver calls it where it may block.
pub trait TransactionalSink: Clone + Send + 'static {
    /// The records it writes.
    type Record: Record;

    /// Where it writes, if no other sink of the job may write there too: a job with two sinks of
    /// one destination is refused.
    fn destination(&self) -> Option<String> {
        None
    }

    /// Called first in every attempt.
    ///
    /// # Errors
    /// If the external system refuses; the task fails and is recovered.
    fn open(&mut self, _place: &SinkPlace) -> Result<(), SinkError> {
        Ok(())
    }

    /// Writes records in a transaction, which begins with its first record.
    ///
    /// # Errors
    /// As `open`.
    fn write(
        &mut self,
        transaction: TransactionId,
        records: Vec<Self::Record>,
    ) -> Result<(), SinkError>;

    /// Makes the transaction durable so that a later attempt, or another process, can commit it.
    ///
    /// # Errors
    /// As `open`.
    fn prepare(&mut self, transaction: TransactionId) -> Result<(), SinkError>;

    /// After how long the external system rolls back what is prepared and not committed; none if it
    /// never does. If a checkpoint and a restart may take longer, rows can be lost, and the job's
    /// claim says so (rule 67).
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Makes the transaction visible. Committing again what is committed must succeed and change
    /// nothing: after a crash nobody knows whether the first commit went through.
    ///
    /// # Errors
    /// If it is not visible now, or nobody knows (rule 69). What can not be committed any more is
    /// [`CommitError::Lost`], and is never to be taken for what was committed before (rule 68).
    fn commit(&mut self, transaction: TransactionId) -> Result<Committed, CommitError>;

    /// Removes every transaction of this sink subtask that an earlier attempt opened and that is
    /// not committed, prepared ones included: all that must survive has been committed before.
    ///
    /// # Errors
    /// As `open`.
    fn abort_dangling(&mut self) -> Result<(), SinkError>;
}

/// A sink whose rows wait in the state of its task until a checkpoint that covers them is complete
/// ([`SinkContract::WriteAhead`]); only then is the external system told of them. It needs no
/// transactions, but a place that remembers which rows have been sent. The driver calls it where it
/// may block.
///
/// Rows come in portions, each with the id of a transaction, in the order of these ids.
pub trait WriteAheadSink: Clone + Send + 'static {
    /// The records it writes.
    type Record: Record;

    /// Where it writes, if no other sink of the job may write there too: a job with two sinks of
    /// one destination is refused.
    fn destination(&self) -> Option<String> {
        None
    }

    /// Whether sending a portion again changes nothing. A crash between `send` and `mark` sends it
    /// again: if that shows its rows twice the output is at-least-once (rule 74).
    fn is_idempotent(&self) -> bool;

    /// Called first in every attempt.
    ///
    /// # Errors
    /// If the external system refuses; the task fails and is recovered.
    fn open(&mut self, _place: &SinkPlace) -> Result<(), SinkError> {
        Ok(())
    }

    /// Makes the rows of a portion visible and durable.
    ///
    /// # Errors
    /// As `open`.
    fn send(&mut self, id: TransactionId, records: Vec<Self::Record>) -> Result<(), SinkError>;

    /// Remembers, for every later attempt, that the portion was sent.
    ///
    /// # Errors
    /// As `open`.
    fn mark(&mut self, id: TransactionId) -> Result<(), SinkError>;

    /// Whether the portion is marked.
    ///
    /// # Errors
    /// As `open`; [`SinkError::Damaged`] if it is, and its rows are gone.
    fn is_marked(&mut self, id: TransactionId) -> Result<bool, SinkError>;
}

/// Where a sink runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkPlace {
    /// The subtask.
    pub subtask: SubtaskIndex,
    /// How many subtasks the sink has.
    pub parallelism: usize,
    /// The attempt.
    pub attempt: AttemptId,
    /// What the restored state knows to be visible: of each subtask that it was the last one of. A
    /// sink that finds one of them missing has been put back to an earlier moment, whose rows no
    /// replay brings back: it answers [`SinkError::Damaged`].
    pub shown: Vec<TransactionId>,
}

impl SinkPlace {
    /// Whether what a subtask of an earlier attempt has left is to be looked after here: its own
    /// successor does that, or if the parallelism is less now, the one modulo it (rule 65).
    pub fn takes_over(&self, subtask: SubtaskIndex) -> bool {
        subtask.index() % self.parallelism == self.subtask.index()
    }
}

/// What a snapshot holds of a sink.
#[derive(Debug, Default)]
pub(crate) struct SinkState {
    pub(crate) transactions: Vec<PendingTransaction>,
    pub(crate) log: Vec<LoggedRows>,
    pub(crate) shown: Vec<TransactionId>,
}

/// Why a sink can not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    /// The external system refused this time; the text is what it said.
    #[error("{0}")]
    Refused(String),
    /// What an earlier attempt wrote is damaged or gone. Another attempt does not bring it back, so
    /// the job fails without a restart.
    #[error("{0}")]
    Damaged(String),
}

/// Something to do in the external system. The driver answers each but `Write` by a [`SinkReply`];
/// if anything but a commit fails it fails the task instead.
#[derive(Clone, Debug)]
pub enum SinkRequest {
    /// Write records, in this transaction if the sink is two-phase.
    Write {
        /// The transaction.
        transaction: Option<TransactionId>,
        /// The records.
        records: Batch,
    },
    /// Make all that was written durable, before this checkpoint is acknowledged; without a
    /// checkpoint at the end of a job that takes none.
    Flush(Option<CheckpointId>),
    /// Make the transaction durable, before this checkpoint is acknowledged.
    Prepare(PendingTransaction),
    /// Make the transaction visible.
    Commit(TransactionId),
    /// Abort all that earlier attempts left open.
    AbortDangling,
    /// Say whether the portion of a write-ahead sink is marked as sent.
    LookUp(TransactionId),
    /// Make the portion visible.
    Send {
        /// Its id.
        id: TransactionId,
        /// Its rows, in order.
        records: Arc<Vec<Batch>>,
    },
    /// Mark the portion as sent.
    Mark(TransactionId),
}

/// The answer to a [`SinkRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkReply {
    /// To `Flush`.
    Flushed(Option<CheckpointId>),
    /// To `Prepare`.
    Prepared(PendingTransaction),
    /// To `Commit`.
    Commit {
        /// The transaction.
        transaction: TransactionId,
        /// What came of it.
        outcome: Result<Committed, CommitError>,
    },
    /// To `AbortDangling`.
    DanglingAborted,
    /// To `LookUp`.
    LookedUp {
        /// The portion.
        id: TransactionId,
        /// It was sent before.
        is_marked: bool,
    },
    /// To `Send`.
    Sent(TransactionId),
    /// To `Mark`.
    Marked(TransactionId),
}

impl From<SinkError> for TaskError {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Refused(text) => Self::External(text),
            SinkError::Damaged(text) => Self::Restore(text),
        }
    }
}
