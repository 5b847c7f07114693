//! Sinks: the traits that users write, and the machine that decides what is written when. The
//! machine does no I/O; it asks, and the driver answers.
//!
//! Two-phase, for each sink subtask (ORACLES C13, rules 62 to 65):
//! ```text
//!  first record -> open --barrier n--> preparing --Prepared--> pre-committed in snapshot n
//!                                       --completion of m >= n--> committing -> committed
//!  restore from g: commit all that snapshot g holds, in order; then abort whatever else is open
//! ```
//! A checkpoint that is aborted rolls nothing back: its transaction is committed with the next one
//! that completes (rule 60).

use crate::element::{Batch, Record};
use crate::guarantee::SinkContract;
use crate::id::{AttemptId, CheckpointId, SubtaskIndex, TransactionId};
use crate::message::TaskError;
use crate::state::snapshot::PendingTransaction;

/// A sink whose writes are visible at once ([`SinkContract::Plain`]), are upserts by key
/// ([`SinkContract::Idempotent`]) or go nowhere ([`SinkContract::Discard`]). The driver calls it
/// where it may block.
pub trait Sink: Clone + Send + 'static {
    /// The records it writes.
    type Record: Record;

    /// What it promises: plain, idempotent, or discard. Two-phase takes a [`TransactionalSink`].
    fn contract(&self) -> SinkContract {
        SinkContract::Plain
    }

    /// What an upsert of `record` replaces: equal bytes for equal keys. Asked of idempotent sinks.
    fn key_of(&self, _record: &Self::Record) -> Vec<u8> {
        Vec::new()
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

    /// Makes the transaction visible. Committing again what is committed must succeed and change
    /// nothing: after a crash nobody knows whether the first commit went through.
    ///
    /// # Errors
    /// As `open`; [`SinkError::Damaged`] if the transaction is neither prepared nor committed.
    fn commit(&mut self, transaction: TransactionId) -> Result<(), SinkError>;

    /// Removes every transaction of this sink subtask that an earlier attempt opened and that is
    /// not committed, prepared ones included: all that must survive has been committed before.
    ///
    /// # Errors
    /// As `open`.
    fn abort_dangling(&mut self) -> Result<(), SinkError>;
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
/// if anything fails it fails the task instead.
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
}

/// The answer to a [`SinkRequest`] that went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkReply {
    /// To `Flush`.
    Flushed(Option<CheckpointId>),
    /// To `Prepare`.
    Prepared(PendingTransaction),
    /// To `Commit`.
    Committed(TransactionId),
    /// To `AbortDangling`.
    DanglingAborted,
}

/// A sink with its types erased, as drivers call it.
pub trait ErasedSink: Send {
    /// What the sink promises.
    fn contract(&self) -> SinkContract;
    /// As [`Sink::key_of`], of the record at `position`; empty for a sink that does not upsert.
    fn key_of(&self, records: &Batch, position: usize) -> Vec<u8>;
    /// Whether it is a [`TransactionalSink`].
    fn has_transactions(&self) -> bool;
    /// As [`Sink::destination`].
    fn destination(&self) -> Option<String>;
    /// Opens it.
    ///
    /// # Errors
    /// If the external system refuses.
    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError>;
    /// Carries a request out.
    ///
    /// # Errors
    /// If the external system refuses.
    fn carry_out(&mut self, request: SinkRequest) -> Result<Option<SinkReply>, SinkError>;
    /// A copy.
    fn clone_box(&self) -> Box<dyn ErasedSink>;
}

impl Clone for Box<dyn ErasedSink> {
    fn clone(&self) -> Self {
        self.as_ref().clone_box()
    }
}

/// Erases a [`Sink`].
#[derive(Clone)]
pub(crate) struct Direct<S>(pub(crate) S);

impl<S: Sink> ErasedSink for Direct<S> {
    fn contract(&self) -> SinkContract {
        self.0.contract()
    }

    fn key_of(&self, records: &Batch, position: usize) -> Vec<u8> {
        self.0.key_of(&records.records()[position])
    }

    fn has_transactions(&self) -> bool {
        false
    }

    fn destination(&self) -> Option<String> {
        self.0.destination()
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        self.0.open(place)
    }

    fn carry_out(&mut self, request: SinkRequest) -> Result<Option<SinkReply>, SinkError> {
        match request {
            SinkRequest::Write { records, .. } => {
                self.0.write(records.into_records()).map(|()| None)
            }
            SinkRequest::Flush(checkpoint) => {
                self.0.flush().map(|()| Some(SinkReply::Flushed(checkpoint)))
            }
            SinkRequest::Prepare(_) | SinkRequest::Commit(_) | SinkRequest::AbortDangling => {
                unreachable!("the machine of a direct sink knows no transactions")
            }
        }
    }

    fn clone_box(&self) -> Box<dyn ErasedSink> {
        Box::new(self.clone())
    }
}

/// Erases a [`TransactionalSink`].
#[derive(Clone)]
pub(crate) struct Transactional<S>(pub(crate) S);

impl<S: TransactionalSink> ErasedSink for Transactional<S> {
    fn contract(&self) -> SinkContract {
        SinkContract::TwoPhase
    }

    fn key_of(&self, _records: &Batch, _position: usize) -> Vec<u8> {
        Vec::new()
    }

    fn has_transactions(&self) -> bool {
        true
    }

    fn destination(&self) -> Option<String> {
        self.0.destination()
    }

    fn open(&mut self, place: &SinkPlace) -> Result<(), SinkError> {
        self.0.open(place)
    }

    fn carry_out(&mut self, request: SinkRequest) -> Result<Option<SinkReply>, SinkError> {
        match request {
            SinkRequest::Write { transaction, records } => {
                let transaction = transaction.expect("a two-phase machine writes in transactions");
                self.0.write(transaction, records.into_records()).map(|()| None)
            }
            SinkRequest::Flush(checkpoint) => Ok(Some(SinkReply::Flushed(checkpoint))),
            SinkRequest::Prepare(pending) => {
                self.0.prepare(pending.transaction).map(|()| Some(SinkReply::Prepared(pending)))
            }
            SinkRequest::Commit(transaction) => {
                self.0.commit(transaction).map(|()| Some(SinkReply::Committed(transaction)))
            }
            SinkRequest::AbortDangling => {
                self.0.abort_dangling().map(|()| Some(SinkReply::DanglingAborted))
            }
        }
    }

    fn clone_box(&self) -> Box<dyn ErasedSink> {
        Box::new(self.clone())
    }
}

/// The machine of a sink subtask.
#[derive(Clone, Debug)]
pub enum SinkMachine {
    /// Plain, idempotent and discarding sinks: write at once, flush before acknowledging.
    Direct,
    /// Two-phase sinks.
    TwoPhase(TwoPhase),
}

/// The transactions of a two-phase sink subtask.
#[derive(Clone, Debug)]
pub struct TwoPhase {
    /// The next transaction to open.
    next: TransactionId,
    /// The open transaction; none before the first record after a barrier.
    open: Option<TransactionId>,
    /// Pre-committed and not yet asked to commit, in the order of their checkpoints.
    pending: Vec<PendingTransaction>,
    /// Those of them that are not confirmed to be prepared, in the same order.
    preparing: Vec<PendingTransaction>,
    /// Asked to commit, not yet confirmed.
    committing: Vec<PendingTransaction>,
}

impl SinkMachine {
    /// The machine for `contract`; `first` is the first transaction that it may open.
    pub(crate) fn new(
        contract: SinkContract,
        first: TransactionId,
        restored: Vec<PendingTransaction>,
    ) -> Self {
        match contract {
            SinkContract::Plain | SinkContract::Idempotent | SinkContract::Discard => Self::Direct,
            SinkContract::TwoPhase => Self::TwoPhase(TwoPhase {
                next: first,
                open: None,
                pending: restored,
                preparing: Vec::new(),
                committing: Vec::new(),
            }),
        }
    }

    /// What has to be done before the first record: restored transactions are committed in order,
    /// whether or not they were before, then the others of earlier attempts are aborted (rule 64).
    pub(crate) fn recover(&mut self) -> Vec<SinkRequest> {
        match self {
            Self::Direct => Vec::new(),
            Self::TwoPhase(two_phase) => {
                let mut requests = two_phase.commit_up_to(CheckpointId::new(u64::MAX));
                requests.push(SinkRequest::AbortDangling);
                requests
            }
        }
    }

    pub(crate) fn write(&mut self, records: Batch) -> SinkRequest {
        let transaction = match self {
            Self::Direct => None,
            Self::TwoPhase(two_phase) => Some(two_phase.open_transaction()),
        };
        SinkRequest::Write { transaction, records }
    }

    /// The barrier of `checkpoint`: what has to be answered before it is acknowledged, if anything.
    pub(crate) fn pre_commit(&mut self, checkpoint: CheckpointId) -> Option<SinkRequest> {
        match self {
            Self::Direct => Some(SinkRequest::Flush(Some(checkpoint))),
            Self::TwoPhase(two_phase) => {
                let transaction = two_phase.open.take()?;
                let pending = PendingTransaction { checkpoint, transaction };
                two_phase.pending.push(pending);
                two_phase.preparing.push(pending);
                Some(SinkRequest::Prepare(pending))
            }
        }
    }

    /// A prepare is confirmed.
    pub(crate) fn handle_prepared(&mut self, prepared: PendingTransaction) {
        match self {
            Self::Direct => {}
            Self::TwoPhase(two_phase) => two_phase.preparing.retain(|other| *other != prepared),
        }
    }

    /// Whether a transaction in the snapshot of `checkpoint` is not confirmed to be prepared.
    /// That can be one of an earlier checkpoint that was aborted: it is committed with this one
    /// (rule 60), so this one must not be acknowledged before.
    pub(crate) fn is_preparing(&self, checkpoint: CheckpointId) -> bool {
        match self {
            Self::Direct => false,
            Self::TwoPhase(two_phase) => {
                two_phase.preparing.iter().any(|pending| pending.checkpoint <= checkpoint)
            }
        }
    }

    /// The transactions that a snapshot has to hold: a restore must commit exactly these. Those
    /// that were asked to commit and are not confirmed belong to it, since they may still fail.
    pub(crate) fn transactions(&self) -> Vec<PendingTransaction> {
        match self {
            Self::Direct => Vec::new(),
            Self::TwoPhase(two_phase) => {
                two_phase.committing.iter().chain(&two_phase.pending).copied().collect()
            }
        }
    }

    /// The completion of `checkpoint`: commits every pending transaction up to it (rule 63).
    pub(crate) fn handle_completed(&mut self, checkpoint: CheckpointId) -> Vec<SinkRequest> {
        match self {
            Self::Direct => Vec::new(),
            Self::TwoPhase(two_phase) => two_phase.commit_up_to(checkpoint),
        }
    }

    pub(crate) fn handle_committed(&mut self, transaction: TransactionId) {
        match self {
            Self::Direct => {}
            Self::TwoPhase(two_phase) => {
                two_phase.committing.retain(|pending| pending.transaction != transaction);
            }
        }
    }

    /// Whether a transaction is prepared, or being prepared, and its checkpoint not complete.
    pub fn has_pre_committed(&self) -> bool {
        match self {
            Self::Direct => false,
            Self::TwoPhase(two_phase) => !two_phase.pending.is_empty(),
        }
    }

    /// Whether a commit was asked for and is not confirmed.
    pub fn is_committing(&self) -> bool {
        match self {
            Self::Direct => false,
            Self::TwoPhase(two_phase) => !two_phase.committing.is_empty(),
        }
    }

    /// Whether nothing is open, pending or unconfirmed.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Direct => true,
            Self::TwoPhase(two_phase) => {
                two_phase.open.is_none()
                    && two_phase.pending.is_empty()
                    && two_phase.committing.is_empty()
            }
        }
    }
}

impl TwoPhase {
    fn open_transaction(&mut self) -> TransactionId {
        *self.open.get_or_insert_with(|| {
            let transaction = self.next;
            self.next.sequence += 1;
            transaction
        })
    }

    fn commit_up_to(&mut self, checkpoint: CheckpointId) -> Vec<SinkRequest> {
        let covered = self.pending.partition_point(|pending| pending.checkpoint <= checkpoint);
        let due: Vec<_> = self.pending.drain(..covered).collect();
        self.committing.extend(&due);
        due.into_iter().map(|pending| SinkRequest::Commit(pending.transaction)).collect()
    }
}

impl From<SinkError> for TaskError {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Refused(text) => Self::External(text),
            SinkError::Damaged(text) => Self::Restore(text),
        }
    }
}
